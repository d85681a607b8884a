"""Samples of single replicas, follower or leader, against each other and the leaders' high
watermarks: which replica lost committed records that it had.

A replica that grows in a leader epoch fetches that leader's batches. What it has then below a high
watermark of that leader is committed, and no clean election takes it away (KIP-101). Whatever it
had before may have been another leader's, and uncommitted. So may what it appends as an old leader
that does not know of the election yet. Nothing is judged around what may take committed records,
and around what may keep a broker from learning who leads: a fault of that broker or of the whole
cluster, and the fault `partition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from linkflap.harness.model.faults import UNCLEAN
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.partition_facts import ReplicaSample
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Watermarks

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
    """The samples of one leader epoch, its leader, the one before (-1: not known), and when it was
    first seen, in nanoseconds."""

    rows: Ints
    leader: int
    previous: int
    start: int


def shortened(view: PartitionView, cluster: str, marks: Watermarks) -> Iterator[Found]:
    """Each time that a replica of a cluster ended below its own earlier end and below what it had
    of a leader's committed records."""
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
                yield from sorted(found, key=lambda each: -_high(each))[:1]


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
            evidence = {
                "broker": broker,
                "leader": int(marks.leader[row]),
                "high_watermark": high,
                "log_end": int(ends[at]),
                "time": int(asked[at]),
            }
            return Found(kind=AHEAD, cluster=cluster, offset=int(ends[at]), evidence=evidence)
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


def _high(found: Found) -> int:
    return int(str(found.evidence["high_watermark"]))


def _tenures(marks: Watermarks) -> Iterator[_Tenure]:
    """The first sample of an epoch often has no name (`harness.capture.watermarks`). Where samples
    name two leaders, one of the names is old, and none is used."""
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
    """What a replica lost of that which it had, and which was committed, in one leader's epoch."""
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
        evidence = {
            "broker": before.broker, "leader": tenure.leader,
            "leader_epoch": int(marks.leader_epoch[rows[0]]),
            "high_watermark": high, "time": after.asked, "log_end": after.log_end,
            "before": {"log_end": before.log_end},
        }  # fmt: skip
        yield Found(kind=KIND, cluster=before.cluster, offset=after.log_end, evidence=evidence)


def _cleared(view: PartitionView, cluster: str, after: ReplicaSample) -> int:
    """From when on, until a sample, nothing may have taken committed records or given a replica
    others."""
    ends = [end for began, end in _takes(view, cluster, after) if began <= after.returned]
    return max(ends) + LEARNS if ends else 0


def _takes(view: PartitionView, cluster: str, after: ReplicaSample) -> Iterator[tuple[int, int]]:
    """When each truncation by a mirror, failback, unclean election and partition was. A mirror
    follows what happens upstream as soon as its link lets it: this lasts until the sample."""
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
    """Cluster, begin and end of what a mirror truncated, at a failback or its own end."""
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
    """Whether all that a replica has is the leader's: it leads, or has grown since it knows the
    leader."""
    since = _knows(view, tenure, sample)
    return since <= sample.asked and (
        sample.broker == tenure.leader
        or any(since <= s.asked < sample.asked and s.log_end < sample.log_end for s in inside)
    )


def _knows(view: PartitionView, tenure: _Tenure, sample: ReplicaSample) -> int:
    """From when on a replica knows the leader. The leader before may not have learned of it yet,
    nor may a broker after a fault to it or to the whole cluster."""
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
