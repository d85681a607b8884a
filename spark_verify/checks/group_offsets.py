"""group-offsets: a consumer group that fails over skips nothing and repeats little (KIP-545;
MirrorMaker 2's group offset sync).

P is the last position that the group committed on the source, D the offset of the first record that
the group read on the destination. A record is skipped if the destination has it below D, the source
has it at or above P, and no member ever read it. A record is repeated if a member got it on the
destination although it is below P at the source. MirrorMaker 2 translates P to the last offset sync
at or below it, so that it may step back but never ahead. It may step back by the commits since the
last checkpoint and sync, by offset.lag.max, and by as much again as the group was behind the end
(KAFKA-12468: syncs are kept ever sparser further back). The offsets that it commits for the group
on the destination before a failover (sync.group.offsets) never go back, never pass the group's own
position, and never pass the log's end.

Once a fault has reached brokers of the destination, a sample that steps back may come from a
coordinator that has reloaded the group (`log_model.samples`). `__consumer_offsets` decides: if
it has a commit of the later offset behind one of the earlier, nothing went back. If that log was
not captured from its beginning, the result is unknown.

The mirror's commits on the destination are also read from the bytes of `__consumer_offsets`, with
or without a failover (`log_model.synced_offsets`). There too they must not go back, nor pass the
mapped maximum of the group's commits on the source. Where group offsets are exact, each is an
offset that the group committed, or the end of the destination's log.

Sampled committed offsets are counted as `checkpoints` of the cluster that they were sampled on. A
group whose offsets are mirrored has some on the source: if there are none, nobody sampled, and the
mirror's commits are unknown. If the destination has no samples, the mirror had synced nothing
before the failover. No mirror promises a sync by then, so the reason only mentions it. If the
mirror's group sync had failed, as its `mirror-state` events report, its promise for groups is
unknown from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from linkflap.harness.log.coordinators import GROUPS
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Examinable,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.log_model import synced_offsets
from linkflap.spark_verify.checks.log_model.logs import Log, among, distinct, locate, together
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop, compared_hops
from linkflap.spark_verify.checks.log_model.samples import disturbed_from, never_sampled
from linkflap.spark_verify.facts.eras import FOREVER, on_cluster
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks


def uids_of(reads: Iterable[Read]) -> Ints:
    """The payload ids that these reads returned, each once, in order."""
    return distinct(together(r.uids for r in reads))


def checkpoints(
    view: PartitionView,
    promotion: LogPromotion,
    group: str,
    destination: Log,
    polls: Sequence[Read],
) -> Iterator[Finding]:
    """The mirror's commits for the group on the destination, as sampled before the failover. The
    same thread samples bounds and groups, one after the other. So the first high watermark that it
    requested after a group's offset is from a time when the offset had been reported.
    """
    there = promotion.cluster
    committed = [
        g
        for g in view.groups
        if g.group == group and g.cluster == there and g.time < promotion.fault_time
    ]
    times, reached = _high_watermarks(view, there)
    ours = destination.records
    mirrored = _mirrored(destination, promotion)
    highest = -1
    for row in committed:
        evidence = {"group": group, "committed": row.offset, "time": row.time}
        if row.offset < highest:
            yield _went_back(view, promotion, row, evidence | {"before": highest})
        after = int(np.searchsorted(times, row.time))
        end = int(reached[after]) if after < len(reached) else promotion.offset
        if row.offset > end:
            more = {"high_watermark": end}
            yield Found.at("checkpoint-beyond-end", there, row.offset, **(evidence | more))
        fresh = mirrored[(ours.offset[mirrored] >= highest) & (ours.offset[mirrored] < row.offset)]
        ahead = fresh[~among(ours.uid[fresh], uids_of(r for r in polls if r.time <= row.time))]
        if len(ahead):
            more = {"records": len(ahead), "uid": int(ours.uid[ahead[0]])}
            yield Found.at("checkpoint-ahead", there, ours.offset[ahead[0]], **(evidence | more))
        highest = max(highest, row.offset)


def _high_watermarks(view: PartitionView, cluster: str) -> tuple[Ints, Ints]:
    """The times of the samples of a cluster, and the highest high watermark until each."""
    marks = view.watermarks.get(cluster)
    if marks is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    marks = marks.with_high_watermark()
    return marks.time, np.maximum.accumulate(marks.high_watermark)


def _mirrored(destination: Log, promotion: LogPromotion) -> Ints:
    """The mirrored records that readers of the destination get."""
    records = destination.records
    return np.flatnonzero(
        destination.visible & (records.uid >= 0) & (records.offset < promotion.offset)
    )


def _went_back(
    view: PartitionView, promotion: LogPromotion, row: GroupOffset, evidence: Mapping[str, object]
) -> Found | PartialFinding:
    there = promotion.cluster
    if row.time < disturbed_from(view.windows, there):
        return Found.at("checkpoint-regression", there, row.offset, **evidence)
    return PartialFinding(cluster=there, offset=row.offset, data={"what": "back", **evidence})


def held_against(
    part: PartialFinding, sampled: Mapping[str, Any], logs: Sequence[Mapping[str, Any]]
) -> Found | Unjudged | None:
    """A sample that stepped back, against the commits in the logs of its cluster; None where they
    explain it."""
    index = [sampled["group"], part.topic, part.partition]
    commits = [committed for log in logs for *key, committed, _ in log["rows"] if key == index]
    if not logs or not all(log["every"] for log in logs):
        what = f"the offset of group {sampled['group']} in {part.tp} on {part.cluster}"
        return Unjudged(
            f"{what} stepped back after a fault on its brokers, and not all of {GROUPS} is "
            "there to say why"
        )
    first = commits.index(part.offset) if part.offset in commits else len(commits)
    if sampled["before"] in commits[first:]:
        return None
    evidence = {name: value for name, value in sampled.items() if name != "what"}
    return Found.at("checkpoint-regression", part.cluster, part.offset, **evidence)


def during(view: PartitionView, compared: Hop) -> PartitionView:
    """The view, limited to the rows of groups until the next failover away from the destination; on
    the destination, from the time since which it surely followed.

    Before that time the mirror sets back groups that had read the truncated records.
    """
    began, there = compared.mirrored_range.settled, compared.mirrored_range.destination
    later = [p.fault_time for p in view.promotions if p.source == there and p.time > began]
    ended = min(later, default=FOREVER)
    marks = view.watermarks

    def within(cluster: str, time: int, returned: int) -> bool:
        return (cluster != there or time >= began) and returned <= ended

    return replace(
        view,
        reads=[r for r in view.reads if within(r.cluster, r.time, r.returned)],
        groups=[g for g in view.groups if within(g.cluster, g.time, g.time)],
        watermarks=(
            {name: _within(mine, began, ended) for name, mine in marks.items()}
            if began or later
            else marks
        ),
    )


def _within(marks: Watermarks, began: int, ended: int) -> Watermarks:
    inside = (marks.time >= began) & (marks.returned <= ended)
    return marks.take(inside)


def polls_of(view: PartitionView, group: str) -> Sequence[Read]:
    """Every poll of a group's members, on all clusters."""
    return [r for r in view.reads if r.group == group and r.kind == "poll" and len(r.uids)]


def skipped_and_repeated(
    view: PartitionView,
    promotion: LogPromotion,
    group: str,
    source: Log,
    destination: Log,
    polls: Sequence[Read],
) -> Iterable[Finding]:
    own = [r for r in view.reads if r.group == group]
    commits = [
        r for r in own if r.cluster == promotion.source and r.kind == "commit" and r.position >= 0
    ]
    after = [r for r in own if r.cluster == promotion.cluster and r.kind == "poll" and len(r.uids)]
    if not commits or not after:
        return []
    return _beside(view, promotion, commits, after, source, destination, uids_of(polls))


def _beside(
    view: PartitionView,
    promotion: LogPromotion,
    commits: Sequence[Read],
    after: Sequence[Read],
    source: Log,
    destination: Log,
    got: Ints,
) -> Iterator[Finding]:
    """The records that a group skipped and repeated when it began on the destination, if it had
    committed on the source."""
    group = commits[0].group
    committed = max(commits, key=lambda r: r.returned)
    ours = destination.records
    mirrored = _mirrored(destination, promotion)
    at = locate(source.records.uid, ours.uid[mirrored])
    mirrored, at = mirrored[at >= 0], at[at >= 0]
    origin = source.records.offset[at]
    first = min(after, key=lambda r: r.returned)
    start = int(first.offsets[0])
    skipped = mirrored[
        (ours.offset[mirrored] < start)
        & (origin >= committed.position)
        & ~among(ours.uid[mirrored], got)
    ]
    # The copy that the group read: an at-least-once mirror may have written a record twice.
    read = locate(ours.offset[mirrored], np.concatenate([r.offsets for r in after]))
    uids = np.concatenate([r.uids for r in after])[read >= 0]
    read = read[read >= 0]
    read = read[ours.uid[mirrored[read]] == uids]
    again = mirrored[(origin < committed.position) & np.isin(np.arange(len(mirrored)), read)]
    synced = [
        g.offset
        for g in view.groups
        if g.group == group and g.cluster == promotion.cluster and g.time < first.time
    ]
    above = ours.offset[mirrored] >= max(synced, default=0)
    late = np.isin(again, mirrored[above])
    bound = int(np.count_nonzero((origin < committed.position) & above))
    if _disturbed(view, promotion, commits, first):
        late = np.ones(len(again), np.bool_)
        bound = max(_bound(view.guarantee, commits, committed, origin), bound)
    yield Examined(cluster=promotion.cluster, origin="mirrored", count=len(mirrored))
    evidence = {"group": group, "committed_on_source": committed.position, "began_at": start}
    for kind, rows, more in (
        ("group-skip", skipped, {}),
        ("group-replay", again[late], {"bound": bound}),
        # Records below the offset that the mirror had committed for the group are not explained.
        ("group-replay", again[~late], {"bound": 0}),
    ):
        if len(rows):
            shown = evidence | {"records": len(rows), "uid": int(ours.uid[rows[0]])} | more
            yield Found.at(kind, promotion.cluster, ours.offset[rows[0]], **shown)


def _disturbed(
    view: PartitionView, promotion: LogPromotion, commits: Sequence[Read], first: Read
) -> bool:
    """Whether the mirror, or the group when it began, may have got an earlier commit of the group:
    it went back on the source, or a coordinator of either end reloaded (KAFKA-15910)."""
    ordered = [each.position for each in sorted(commits, key=lambda each: each.returned)]
    if any(after < before for before, after in pairwise(ordered)):
        return True
    ends = ((promotion.source, promotion.fault_time), (promotion.cluster, first.time))
    return any(
        window.start < until
        for cluster, until in ends
        for window in on_cluster(view.windows, cluster)
    )


def _bound(promised: Guarantee, commits: Sequence[Read], committed: Read, origin: Ints) -> int:
    """The number of mirrored records that the group may get again if its offsets were synced as
    often as the mirror promises."""
    by_then = committed.returned - int(promised.group_offset_seconds * 1e9)
    settled = [r.position for r in commits if r.returned <= by_then]
    since = max(settled, default=0)
    recent = int(np.count_nonzero((origin >= since) & (origin < committed.position)))
    behind = int(np.count_nonzero(origin >= committed.position))
    return recent + promised.group_offset_records + behind


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every group that read on the source before a failover and on the destination only
    after it."""
    if view.guarantee.group_offsets == "none":
        return []
    if view.internal:
        return list(synced_offsets.commits(view)) if view.topic == GROUPS else []
    findings: list[Finding] = []
    for compared in compared_hops(view):
        findings += synced_offsets.mapped(view, compared)
        if compared.mirrored_range.promotion is None:
            continue
        promotion, then = compared.mirrored_range.promotion, during(view, compared)
        for group in sorted({r.group for r in then.reads if r.group} - _settled(then, promotion)):
            findings += _sampled(then, promotion, group)
            if reason := never_sampled(then, promotion.source, group, until=promotion.fault_time):
                findings.append(Unjudged(reason))
            findings += skipped_and_repeated(
                then, promotion, group, compared.source, compared.destination, polls_of(view, group)
            )
            findings += checkpoints(
                then, promotion, group, compared.destination, polls_of(view, group)
            )
    return findings


def _settled(view: PartitionView, promotion: LogPromotion) -> set[str]:
    """Groups that already had offsets of their own on the destination: no mirror translates offsets
    for those."""
    here = (
        r
        for r in view.reads
        if r.group and r.cluster == promotion.cluster and r.kind == "poll" and len(r.uids)
    )
    return {r.group for r in here if r.returned < promotion.fault_time}


def _sampled(view: PartitionView, promotion: LogPromotion, group: str) -> Sequence[Finding]:
    """The number of sampled committed offsets of the group: on the source at any time, on the
    destination before the failover."""
    own = [g for g in view.groups if g.group == group]
    counts = {
        promotion.source: sum(g.cluster == promotion.source for g in own),
        promotion.cluster: sum(
            g.cluster == promotion.cluster and g.time < promotion.fault_time for g in own
        ),
    }
    return [
        Examined(cluster=cluster, origin="checkpoints", count=count)
        for cluster, count in counts.items()
        if count
    ]


def combine(parts: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Compares samples that stepped back with the coordinators' logs of their cluster, and the
    mirror's commits there with the source."""
    found = list(synced_offsets.combine(parts))
    for part in parts:
        if part.data["what"] == "back":
            logs = [
                p.data
                for p in parts
                if p.cluster == part.cluster and p.data["what"] == synced_offsets.COMMITS
            ]
            judged = held_against(part, part.data, logs)
            found += [] if judged is None else [part.combined(judged)]
    return found


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """The destinations of failovers from clusters on which a group reads, and samples of the group
    on those clusters.

    Readers are in a group unless they have `assign`; relays always are, and follow.
    """
    if scenario.mirror.guarantee.group_offsets == "none":
        return set()
    groups = [w for w in scenario.workloads if w.kind == "readers" and not w.options.get("assign")]
    read = {str(w.options.get("cluster", w.home)) for w in groups if w.options.get("follow", True)}
    read |= {w.home for w in scenario.workloads if w.kind == "relay"}
    due: set[tuple[str, Examinable]] = set()
    for promotion in sorted(promotions, key=lambda p: p.time):
        if promotion.source in read:
            # Groups follow the failover, and the next one too.
            read.add(promotion.cluster)
            due |= {(promotion.cluster, "mirrored"), (promotion.source, "checkpoints")}
    return due


CHECK = Check(
    name="group-offsets",
    guarantee="""A consumer group that fails over skips no record, and repeats no more than offset
        translation steps back.""",
    source="KIP-545 (group offset sync); KAFKA-12468 (translation steps back, never ahead)",
    wire="""Positions of the program's `group` are those of its fetches, and its commits those that
        a coordinator acknowledged; in transactions from the EndTxn on. What the program did with
        the records is not known.""",
    inputs={"batches", "records", "reads", "watermarks", "groups", "promotions"},
    anomalies=(
        AnomalyKind(
            name="group-skip",
            meaning="""The group began on the destination above a record that it had not committed
                on the source.""",
            sentence="""the group {group} began at {began_at} on {cluster} after the failover and
                skipped {who} from {at} on""",
            counted="record was skipped by a group|records were skipped by a group",
            failover_cost="skipped",
            smallest="""A and B have 1 2 3, the group committed position 1 on A and began with 3 on
                B: at offset 1, that of 2.""",
        ),
        AnomalyKind(
            name="group-replay",
            meaning="""The group got a record on the destination that it had committed on the
                source.""",
            sentence="the group {group} read {who} at {at} on {cluster} again after the failover",
            counted="record was read again|records were read again",
            failover_cost="replayed",
            smallest="""A has 1 2, the group committed position 2, B has 1 2, the group began at
                offset 0: at offset 0.""",
        ),
        AnomalyKind(
            name="checkpoint-regression",
            meaning="""Before the failover the group's committed offset on the destination went
                back. (Once a fault has reached its brokers, a sample may step back to an earlier
                commit that __consumer_offsets has before the later one.) Or the mirror's commits
                went back there, although the group did not on the source and the destination's log
                was not truncated.""",
            sentence="""the synced offset of the group {group} on {cluster} went back from {before}
                to {committed} in {tp}""",
            alone="after a failover the group gets those records again",
            smallest="the group's offset on B is sampled as 2, then as 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="checkpoint-beyond-end",
            meaning="""Before the failover the group's committed offset on the destination was above
                the high watermark.""",
            sentence="""the group {group} on {cluster} was synced to {committed} of {tp}, beyond the
                end of the log {high_watermark}""",
            alone="after a failover the group skips what is written up to there",
            smallest="""the group's offset on B is sampled as 3, the high watermark after that as 2:
                at offset 3.""",
        ),
        AnomalyKind(
            name="checkpoint-ahead",
            meaning="""Before the failover the group's committed offset on the destination was above
                a record that the group had not got.""",
            sentence="""the group {group} on {cluster} was synced to {committed}, past {who} at {at}
                that it had not read on the source""",
            counted="record would be skipped by a group|records would be skipped by a group",
            smallest="""A and B have 1 2, the group got 1, its offset on B is sampled as 2: at
                offset 1, that of 2.""",
        ),
        AnomalyKind(
            name="checkpoint-beyond-commit",
            meaning="""The mirror committed an offset for the group on the destination that is
                beyond every commit of the group on the source.""",
            sentence="""the mirror committed {committed} of {tp} for the group {group} on {cluster},
                which has committed {source_committed} on the source at most: that is {bound}
                there""",
            alone="after a failover the group skips what lies between",
            smallest="""A and B have 1 2, the group committed position 1 on A, B's
                __consumer_offsets has 2 for it before it had members there: at offset 2.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="checkpoint-stranger",
            meaning="""A mirror that keeps group offsets committed an offset that the group never
                committed on the source, and at which the destination's log neither began nor
                ended.""",
            sentence="""the mirror committed {committed} of {tp} for the group {group} on {cluster},
                which never committed that on the source; nor did the log end there""",
            alone="after a failover the group begins where it never was",
            smallest="""A and B have 1 2 in one batch, the group committed position 2 on A, B's
                __consumer_offsets has 1 for it: at offset 1.""",
            despite_torn=True,
        ),
    ),
    complete={"promotions", "reads"},
    follows={
        "order-equality",
        "last-stable-offset",
        "truncation-accounting",
        "internal-topics",
        "poll-continuity",
    },
    kernel=kernel,
    combine=combine,
    internal=True,
    due_at=_due,
    when="those mirrored to where a group fails over, if the mirror carries its offsets",
    judges_readers=True,
)
