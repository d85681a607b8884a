"""The samples of a partition: watermarks, replicas, and committed offsets of groups.

Watermarks: compares the samples of one log with each other, and finds offsets that went back or are
impossible.

Replicas: compares the samples of single replicas, follower or leader, with each other and with the
leaders' high watermarks, and finds replicas that lost committed records.

A replica that grows in a leader epoch fetches that leader's batches. Its records below a high
watermark of that leader are committed, and no clean election removes them (KIP-101). Records from
before may be another leader's and uncommitted. So may records that it appends as a deposed leader
that has not noticed the election. Samples are not judged near events that may remove committed
records, nor near faults that may keep a broker from learning its leader: of that broker, of the
whole cluster, and the fault `partition`.

Groups: finds groups that committed offsets and were never sampled.

The sampler (`harness.capture.samplers`) requests bounds all the time and the offsets of groups
now and then, in one thread. If bounds were sampled for a while after a group had committed, and its
offsets never were, the sampler did not ask for that group, or got no answer.

A coordinator that reloads a partition answers with the part below its known high watermark
(KAFKA-15910). Until its followers have fetched, samples step back to an earlier commit of the
group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from linkflap.harness.log.coordinators import GroupCommit
from linkflap.harness.model.faults import UNCLEAN
from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.log_model.logs import ABORTED, NOWHERE, OPEN, read
from linkflap.spark_verify.facts.eras import FOREVER, on_cluster
from linkflap.spark_verify.facts.partition_facts import ReplicaSample, Window
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica, Watermarks


def found_at(kind: str, cluster: str, marks: Watermarks, row: int, **evidence: object) -> Found:
    lso, high = int(marks.last_stable[row]), int(marks.high_watermark[row])
    sample = {
        "last_stable": lso,
        "high_watermark": high,
        "time": int(marks.time[row]),
        "leader_epoch": int(marks.leader_epoch[row]),
    }
    return Found.at(kind, cluster, lso, **(sample | evidence))


def _same_tenure(view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample but the first, whether its predecessor is certainly of the same leader and leader
    epoch."""
    before, after = sampled[:-1], sampled[1:]
    same = (marks.leader[before] == marks.leader[after]) & (
        marks.leader_epoch[before] == marks.leader_epoch[after]
    )
    unknown = marks.leader_epoch[after] < 0
    for start, end in _leaders_moved(view, cluster):
        same &= ~(unknown & (marks.time[before] <= end) & (marks.returned[after] >= start))
    return np.asarray(same)


def _leaders_moved(view: PartitionView, cluster: str) -> Iterator[tuple[int, int]]:
    """[start, end] of every event that may have given a partition another leader: faults of
    brokers, and the end or begin of a mirror."""
    yield from ((window.start, window.end) for window in on_cluster(view.windows, cluster))
    yield from ((p.fault_time, p.time) for p in view.promotions if p.cluster == cluster)
    yield from ((stop.time, stop.time) for stop in view.stops if stop.cluster == cluster)
    yield from ((t.time, t.time) for t in view.truncations if t.cluster == cluster)


def truncating(view: PartitionView, cluster: str) -> list[tuple[int, int, int]]:
    """(start, end, offset): from the start of a log's reversal until its truncation to `offset` was
    recorded. It may be truncated in steps, each in a new leader epoch."""
    return [
        (window.start, t.time, t.offset)
        for window in view.windows
        if window.name.reverses and window.took_effect and window.on.source == cluster
        for t in view.truncations
        if t.cluster == cluster and window.start <= t.time <= window.end
    ]


def in_a_step(view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample, whether a step of a reversal may have truncated the log after the LSO was
    requested, and before the high watermark was: this one is below that of the sample before."""
    high = marks.high_watermark[sampled]
    fell = np.append(np.zeros(1, np.bool_), high[1:] < high[:-1])[: len(sampled)]
    reversed_ = np.zeros(len(sampled), np.bool_)
    for start, end, _ in truncating(view, cluster):
        reversed_ |= (marks.time[sampled] <= end) & (marks.returned[sampled] >= start)
    return np.asarray(fell & reversed_)


def out_of_order(
    view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints
) -> Iterator[Finding]:
    if not len(sampled):
        return
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    same = _same_tenure(view, cluster, marks, sampled)
    before, after = sampled[:-1], sampled[1:]
    for name, values, kind in (
        ("last_stable", lso, "lso-regression"),
        ("high_watermark", high, "high-watermark-regression"),
    ):
        back = same & (values[1:] < values[:-1])
        for start, end, offset in truncating(view, cluster):
            meanwhile = (marks.time[before] <= end) & (marks.returned[after] >= start)
            # A transaction that lost its marker is open again from its beginning, so such an LSO is
            # compared with the bytes.
            stepped = (values[1:] >= offset) | ((high[1:] >= offset) & (high[1:] < high[:-1]))
            back &= ~(meanwhile & stepped)
        for i in np.flatnonzero(back).tolist():
            yield found_at(kind, cluster, marks, int(sampled[i + 1]), before={name: int(values[i])})
    yield from _log_starts(view, cluster, marks, sampled)
    # The high watermark may have risen before the LSO was requested: the next sample is its bound.
    bound = np.maximum(high[:-1], np.where(same, high[1:], NOWHERE))
    above = (lso[:-1] > bound) & ~in_a_step(view, cluster, marks, sampled)[:-1]
    yield from [
        found_at("lso-above-high-watermark", cluster, marks, int(sampled[i]))
        for i in np.flatnonzero(above).tolist()
    ]


def _log_starts(
    view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints
) -> Iterator[Finding]:
    """Log starts that went back, or were above the LSO, which is requested afterwards and rises
    with the log start."""
    start, lso = marks.log_start[sampled], marks.last_stable[sampled]
    same = _same_tenure(view, cluster, marks, sampled)
    above = sampled[1:][same & (start[1:] >= 0) & (start[1:] > lso[1:])]
    reported = sampled[start >= 0]
    start = marks.log_start[reported]
    back = reported[1:][_same_tenure(view, cluster, marks, reported) & (start[1:] < start[:-1])]
    for kind, rows in (("log-start-regression", back), ("log-start-above-lso", above)):
        for row in rows.tolist():
            before = int(marks.log_start[reported[reported < row][-1:]].max(initial=-1))
            evidence = {"log_start": int(marks.log_start[row]), "before": {"log_start": before}}
            yield replace(
                found_at(kind, cluster, marks, row, **evidence),
                offset=int(marks.log_start[row]),
            )


KIND: Final = "replica-end-regression"
AHEAD: Final = "high-watermark-ahead"
GREW: Final = 2_500_000_000
"""A follower that grew within so many nanoseconds is in sync: mirrors leave it out of the high
watermark after three seconds without a fetch."""
BESIDE: Final = 10**9
"""A replica that is sampled within so many nanoseconds after a high watermark was sampled beside
it."""
LEARNS: Final = 10 * 10**9
"""How long after an election or a fault a broker may not know who leads, in nanoseconds: more than
three session timeouts (3 s here)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenure:
    """One leader epoch: its samples, its leader, the previous leader (-1: unknown), and the time in
    nanoseconds when the epoch was first seen."""

    rows: Ints
    leader: int
    previous: int
    start: int


def shortened(view: PartitionView, cluster: str, marks: Watermarks) -> Iterator[Found]:
    """Each sample in which a replica ended below its own earlier end and below the committed
    records that it had."""
    samples = [each for each in view.replica_samples if each.cluster == cluster]
    tenures = list(_tenures(marks)) if samples else []
    for broker in sorted({each.broker for each in samples}):
        mine = sorted((s for s in samples if s.broker == broker), key=lambda s: s.asked)
        for number, (before, after) in enumerate(pairwise(mine), start=1):
            if after.log_end < before.log_end:
                found = [
                    each
                    for tenure in tenures
                    for each in _lost(view, marks, tenure, mine[:number], after)
                ]
                yield from sorted(found, key=lambda each: -each.evidence["high_watermark"])[:1]


def ahead(view: PartitionView, cluster: str, marks: Watermarks) -> Iterator[Found]:
    """For each follower, the first high watermark of a mirror that leads the partition, which the
    follower did not have afterwards, although it was in sync.

    The mirror leads before, during and after the samples, in one leader epoch, and no fault of the
    cluster or its brokers was close: then nobody truncates, and every fetching follower counts.
    """
    brokers = view.topology.cluster(cluster).brokers if marks.leader.max(initial=-1) > 0 else 0
    leads = marks.leader > brokers
    if not leads.any():
        return
    for broker in sorted({s.broker for s in view.replica_samples if s.cluster == cluster}):
        found = _ahead_of(view, cluster, broker, marks, leads)
        if found is not None:
            yield found


def _ahead_of(
    view: PartitionView, cluster: str, broker: int, marks: Watermarks, leads: Bools
) -> Found | None:
    """The first high watermark that this follower did not have afterwards."""
    mine = sorted(
        (s for s in view.replica_samples if (s.cluster, s.broker) == (cluster, broker)),
        key=lambda s: s.asked,
    )
    asked = np.array([s.asked for s in mine], np.int64)
    returned = np.array([s.returned for s in mine], np.int64)
    ends = np.array([s.log_end for s in mine], np.int64)
    grew = np.flatnonzero(np.diff(ends) > 0)
    after = np.searchsorted(asked, marks.returned)
    for row in np.flatnonzero(leads[1:-1] & (after[1:-1] < len(mine))).tolist():
        row, at = row + 1, int(after[row + 1])
        high, time = int(marks.high_watermark[row]), int(marks.time[row])
        late = asked[at] - marks.returned[row] > BESIDE
        in_sync = ((asked[grew] >= time - GREW) & (returned[grew + 1] <= time)).any()
        if ends[at] < high and not late and in_sync and _steady(view, cluster, marks, row):
            return Found.at(
                AHEAD,
                cluster,
                ends[at],
                broker=broker,
                leader=marks.leader[row],
                high_watermark=high,
                log_end=ends[at],
                time=asked[at],
            )
    return None


def _steady(view: PartitionView, cluster: str, marks: Watermarks, row: int) -> bool:
    """Whether the same leader led in the same epoch for a while before this sample and at the next,
    without going back, and nothing was done to its cluster's brokers."""
    time, over = int(marks.time[row]), int(marks.returned[row + 1])
    near = (marks.time >= time - GREW - BESIDE) & (marks.time <= over)
    same = (marks.leader[near] == marks.leader[row]) & (
        marks.leader_epoch[near] == marks.leader_epoch[row]
    )
    rises = bool((np.diff(marks.high_watermark[near]) >= 0).all())
    faults = any(
        window.start <= over and window.end + LEARNS >= time
        for window in on_cluster(view.windows, cluster)
    )
    truncated = any(
        on == cluster and began <= over for on, began, _ in (*_truncations(view), *_reversals(view))
    )
    return bool(same.all()) and rises and not faults and not truncated


def _tenures(marks: Watermarks) -> Iterator[_Tenure]:
    """The leader epochs of a cluster's samples. The first sample of an epoch often names no leader
    (`harness.capture.samplers`). If the samples of an epoch name two leaders, one name is outdated,
    and neither is used."""
    for epoch in np.unique(marks.leader_epoch[marks.leader_epoch >= 0]):
        rows = np.flatnonzero(marks.leader_epoch == epoch)
        leaders = np.setdiff1d(marks.leader[rows], -1)
        named = marks.leader[: rows[0]]
        if len(leaders) == 1:
            yield _Tenure(
                rows=rows,
                leader=int(leaders[0]),
                previous=int(named[named >= 0][-1]) if (named >= 0).any() else -1,
                start=int(marks.time[rows[0]]),
            )


def _lost(
    view: PartitionView,
    marks: Watermarks,
    tenure: _Tenure,
    earlier: Sequence[ReplicaSample],
    after: ReplicaSample,
) -> Iterator[Found]:
    """The committed records that a replica had and lost, in one leader epoch."""
    before, rows = earlier[-1], tenure.rows
    cleared = _cleared(view, before.cluster, after)
    known = rows[(marks.time[rows] >= cleared) & (marks.returned[rows] <= after.asked)]
    since = max(int(marks.returned[rows[0]]), cleared)
    inside = [s for s in earlier if since <= s.asked and s.returned <= marks.time[rows[-1]]]
    fetched = [each.log_end for each in inside if _from_leader(view, tenure, inside, each)]
    if not fetched or not len(known):
        return
    high = int(marks.high_watermark[known].max())
    if after.log_end < min(before.log_end, max(fetched), high):
        yield Found.at(
            KIND,
            before.cluster,
            after.log_end,
            broker=before.broker,
            leader=tenure.leader,
            leader_epoch=marks.leader_epoch[rows[0]],
            high_watermark=high,
            time=after.asked,
            log_end=after.log_end,
            before={"log_end": before.log_end},
        )


def _cleared(view: PartitionView, cluster: str, after: ReplicaSample) -> int:
    """The time since which, until a sample, no event may have removed or replaced committed
    records."""
    ends = [end for began, end in _takes(view, cluster, after) if began <= after.returned]
    return max(ends) + LEARNS if ends else 0


def _takes(view: PartitionView, cluster: str, after: ReplicaSample) -> Iterator[tuple[int, int]]:
    """[start, end] of each truncation by a mirror, failback, unclean election and fault
    `partition`. A mirror repeats upstream truncations as soon as its link allows, so those of
    upstream clusters last until the sample."""
    above = view.upstream(cluster)
    for on, began, ended in (*_truncations(view), *_reversals(view)):
        if on == cluster:
            yield began, ended
        elif on in above:
            yield began, after.returned
    for window in view.windows:
        if window.fault == "partition" and window.on.cluster == cluster:
            yield window.start, window.end


def _truncations(view: PartitionView) -> Iterator[tuple[str, int, int]]:
    """(cluster, start, end) of each truncation by a mirror, at a failback or at its own end."""
    for each in view.truncations:
        yield each.cluster, each.time, each.time
    for stop in view.stops:
        if any(to < end for end, to in stop.truncated):
            yield stop.cluster, stop.time, stop.time


def _reversals(view: PartitionView) -> Iterator[tuple[str, int, int]]:
    """Cluster, begin and end of failbacks and unclean elections."""
    for window in view.windows:
        if window.name.reverses:
            yield window.on.source, window.start, window.end
        elif window.fault == UNCLEAN:
            yield window.on.cluster, window.start, window.end


def _from_leader(
    view: PartitionView, tenure: _Tenure, inside: Sequence[ReplicaSample], sample: ReplicaSample
) -> bool:
    """Whether the whole log of a replica agrees with the leader's: the replica leads, or has grown
    since it learned its leader."""
    since = _knows(view, tenure, sample)
    return since <= sample.asked and (
        sample.broker == tenure.leader
        or any(since <= s.asked < sample.asked and s.log_end < sample.log_end for s in inside)
    )


def _knows(view: PartitionView, tenure: _Tenure, sample: ReplicaSample) -> int:
    """The time since which a replica surely knows the leader. The previous leader may learn late of
    the election, and so may a broker after a fault of it or of the whole cluster."""
    learned = tenure.start + LEARNS
    times = [
        window.end + LEARNS
        for window in on_cluster(view.windows, sample.cluster)
        if window.on.broker in (0, sample.broker)
        and window.start <= min(sample.returned, learned)
        and window.end + LEARNS >= tenure.start
    ]
    if sample.broker == tenure.previous != tenure.leader:
        times.append(learned)
    return max(times, default=tenure.start)


ASKED_WITHIN: Final = 3_000_000_000
"""Nanoseconds of sampling that surely include a sample of groups: these are taken every half a
second, and an attempt may take 2 s to fail."""


def never_sampled(view: PartitionView, cluster: str, group: str, *, until: int) -> str:
    """Why a group's position on a cluster before some time is unknown; empty where it was sampled,
    or not due."""
    if any(g.group == group and g.cluster == cluster for g in view.groups):
        return ""
    mine = [
        r
        for r in view.reads
        if r.group == group and r.cluster == cluster and r.kind == "commit" and r.returned < until
    ]
    marks = view.watermarks.get(cluster)
    if not mine or marks is None:
        return ""
    first = min(r.returned for r in mine)
    if not ((marks.time >= first + ASKED_WITHIN) & (marks.returned < until)).any():
        return ""
    return (
        f"no committed offset of group {group} was ever sampled on {cluster}, so how far it was "
        "there is unknown"
    )


def disturbed_from(windows: Sequence[Window], cluster: str) -> int:
    """When the first fault reached brokers of a cluster: from then on its coordinators may have
    reloaded their partitions."""
    given_up = [w for w in windows if w.name.forced and w.on.source == cluster]
    return min((w.start for w in (*on_cluster(windows, cluster), *given_up)), default=FOREVER)


def visible_commits(replica: Replica) -> Iterator[tuple[GroupCommit, int]]:
    """Commits of groups in a coordinator's log, each with the row of its batch: those of a
    transaction that did not commit never were."""
    state = read(replica).state
    return ((commit, row) for commit, row in _commits(replica) if state[row] not in (ABORTED, OPEN))


def pending_commits(replica: Replica) -> Iterator[GroupCommit]:
    """Commits of groups in transactions that are open in a coordinator's log.

    A transaction's commit is acknowledged once it is prepared, and its markers are written after
    that (KIP-98): brokers that die in between leave none, and write it when they are back.
    """
    state = read(replica).state
    return (commit for commit, row in _commits(replica) if state[row] == OPEN)


def _commits(replica: Replica) -> Iterator[tuple[GroupCommit, int]]:
    commits = [entry for entry in replica.entries if isinstance(entry, GroupCommit)]
    rows = (
        np.searchsorted(replica.batches.base_offset, [c.offset for c in commits], side="right") - 1
    )
    return zip(commits, rows.tolist(), strict=True)
