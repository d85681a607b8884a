"""truncation-accounting: what a failback truncates, and a failover appends, is what the mirror
recorded, and no more than is permitted.

A cluster that follows again loses everything behind the offset where its history and the new
owner's diverge, and nothing below it (KIP-1279, last mirrored offset; KIP-101). The capture from
right before the truncation judges it. Below the truncation the log is unchanged, byte for byte; of
the tail nothing is left. No client had an acknowledgement for a record of the tail, except those
that the forced failover before had lost already, and that `failover` counts. A planned failover
leaves no tail.

A failover ends open transactions. Between the last mirrored offset and the promoted one are the
markers that the mirror recorded, at the recorded offsets, and nothing else. Or the log was
truncated, and then the recorded truncations lead from the one offset to the other. Where a mirror
records that it truncated a log, at a failover or because its source was truncated, a batch begins
there, in a later leader epoch than all before it (KIP-101: otherwise an epoch and an offset
identify two batches). Mirrored batches have the leader epochs that the mirror recorded, among them
the last one: a failback by epoch relies on that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.parts.generations import (
    compacted,
    generations,
    number_at,
    replica_of,
)
from linkflap.spark_verify.checks.parts.mirror_journal import ended
from linkflap.spark_verify.checks.parts.written_truncations import (
    truncation_findings,
    without_reversal,
)
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.view import Origin, PartitionView

NEVER_FOLLOWED: Final = "no mirror made this cluster follow then"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks at every truncation, and at the end of every mirror that was failed over."""
    findings: list[Finding] = []
    for name, mine in sorted(generations(view).items()):
        for generation, following in pairwise(mine):
            findings += truncation_findings(view, generation, following)
        known = [t for t in view.truncations if t.cluster == name]
        findings += [
            Found(
                kind="truncation-impossible",
                cluster=t.cluster,
                offset=t.offset,
                evidence={"because": NEVER_FOLLOWED, "end": t.end},
            )
            for t in known
            if without_reversal(t, mine)
        ]
    for stop in view.stops:
        promotion = next(
            (p for p in view.promotions if p.link == stop.link and p.time >= stop.time), None
        )
        mine = generations(view).get(stop.cluster, ())
        number = number_at(mine, stop.time)
        replica = replica_of(view, mine[number]) if mine else None
        if promotion is not None and replica is not None:
            findings += ended(
                replica, stop, promotion, generation=number, cleaned=compacted(view, replica)
            )
    return findings


def _due(scenario: Scenario, promotions: Sequence[Promotion]) -> Collection[tuple[str, Origin]]:
    """Every cluster that is to follow again, and everyone whom a mirror that keeps a journal has
    promoted."""
    if not scenario.mirror.guarantee.offsets_kept:
        return ()
    truncated = {f.on.source for f in scenario.schedule if f.name.reverses}
    return {(cluster, "native") for cluster in truncated | {p.cluster for p in promotions}}


CHECK = Check(
    name="truncation-accounting",
    guarantee=(
        "A failback truncates the records that the new owner never had, and nothing else. A "
        "failover appends what the mirror recorded."
    ),
    source="KIP-1279 (failback: last mirrored offset and epoch; ABORT markers at stop); KIP-101",
    inputs=frozenset({"batches", "records", "sends", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="truncation-too-deep",
            meaning=(
                "A log was truncated below the offset at which its history and the new "
                "owner's diverge."
            ),
            sentence=(
                "{cluster} truncated {tp} to {offset}, although both logs agree up to {parted_at}"
            ),
            alone="what both clusters had is gone until it is mirrored again",
            smallest="A has 1 2, B was promoted at 2, A was truncated at 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-too-short",
            meaning=(
                "A recorded truncation leaves a batch that the new owner never had, whatever "
                "happened to the batch later."
            ),
            sentence=(
                "{cluster} truncated {tp} to {truncated_to} and kept its own batch at {at}, "
                "although the logs part at {parted_at}"
            ),
            alone="until the log is truncated further, readers get what the new owner never had",
            smallest=(
                "A had 1 2, B was promoted at 1, A follows B and is recorded as truncated at "
                "2: at offset 1."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-unrecorded",
            meaning=(
                "A log had a tail that the new owner never had, and no truncation of it was "
                "recorded."
            ),
            sentence=(
                "{cluster} lost its log of {tp} from {parted_at} on, and the mirror reported no "
                "truncation"
            ),
            alone="the truncated records are not reported",
            smallest=(
                "A has 1 2, B was promoted at 1, A follows B and no truncation is reported: at "
                "offset 1."
            ),
        ),
        AnomalyKind(
            name="truncation-impossible",
            meaning=(
                "A recorded truncation is impossible: above its own end or the log's, below "
                "the log's end at that time, or of a cluster that did not follow then."
            ),
            sentence=(
                "the mirror reports a truncation of {tp} on {cluster} from {end} on, which cannot "
                "be: {because}"
            ),
            alone="what was given up cannot be known from it",
            smallest="A has 1 2 and followed B, a truncation from 2 to 5 is reported: at offset 5.",
        ),
        AnomalyKind(
            name="history-changed",
            meaning=(
                "A batch below the truncation is gone, has other bytes or another leader epoch, or "
                "was not there before."
            ),
            sentence="{cluster} has other bytes at {at} than before the truncation: {how}",
            alone="readers that were there before and after know two histories",
            smallest=(
                "A had 1 2 and was truncated at 1, now it has only what came from offset 1 on: at "
                "offset 0."
            ),
        ),
        AnomalyKind(
            name="tail-not-truncated",
            meaning="A batch from behind the offset where the histories diverge is still there.",
            sentence=(
                "{cluster} kept {batches} batches from {at} on that its new source does not have"
            ),
            alone="readers of the two clusters get different records",
            smallest=(
                "A had 1 2, B was promoted at 1, A follows B and has 2 at offset 1: at offset 1."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncated-write",
            meaning=(
                "A truncation removed an acknowledged record that no forced failover had lost "
                "before."
            ),
            sentence=(
                "{cluster} acknowledged {who} at {at}, and the truncation removed it although the "
                "failover had drained"
            ),
            counted="acknowledged write was truncated|acknowledged writes were truncated",
            smallest=(
                "A acknowledged 2 at offset 1, after a planned failover at 1 it was truncated "
                "there: at offset 1."
            ),
        ),
        AnomalyKind(
            name="marker-not-appended",
            meaning=(
                "A failover recorded that it appended a marker, and the destination has none "
                "or another one there."
            ),
            sentence=(
                "the mirror says that it appended {said} at {at} on {cluster}, and it is not there"
            ),
            alone="the transaction stays open, and readers of committed records wait for it",
            smallest=(
                "the mirror of A->B says ABORT of producer 7 at offset 1, B has data there: at "
                "offset 1."
            ),
        ),
        AnomalyKind(
            name="marker-unannounced",
            meaning=(
                "Between the last mirrored offset and the promoted one is a batch that the "
                "mirror did not record."
            ),
            sentence="{cluster} has a marker at {at} that the mirror does not say it appended",
            alone="who goes by what the mirror says does not know how the transaction ended",
            smallest=(
                "the mirror says mirrored 1, promoted 2 and nothing appended, B has a batch at "
                "offset 1: at offset 1."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="promotion-mismatch",
            meaning=(
                "The recorded promotion is not at the offset where the mirror reported its own end."
            ),
            sentence=(
                "the mirror says that {tp} on {cluster} was mirrored to {mirrored} and promoted at "
                "{promoted}, which does not add up"
            ),
            alone="who goes by what the mirror says looks for lost records at the wrong offsets",
            smallest=(
                "the mirror says mirrored 2 and promoted 2, the promotion is at 1: at offset 1."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="promotion-unaccounted",
            meaning=(
                "The truncations and markers of a mirror do not lead from its last mirrored to the "
                "promoted offset."
            ),
            sentence=(
                "the mirror {link} says that it mirrored {tp} on {cluster} to {mirrored} and "
                "promoted it at {promoted}, and its truncations and markers do not lead from the "
                "one to the other"
            ),
            alone="who goes by what the mirror says looks for lost records at the wrong offsets",
            smallest=(
                "the mirror says mirrored 2, promoted 1, and mentions no truncation: at offset 1."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-mismatch",
            meaning=(
                "A mirrored batch has another leader epoch than the mirror recorded for its offset."
            ),
            sentence=(
                "{cluster} has leader epoch {leader_epoch} at {at} where the mirror says {said}"
            ),
            alone="a failback by what the mirror says truncates at the wrong offset",
            smallest=(
                "the mirror of A->B says epoch 3 from offset 0 on, B's batch at offset 0 has epoch "
                "0: at offset 0."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="truncation-not-made",
            meaning=(
                "A mirror recorded a truncation, and a batch lies across its offset, or "
                "continues in the earlier leader epoch."
            ),
            sentence=(
                "the mirror {link} says that it truncated {tp} on {cluster} from {end} to "
                "{truncated_to}, and the log still has a batch of before"
            ),
            alone="the log keeps what the mirror gave up",
            smallest=(
                "the mirror of A->B says that it truncated B from 2 to 1, B has 1 2 in one leader "
                "epoch: at offset 1."
            ),
        ),
    ),
    complete=frozenset({"promotions", "sends"}),
    follows=frozenset({"leader-epochs", "standby-isolation"}),
    kernel=kernel,
    unit="batches",
    due_at=_due,
    when="those of every failover and failback, if the mirror keeps offsets",
)
