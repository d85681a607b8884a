"""record-equality: at every mirrored offset a mirror that keeps offsets has the source's record, in
whatever batches.

It is weaker than byte-equality: it also judges a mirror that may pack records anew (another codec,
other batches). It reads headers first. A batch that is on both sides with one base offset, last
offset, length and CRC, with the CRC right on both, has the same records, and none of its records is
decoded. Of all other batches every record is compared by its offset: timestamp, key, value and
headers (one digest), and its payload id. So a byte-divergence without a record-divergence is
another packing, and one with it is another content. Markers are no records. Where a mirror declares
another mapping of producer ids the CRC must be the one that follows from it. Where a side has
compacted its log it may lack what a cleaner takes, and nothing else
(`log_model.cleaning`): a record that a later one with its key replaced, an aborted
one, an expired tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.harness.model.guarantee import ProducerIds
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.batch_differences import (
    as_mapped,
    bytes_differ,
    mapped_over,
    offsets_due,
)
from linkflap.spark_verify.checks.log_model.cleaning import (
    Cleaned,
    gone_tombstones,
    tombstones_expired,
    up_to,
)
from linkflap.spark_verify.checks.log_model.generations import examined
from linkflap.spark_verify.checks.log_model.logs import locate, runs
from linkflap.spark_verify.checks.log_model.mirrored_ranges import (
    Hop,
    compared_offsets,
    judged_hops,
    unclear,
)
from linkflap.spark_verify.facts.view import Batches, Bools, Ints, PartitionView, Replica


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Compares every mirrored range, and both ends of several."""
    if not view.guarantee.offsets_kept:
        return []
    return [*judged_hops(view, _compare), *unclear(view)]


def _compare(view: PartitionView, compared: Hop) -> Iterator[Finding]:
    source, destination = compared.source.replica, compared.destination.replica
    mirrored_range = compared.mirrored_range
    start, end = compared_offsets(view, compared)
    ours, theirs = destination.records.offset, source.records.offset
    if not mirrored_range.far:
        yield from examined(compared.generation, ours[(ours >= start) & (ours < end)])
    if torn := [r for r in (source, destination) if r.damage]:
        end = min(end, *(replica.torn_from for replica in torn))
        reason = (
            f"the log of {torn[0].cluster} is torn, so its records could not be compared from "
            f"offset {max(start, end)} on"
        )
        yield Unjudged(reason)
    how = mapped_over(view.guarantee.producer_ids, mirrored_range.far)
    here = _disputed(destination, source, start, end, how)
    there = _disputed(source, destination, start, end, how)
    at = locate(theirs[there], ours[here])
    known = at >= 0
    mine, its = here[known], there[at[known]]
    other = (destination.records.digest[mine] != source.records.digest[its]) | (
        destination.records.uid[mine] != source.records.uid[its]
    )
    gone, come = there[locate(ours[here], theirs[there]) < 0], here[~known]
    gone, unsure = _beyond_cleaning(
        view, gone, as_mapped(source, destination, how), destination, end
    )
    come, more = _beyond_cleaning(view, come, as_mapped(destination, source, how), source, end)
    if unsure + more:
        reason = (
            f"{unsure + more} records of {view.tp} are on one of "
            f"{source.cluster} and {destination.cluster} only, which are compacted, and whether a "
            "cleaner took them cannot be known"
        )
        yield Unjudged(reason)
    yield from _found("record-divergence", source, destination, destination, mine[other])
    yield from _found("record-hole", source, destination, source, gone)
    yield from _found("record-stranger", source, destination, destination, come)


def _beyond_cleaning(
    view: PartitionView, rows: Ints, holder: Replica, lacking: Replica, end: int
) -> tuple[Ints, int]:
    """The records that one side lacks although its cleaner did not take them, and the number of
    records for which that is unknown. Both sides have the same producer ids."""
    upto = view.compacted.get(lacking.cluster, 0)
    below = holder.records.offset[rows] < upto
    if not below.any():
        return rows, 0
    at = locate(holder.parts.offset, holder.records.offset[rows[below]])
    if (at < 0).any():
        return rows[~below], int((at < 0).sum())
    cleaner = Cleaned(
        lacking,
        [*(r for r in view.replicas if r.cluster == lacking.cluster), up_to(holder, end)],
        upto=upto,
        expired=tombstones_expired(view, lacking),
    )
    certain = cleaner.may_go(up_to(holder, end), at)
    left = np.flatnonzero(certain < 1)
    gone = gone_tombstones(view, holder, at[left], lacking=lacking, since=end, upto=upto)
    certain[left] = np.where(gone == 0, certain[left], gone)
    wrong = np.sort(np.concatenate((rows[~below], rows[below][certain == 0])))
    return wrong, int((certain < 0).sum())


def _disputed(replica: Replica, other: Replica, start: int, end: int, how: ProducerIds) -> Ints:
    """Records in [start, end) of batches that headers do not prove to be the same on the other
    side."""
    records = replica.records
    inside = (records.offset >= start) & (records.offset < end)
    return (
        np.flatnonzero(inside & ~_same(replica.batches, other.batches, how)[records.batch])
        if len(records)
        else records.offset
    )


def _same(batches: Batches, others: Batches, how: ProducerIds) -> Bools:
    """Per batch, whether the other side has it, byte for byte behind its base offset and leader
    epoch, but for a mapped id."""
    at = locate(others.base_offset, batches.base_offset)
    same = (at >= 0) & batches.crc_ok
    if not len(others):
        return same
    same &= others.crc_ok[at] & (batches.count == others.count[at])
    same &= ~bytes_differ(others, batches, at, np.arange(len(batches)), how)
    return np.asarray(same)


def _found(
    kind: str, source: Replica, destination: Replica, holder: Replica, rows: Ints
) -> Sequence[Found]:
    """Neighbouring records are one anomaly."""
    records = holder.records
    return [
        Found.at(
            kind,
            destination.cluster,
            records.offset[rows[first]],
            records=after - first,
            uid=records.uid[rows[first]],
            source=source.cluster,
        )
        for first, after in runs(records.offset[rows])
    ]


CHECK = Check(
    name="record-equality",
    wire="""The bytes alone decide. Where a topic is compacted, it is unknown whether a cleaner took
        what only one side has: the keys of records that are gone are not known.""",
    guarantee="""Where a mirror keeps offsets, the mirrored log has the source's record at every
        offset, in whatever batches.""",
    source="KIP-1279 (offsets are kept); message format v2: what the CRC covers",
    inputs={"batches", "records", "promotions"},
    anomalies=(
        AnomalyKind(
            name="record-divergence",
            meaning="""At one offset the destination has another timestamp, key, value or header
                than the source.""",
            sentence="{cluster} has another record than {source} at {at}",
            counted="mirrored record differs|mirrored records differ",
            alone="readers of {cluster} get another record than readers of {source}",
            smallest="""A has 1 with value x, B has 1 with value y at its offset: at that offset on
                B.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="record-hole",
            meaning="A record of the source is missing on the destination, which has later ones.",
            sentence="{cluster} lacks {who}, which {source} has at {at}",
            counted="mirrored record is missing|mirrored records are missing",
            alone="readers of {cluster} do not get it",
            smallest="A has 1 2, B has only 2, at offset 1: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="record-stranger",
            meaning="The destination has a mirrored record at an offset where the source has none.",
            sentence="{cluster} has {who} at {at}, where {source} has nothing",
            counted="""mirrored record was never at the source|mirrored records were never at the
                source""",
            alone="readers of {cluster} get what {source} does not have",
            smallest="A has a marker at offset 0 and 2 at offset 1, B has 1 2: at offset 0 on B.",
            despite_torn=True,
        ),
    ),
    follows={"byte-equality"},
    kernel=kernel,
    from_content="records",
    examines_any_log=True,
    due_at=offsets_due,
    when="mirrored ones where a link leads, if the mirror keeps offsets",
)
