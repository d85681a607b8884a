"""group-offsets: a consumer group that fails over skips nothing and repeats little (KIP-545;
MirrorMaker 2's group offset sync).

P is the last position that the group committed on the source, D the first offset it got on the
destination. Skipped is what the destination has below D, the source has at or above P, and no
member ever got. Repeated is what a member got on the destination although it is below P at the
source. MirrorMaker 2 translates P to the last offset sync at or below it, so that it may step back
but never ahead: by what was committed since the last checkpoint and sync, by offset.lag.max, and by
as much again as the group was behind the end (KAFKA-12468: syncs are kept ever sparser further
back). What it commits for the group on the destination before a failover (sync.group.offsets) never
goes back, never beyond what the group got, nor the log's end.

Once a fault has reached brokers of the destination, a sample that steps back may be of a
coordinator that has loaded the group anew (`parts.sampled_offsets`). Then `__consumer_offsets` says
which it is: if it has a commit of the later offset behind one of the earlier, nothing went back.
Where that log was not captured from its beginning, it is unknown.

What the mirror committed on the destination is also read from the bytes of `__consumer_offsets`,
whether or not anybody failed over (`parts.synced_offsets`): there it must not go back either, nor
be beyond what the group ever committed on the source maps to; and where group offsets are exact it
is one that the group committed, or the end of the destination's log.

Sampled committed offsets are counted as `checkpoints` of the cluster they were sampled on. A
following group has some on the source: where there is none, nobody sampled, and what the mirror
committed is unknown. With none on the destination the mirror had synced nothing before the
failover, which is promised nowhere and said in the reason. Where the part of the mirror that
carries them had failed, as its `mirror-state` events say, what it promises of groups is unknown
from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final, Literal

import numpy as np

from linkflap.harness.log.coordinators import GROUPS
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts import synced_offsets
from linkflap.spark_verify.checks.parts.checkpoints import checkpoints, held_against, uids_of
from linkflap.spark_verify.checks.parts.logs import Log, among, locate
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop, hops
from linkflap.spark_verify.checks.parts.sampled_offsets import never_sampled
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.story import Promotion
from linkflap.spark_verify.facts.view import Ints, Origin, PartitionView, Watermarks

OFFSET_LAG_MAX: Final = 100
"""MirrorMaker 2's default of offset.lag.max: records between two offset syncs."""
SYNC_REACH: Final = 5_000_000_000
"""Nanoseconds that a committed offset may need to reach the destination: refresh, checkpoint, sync
(1 s each) and 2 s more."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every group that read on the source before a failover and on the destination only
    after it."""
    if view.mirror.guarantee.group_offsets == "none":
        return []
    if view.internal:
        return list(synced_offsets.commits(view)) if view.topic == GROUPS else []
    findings: list[Finding] = []
    for compared in hops(view):
        if not isinstance(compared, Hop):
            continue
        findings += synced_offsets.mapped(view, compared)
        if compared.mirrored_range.promotion is None:
            continue
        promotion, then = compared.mirrored_range.promotion, during(view, compared)
        for group in sorted({r.group for r in then.reads if r.group} - _settled(then, promotion)):
            findings += _sampled(then, promotion, group)
            if reason := never_sampled(then, promotion.source, group, until=promotion.fault_time):
                findings.append(Unjudged(reason=reason))
            findings += _judge(
                then, promotion, group, compared.source, compared.destination, _polls(view, group)
            )
            findings += checkpoints(
                then, promotion, group, compared.destination, _polls(view, group)
            )
    return findings


def during(view: PartitionView, compared: Hop) -> PartitionView:
    """What was seen of groups until the next failover away from the destination; there, from when
    it followed for certain.

    Until then the mirror sets groups back that had read what it truncated.
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
    return Watermarks(**{f.name: getattr(marks, f.name)[inside] for f in fields(Watermarks)})


def _polls(view: PartitionView, group: str) -> Sequence[Read]:
    """Every poll of a group's members, on all clusters."""
    return [r for r in view.reads if r.group == group and r.kind == "poll" and len(r.uids)]


def _settled(view: PartitionView, promotion: Promotion) -> set[str]:
    """Groups that already had offsets of their own on the destination: no mirror translates offsets
    for those."""
    here = (
        r
        for r in view.reads
        if r.group and r.cluster == promotion.cluster and r.kind == "poll" and len(r.uids)
    )
    return {r.group for r in here if r.returned < promotion.fault_time}


def _sampled(view: PartitionView, promotion: Promotion, group: str) -> Sequence[Finding]:
    """How many committed offsets of the group were sampled: on the source at all, on the
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


def _judge(
    view: PartitionView,
    promotion: Promotion,
    group: str,
    source: Log,
    destination: Log,
    polls: Sequence[Read],
) -> Sequence[Finding]:
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
    promotion: Promotion,
    commits: Sequence[Read],
    after: Sequence[Read],
    source: Log,
    destination: Log,
    got: Ints,
) -> Sequence[Finding]:
    """What a group that had committed on the source skipped, and got again, where it began on the
    destination."""
    group = commits[0].group
    committed = max(commits, key=lambda r: r.returned)
    ours = destination.replica.records
    mirrored = np.flatnonzero(
        destination.visible & (ours.uid >= 0) & (ours.offset < promotion.offset)
    )
    at = locate(source.replica.records.uid, ours.uid[mirrored])
    mirrored, at = mirrored[at >= 0], at[at >= 0]
    origin = source.replica.records.offset[at]
    first = min(after, key=lambda r: r.returned)
    start = int(first.offsets[0])
    skipped = mirrored[
        (ours.offset[mirrored] < start)
        & (origin >= committed.position)
        & ~among(ours.uid[mirrored], got)
    ]
    again = mirrored[(origin < committed.position) & among(ours.uid[mirrored], uids_of(after))]
    synced = [
        g.offset
        for g in view.groups
        if g.group == group and g.cluster == promotion.cluster and g.time < first.time
    ]
    above = int(
        np.count_nonzero(
            (origin < committed.position) & (ours.offset[mirrored] >= max(synced, default=0))
        )
    )
    bound = max(_bound(commits, committed, origin), above)
    findings: list[Finding] = [
        Examined(cluster=promotion.cluster, origin="mirrored", count=len(mirrored))
    ]
    evidence = {"group": group, "committed_on_source": committed.position, "began_at": start}
    for kind, rows, more in (
        ("group-skip", skipped, {}),
        ("group-replay", again, {"bound": bound}),
    ):
        if len(rows):
            shown = evidence | {"records": len(rows), "uid": int(ours.uid[rows[0]])} | more
            findings.append(
                Found(
                    kind=kind,
                    cluster=promotion.cluster,
                    offset=int(ours.offset[rows[0]]),
                    evidence=shown,
                )
            )
    return findings


def _bound(commits: Sequence[Read], committed: Read, origin: Ints) -> int:
    """How many mirrored records the group may get again when its offsets were synced as often as
    they should be.

    How late a sync may be is promised nowhere; what lies above the offset that the mirror had last
    committed for the group is a repeat that this explains, and the bound is never below it.
    """
    settled = [r.position for r in commits if r.returned <= committed.returned - SYNC_REACH]
    since = max(settled, default=0)
    recent = int(np.count_nonzero((origin >= since) & (origin < committed.position)))
    behind = int(np.count_nonzero(origin >= committed.position))
    return recent + OFFSET_LAG_MAX + behind


def combine(parts: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Holds samples that stepped back against what the coordinators of the cluster wrote, and that
    against the source."""
    found = list(synced_offsets.combine(parts))
    for part in parts:
        if part.data["what"] == "back":
            logs = [
                p.data
                for p in parts
                if p.cluster == part.cluster and p.data["what"] == synced_offsets.COMMITS
            ]
            judged = held_against(part, part.data, logs)
            found += (
                []
                if judged is None
                else [Combined(found=judged, topic=part.topic, partition=part.partition)]
            )
    return found


def _due(
    scenario: Scenario, promotions: Sequence[Promotion]
) -> set[tuple[str, Origin | Literal["checkpoints"]]]:
    """Where failovers of clusters that a group reads on lead to, and samples of the group where
    they come from.

    Readers are in a group unless they have `assign`; relays always are, and follow.
    """
    if scenario.mirror.guarantee.group_offsets == "none":
        return set()
    groups = [w for w in scenario.workloads if w.kind == "readers" and not w.options.get("assign")]
    read = {str(w.options.get("cluster", w.home)) for w in groups if w.options.get("follow", True)}
    read |= {w.home for w in scenario.workloads if w.kind == "relay"}
    due: set[tuple[str, Origin | Literal["checkpoints"]]] = set()
    for promotion in sorted(promotions, key=lambda p: p.time):
        if promotion.source in read:
            # Groups follow the failover, and the next one too.
            read.add(promotion.cluster)
            due |= {(promotion.cluster, "mirrored"), (promotion.source, "checkpoints")}
    return due


CHECK = Check(
    name="group-offsets",
    guarantee=(
        "A consumer group that fails over skips no record, and gets again no more than offset "
        "translation gives back."
    ),
    source="KIP-545 (group offset sync); KAFKA-12468 (translation steps back, never ahead)",
    inputs=frozenset({"batches", "records", "reads", "watermarks", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="group-skip",
            meaning=(
                "A record that the group had not committed on the source lies below where it began "
                "on the destination."
            ),
            sentence=(
                "the group {group} began at {began_at} on {cluster} after the failover and skipped "
                "{who} from {at} on"
            ),
            counted="record was skipped by a group|records were skipped by a group",
            smallest=(
                "A and B have 1 2 3, the group committed position 1 on A and began with 3 on B: at "
                "offset 1, that of 2."
            ),
        ),
        AnomalyKind(
            name="group-replay",
            meaning=(
                "The group got a record on the destination that it had committed on the source."
            ),
            sentence="the group {group} read {who} at {at} on {cluster} again after the failover",
            counted="record was read again|records were read again",
            smallest=(
                "A has 1 2, the group committed position 2, B has 1 2, the group began at offset 0:"
                " at offset 0."
            ),
        ),
        AnomalyKind(
            name="checkpoint-regression",
            meaning=(
                "Before the failover the group's committed offset on the destination went back. "
                "Once a fault has reached its brokers, a sample may step back to an earlier commit "
                "that __consumer_offsets has before the later one. Or what the mirror committed "
                "went back there, and neither did the group on the source nor was the "
                "destination's log truncated."
            ),
            sentence=(
                "the synced offset of the group {group} on {cluster} went back from {before} to "
                "{committed} in {tp}"
            ),
            alone="after a failover the group gets those records again",
            smallest="the group's offset on B is sampled as 2, then as 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="checkpoint-beyond-end",
            meaning=(
                "Before the failover the group's committed offset on the destination was above the "
                "high watermark."
            ),
            sentence=(
                "the group {group} on {cluster} was synced to {committed} of {tp}, beyond the end "
                "of the log {high_watermark}"
            ),
            alone="after a failover the group skips what is written up to there",
            smallest=(
                "the group's offset on B is sampled as 3, the high watermark after that as 2: at "
                "offset 3."
            ),
        ),
        AnomalyKind(
            name="checkpoint-ahead",
            meaning=(
                "Before the failover the group's committed offset on the destination was above a "
                "record that it had not got."
            ),
            sentence=(
                "the group {group} on {cluster} was synced to {committed}, past {who} at {at} that "
                "it had not read on the source"
            ),
            counted="record would be skipped by a group|records would be skipped by a group",
            smallest=(
                "A and B have 1 2, the group got 1, its offset on B is sampled as 2: at offset 1, "
                "that of 2."
            ),
        ),
        AnomalyKind(
            name="checkpoint-beyond-commit",
            meaning=(
                "The mirror committed for the group on the destination what is beyond all that the "
                "group ever committed on the source."
            ),
            sentence=(
                "the mirror committed {committed} of {tp} for the group {group} on {cluster}, which"
                " has committed {source_committed} on the source at most: that is {bound} there"
            ),
            alone="after a failover the group skips what lies between",
            smallest=(
                "A and B have 1 2, the group committed position 1 on A, B's __consumer_offsets has "
                "2 for it before it had members there: at offset 2."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="checkpoint-stranger",
            meaning=(
                "A mirror that keeps group offsets committed for the group what the group never "
                "committed on the source, and where the destination's log neither began nor ended."
            ),
            sentence=(
                "the mirror committed {committed} of {tp} for the group {group} on {cluster}, which"
                " never committed that on the source; nor did the log end there"
            ),
            alone="after a failover the group begins where it never was",
            smallest=(
                "A and B have 1 2 in one batch, the group committed position 2 on A, B's "
                "__consumer_offsets has 1 for it: at offset 1."
            ),
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions", "reads"}),
    follows=frozenset(
        {
            "order-equality",
            "last-stable-offset",
            "truncation-accounting",
            "internal-topics",
            "poll-continuity",
        }
    ),
    kernel=kernel,
    combine=combine,
    internal=True,
    due_at=_due,
    when="those mirrored to where a group fails over, if the mirror carries its offsets",
    judges_readers=True,
)
