"""byte-equality: in every mirrored era, a mirror that keeps offsets has the source's batches byte
for byte (KIP-1279).

The check compares (base offset, last offset, length, CRC) of every batch. The leader epoch, which
the CRC does not cover, may differ. A mirror that maps producer ids changes every CRC: each must
follow from the source's CRC and the two ids, so that no other bit differs, and each id must be the
mapped one. All partitions of a source have the same region. A batch that only the source has, below
the destination's end, is a hole. One that only the destination has is a stranger. The source's tail
is lag. In copied logs a stranger above the end of the source's log proves nothing if the source may
have been copied first. Batches that a mirror declares to have appended when the run ended, without
a failover, are its own. This check does not judge mirrors that move offsets. In copied logs the
mark of a promotion may have been deleted with the beginning of the log, and the finding then says
so (`harness.capture.promotions_from_bytes`). Compaction on either side packs the remaining records
into new batches. Their headers agree except for length, count, CRC and base timestamp. A cleaner
removes a marker only after all records of its transaction, and keeps the last batch of each
producer, even if it is empty (KIP-98). For a recorded run record-equality compares the records. A
part that is unreadable in one log is compared in neither. Everything behind it is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
    grouped,
)
from linkflap.spark_verify.checks.log_model.batch_differences import (
    as_mapped,
    bytes_differ,
    changes_of,
    ids_as_declared,
    mapped_over,
    offsets_due,
    other_endings,
    region_of,
)
from linkflap.spark_verify.checks.log_model.cleaning import (
    KEPT,
    TIME,
    changed_headers,
    ended_is_there,
    last_of_producer,
)
from linkflap.spark_verify.checks.log_model.generations import compacted, examined
from linkflap.spark_verify.checks.log_model.logs import locate, outside
from linkflap.spark_verify.checks.log_model.mirrored_ranges import (
    Hop,
    compared_offsets,
    judged_hops,
    unclear,
)
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.view import DATA, Batches, Bools, Ints, PartitionView, Replica

KEPT_OVER_LINKS: Final = (*(name for name in KEPT if name != "leader_epoch"), "coordinator_epoch")
_HEADER: Final = frozenset((*KEPT_OVER_LINKS, TIME))
_SEEN: Final = ("length", "count", *(name for name in KEPT_OVER_LINKS if name != "producer_id"))
"""Fields in which batches may differ, but for the id, which a mirror may map."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Compares every mirrored range, and both ends of several."""
    if not view.guarantee.offsets_kept or view.guarantee.equality != "bytes":
        return []
    return [*judged_hops(view, _compare), *unclear(view)]


def _compare(view: PartitionView, compared: Hop) -> Iterator[Finding]:
    source, destination = compared.source.replica, compared.destination.replica
    mirrored_range = compared.mirrored_range
    start, end = compared_offsets(view, compared)
    ours, theirs = _between(destination.batches, start, end), _between(source.batches, start, end)
    if not mirrored_range.far:
        yield from examined(compared.generation, destination.batches.base_offset[ours])
    unread = [
        (replica, max(start, first), last)
        for replica in (source, destination)
        for first, last in replica.unread
    ]
    for replica, first, last in unread:
        upto = "on" if last >= end else f"to {last - 1}"
        reason = (
            f"the log of {replica.cluster} is torn, so its bytes could not be compared from offset "
            f"{first} {upto}"
        )
        yield Unjudged(reason)
        ours = outside(destination.batches, ours, first, last)
        theirs = outside(source.batches, theirs, first, last)
    if not (view.recorded or mirrored_range.far):
        yield from _nothing_arrived(view, source, destination)
    later = _copied_later(view, compared, destination.batches, ours)
    yield from _order_of_copying(view, compared, destination.batches, ours[later])
    ours = ours[~later]
    yield from _without_cleaning(view, compared, [*_differences(view, compared, ours, theirs)])
    yield from _region(view, compared, ours, theirs)


def _without_cleaning(
    view: PartitionView, compared: Hop, differences: Sequence[Found]
) -> Iterator[Finding]:
    """The differences that no cleaner made, after the number of unsure ones."""
    replicas = compared.source.replica, compared.destination.replica
    cleaned = max(compacted(view, replica) for replica in replicas)
    judged = [
        found
        for found in differences
        if found.offset >= cleaned or _not_by_a_cleaner(view, compared, found)
    ]
    unsure = len(differences) - len(judged)
    if unsure and not view.recorded:
        reason = (
            f"{unsure} batches differ below offset {cleaned}, where a log is compacted: by that, or"
            " lost"
        )
        yield Unjudged(reason)
    yield from judged


def _copied_later(view: PartitionView, compared: Hop, batches: Batches, ours: Ints) -> Bools:
    """The batches of the destination above the end of the source's log, unless the destination is
    known to have been copied first. Live clusters are read in that order."""
    source = compared.source.replica
    above = batches.base_offset[ours] >= source.end
    sampled = source.high_watermark_from == "sampled"
    return above & (not (view.recorded or compared.mirrored_range.far or sampled))


def _order_of_copying(
    view: PartitionView, compared: Hop, batches: Batches, later: Ints
) -> Iterator[Unjudged]:
    if not len(later):
        return
    source, destination = compared.source.cluster, compared.destination.cluster
    where = view.tp
    yield Unjudged(
        f"{len(later)} batches of {destination}'s {where} lie above the end of {source}'s log, "
        f"offset {compared.source.replica.end}, first {batches.base_offset[later[0]]}: {source}"
        f" was copied before {destination}, or {destination} wrote them itself; copy a "
        f"destination before its source, or say --promotion {destination}:{where}=OFFSET"
    )


def _not_by_a_cleaner(view: PartitionView, compared: Hop, found: Found) -> bool:
    """Whether batches differ in a field that a cleaner never changes, or one side lacks a batch
    that a cleaner always keeps: the marker of a remaining transaction, or the last batch of a
    producer."""
    if found.kind == "byte-divergence":
        return not _HEADER.isdisjoint(found.evidence["fields"])
    source, destination = compared.source.replica, compared.destination.replica
    holder, lacking = (source, destination) if found.kind == "byte-hole" else (destination, source)
    row = int(np.flatnonzero(holder.batches.base_offset == found.offset)[0])
    if lacking.damage or not holder.batches.crc_ok[row] or holder.batches.producer_id[row] == -1:
        return False
    how = mapped_over(view.guarantee.producer_ids, compared.mirrored_range.far)
    holder = as_mapped(holder, lacking, how)
    if holder.batches.control[row] != DATA:
        return ended_is_there(holder, row, lacking)
    return view.recorded and last_of_producer(holder, row, lacking)


def _nothing_arrived(
    view: PartitionView, source: Replica, destination: Replica
) -> Iterator[Unjudged]:
    if len(source.batches) and not len(destination.batches) and destination.end < source.end:
        reason = (
            f"{destination.cluster} has nothing of {view.tp}, of which {source.cluster} has batches"
        )
        yield Unjudged(reason)


def _differences(view: PartitionView, compared: Hop, ours: Ints, theirs: Ints) -> Iterator[Found]:
    """The differences between these batches of the destination and of the source."""
    source, destination = compared.source.replica, compared.destination.replica
    mirrored_range = compared.mirrored_range
    at = locate(source.batches.base_offset[theirs], destination.batches.base_offset[ours])
    known = at >= 0
    how = mapped_over(view.guarantee.producer_ids, mirrored_range.far)
    for row in np.flatnonzero(~known).tolist():
        yield _found(compared, "byte-stranger", destination, int(ours[row]))
    rows, partners = ours[known], theirs[at[known]]
    wrong = bytes_differ(source.batches, destination.batches, partners, rows, how)
    other = np.zeros(len(rows), np.bool_)
    if not (how == "region" and mirrored_range.far):
        ids = source.batches.producer_id[partners], destination.batches.producer_id[rows]
        other = ~ids_as_declared(how, *ids)
    strange = dict(zip(rows.tolist(), other.tolist(), strict=True))
    for row in rows[other & ~wrong].tolist():
        yield _found(compared, "byte-divergence", destination, row, fields=["producer_id"])
    ends_otherwise = other_endings(source, destination, partners[wrong], rows[wrong])
    for row, partner in zip(rows[wrong].tolist(), partners[wrong].tolist(), strict=True):
        fields = changed_headers(_SEEN, destination.batches, row, source.batches, partner)
        fields += ["producer_id"] if strange[row] else []
        evidence = {
            "fields": fields or ["crc"],
            **(ends_otherwise.get(row) or changes_of(source, destination, row)),
        }
        yield _found(compared, "byte-divergence", destination, row, **evidence)
    had = locate(destination.batches.base_offset[ours], source.batches.base_offset[theirs]) >= 0
    for row in theirs[~had].tolist():
        yield _found(compared, "byte-hole", source, row)


def _region(
    view: PartitionView, compared: Hop, ours: Ints, theirs: Ints
) -> Iterator[PartialFinding]:
    """The region of the ids that these batches have, and the first batch that has one."""
    how, far = view.guarantee.producer_ids, compared.mirrored_range.far
    source, destination = compared.source.replica, compared.destination.replica
    batches = destination.batches
    at = locate(source.batches.base_offset[theirs], batches.base_offset[ours])
    rows, ids = ours[at >= 0], source.batches.producer_id[theirs[at[at >= 0]]]
    right = ids_as_declared(how, ids, batches.producer_id[rows]) & (ids != -1)
    mapped = rows[right]
    if how == "region" and not far and len(mapped):
        row = int(mapped[0])
        found = _found(compared, "byte-divergence", destination, row, fields=["producer_id"])
        data = {
            "region": region_of(batches.producer_id[mapped]),
            "batches": len(mapped),
            "found": found.evidence,
        }
        yield PartialFinding(cluster=found.cluster, offset=found.offset, data=data)


def combine(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Partitions whose ids have another region than most batches of the same source have."""
    links = grouped(partials, lambda each: (each.cluster, each.data["found"]["source"]))
    for mine in links.values():
        batches: dict[object, int] = defaultdict(int)
        for each in sorted(mine, key=lambda p: (p.topic, p.partition, p.offset)):
            batches[each.data["region"]] += each.data["batches"]
        usual = max(batches, key=lambda region: batches[region])
        yield from [
            each.combined(
                Found.at("byte-divergence", each.cluster, each.offset, **each.data["found"])
            )
            for each in mine
            if each.data["region"] != usual
        ]


def _between(batches: Batches, start: int, end: int) -> Ints:
    """Rows of the batches that end in [start, end): the first may have been begun before a log
    start."""
    return np.flatnonzero((batches.last_offset >= start) & (batches.last_offset < end))


def _found(compared: Hop, kind: str, holder: Replica, row: int, **evidence: object) -> Found:
    """An anomaly of the destination at a batch of either end."""
    base, last = holder.batches.base_offset[row], holder.batches.last_offset[row]
    about = {"source": compared.source.cluster, "batch": [base, last], **evidence}
    return Found.at(kind, compared.destination.cluster, base, **about)


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    keeps_bytes = scenario.mirror.guarantee.equality == "bytes"
    return offsets_due(scenario, promotions) if keeps_bytes else ()


CHECK = Check(
    name="byte-equality",
    guarantee="""Where a mirror keeps offsets, the mirrored log has the source's batches, byte for
        byte, at the same offsets.""",
    source="KIP-1279 (segments are identical); message format v2: what the CRC covers",
    inputs={"batches", "promotions"},
    anomalies=(
        AnomalyKind(
            name="byte-divergence",
            meaning="""A batch at the same offset has another last offset, length or CRC than at the
                source, or than follows from the mapping of producer ids; or another id. In a
                compacted part: another header field that no cleaner changes.""",
            sentence="{cluster} has another batch than {source} at {at}: {difference}",
            counted="mirrored batch differs|mirrored batches differ",
            alone="what only the source's bytes say is lost to whoever reads {cluster}",
            smallest="A has 1, B has 2 at the same offset: at that offset on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="byte-hole",
            meaning="A batch of the source is missing on the destination, which has later ones.",
            sentence="{cluster} lacks a batch that {source} has at {at}",
            counted="mirrored batch is missing|mirrored batches are missing",
            alone="readers of {cluster} do not get what is in it",
            smallest="A has 1 2 in two batches, B has only 2, at offset 1: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="byte-stranger",
            meaning="A mirrored batch begins at an offset where no batch of the source begins.",
            sentence="{cluster} has a batch at {at} that {source} never had",
            counted="""mirrored batch was never at the source|mirrored batches were never at the
                source""",
            alone="readers of {cluster} may get what {source} never had",
            smallest="A has 1 2 in one batch, B has 1 2 in two: at offset 1 on B.",
            despite_torn=True,
        ),
    ),
    follows={"replica-agreement", "standby-isolation", "truncation-accounting", "leader-epochs"},
    kernel=kernel,
    combine=combine,
    from_bytes=True,
    unit="batches",
    due_at=_due,
    when="mirrored ones where a link leads, if the mirror keeps offsets and bytes",
    examines_any_log=True,
)
