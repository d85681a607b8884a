"""Rows: what the Spark tables hold, made from a run directory's bytes as Arrow batches. No Spark in here.

    batches    one row per piece of a replica (its bounds and damage; `ordinal` -1) and one per chunk of its batches
               (`ordinal` = place of the first in the piece): their headers, and their data records, whose `batch` counts from
               where the piece begins, where the replica speaks for its cluster
    history    one row per send group, per poll of a partition, per sampled watermark or group offset; and one per part that
               cannot be trusted

Columns of numbers cross Spark as bytes, row after row of little-endian i64: a row per batch costs the JVM several times the CPU
of everything else together (measured at 120,000 batches: 6 s more).
Every row carries (run, topic, partition), so that many runs are one table.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from linkflap.harness.log import batches, coordinators, records
from linkflap.harness.log.segments import Damage as Torn
from linkflap.harness.model.history import Fetched, GroupOffset, Operation, Poll, SendGroup, Watermark
from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.facts.view import DATA, Batches, Ints, Records
from linkflap.spark_verify.read.captures import Captured

PACKED: Final = pa.binary()
HEADER_FIELDS: Final = tuple(f.name for f in fields(Batches))
RECORD_FIELDS: Final = tuple(f.name for f in fields(Records))
_KEY: Final = [("run", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]

BATCHES: Final = pa.schema(
    [
        *_KEY,
        ("cluster", pa.string()),
        ("broker", pa.int32()),
        ("moment", pa.string()),
        ("piece", pa.int32()),
        ("ordinal", pa.int64()),
        (
            "replica",
            pa.struct(
                [
                    ("leader", pa.bool_()),
                    ("canonical", pa.bool_()),
                    ("log_start", pa.int64()),
                    ("high_watermark", pa.int64()),
                    ("high_watermark_from", pa.string()),
                    ("last_stable", pa.int64()),
                    ("stable_above", pa.int64()),
                    ("damage", pa.list_(pa.string())),
                    ("unreadable", pa.list_(pa.string())),
                    ("torn_from", pa.int64()),
                    ("decoded", pa.bool_()),
                    ("lowest", pa.int64()),
                    ("highest", pa.int64()),
                    ("captured", pa.int64()),
                    ("last", pa.bool_()),
                ]
            ),
        ),
        ("headers", PACKED),
        ("records", PACKED),
        ("entries", PACKED),
    ]
)
"""`entries`: what coordinators wrote into this piece of one of Kafka's own topics, JSON; null where there is none."""

SEND: Final = pa.struct(
    [
        ("number", pa.int64()),
        ("client", pa.string()),
        ("process", pa.int64()),
        ("cluster", pa.string()),
        ("kind", pa.string()),
        ("ending", pa.string()),
        ("outcome", pa.string()),
        ("transactional_id", pa.string()),
        ("invoked", pa.int64()),
        ("ended_at", pa.int64()),
        ("returned", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int64()),
        ("first_uid", pa.int64()),
        ("group", pa.string()),
        ("input_topic", pa.string()),
        ("input_partition", pa.int64()),
        ("position", pa.int64()),
        ("offsets", PACKED),
        ("refused", PACKED),
        ("inputs", PACKED),
        ("input_uids", PACKED),
    ]
)
READ: Final = pa.struct(
    [
        ("reader", pa.string()),
        ("process", pa.int64()),
        ("cluster", pa.string()),
        ("isolation", pa.string()),
        ("kind", pa.string()),
        ("group", pa.string()),
        ("time", pa.int64()),
        ("returned", pa.int64()),
        ("position", pa.int64()),
        ("uids", PACKED),
        ("offsets", PACKED),
    ]
)
WATERMARK: Final = pa.struct(
    [
        ("cluster", pa.string()),
        ("time", pa.int64()),
        ("returned", pa.int64()),
        ("leader", pa.int64()),
        ("log_start", pa.int64()),
        ("last_stable", pa.int64()),
        ("high_watermark", pa.int64()),
        ("leader_epoch", pa.int64()),
    ]
)
GROUP: Final = pa.struct([("time", pa.int64()), ("cluster", pa.string()), ("group", pa.string()), ("offset", pa.int64())])
DAMAGE: Final = pa.struct([("path", pa.string()), ("reason", pa.string())])
HISTORY: Final = pa.schema(
    [*_KEY, ("send", SEND), ("read", READ), ("watermark", WATERMARK), ("group", GROUP), ("damage", DAMAGE)]
)

_BATCHES_AT_ONCE: Final = 4096
_RECORDS_AT_ONCE: Final = 32768
_BYTES_AT_ONCE: Final = 4 << 20
_ROWS_AT_ONCE: Final = 4096


def batch_rows(replicas: Iterable[Captured]) -> Iterator[pa.RecordBatch]:
    """The rows of some replicas, in Arrow batches of some MiB."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for replica in replicas:
        for piece in _replica_rows(replica):
            waiting.append(piece)
            size += piece.nbytes
            if size >= _BYTES_AT_ONCE:
                yield pa.concat_batches(waiting)
                waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _replica_rows(captured: Captured) -> Iterator[pa.RecordBatch]:
    """The rows of one replica, or of a piece of one; its own comes last, when it is known what is wrong with its records.

    What pieces cannot know of each other goes with it, for `spark_verify.read.assemble`: `lowest` and `highest` offset of a
    batch, null where there is none; whether records were `decoded`, null where there were none to decode; and `torn_from`, null
    of what is whole, -1 where nothing that can be read is before the damage.
    """
    bounds = captured.bounds
    key = [captured.run, bounds.topic, bounds.partition, bounds.cluster, bounds.broker, captured.moment, captured.piece]
    log = batches.scan([Path(path) for path in captured.paths])
    torn = _torn(captured, log)
    unreadable = list[Torn]()
    decoding = _decodes(captured, log)
    for begin, end in records.spans(log) if decoding else [(0, len(log.headers))]:
        packed = np.zeros((0, len(RECORD_FIELDS)), np.int64)
        if decoding:
            decoded, wrong = records.decode(log, begin, end)
            unreadable += wrong
            packed = _packed(decoded, RECORD_FIELDS)
        starts = np.searchsorted(packed[:, RECORD_FIELDS.index("batch")], np.arange(begin, end + 1))
        for first, after in _pieces(starts):
            headers = _packed(log.headers, HEADER_FIELDS, slice(begin + first, begin + after))
            mine = packed[starts[first] : starts[after]]
            yield _record_batch([*key, begin + first, None, headers.tobytes(), mine.tobytes(), None])
    if not decoding and captured.canonical:
        unreadable += records.unknown_codecs(log)
    entries, undecodable = coordinators.entries(log, bounds.topic) if captured.canonical else ([], "")
    head = {
        "leader": bounds.leader,
        "canonical": captured.canonical,
        "log_start": bounds.log_start,
        "high_watermark": bounds.high_watermark,
        "high_watermark_from": bounds.high_watermark_from,
        "last_stable": bounds.last_stable,
        "stable_above": bounds.stable_above,
        "damage": [*captured.damage, *map(str, torn), *_not_captured(captured), *filter(None, [undecodable])],
        "unreadable": [str(d) for d in unreadable],
        "torn_from": -1 if captured.damage or not captured.paths else _torn_from(log, [*torn, *unreadable]),
        "decoded": decoding if ((log.headers.control == DATA) & log.headers.crc_ok).any() else None,
        **_span(log),
        "captured": captured.time,
        "last": captured.last,
    }
    yield _record_batch([*key, -1, head, b"", b"", _encoded(entries)])


def _encoded(entries: Sequence[coordinators.CoordinatorEntry]) -> bytes | None:
    """What coordinators wrote, by type, each in the log's order."""
    kinds: dict[str, list[coordinators.CoordinatorEntry]] = {}
    for entry in entries:
        kinds.setdefault(type(entry).__name__, []).append(entry)
    return msgspec.json.encode(kinds) if kinds else None


def _not_captured(captured: Captured) -> Iterator[str]:
    if not captured.paths:
        bounds = captured.bounds
        yield f"{bounds.cluster}/{bounds.broker}/{bounds.topic}-{bounds.partition}: no segment file was captured"


def _span(log: batches.Log) -> Mapping[str, int | None]:
    """The lowest and the highest offset of a batch."""
    if not len(log.headers):
        return {"lowest": None, "highest": None}
    return {"lowest": int(log.headers.base_offset.min()), "highest": int(log.headers.last_offset.max())}


def _torn(captured: Captured, log: batches.Log) -> Sequence[Torn]:
    """The damage, without the batch that the broker was writing when it was captured or killed."""
    if not captured.bounds.unfinished:
        return log.damage
    last = log.segments[-1]
    begins = len(last.data) - captured.bounds.unfinished
    return [d for d in log.damage if (d.kind, d.file, d.position) != ("torn-tail", last.name, begins)]


def _torn_from(log: batches.Log, damage: Sequence[Torn]) -> int | None:
    """The offset behind the batches that are in the files before what is wrong with them."""
    if not damage:
        return None
    order = {segment.name: index for index, segment in enumerate(log.segments)}
    segment, position = min((order[d.file], d.position) for d in damage)
    at = log.headers
    before = (at.segment < segment) | ((at.segment == segment) & (at.position < position))
    return int(at.last_offset[before].max(initial=-2)) + 1


def _decodes(captured: Captured, log: batches.Log) -> bool:
    """Whether anybody asks for its records."""
    if not captured.canonical or captured.records == "none" or captured.bounds.topic in INTERNAL_TOPICS:
        return False
    return captured.records == "every" or records.holds_ours(log)


def _packed(columns: object, names: Sequence[str], rows: slice = slice(None)) -> NDArray[np.int64]:
    return np.stack([getattr(columns, name)[rows].astype("<i8") for name in names], axis=1)


def _pieces(starts: Ints) -> Iterator[tuple[int, int]]:
    """Spans that hold a bounded number of batches and, but for one huge batch, of records."""
    first, count = 0, len(starts) - 1
    while first < count:
        full = int(np.searchsorted(starts, starts[first] + _RECORDS_AT_ONCE, side="right")) - 1
        after = min(max(full, first + 1), first + _BATCHES_AT_ONCE, count)
        yield first, after
        first = after


def _record_batch(values: Sequence[object]) -> pa.RecordBatch:
    columns = [pa.array([value], field.type) for value, field in zip(values, BATCHES, strict=True)]
    return pa.record_batch(columns, schema=BATCHES)


Row = tuple[object, ...]
"""A row of the history: topic, partition, and the fields of its kind."""


def history_rows(root: Path, part: str) -> Iterator[pa.RecordBatch]:
    """The rows of one part of the history (PARTS), some MiB at a time. Damage is keyed by topic "" and partition -1."""
    run, damage = str(root), list[Damage]()
    kind, read = _READERS[part]
    yield from _record_batches(run, kind, read(RunReader(root), damage))
    yield from _record_batches(run, "damage", (("", -1, each.path, each.reason) for each in damage))


def _record_batches(run: str, kind: str, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if size >= _BYTES_AT_ONCE or len(waiting) >= _ROWS_AT_ONCE:
            yield _of_kind(run, kind, waiting)
            waiting, size = [], 0
    if waiting:
        yield _of_kind(run, kind, waiting)


def _of_kind(run: str, kind: str, rows: Sequence[Row]) -> pa.RecordBatch:
    topics, partitions, *columns = zip(*rows, strict=True)
    fields = list(HISTORY.field(kind).type)
    values = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    mine = pa.StructArray.from_arrays(values, fields=fields)
    key = [pa.repeat(run, len(rows)), pa.array(topics, pa.string()), pa.array(partitions, pa.int32())]
    rest = [mine if field.name == kind else pa.nulls(len(rows), field.type) for field in list(HISTORY)[3:]]
    return pa.record_batch([*key, *rest], schema=HISTORY)


def _sends(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    """Every operation once both of its rows were met, what is left of them in the end. Held are operations under way."""
    invoked: dict[int, Operation] = {}
    returned: dict[int, Operation] = {}
    over = array("q")
    for row in reader.each(Operation, damage):
        mine, others = (invoked, returned) if row.phase == "invoke" else (returned, invoked)
        mine[row.number] = row
        if row.number in others:
            over.append(row.number)
            yield from _operation(invoked.pop(row.number), returned.pop(row.number))
    numbers = np.sort(np.concatenate((np.array(over, np.int64), *(np.array(list(d), np.int64) for d in (invoked, returned)))))
    again = numbers[1:][numbers[1:] == numbers[:-1]]
    if len(again):
        damage.append(Damage(path="operations", reason=f"{len(again)} are there twice, first {again[0]}"))
    orphans = sorted(returned.keys() - set(again.tolist()))
    if orphans:
        damage.append(Damage(path="operations", reason=f"{len(orphans)} returned and were never invoked, first {orphans[0]}"))
    for number in sorted(invoked.keys() | returned.keys()):
        yield from _operation(invoked.get(number), returned.get(number))


def _operation(invoked: Operation | None, returned: Operation | None) -> Iterator[Row]:
    """Puts the two rows of an operation together. What the return does not speak of is as it was when it was invoked."""
    last = returned or invoked
    if last is None:
        return
    groups: dict[tuple[str, int, int], SendGroup] = {}
    for row in (invoked, returned):
        groups |= {(g.topic, g.partition, g.first_uid): g for g in (row.sends if row else ())}
    for group in groups.values():
        offsets = np.full(group.count, -1, "<i8")
        for index, count, offset in group.acks:
            offsets[index : index + count] = np.arange(offset, offset + count)
        refused = np.zeros(group.count, np.bool_)
        for index, count in group.refused:
            refused[index : index + count] = True
        origin = group.made_from or Fetched(topic="", partition=-1)
        uids, inputs = _apart(origin)
        yield (
            group.topic, group.partition, last.number, last.client, last.process, last.cluster, last.kind, last.ending,
            returned.outcome if returned else "info", last.transactional_id, invoked.time if invoked else 0, last.ended_at,
            returned.time if returned else -1, last.producer_id, last.producer_epoch, group.first_uid,
            last.group, origin.topic, origin.partition, origin.position,
            offsets.tobytes(), refused.tobytes(), inputs, uids,
        )  # fmt: skip


def _apart(fetched: Fetched) -> tuple[bytes, bytes]:
    """The uids and the offsets of what was fetched, one by one."""
    if not fetched.runs:
        return b"", b""
    first, offset, count = np.array(fetched.runs, "<i8").T
    run = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(run), dtype="<i8") - (np.cumsum(count) - count)[run]
    return np.where(first[run] >= 0, first[run] + index, first[run]).tobytes(), (offset[run] + index).tobytes()


def _reads(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    for poll in reader.each(Poll, damage):
        for fetched in poll.fetched:
            uids, offsets = _apart(fetched)
            yield (
                fetched.topic, fetched.partition, poll.reader, poll.process, poll.cluster, poll.isolation, poll.kind, poll.group,
                poll.time, poll.returned, fetched.position, uids, offsets,
            )  # fmt: skip


def _watermarks(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    for w in reader.each(Watermark, damage):
        yield (
            w.topic, w.partition, w.cluster, w.time, w.returned, w.leader, w.log_start, w.last_stable, w.high_watermark,
            w.leader_epoch,
        )  # fmt: skip


def _groups(reader: RunReader, damage: list[Damage]) -> Iterator[Row]:
    """Committed offsets of groups; that there are none at all is no damage, for not every run has a group."""
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
