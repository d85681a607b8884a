"""The run directory as one Spark table: rows of its logs and of its history (schemas in
`spark_verify.read.rows`), by partition.

The caller plans what to read: a list of pieces, one Spark task each. Tasks run on Spark's
executors, which must see the files at the same paths; the error names a file that an executor does
not see. A task reads its piece in `mapInArrow`: Spark would look up, create and plan a data source
in three further Python processes, for the same bytes.

Few rows pass through Spark: each has some MiB of one partition's rows from one task, as an Arrow
stream. The JVM sorts and groups by the key alone. A row of sixty columns per send or watermark
would cost the JVM more than everything else together.
"""

from __future__ import annotations

import os
import socket
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from linkflap.harness.model.history import (
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.read.captures import CapturedReplica, size_of
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.read.rows import BYTES_AT_ONCE, HISTORY, gathered

_ROWS_AT_ONCE: Final = 4096
_RECORDS_FOR_NOTHING: Final = 1 << 22
"""The number of records that rows may claim even if the logs are smaller."""
_NOT_REPORTED: Final = -1001
"""librdkafka's value for no offset, in runs of older versions."""
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
    part removed since, so a run has fewer sent or read records than bytes of captured logs.
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
    def size_of(row: Row) -> int:
        return sum(len(value) for value in row if isinstance(value, bytes))

    for some in gathered(rows, size_of, BYTES_AT_ONCE, most=_ROWS_AT_ONCE):
        yield _of_kind(run, kind, some)


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
    """Every operation, as soon as both its rows were read; at the end the operations without a
    return. Only open operations are held in memory."""
    invoked: dict[int, list[Operation]] = {}
    returned: dict[int, list[Operation]] = {}
    over, claims = array("q"), _Claims(reader)
    for row in reader.each(Operation, damage):
        mine, others = (invoked, returned) if row.phase == "invoke" else (returned, invoked)
        mine.setdefault(row.number, []).append(row)
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
        yield from _operation(invoked.get(number, ()), returned.get(number, ()), claims)


def _operation(
    invoked: Sequence[Operation], returned: Sequence[Operation], claims: _Claims
) -> Iterator[Row]:
    """Joins the rows of an operation. Fields that the return lacks are taken from the
    invocation."""
    rows = (*invoked, *returned)
    last = rows[-1]
    groups: dict[tuple[str, int, int], SendGroup] = {}
    for row in rows:
        groups |= {(g.topic, g.partition, g.first_uid): g for g in row.sends}
    for group in groups.values():
        origin = group.made_from or Fetched(topic="", partition=-1)
        claims.add(group.count + _claimed(origin))
        offsets = np.full(group.count, -1, "<i8")
        for index, count, offset in group.acks:
            offsets[index : index + count] = np.arange(offset, offset + count)
        refused = np.zeros(group.count, np.bool_)
        for index, count in group.refused:
            refused[index : index + count] = True
        uids, inputs = _uids_and_offsets(origin)
        yield (
            group.topic, group.partition, last.number, last.client, last.process, last.cluster,
            last.kind, last.ending,
            last.outcome if returned else "info", last.transactional_id,
            invoked[0].time if invoked else 0, last.ended_at,
            last.time if returned else -1, last.producer_id, last.producer_epoch,
            group.first_uid,
            last.group, origin.topic, origin.partition, origin.position,
            last.error.partition(":")[0][:_NAME],
            group.sequence, group.crc, int(group.by_leader),
            offsets.tobytes(), refused.tobytes(), inputs, uids,
        )  # fmt: skip


def _claimed(fetched: Fetched) -> int:
    return sum(count for _, _, count in fetched.runs)


def _uids_and_offsets(fetched: Fetched) -> tuple[bytes, bytes]:
    """The uids and the offsets of the fetched records, one by one."""
    if not fetched.runs:
        return b"", b""
    first, offset, count = np.array(fetched.runs, "<i8").T
    run = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(run), dtype="<i8") - (np.cumsum(count) - count)[run]
    return (
        np.where(first[run] >= 0, first[run] + index, first[run]).tobytes(),
        (offset[run] + index).tobytes(),
    )


def _crcs(fetched: Fetched) -> bytes:
    """The CRCs of the batches of the fetched records, one by one; none where they are unknown."""
    if len(fetched.crcs) != len(fetched.runs):
        return b""
    return np.repeat(np.array(fetched.crcs, "<i8"), [run[2] for run in fetched.runs]).tobytes()


def _reads(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    claims = _Claims(reader)
    for poll in reader.each(Poll, damage):
        for fetched in poll.fetched:
            claims.add(_claimed(fetched))
            uids, offsets = _uids_and_offsets(fetched)
            yield (
                fetched.topic, fetched.partition, poll.reader, poll.process, poll.cluster,
                poll.isolation, poll.kind, poll.group,
                poll.time, poll.returned, fetched.position, uids, offsets, _crcs(fetched),
                poll.lock_ms,
            )  # fmt: skip


def _watermarks(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    for w in reader.each(Watermark, damage):
        lowest = min(w.log_start, w.last_stable, w.high_watermark)
        if lowest < -1 and lowest != _NOT_REPORTED:
            reason = f"{w.cluster} reported the offset {lowest} for {w.topic}-{w.partition}"
            damage.append(Damage(path="watermarks", reason=f"{reason}, which is no offset"))
            continue
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


KEY: Final = ("run", "topic", "partition")
BUNDLES: Final = pa.schema(
    [("run", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("rows", pa.binary())]
)
"""The schema of the rows that pass through Spark: some rows of one partition as an Arrow stream,
without columns of kinds of history that none of them has."""
_KINDS: Final = tuple(name for name in HISTORY.names if name not in KEY)
_BYTES_AT_ONCE: Final = 16 << 20
"""Rows that are packed together: a stream costs some KiB, and rows of a thousand partitions come
mixed."""
_PIECE: Final = 4 << 20
"""Bytes of log per task: a task costs some ten milliseconds, and decoding 4 MiB about as much."""
_APART: Final = 128 << 20
"""The size of a log, in bytes, from which on several tasks read it: about a second of decoding, ten
times what a task may cost."""
_PART: Final = 1 << 20
"""The weight of a part of a history: a separate task is worth it only beside others."""
_HEADERS_ALONE: Final = 8
"""How many times faster a log is read if only its headers are needed."""
UNSEEN: Final = "UnseenPathError"


class UnseenPathError(Exception):
    """An executor has no such file, though the driver has: one sentence that names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part (operations, polls, watermarks) of one run's history."""

    root: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The input of one task."""

    replicas: Sequence[CapturedReplica] = ()
    parts: Sequence[Part] = ()


def read(spark: SparkSession, asked: Sequence[Piece]) -> DataFrame:
    """The rows of all pieces, packed (`BUNDLES`), each piece read by a task of its own."""
    return spark.range(0, len(asked), 1, len(asked)).mapInArrow(
        reader(asked), from_arrow_schema(BUNDLES)
    )


def reader(
    asked: Sequence[Piece],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The tasks' function: numbers of pieces in, packed rows out. Every task gets all pieces, so
    they are compressed."""
    pieces = [zlib.compress(msgspec.json.encode(piece), 1) for piece in asked]

    def read_pieces(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from bundles(msgspec.json.decode(zlib.decompress(pieces[number]), type=Piece))

    return read_pieces


def bundles(piece: Piece) -> Iterator[pa.RecordBatch]:
    """The rows of one piece, packed. Raises UnseenPathError where this machine has not the
    files."""
    _see(Path(path) for replica in piece.replicas for path in replica.paths)
    yield from _by_partition(batch_rows(piece.replicas))
    for part in piece.parts:
        _see([Path(part.root) / "run.json"])
        yield from _by_partition(history_rows(Path(part.root), part.part))


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that were packed, some at a time."""
    for batch in batches:
        for value in batch["rows"]:
            # Copied: Spark's buffer may be unaligned, and must not be held.
            yield from pa.ipc.open_stream(pa.py_buffer(value.as_py()))


def _by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of one schema, packed."""
    for some in gathered(batches, attrgetter("nbytes"), _BYTES_AT_ONCE):
        yield _pack(pa.concat_batches(some))


def _pack(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row per partition of the batch, which has some rows."""
    codes = [batch[name].dictionary_encode().indices.to_numpy() for name in KEY]
    order = np.lexsort(codes)
    ordered = np.stack(codes)[:, order]
    starts = [0, *(np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1).tolist()]
    keys = batch.select(KEY).take(pa.array(order[starts]))
    empty = {
        name
        for name in _KINDS
        if name in batch.schema.names and batch[name].null_count == len(batch)
    }
    rest = [name for name in batch.schema.names if name not in KEY and name not in empty]
    rows = batch.select(rest).take(pa.array(order))
    edges = zip(starts, [*starts[1:], len(batch)], strict=True)
    streams = pa.array(
        [_stream(rows.slice(start, end - start)) for start, end in edges], pa.binary()
    )
    return pa.record_batch([*keys.columns, streams], schema=BUNDLES)


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def _see(paths: Iterable[Path]) -> None:
    """Raises UnseenPathError for the first that is not there: the driver saw all of them when it
    planned."""
    for path in paths:
        if not os.path.lexists(path):
            raise UnseenPathError(
                f"the executor on {socket.gethostname()} (in {Path.cwd()}) cannot see {path}, which"
                " the driver can; put the logs on storage that every executor has at the same path"
            )


def pieces(plans: Sequence[RunPlan]) -> list[Piece]:
    """The input of each task: small replicas together, big ones apart, with the parts of the
    histories of runs that have one."""
    whole = (r for plan in plans for r in (*plan.replicas, *plan.earlier))
    replicas = [(_work(part), part) for replica in whole for part in _apart(replica)]
    parts = [
        (_PART, Part(root=plan.run, part=part))
        for part in PARTS
        for plan in plans
        if plan.facts.recorded
    ]
    wanted = max(2, -(-sum(work for work, _ in (*replicas, *parts)) // _PIECE))
    return [_piece(some) for some in _spread([*replicas, *parts], wanted)] or [Piece()]


def _piece(some: Sequence[object]) -> Piece:
    return Piece(
        replicas=tuple(each for each in some if isinstance(each, CapturedReplica)),
        parts=tuple(each for each in some if isinstance(each, Part)),
    )


Item = TypeVar("Item")


def _spread(items: Iterable[tuple[int, Item]], number: int) -> list[list[Item]]:
    """The items in at most `number` lists of about equal work."""
    lists: list[list[Item]] = [[] for _ in range(number)]
    least = [(0, index) for index in range(number)]
    for work, item in sorted(items, key=lambda pair: -pair[0]):
        size, index = least[0]
        lists[index].append(item)
        heapreplace(least, (size + work, index))
    return [some for some in lists if some]


def _apart(replica: CapturedReplica) -> Iterator[CapturedReplica]:
    """A replica; or a big one in pieces, each the segments that begin in one span of it, which is
    `_APART` of work."""
    if _work(replica) <= _APART or len(replica.paths) == 1:
        yield replica
        return
    sizes = [size_of(Path(path)) for path in replica.paths]
    span = _APART * replica.size // _work(replica)
    files = zip(replica.paths, sizes, accumulate(sizes), strict=True)
    for piece, (_, run) in enumerate(groupby(files, lambda file: (file[2] - file[1]) // span)):
        paths, own, _ = zip(*run, strict=True)
        yield replace(
            replica, paths=paths, size=sum(own), piece=piece, damage=() if piece else replica.damage
        )


def _work(replica: CapturedReplica) -> int:
    return (
        replica.size
        if replica.canonical and replica.records == "every"
        else replica.size // _HEADERS_ALONE
    )
