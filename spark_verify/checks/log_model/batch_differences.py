"""In what two batches at one offset differ, and the mapped producer ids of a mirror, by its
guarantee; the mappings that were proposed:

    negate      -(pid + 2) (KIP-1279, February 2026)
    complement  Long.MAX - pid - 1 (its discussion thread)
    region      the sign bit, 32 bits that name the source's cluster, and the lower 31 bits of pid
                (the same)

No id (-1) stays none. A mapping is a function, and no two ids get the same one. It changes eight
bytes of a batch, and the CRC that follows from them. A CRC is linear: the CRC of the source's
batch, both ids and the length give the CRC that the destination's batch must have. So equal are all
other bytes under the CRC: attributes, timestamps, epoch, sequence, count, and the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout
from linkflap.harness.model.guarantee import MAPPED, ProducerIds
from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import Due
from linkflap.spark_verify.checks.log_model.logs import locate, read
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.view import ABORT, COMMIT, Batches, Bools, Ints, Parts, Replica

FIELDS: Final = ("timestamp", "key", "value", "headers")
ABSENT: Final = ["absent on one"]


def changed_records(ours: Parts, theirs: Parts, base: int, last: int) -> list[dict[str, Any]]:
    """The records of a batch that differ: offset, uid, and which of their parts do, or on which
    side one is not there."""
    one, two = _by_offset(ours, base, last), _by_offset(theirs, base, last)
    found: list[dict[str, Any]] = []
    if not one or not two:
        return found
    for offset in sorted(one.keys() | two.keys()):
        mine, yours = one.get(offset), two.get(offset)
        if mine is None or yours is None:
            uid = int(
                (ours if mine is not None else theirs).uid[mine if mine is not None else yours]
            )
            found.append({"offset": offset, "uid": uid, "fields": ABSENT})
            continue
        fields = [
            name for name in FIELDS if getattr(ours, name)[mine] != getattr(theirs, name)[yours]
        ]
        if fields:
            found.append({"offset": offset, "uid": int(ours.uid[mine]), "fields": fields})
    return found


def _by_offset(parts: Parts, base: int, last: int) -> dict[int, int]:
    return {
        offset: row for row, offset in enumerate(parts.offset.tolist()) if base <= offset <= last
    }


def offsets_due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """The destination of every link that topics cross, if the mirror keeps offsets."""
    if not scenario.mirror.guarantee.offsets_kept:
        return ()
    return {
        (link.destination, "mirrored")
        for link in scenario.topology.links
        if _written(scenario, link.source)
    }


def _written(scenario: Scenario, cluster: str) -> bool:
    """Whether topics cross a link from here: workloads at home on the cluster, or upstream of
    it."""
    homes = {workload.home for workload in scenario.workloads}
    return any(
        homes & set(scenario.topology.homes_over(link))
        for link in scenario.topology.links
        if link.source == cluster
    )


_CHANGED: Final = 5
"""Records per batch whose differences are shown."""


def other_endings(
    source: Replica, destination: Replica, theirs: Ints, ours: Ints
) -> Mapping[int, Mapping[str, object]]:
    """Markers that end their transaction differently than the source's: both endings, and the
    transaction.

    A marker decides about records before it, so where their transaction begins is evidence: what is
    found there follows from it.
    """
    before, after = source.batches.control[theirs], destination.batches.control[ours]
    ends = np.isin(before, (COMMIT, ABORT)) & np.isin(after, (COMMIT, ABORT)) & (before != after)
    if not ends.any():
        return {}
    every, batches = read(destination, untracked=True), destination.batches
    rows = ours[ends]
    at = locate(every.transactions.marker, batches.base_offset[rows])
    held = np.flatnonzero(np.isin(every.marker, batches.base_offset[rows]))
    ended, which = np.unique(every.marker[held], return_inverse=True)
    records = dict(
        zip(
            ended.tolist(),
            np.bincount(which, weights=batches.count[held]).astype(np.int64).tolist(),
            strict=True,
        )
    )
    found: dict[int, Mapping[str, object]] = {}
    for row, transaction in zip(rows.tolist(), at.tolist(), strict=True):
        markers = ["ABORT", "COMMIT"] if batches.control[row] == COMMIT else ["COMMIT", "ABORT"]
        about = (
            {"first_offset": int(every.transactions.first[transaction])} if transaction >= 0 else {}
        )
        found[row] = {
            "markers": markers,
            "ends": records.get(int(batches.base_offset[row]), 0),
            **about,
        }
    return found


def changes_of(source: Replica, destination: Replica, row: int) -> Mapping[str, object]:
    """The records of a batch that differ, if the batch was decoded; none: the batch is packed in
    another way."""
    base = int(destination.batches.base_offset[row])
    last = int(destination.batches.last_offset[row])
    looked_into = (source.parts.offset >= base) & (source.parts.offset <= last)
    if not looked_into.any():
        return {}
    changed = changed_records(source.parts, destination.parts, base, last)
    return {"records": [c["offset"] for c in changed], "changed": changed[:_CHANGED]}


def bytes_differ(
    source: Batches, destination: Batches, theirs: Ints, ours: Ints, how: ProducerIds
) -> Bools:
    """Per pair of rows of batches at one offset, whether they differ in more than what a mapping of
    ids changes: the id, and what follows for the CRC."""
    wrong = source.crc[theirs] != destination.crc[ours]
    if how in MAPPED:
        ids = source.producer_id[theirs], destination.producer_id[ours]
        expected = crc_as_mapped(source.crc[theirs], source.length[theirs], *ids)
        wrong = expected != destination.crc[ours]
    for name in ("last_offset", "length"):
        wrong |= getattr(source, name)[theirs] != getattr(destination, name)[ours]
    return np.asarray(wrong)


def as_mapped(replica: Replica, other: Replica, how: ProducerIds) -> Replica:
    """A log with the producer ids that the other end of a mirror has instead of its own."""
    if how not in MAPPED:
        return replica
    ids = replica.batches.producer_id
    if how == "region":
        at = locate(other.batches.base_offset, replica.batches.base_offset)
        known, first = np.unique(ids[at >= 0], return_index=True)
        theirs = other.batches.producer_id[at[at >= 0][first]]
        index = locate(known, ids)
        mapped = np.where(index >= 0, np.append(theirs, -1)[index], ids)
    else:
        mapped = -(ids + 2) if how == "negate" else np.iinfo(np.int64).max - ids - 1
    batches = replace(replica.batches, producer_id=np.where(ids == -1, ids, mapped))
    return replace(replica, batches=batches)


def mapped_over(how: ProducerIds, links: int) -> ProducerIds:
    """The result of a mapping of ids over several links: negation and complement undo themselves
    (KIP-1279, RS12)."""
    return "kept" if how in ("negate", "complement") and links and links % 2 == 0 else how


_LOW: Final = 0x7FFFFFFF
_CASTAGNOLI: Final = 0x82F63B78
_ID_BYTES: Final = 8


def ids_as_declared(how: ProducerIds, source: Ints, destination: Ints) -> Bools:
    """Per batch, whether its producer id on the destination follows from that on the source by the
    mapping.

    A region is that of most batches, and the id of only one producer.
    """
    none = source == -1
    if how == "negate":
        right = destination == -(source + 2)
    elif how == "complement":
        right = destination == np.iinfo(np.int64).max - source - 1
    elif how == "region":
        right = (destination < -1) & ((destination & _LOW) == (source & _LOW))
        right &= (destination >> 31) == region_of(destination[right & ~none])
        right[~none] &= ~_shared(source[~none], destination[~none])
    else:
        right = destination == source
    return np.asarray(np.where(none, destination == -1, right))


def region_of(mapped: Ints) -> int:
    """The region that most of these ids have, of several the one that comes first; 0 of none."""
    regions, first, counts = np.unique(mapped >> 31, return_index=True, return_counts=True)
    return int(regions[np.lexsort((first, -counts))[0]]) if len(regions) else 0


def _shared(source: Ints, destination: Ints) -> Bools:
    """Per batch, whether an id that came earlier in the log has its id on the destination."""
    ids, first, which = np.unique(destination, return_index=True, return_inverse=True)
    return np.asarray(source != source[first][which]) if len(ids) else np.zeros(0, np.bool_)


def crc_as_mapped(crc: Ints, length: Ints, source: Ints, destination: Ints) -> Ints:
    """Per batch, the CRC that follows from the source's CRC, where only the producer id differs."""
    changed = np.ascontiguousarray((source ^ destination).astype(">i8")).view(np.uint8)
    state = np.zeros(len(crc), np.uint32)
    for byte in changed.reshape(-1, _ID_BYTES).T:
        state = (state >> np.uint32(8)) ^ _zero_bytes(0)[0][(state ^ byte) & np.uint32(0xFF)]
    behind = length - (layout.PRODUCER_ID_AT + _ID_BYTES)
    for power in range(int(behind.max(initial=0)).bit_length()):
        rows = np.flatnonzero((behind >> power) & 1)
        state[rows] = _shifted(_zero_bytes(power), state[rows])
    return np.asarray(crc ^ state.astype(np.int64))


@cache
def _zero_bytes(power: int) -> NDArray[np.uint32]:
    """The effect of 2^power bytes of zero on a CRC's state, as four tables: one for each byte of
    the state."""
    if power:
        half = _zero_bytes(power - 1)
        return np.stack([_shifted(half, table) for table in half])
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1)
    rest = np.arange(256, dtype=np.uint32)
    return np.stack([table, *(rest << np.uint32(8 * (byte - 1)) for byte in (1, 2, 3))])


def _shifted(tables: NDArray[np.uint32], state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    parts = [table[(state >> np.uint32(8 * n)) & np.uint32(0xFF)] for n, table in enumerate(tables)]
    return np.asarray(np.bitwise_xor.reduce(np.stack(parts)), np.uint32)
