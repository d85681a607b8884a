"""Payload ids of records that programs of the user's wrote, by what was recorded on the wire: their
records have no header that names them.

A batch is identified by its producer id, epoch, first sequence and number of records, on the
cluster whose clients wrote it; where a mirror maps producer ids, by the id at the source. A batch
without a producer id is identified by its acknowledged offset, if its CRC is that of what was asked
to be written there, or by its CRC alone if no offset was acknowledged. (Brokers that rewrite
batches, for instance for LogAppendTime, give all of them other CRCs: then by offset alone.) Equal
batches of which no offset was acknowledged have no name.

What a reader got is what its cluster had at that offset then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from linkflap.harness.model.guarantee import ProducerIds
from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.checks.parts.logs import locate
from linkflap.spark_verify.facts.eras import Era, history
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import DATA, Ints, PartitionView, Replica

_NO_ID: Final = -1
_LARGEST: Final = 2**63 - 1
_LOW: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """A batch that a client asked to be written: its first payload id, and its operation."""

    uid: int
    operation: int


@dataclass(slots=True)
class _Asked:
    """The batches that clients of one cluster asked to be written."""

    by_sequence: dict[tuple[int, int, int, int], _Name] = field(default_factory=dict)
    by_offset: dict[int, tuple[int, int, _Name]] = field(default_factory=dict)
    by_crc: dict[tuple[int, int], list[_Name]] = field(default_factory=lambda: defaultdict(list))
    rewritten: bool = True

    def add(self, send: Send) -> None:
        name, size = _Name(uid=send.first_uid, operation=send.number), len(send.offsets)
        if send.producer_id != _NO_ID:
            key = send.producer_id, send.producer_epoch, send.sequence, size
            self.by_sequence.setdefault(key, name)
        elif size and send.offsets[0] >= 0:
            self.by_offset[int(send.offsets[0])] = send.crc, size, name
        else:
            self.by_crc[send.crc, size].append(name)

    def look_at(self, replica: Replica) -> None:
        """Finds out whether the cluster's brokers rewrite batches."""
        batches = replica.batches
        for offset, crc in zip(batches.base_offset.tolist(), batches.crc.tolist(), strict=True):
            there = self.by_offset.get(offset)
            if there is not None and there[0] == crc:
                self.rewritten = False
                return

    def name(
        self, identity: tuple[int, int, int], offset: int, size: int, crc: int
    ) -> _Name | None:
        """The name of a batch, if these clients asked for it. `identity`: producer id, epoch, first
        sequence."""
        if identity[0] != _NO_ID:
            return self.by_sequence.get((*identity, size))
        there = self.by_offset.get(offset)
        if there is not None and there[1] == size and (self.rewritten or there[0] == crc):
            return there[2]
        equal = self.by_crc.get((crc, size), ())
        return equal[0] if len(equal) == 1 else None


def named_on_the_wire(seen: PartitionView) -> PartitionView:
    """A partition with the names of its records, which have none yet."""
    asked: dict[str, _Asked] = defaultdict(_Asked)
    for send in seen.sends:
        asked[send.cluster].add(send)
    for cluster, replica in seen.canonical().items():
        asked[cluster].look_at(replica)
    replicas, earlier = (
        tuple(_named(seen, replica, asked) for replica in some)
        for some in (seen.replicas, seen.earlier)
    )
    logs = [*sorted(earlier, key=lambda r: r.captured), *(r for r in replicas if r.canonical)]
    return replace(
        seen,
        replicas=replicas,
        earlier=earlier,
        reads=tuple(_read(read, logs) for read in seen.reads),
        shares=tuple(_read(read, logs) for read in seen.shares),
    )


def _named(seen: PartitionView, replica: Replica, asked: Mapping[str, _Asked]) -> Replica:
    if not len(replica.records):
        return replica
    batches, how = replica.batches, seen.guarantee.producer_ids
    uids = np.full(len(batches), FOREIGN, np.int64)
    operations = uids.copy()
    eras = _eras(seen, replica)
    columns = (
        batches.base_offset,
        batches.last_offset,
        batches.crc,
        _at_source(batches.producer_id, how),
        batches.producer_epoch,
        batches.base_sequence,
        batches.control,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (base, last, crc, producer_id, epoch, sequence, control) in enumerate(rows):
        identity = producer_id, epoch, sequence
        if control == DATA:
            for cluster in _owners(eras, base, asked):
                found = asked[cluster].name(identity, base, last - base + 1, crc)
                if found is not None:
                    uids[row], operations[row] = found.uid, found.operation
                    break
    records = replica.records
    first = uids[records.batch]
    index = records.offset - batches.base_offset[records.batch]
    return replace(
        replica,
        records=replace(
            records,
            uid=np.where(first == FOREIGN, FOREIGN, first + index),
            operation=operations[records.batch],
        ),
    )


def _eras(seen: PartitionView, replica: Replica) -> Sequence[Era]:
    """The eras of a replica's log when it was captured."""
    generations = history(seen.partition_facts).generations.get(replica.cluster, ())
    chosen = [g for g in generations if g.before and g.before == replica.moment] or generations[-1:]
    return chosen[0].eras if chosen else ()


def _owners(eras: Sequence[Era], offset: int, asked: Iterable[str]) -> Iterable[str]:
    """The clusters whose clients may have written what is at an offset: first the one that should
    have."""
    owner = next((era.owner for era in eras if era.start <= offset < era.end), "")
    return sorted(asked, key=lambda cluster: (cluster != owner, cluster))


def _at_source(ids: Ints, how: ProducerIds) -> Ints:
    """The producer ids that mapped ones have at the source."""
    if how == "negate":
        return np.where(ids < _NO_ID, -(ids + 2), ids)
    if how == "complement":
        return np.where(ids > _LARGEST // 2, _LARGEST - ids - 1, ids)
    return np.where(ids < _NO_ID, ids & _LOW, ids) if how == "region" else ids


def _read(read: Read, logs: Sequence[Replica]) -> Read:
    """What a reader got, by the log of its cluster that was captured next."""
    mine = [log for log in logs if log.cluster == read.cluster]
    log = next((log for log in mine if log.captured >= read.returned), mine[-1] if mine else None)
    if log is None or not len(read.offsets) or not len(log.records):
        return read
    at = locate(log.records.offset, read.offsets)
    return replace(read, uids=np.where(at >= 0, log.records.uid[at], FOREIGN))
