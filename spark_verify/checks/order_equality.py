"""order-equality: the destination of a mirror that moves offsets is the source's committed
sequence.

MirrorMaker 2 (KIP-382) re-batches and appends, so offsets differ. Each partition goes to the one of
the same number through one task, in order. So the check compares (payload id, digest of timestamp,
key, value and headers), in order, without offsets. A missing tail is lag: it is RPO if the source
was failed over by force, and no violation if the run just ended. A mirror that keeps offsets is
compared from the source's log start or compacted offset on. For a mirror that moves offsets,
records that the source may have deleted leave the check unknown. Below a cleaner's checkpoint a
side may lack only records that a later record with the same key replaced, and expired tombstones
(`log_model.cleaning`). A record for which no offset is free between its neighbours
was never there. If records are known by their contents, `log_model.same_contents`
decides which copies are possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.cleaning import cleaned_at_source, may_have_repeated
from linkflap.spark_verify.checks.log_model.generations import examined
from linkflap.spark_verify.checks.log_model.logs import among, runs
from linkflap.spark_verify.checks.log_model.mirrored_ranges import (
    Hop,
    aborted_or_open,
    judged_hops,
    not_promoted,
    perhaps_cleaned,
    repeated_at_source,
    unclear,
    why_not_judged,
)
from linkflap.spark_verify.checks.log_model.record_order import (
    divergences,
    inversions,
    late_records,
    order_anomaly,
    repeats,
)
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Compares every mirrored range, and both ends of several."""
    moved = not view.guarantee.offsets_kept
    return [*judged_hops(view, _judge), *(unclear(view) if moved else ())]


def _judge(view: PartitionView, compared: Hop) -> Sequence[Finding]:
    cluster = compared.destination.cluster
    offsets = compared.destination.records.offset[compared.mirrored]
    gone = _nothing_to_compare_with(view, compared)
    findings: list[Finding] = (
        [] if compared.mirrored_range.far else list(examined(compared.generation, offsets[~gone]))
    )
    if not_promoted(view, compared.generation):
        reason = (
            f"clients wrote to {view.topic} on {cluster} but no promotion was recorded: what was "
            "mirrored is unknown"
        )
        return [*findings, Unjudged(reason)]
    torn = [log.cluster for log in (compared.source, compared.destination) if not log.whole]
    if torn:
        return [
            *findings,
            Unjudged(f"the log of {torn[0]} is torn, so what is missing may have been there"),
        ]
    differences = [
        *repeats(view, compared),
        *_strangers(view, compared, gone),
        *_holes(compared),
        *inversions(view, compared),
        *divergences(compared),
    ]
    return [
        *findings,
        *_by_contents(view, compared, differences),
        *_lag(view, compared),
        *_unsettled(compared),
        *_unknown(compared),
    ]


def _by_contents(
    view: PartitionView, compared: Hop, differences: Sequence[Finding]
) -> Sequence[Finding]:
    """The differences. If records are known by their contents, a difference counts only if no way
    of copying the source explains it. If no way explains the destination at all, that is one
    finding; repeats that the mirror's guarantee allows do not explain it."""
    origin = compared.origin
    if origin.how == "not":
        return [*differences, *_inexplicable(view, compared, differences)]
    if not compared.explained:
        doubt = [_ambiguous(view, compared)] if compared.nameless else []
        return [*differences, *doubt]
    # The mirror's guarantee decides whether so many repeats are allowed.
    kept = [
        each
        for each in differences
        if not isinstance(each, Found) or (origin.how != "once" and _repeated(each))
    ]
    left = len(differences) - len(kept)
    doubtful = origin.how == "coincidence" or (origin.how == "again" and not kept)
    if not (left or doubtful):
        return kept
    return [*kept, _ambiguous(view, compared)]


def _ambiguous(view: PartitionView, compared: Hop) -> Unjudged:
    source, destination = compared.source.cluster, compared.destination.cluster
    return Unjudged(
        f"several records of {source}'s {view.tp} have the same contents, so that which of them "
        f"{destination} has, and which twice, cannot be known"
    )


def _repeated(finding: Finding) -> bool:
    return isinstance(finding, Found) and finding.kind == "mirrored-duplicate"


def _inexplicable(
    view: PartitionView, compared: Hop, differences: Sequence[Finding]
) -> Iterator[Found]:
    """The first record of the destination that no way of copying the source explains, unless the
    differences already show the fault."""
    allowed = may_have_repeated(view, compared.destination.cluster)
    found = [each for each in differences if isinstance(each, Found)]
    if any(not (allowed and _repeated(each)) for each in found):
        return
    theirs, ours = compared.source.records, compared.destination.replica
    index, position = compared.origin.index, compared.origin.position
    shown = compared.came[ours.records.offset[compared.came] >= ours.log_start]
    offset = int(ours.records.offset[shown[index]])
    due = np.flatnonzero(compared.source.visible)
    evidence = {"records": 1, "source": compared.source.cluster, "after_offset": offset - 1}
    if position >= len(due):
        yield Found.at("mirror-phantom", ours.cluster, offset, uid=-1, **evidence)
        return
    row = due[position]
    yield Found.at(
        "mirror-hole",
        ours.cluster,
        offset,
        uid=int(theirs.uid[row]),
        source_offset=int(theirs.offset[row]),
        before_offset=offset,
        **evidence,
    )


def _nothing_to_compare_with(view: PartitionView, compared: Hop) -> Bools:
    """Per mirrored record, whether the source has deleted or compacted what was at its offset;
    never so where offsets move."""
    source = compared.source.replica
    offsets = compared.destination.records.offset[compared.mirrored]
    if not view.guarantee.offsets_kept:
        return np.zeros(len(offsets), np.bool_)
    floor = max(source.log_start, view.compacted.get(source.cluster, 0))
    return np.asarray((compared.position < 0) & (offsets < floor))


def _strangers(view: PartitionView, compared: Hop, gone: Bools) -> Iterator[Finding]:
    kept = view.guarantee.offsets_kept
    offsets = compared.destination.records.offset[compared.mirrored]
    # The first segment may begin below the log start: each broker rolls segments at its own
    # offsets, and deletes only complete ones.
    nowhere = np.flatnonzero(
        (compared.position < 0) & (offsets >= compared.destination.replica.log_start)
    )
    uids = compared.destination.records.uid[compared.mirrored[nowhere]]
    hidden = aborted_or_open(compared, uids)
    for start, end in runs(nowhere[hidden >= 0], uids[hidden >= 0]):
        row = int(hidden[hidden >= 0][start])
        state, offset = compared.source.state_of(row), int(compared.source.records.offset[row])
        yield order_anomaly(
            compared,
            "mirrored-aborted",
            nowhere[hidden >= 0][start:end],
            state=state,
            source_offset=offset,
        )
    phantom = nowhere[(hidden < 0) & ~gone[nowhere]]
    if len(phantom) and not kept and compared.source.replica.log_start > 0:
        reason = (
            f"{len(phantom)} mirrored records are not in the log of "
            f"{compared.source.cluster}, whose start was deleted"
        )
        yield Unjudged(reason)
        return
    if len(phantom) and not kept and compared.gaps:
        unknown, phantom = _not_cleaned(view, compared, phantom)
        yield from unknown
    if late := _copied_later(view, compared, phantom):
        yield late
        return
    strange = compared.destination.records.uid[compared.mirrored[phantom]]
    yield from (
        order_anomaly(compared, "mirror-phantom", phantom[start:end])
        for start, end in runs(phantom, strange)
    )


def _not_cleaned(
    view: PartitionView, compared: Hop, phantom: Ints
) -> tuple[Sequence[Finding], Ints]:
    """The mirrored records that a compacted source lacks although no cleaner removes them; and a
    reason for those that cannot be decided."""
    source, destination = compared.source.replica, compared.destination.replica
    uids = destination.records.uid[compared.mirrored]
    placed = (compared.position >= 0) & ~among(uids, compared.unordered)
    ours = placed | among(uids, uids[phantom])
    first = np.flatnonzero(ours & (compared.copy == 0))
    offsets = np.append(source.records.offset[compared.sequence], -1)
    cleared = cleaned_at_source(
        view,
        compared.mirrored_range,
        source,
        destination,
        compared.mirrored[first],
        offsets[compared.position[first]],
    )
    unknown = len(cleared.unknown)
    reason = perhaps_cleaned(unknown, destination.cluster, source.cluster)
    left = phantom[~among(uids[phantom], uids[first[cleared.may]])]
    return [Unjudged(reason)] if unknown else [], left


def _copied_later(view: PartitionView, compared: Hop, phantom: Ints) -> Unjudged | None:
    """Why phantoms of copied logs prove nothing if they all follow the last record of the source:
    the source may have been copied first. Leaders of live clusters are asked for the end of the
    destination first."""
    source, destination = compared.source.replica, compared.destination.replica
    arrived = np.flatnonzero(compared.position >= 0)
    known = view.recorded or source.high_watermark_from == "sampled" or len(_late(compared))
    if known or not len(phantom) or phantom[0] <= arrived.max(initial=-1):
        return None
    where = view.tp
    return Unjudged(
        f"{len(phantom)} records of {destination.cluster}'s {where} come after all that "
        f"{source.cluster} has, the first at offset "
        f"{destination.records.offset[compared.mirrored[phantom[0]]]}: {source.cluster} was "
        f"copied before {destination.cluster}, or {destination.cluster} wrote them itself; copy"
        f" a destination before its source, or say --promotion "
        f"{destination.cluster}:{where}=OFFSET"
    )


def _holes(compared: Hop) -> Iterator[Finding]:
    theirs = compared.source.records
    holes = compared.holes
    for start, end in runs(holes):
        row = compared.sequence[holes[start]]
        around = compared.neighbours(int(holes[start]))
        before = around["before_offset"]
        before = around["after_offset"] if before is None else before
        evidence = {
            "records": end - start,
            "uid": int(theirs.uid[row]),
            "source": compared.source.cluster,
            "source_offset": int(theirs.offset[row]),
            **around,
        }
        offset = before if isinstance(before, int) else -1
        yield Found.at("mirror-hole", compared.destination.cluster, offset, **evidence)


def _unsettled(compared: Hop) -> Sequence[Finding]:
    """Differences that would be anomalies if the deleted part of the source had no copies of these
    records."""
    uids = compared.destination.records.uid[compared.mirrored]
    doubted = among(uids, compared.unsettled) & ~among(uids, repeated_at_source(compared))
    again = int(np.count_nonzero((compared.copy > 0) & doubted))
    late = len(late_records(compared, but=np.empty(0, np.int64))) - len(
        late_records(compared, but=compared.unordered)
    )
    count = again + late + len(compared.doubtful)
    return [Unjudged(why_not_judged(compared, count))] if count else []


def _unknown(compared: Hop) -> Sequence[Finding]:
    count = len(compared.unknown)
    ends = compared.source.cluster, compared.destination.cluster
    return [Unjudged(perhaps_cleaned(count, *ends))] if count else []


def _late(compared: Hop) -> Ints:
    """Committed records that have not arrived. Those above an open transaction are withheld from a
    read_committed mirror: they are not late."""
    theirs = compared.source.records.offset[compared.sequence[compared.behind]]
    return theirs[theirs < compared.source.stable]


def _lag(view: PartitionView, compared: Hop) -> Sequence[Finding]:
    late = len(_late(compared))
    # While a mirror runs, its destination always lags a little behind.
    if compared.tail != "unknown" or not late or (not view.recorded and len(compared.present)):
        return []
    source, destination = compared.source.cluster, compared.destination.cluster
    return [
        Unjudged(
            f"the run ended with {late} committed records of {source} not yet on {destination}:"
            " whether they are late or lost is unknown"
        )
    ]


CHECK = Check(
    name="order-equality",
    guarantee="""A mirrored log is the source's committed records, in their order, unchanged,
        without holes or strangers.""",
    source="KIP-382; Kafka documentation, Geo-Replication: records keep their order and partition",
    wire="""Behind a mirror that moves offsets a record is known by its content: of several with
        equal content the first copy counts as the first, so their number is exact.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="mirror-hole",
            meaning="""A committed record of the source is missing on the destination, which has a
                later one, or whose cleaner has been past it and never takes it.""",
            sentence="""{cluster} lacks {who}, which {source} has at offset {source_offset}, before
                {at}""",
            counted="mirrored record is missing|mirrored records are missing",
            smallest="A has 1 2 3, B has 1 3: at the offset of 3 on B.",
        ),
        AnomalyKind(
            name="mirror-inversion",
            meaning="A record arrived after one that follows it at the source.",
            sentence="{cluster} has {who} at {at} behind records that follow it on {source}",
            counted="mirrored record is out of order|mirrored records are out of order",
            smallest="A has 1 2, B has 2 1: at the offset of 1 on B.",
        ),
        AnomalyKind(
            name="mirror-divergence",
            meaning="""A record has another timestamp, key, value or header on the destination than
                at the source.""",
            sentence="{cluster} has another content than {source} for {who} at {at}",
            counted="mirrored record differs|mirrored records differ",
            smallest="A has 1 with value x, B has 1 with value y: at its offset on B.",
        ),
        AnomalyKind(
            name="mirror-phantom",
            meaning="""The destination has a mirrored record that the source does not have, and that
                its cleaner did not take.""",
            sentence="{cluster} has {who} at {at} as mirrored, and {source} does not have it",
            counted="""mirrored record was never at the source|mirrored records were never at the
                source""",
            smallest="A has 1, B has 1 9: at the offset of 9 on B.",
        ),
        AnomalyKind(
            name="mirrored-duplicate",
            meaning="A record was mirrored again; the first copy counts for order.",
            sentence="""the mirror wrote {who} to {cluster} again at {at}, first at offset
                {first_offset}""",
            counted="record was mirrored twice|records were mirrored twice",
            smallest="A has 1 2, B has 1 1 2: at the offset of the second 1 on B.",
        ),
        AnomalyKind(
            name="mirrored-aborted",
            meaning="""A record of a transaction that the source aborted, or never ended, is plain
                data on the destination. (MirrorMaker 2 copies such records unless it has
                consumer.isolation.level=read_committed.)""",
            sentence="""{cluster} shows {who} at {at}, of a transaction that is {state} on
                {source}""",
            counted="""record of an unfinished or aborted transaction is plain data|records of
                unfinished or aborted transactions are plain data""",
            smallest="A has 1 and its ABORT marker, B has 1: at its offset on B.",
        ),
    ),
    follows={
        "record-equality",
        "byte-equality",
        "truncation-accounting",
        "standby-isolation",
        "replica-agreement",
    },
    kernel=kernel,
    from_content="order",
    examines_any_log=True,
    due={"mirrored"},
)
