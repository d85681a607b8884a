"""Rows of a history: operations joined from their two rows, polls, watermarks, committed offsets of
groups, and damage."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from linkflap.harness.model.history import (
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.read.rows import BYTES_AT_ONCE, HISTORY

_ROWS_AT_ONCE: Final = 4096
_RECORDS_FOR_NOTHING: Final = 1 << 22
"""Records that rows may claim whatever the logs have."""
_NAME: Final = 60
"""Characters of an error's name at most: a text without one ends there."""

Row = tuple[object, ...]
"""A row of the history: topic, partition, and the fields of its kind."""


def history_rows(root: Path, part: str) -> Iterator[pa.RecordBatch]:
    """The rows of one part of the history (PARTS), some MiB at a time. Damage is keyed by topic ""
    and partition -1."""
    run, damage = str(root), list[Damage]()
    kind, read = _READERS[part]
    reader = RunReader(root)
    try:
        yield from _record_batches(run, kind, read(reader, damage))
    except _TooMany as error:
        damage.append(Damage(path=part, reason=str(error)))
    yield from _record_batches(run, "damage", (("", -1, each.path, each.reason) for each in damage))


class _TooMany(Exception):
    """The rows of a history claim more records than its run can have had."""


class _Claims:
    """Counts the records that rows claim, before there is an array of them: a row of a hundred
    bytes may say 2^24.

    What clients send and read is in the captured logs, compressed, several times, or for the most
    part removed since: a byte of a log stands for far less than a record of each of them.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._most, self._records, self._measured = _RECORDS_FOR_NOTHING, 0, False

    def add(self, records: int) -> None:
        """Raises _TooMany."""
        self._records += records
        if self._records > self._most and not self._measured:
            self._most += self._reader.captured_bytes()
            self._measured = True
        if self._records > self._most:
            raise _TooMany(
                f"its rows claim more than {self._most} records, which is more than a run with the "
                "captured logs can have had; the rows from there on are not read"
            )


def _record_batches(run: str, kind: str, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if size >= BYTES_AT_ONCE or len(waiting) >= _ROWS_AT_ONCE:
            yield _of_kind(run, kind, waiting)
            waiting, size = [], 0
    if waiting:
        yield _of_kind(run, kind, waiting)


def _of_kind(run: str, kind: str, rows: Sequence[Row]) -> pa.RecordBatch:
    topics, partitions, *columns = zip(*rows, strict=True)
    fields = list(HISTORY.field(kind).type)
    values = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    mine = pa.StructArray.from_arrays(values, fields=fields)
    key = [
        pa.repeat(run, len(rows)),
        pa.array(topics, pa.string()),
        pa.array(partitions, pa.int32()),
    ]
    rest = [
        mine if field.name == kind else pa.nulls(len(rows), field.type)
        for field in list(HISTORY)[3:]
    ]
    return pa.record_batch([*key, *rest], schema=HISTORY)


def _sends(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    """Every operation once both of its rows were read; at the end those without a return. Only open
    ones are held."""
    invoked: dict[int, Operation] = {}
    returned: dict[int, Operation] = {}
    over, claims = array("q"), _Claims(reader)
    for row in reader.each(Operation, damage):
        mine, others = (invoked, returned) if row.phase == "invoke" else (returned, invoked)
        mine[row.number] = row
        if row.number in others:
            over.append(row.number)
            yield from _operation(invoked.pop(row.number), returned.pop(row.number), claims)
    numbers = np.sort(
        np.concatenate(
            (np.array(over, np.int64), *(np.array(list(d), np.int64) for d in (invoked, returned)))
        )
    )
    again = numbers[1:][numbers[1:] == numbers[:-1]]
    if len(again):
        damage.append(
            Damage(path="operations", reason=f"{len(again)} are there twice, first {again[0]}")
        )
    orphans = sorted(returned.keys() - set(again.tolist()))
    if orphans:
        damage.append(
            Damage(
                path="operations",
                reason=f"{len(orphans)} returned and were never invoked, first {orphans[0]}",
            )
        )
    for number in sorted(invoked.keys() | returned.keys()):
        yield from _operation(invoked.get(number), returned.get(number), claims)


def _operation(
    invoked: Operation | None, returned: Operation | None, claims: _Claims
) -> Iterator[Row]:
    """Joins the two rows of an operation. Fields that the return lacks are taken from the
    invocation."""
    last = returned or invoked
    if last is None:
        return
    groups: dict[tuple[str, int, int], SendGroup] = {}
    for row in (invoked, returned):
        groups |= {(g.topic, g.partition, g.first_uid): g for g in (row.sends if row else ())}
    for group in groups.values():
        origin = group.made_from or Fetched(topic="", partition=-1)
        claims.add(group.count + _claimed(origin))
        offsets = np.full(group.count, -1, "<i8")
        for index, count, offset in group.acks:
            offsets[index : index + count] = np.arange(offset, offset + count)
        refused = np.zeros(group.count, np.bool_)
        for index, count in group.refused:
            refused[index : index + count] = True
        uids, inputs = _apart(origin)
        yield (
            group.topic, group.partition, last.number, last.client, last.process, last.cluster,
            last.kind, last.ending,
            returned.outcome if returned else "info", last.transactional_id,
            invoked.time if invoked else 0, last.ended_at,
            returned.time if returned else -1, last.producer_id, last.producer_epoch,
            group.first_uid,
            last.group, origin.topic, origin.partition, origin.position,
            last.error.partition(":")[0][:_NAME],
            offsets.tobytes(), refused.tobytes(), inputs, uids,
        )  # fmt: skip


def _claimed(fetched: Fetched) -> int:
    return sum(count for _, _, count in fetched.runs)


def _apart(fetched: Fetched) -> tuple[bytes, bytes]:
    """The uids and the offsets of what was fetched, one by one."""
    if not fetched.runs:
        return b"", b""
    first, offset, count = np.array(fetched.runs, "<i8").T
    run = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(run), dtype="<i8") - (np.cumsum(count) - count)[run]
    return (
        np.where(first[run] >= 0, first[run] + index, first[run]).tobytes(),
        (offset[run] + index).tobytes(),
    )


def _reads(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    claims = _Claims(reader)
    for poll in reader.each(Poll, damage):
        for fetched in poll.fetched:
            claims.add(_claimed(fetched))
            uids, offsets = _apart(fetched)
            yield (
                fetched.topic, fetched.partition, poll.reader, poll.process, poll.cluster,
                poll.isolation, poll.kind, poll.group,
                poll.time, poll.returned, fetched.position, uids, offsets,
            )  # fmt: skip


def _watermarks(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    for w in reader.each(Watermark, damage):
        yield (
            w.topic, w.partition, w.cluster, w.time, w.returned, w.leader, w.log_start,
            w.last_stable, w.high_watermark,
            w.leader_epoch,
        )  # fmt: skip


def _groups(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    """Committed offsets of groups. None at all is no damage: not every run has a group."""
    wrong: list[Damage] = []
    for g in reader.each(GroupOffset, wrong):
        yield g.topic, g.partition, g.time, g.cluster, g.group, g.offset
    damage += [d for d in wrong if d.path != GroupOffset.__name__.lower()]


_READERS: Final[Mapping[str, tuple[str, Callable[[RunReader, list[Damage]], Iterator[Row]]]]] = {
    "operations": ("send", _sends),
    "polls": ("read", _reads),
    "watermarks": ("watermark", _watermarks),
    "groups": ("group", _groups),
}
PARTS: Final = tuple(_READERS)
