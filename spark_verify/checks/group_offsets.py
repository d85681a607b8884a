"""group-offsets: a consumer group that fails over skips nothing and repeats little (KIP-545;
MirrorMaker 2's group offset sync).

P is the last position that the group committed on the source, D the first offset that it got on the
destination. A record is skipped if the destination has it below D, the source has it at or above P,
and no member ever got it. A record is repeated if a member got it on the destination although it is
below P at the source. MirrorMaker 2 translates P to the last offset sync at or below it, so that it
may step back but never ahead. It may step back by the commits since the last checkpoint and sync,
by offset.lag.max, and by as much again as the group was behind the end (KAFKA-12468: syncs are kept
ever sparser further back). The offsets that it commits for the group on the destination before a
failover (sync.group.offsets) never go back, never pass the group's own position, and never pass the
log's end.

Once a fault has reached brokers of the destination, a sample that steps back may come from a
coordinator that has reloaded the group (`parts.samples`). `__consumer_offsets` decides: if
it has a commit of the later offset behind one of the earlier, nothing went back. If that log was
not captured from its beginning, the result is unknown.

The mirror's commits on the destination are also read from the bytes of `__consumer_offsets`, with
or without a failover (`parts.synced_offsets`). There too they must not go back, nor pass the mapped
maximum of what the group ever committed on the source. Where group offsets are exact, each is an
offset that the group committed, or the end of the destination's log.

Sampled committed offsets are counted as `checkpoints` of the cluster that they were sampled on. A
group whose offsets are mirrored has some on the source: if there are none, nobody sampled, and the
mirror's commits are unknown. If there are none on the destination, the mirror had synced nothing
before the failover; no mirror promises a sync by then, and the reason mentions it. If the part of
the mirror that syncs them had failed, as its `mirror-state` events report, its promise for groups
is unknown from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.harness.log.coordinators import GROUPS
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Examinable,
    Examined,
    Finding,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts import synced_offsets
from linkflap.spark_verify.checks.parts.group_reads import (
    checkpoints,
    during,
    held_against,
    polls_of,
    skipped_and_repeated,
)
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop, hops
from linkflap.spark_verify.checks.parts.samples import never_sampled
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.view import PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every group that read on the source before a failover and on the destination only
    after it."""
    if view.guarantee.group_offsets == "none":
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
                findings.append(Unjudged(reason))
            findings += skipped_and_repeated(
                then, promotion, group, compared.source, compared.destination, polls_of(view, group)
            )
            findings += checkpoints(
                then, promotion, group, compared.destination, polls_of(view, group)
            )
    return findings


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
            found += [] if judged is None else [part.combined(judged)]
    return found


def _due(scenario: Scenario, promotions: Sequence[Promotion]) -> Due:
    """Where failovers of clusters that a group reads on lead to, and samples of the group where
    they come from.

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
    inputs=frozenset({"batches", "records", "reads", "watermarks", "groups", "promotions"}),
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
