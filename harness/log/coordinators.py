"""Decodes the records of coordinators in `__transaction_state` (KIP-98, KIP-890) and
`__consumer_offsets`.

    TransactionLogKey 0      i16 version, string transactional id
    TransactionLogValue 0    i64 producer id, i16 epoch, i32 timeout, i8 state, [string topic, [i32
                             partition]], i64 last update, i64 start of the transaction
                        1    the same, flexible (KIP-482): compact strings and arrays, tagged fields
                             behind each structure: 0 i64 previous producer id, 1 i64 next producer
                             id, 2 i16 transaction version of the client (KIP-890)
    OffsetCommitKey 0, 1     i16 version, string group, string topic, i32 partition
    OffsetCommitValue 0-4    i64 offset first, whatever follows; a null value takes the commit back
    GroupMetadataKey 2       i16 version, string group: a classic group
    GroupMetadataValue 0-4   string protocol type, i32 generation, nullable string protocol and
                             leader, from 2 on i64, [members]; 4 is flexible
    ConsumerGroupMemberMetadataKey 5   string group, string member (KIP-848); a null value: it has
                                       left

Other records of these topics (assignments, share groups) are left out. The record of a complete
transaction has no partitions: they are in the record before it, which prepared the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from linkflap.harness.log import batches, layout, old_messages, records, reference
from linkflap.harness.log.codecs import CannotInflate
from linkflap.harness.log.layout import read_unsigned_varint
from linkflap.harness.log.reference import MalformedBatch
from linkflap.harness.log.segments import SegmentDamage

TRANSACTIONS: Final = "__transaction_state"
GROUPS: Final = "__consumer_offsets"
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
FORGOTTEN: Final = -1
"""TransactionState.state of a record without a value: the transactional id expired."""
_NEWEST_COMMIT_KEY: Final = 1
_CLASSIC_KEY: Final = 2
_MEMBER_KEY: Final = 5
_OFFSET_VALUES: Final = range(5)
_CLASSIC_VALUES: Final = range(5)
_FLEXIBLE_CLASSIC: Final = 4
_RECORDS_FOR_NOTHING: Final = 1 << 18
_RECORDS_EACH_BYTE: Final = 1 / 16
"""How many records a coordinator's log may have by its size: the least of them has 30 bytes, and
each takes some microseconds to read."""

_MOST_PARTITIONS: Final = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transaction coordinator's record about one transactional id, at `offset`.

    `timeout` and the times are milliseconds: `updated` and `started` (-1: no transaction) are in
    the value, `written` is the record's timestamp. `previous_id` and `next_id` are producer ids,
    -1 where there is none or an older broker wrote the record; `version` is the transaction version
    of the client (KIP-890), of its coordinator where that ended the transaction by itself.
    """

    offset: int
    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    state: int = FORGOTTEN
    partitions: tuple[tuple[str, int], ...] = ()
    timeout: int = -1
    updated: int = -1
    started: int = -1
    written: int = -1
    previous_id: int = -1
    next_id: int = -1
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """A group coordinator's record about one group and partition, at `offset`. -1 is committed
    where the commit was taken back."""

    offset: int
    group: str
    topic: str
    partition: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """A group coordinator's record, at `offset`, of a group's members: `member` is in it, or has
    left. A classic group's record has all members at once: `member` is empty, and `present` is
    whether there are any.
    """

    offset: int
    group: str
    member: str
    present: bool


CoordinatorEntry = TransactionState | GroupCommit | GroupMembers


class Undecodable(ValueError):
    """A record that no coordinator writes, or a newer one than is known here."""


class PrimitiveReader:
    """Kafka's primitive types, one after the other. Raises struct.error and IndexError beyond the
    end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        found: int = struct.unpack_from(form, self._data, self._at)[0]
        self._at += struct.calcsize(form)
        return found

    def varint(self) -> int:
        found, self._at = read_unsigned_varint(self._data, self._at)
        return found

    def raw(self, size: int) -> bytes:
        """The next bytes; fewer at the end."""
        found = self._data[self._at : self._at + max(0, size)]
        self._at += max(0, size)
        return found

    def text(self, *, flexible: bool = False) -> str:
        size = self.varint() - 1 if flexible else self.number(">h")
        found = self.raw(size)
        if size < 0 or len(found) < size:
            raise Undecodable("a string that ends behind its record")
        return found.decode()

    def skip_text(self, *, flexible: bool = False) -> None:
        """Passes over a string that may be null."""
        self.raw(self.varint() - 1 if flexible else self.number(">h"))

    def count(self, *, flexible: bool = False) -> int:
        """How many elements an array has; a null one has none."""
        return max(0, self.varint() - 1 if flexible else self.number(">i"))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a flexible structure, by tag."""
        found: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found[tag] = self.raw(size)
        return found


def transaction_state(record: reference.Record) -> TransactionState | None:
    """One record of `__transaction_state`; None for one that is not about a transactional id.
    Raises Undecodable."""
    try:
        key = PrimitiveReader(record.key or b"")
        if key.number(">h") != 0:
            return None
        name = key.text()
        if record.value is None:
            return TransactionState(
                offset=record.offset, transactional_id=name, written=record.timestamp
            )
        return _state(record, name, PrimitiveReader(record.value))
    except (struct.error, IndexError, ValueError) as error:
        raise Undecodable(str(error)) from error


def _state(record: reference.Record, name: str, value: PrimitiveReader) -> TransactionState:
    version = value.number(">h")
    if version not in (0, 1):
        raise Undecodable(f"a state of version {version}")
    pid, epoch, timeout, state = (value.number(form) for form in (">q", ">h", ">i", ">b"))
    partitions = tuple(_partitions(value, flexible=version == 1))
    updated, started = value.number(">q"), value.number(">q")
    tagged = value.tags() if version == 1 else {}
    previous, following, client = (
        int.from_bytes(tagged[tag], "big", signed=True) if tag in tagged else default
        for tag, default in ((0, -1), (1, -1), (2, 0))
    )
    return TransactionState(
        offset=record.offset, transactional_id=name, producer_id=pid, producer_epoch=epoch,
        state=state, partitions=partitions, timeout=timeout, updated=updated, started=started,
        written=record.timestamp, previous_id=previous, next_id=following, version=client,
    )  # fmt: skip


def _partitions(value: PrimitiveReader, *, flexible: bool) -> Iterator[tuple[str, int]]:
    for _ in range(value.count(flexible=flexible)):
        topic, count = value.text(flexible=flexible), value.count(flexible=flexible)
        if count > _MOST_PARTITIONS:
            raise Undecodable(f"a transaction with {count} partitions of one topic")
        yield from [(topic, value.number(">i")) for _ in range(count)]
        if flexible:
            value.tags()


def group_entry(record: reference.Record) -> GroupCommit | GroupMembers | None:
    """One record of `__consumer_offsets`; None for one that is neither a commit nor about a group's
    members. Raises Undecodable."""
    try:
        key = PrimitiveReader(record.key or b"")
        kind = key.number(">h")
        if 0 <= kind <= _NEWEST_COMMIT_KEY:
            return _commit(record, key)
        if kind == _CLASSIC_KEY:
            return GroupMembers(
                offset=record.offset,
                group=key.text(),
                member="",
                present=_any_members(record.value),
            )
        if kind == _MEMBER_KEY:
            return GroupMembers(
                offset=record.offset,
                group=key.text(),
                member=key.text(),
                present=record.value is not None,
            )
    except (struct.error, IndexError, ValueError) as error:
        raise Undecodable(str(error)) from error
    return None


def _commit(record: reference.Record, key: PrimitiveReader) -> GroupCommit:
    group, topic, partition = key.text(), key.text(), key.number(">i")
    committed = -1
    if record.value is not None:
        value = PrimitiveReader(record.value)
        if (version := value.number(">h")) not in _OFFSET_VALUES:
            raise Undecodable(f"a commit of version {version}")
        committed = value.number(">q")
    return GroupCommit(
        offset=record.offset, group=group, topic=topic, partition=partition, committed=committed
    )


def _any_members(data: bytes | None) -> bool:
    """Whether a classic group has members; one that was deleted has none."""
    if data is None:
        return False
    value = PrimitiveReader(data)
    if (version := value.number(">h")) not in _CLASSIC_VALUES:
        raise Undecodable(f"a group of version {version}")
    flexible = version >= _FLEXIBLE_CLASSIC
    value.skip_text(flexible=flexible)
    value.number(">i")
    for _ in ("protocol", "leader"):
        value.skip_text(flexible=flexible)
    if version >= 2:
        value.number(">q")
    return value.count(flexible=flexible) > 0


def entries(
    log: batches.ReplicaLog, topic: str
) -> tuple[list[CoordinatorEntry], list[SegmentDamage]]:
    """The records of one of these topics that can be read, in the log's order; and the batches with
    a record that no coordinator writes. What cannot be parsed at all `records.decode` reports."""
    read = {TRANSACTIONS: transaction_state, GROUPS: group_entry}.get(topic)
    found: list[CoordinatorEntry] = []
    damage: list[SegmentDamage] = []
    most = records.batches_of_at_most(log, _RECORDS_FOR_NOTHING, _RECORDS_EACH_BYTE) if read else 0
    for row in range(most):
        try:
            for record in _records(log, row):
                if read and (entry := read(record)) is not None:
                    found.append(entry)
                    if isinstance(entry, TransactionState) and log.headers.codec[row]:
                        log.decoding_limit.take(len(entry.partitions))
        except (MalformedBatch, CannotInflate):
            continue
        except Undecodable as error:
            detail = f"offset {record.offset}: no record of a coordinator: {error}"
            damage.append(log.damage_at(row, "unreadable-records", detail))
    if read and most < len(log.headers):
        detail = "from here on the log has more records than coordinators write in so many bytes"
        damage.append(log.damage_at(most, "unreadable-records", detail))
    return found, damage


def _records(log: batches.ReplicaLog, row: int) -> list[reference.Record]:
    """The records of a data batch whose CRC is right."""
    if not log.headers.crc_ok[row] or log.headers.control[row] != layout.DATA:
        return []
    return old_messages.records_of(log.bytes_of(row), log.decoding_limit)
