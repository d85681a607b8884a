"""Rows of captured logs: batch headers, records, coordinators' records, and the damage of each
replica."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from linkflap.harness.log import batches, coordinators, records
from linkflap.harness.log.segments import SegmentDamage as Torn
from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.spark_verify.facts.view import DATA, WHOLE, Ints
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.rows import (
    BATCHES,
    BYTES_AT_ONCE,
    HEADER_FIELDS,
    RECORD_FIELDS,
    gathered,
)

_LOSES_BATCHES: Final = frozenset(
    {
        "unreadable-file",
        "torn-tail",
        "impossible-length",
        "unknown-magic",
        "bytes-after-zeros",
        "impossible-offset",
    }
)
"""Damage without a header; any other leaves the header of each batch."""
_DISORDER: Final = frozenset({"overlap", "misplaced-segment"})
_BATCHES_AT_ONCE: Final = 4096
_RECORDS_AT_ONCE: Final = 32768


def batch_rows(replicas: Iterable[CapturedReplica]) -> Iterator[pa.RecordBatch]:
    """The rows of some replicas, in Arrow batches of some MiB."""
    rows = (piece for replica in replicas for piece in _replica_rows(replica))
    yield from map(pa.concat_batches, gathered(rows, attrgetter("nbytes"), BYTES_AT_ONCE))


def _replica_rows(captured: CapturedReplica) -> Iterator[pa.RecordBatch]:
    """The rows of one replica, or of a piece of one. The row of the replica itself comes last: the
    damage of its records is known only then.

    What pieces cannot know of each other goes with it, for `spark_verify.read.assemble`: `lowest`
    and `highest` offset of a batch, null where there is none; whether records were `decoded`, null
    where there were none to decode; `torn_from`, null of what is whole, -1 where nothing that can
    be read is before the damage; and the offsets [start, end) of which no batch could be `unread`,
    where an end of -1 is the piece's.
    """
    bounds = captured.bounds
    key = [
        captured.run,
        bounds.topic,
        bounds.partition,
        bounds.cluster,
        bounds.broker,
        captured.moment,
        captured.piece,
    ]
    log, decoding = _scanned(captured)
    torn = _torn(captured, log)
    unreadable = yield from _rows_of_batches(key, log, decoding)
    entries = list[coordinators.CoordinatorEntry]()
    if captured.canonical and bounds.topic in INTERNAL_TOPICS:
        entries, undecodable = coordinators.entries(log, bounds.topic)
        unreadable += [*_undecodable(log), *undecodable]
    elif captured.canonical and not decoding:
        unreadable += records.unknown_codecs(log)
    head = {
        "damage": [
            *captured.damage,
            *(_said(captured, log, each) for each in torn),
            *_not_captured(captured),
        ],
        "unreadable": [str(d) for d in unreadable],
        "torn_from": (
            -1 if captured.damage or not captured.paths else _torn_from(log, [*torn, *unreadable])
        ),
        "unread": (
            [[-1, WHOLE]] if captured.damage or not captured.paths else list(_unread(log, torn))
        ),
        "decoded": decoding if ((log.headers.control == DATA) & log.headers.crc_ok).any() else None,
        **_span(log),
    }
    yield _record_batch([*key, -1, head, b"", b"", _encoded(entries)])


def _rows_of_batches(
    key: Sequence[object], log: batches.ReplicaLog, decoding: bool
) -> Generator[pa.RecordBatch, None, list[Torn]]:
    """The rows with headers and decoded records; returns what could not be decoded."""
    unreadable = list[Torn]()
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
            yield _record_batch(
                [*key, begin + first, None, headers.tobytes(), mine.tobytes(), None]
            )
    return unreadable


def _undecodable(log: batches.ReplicaLog) -> Iterator[Torn]:
    """The records that cannot be parsed, where no check needs them."""
    for begin, end in records.spans(log):
        yield from records.decode(log, begin, end)[1]


def _encoded(entries: Sequence[coordinators.CoordinatorEntry]) -> bytes | None:
    """The coordinators' records by type, each in the log's order."""
    kinds: dict[str, list[coordinators.CoordinatorEntry]] = {}
    for entry in entries:
        kinds.setdefault(type(entry).__name__, []).append(entry)
    return msgspec.json.encode(kinds) if kinds else None


def _said(captured: CapturedReplica, log: batches.ReplicaLog, damage: Torn) -> str:
    """The damage in words. Only of copied logs it is unknown whether their broker was running."""
    copied = captured.bounds.high_watermark_from in ("copied", "recomputed")
    if damage.kind == "torn-tail" and copied and damage.file == log.segments[-1].name:
        return f"{damage}; the log of a broker that runs while it is copied looks so"
    return str(damage)


def _not_captured(captured: CapturedReplica) -> Iterator[str]:
    if not captured.paths:
        bounds = captured.bounds
        yield (
            f"{bounds.cluster}/{bounds.broker}/{bounds.topic}-{bounds.partition}: no segment file "
            "was captured"
        )


def _span(log: batches.ReplicaLog) -> Mapping[str, int | None]:
    """The lowest and the highest offset of a batch."""
    if not len(log.headers):
        return {"lowest": None, "highest": None}
    return {
        "lowest": int(log.headers.base_offset.min()),
        "highest": int(log.headers.last_offset.max()),
    }


def _torn(captured: CapturedReplica, log: batches.ReplicaLog) -> Sequence[Torn]:
    """The damage, without the batch that the broker was writing when it was captured or killed."""
    if not captured.bounds.unfinished:
        return log.damage
    last = log.segments[-1]
    begins = len(last.data) - captured.bounds.unfinished
    return [
        d for d in log.damage if (d.kind, d.file, d.position) != ("torn-tail", last.name, begins)
    ]


def _unread(log: batches.ReplicaLog, damage: Sequence[Torn]) -> Iterator[list[int]]:
    """The offsets whose batches are not among the headers: from the batch before the damage to the
    one behind it. Where batches are in disorder nothing behind can be located."""
    order = {segment.name: index for index, segment in enumerate(log.segments)}
    at = log.headers
    for each in damage:
        if each.kind not in _LOSES_BATCHES and each.kind not in _DISORDER:
            continue
        segment, position = order[each.file], each.position
        before = (at.segment < segment) | ((at.segment == segment) & (at.position < position))
        behind = at.base_offset[~before & ((at.segment > segment) | (at.position != position))]
        start = int(at.last_offset[before].max(initial=-2)) + 1
        if each.kind in _DISORDER:
            yield [start, WHOLE]
        else:
            yield [start, int(behind[0]) if len(behind) else -1]


def _torn_from(log: batches.ReplicaLog, damage: Sequence[Torn]) -> int | None:
    """The offset behind the batches that are in the files before what is wrong with them."""
    if not damage:
        return None
    order = {segment.name: index for index, segment in enumerate(log.segments)}
    segment, position = min((order[d.file], d.position) for d in damage)
    at = log.headers
    before = (at.segment < segment) | ((at.segment == segment) & (at.position < position))
    return int(at.last_offset[before].max(initial=-2)) + 1


def _scanned(captured: CapturedReplica) -> tuple[batches.ReplicaLog, bool]:
    """The scanned log, and whether a check needs its records."""
    paths = [Path(path) for path in captured.paths]
    if (
        not captured.canonical
        or captured.records == "none"
        or captured.bounds.topic in INTERNAL_TOPICS
    ):
        return batches.scan(paths), False
    firsts = records.FirstRecords()
    log = batches.scan(paths, look=firsts)
    return log, captured.records == "every" or records.holds_ours(log, firsts)


def _pieces(starts: Ints) -> Iterator[tuple[int, int]]:
    """Spans that hold a bounded number of batches and, but for one huge batch, of records."""
    first, count = 0, len(starts) - 1
    while first < count:
        full = int(np.searchsorted(starts, starts[first] + _RECORDS_AT_ONCE, side="right")) - 1
        after = min(max(full, first + 1), first + _BATCHES_AT_ONCE, count)
        yield first, after
        first = after


def _packed(columns: object, names: Sequence[str], rows: slice = slice(None)) -> NDArray[np.int64]:
    return np.stack([getattr(columns, name)[rows].astype("<i8") for name in names], axis=1)


def _record_batch(values: Sequence[object]) -> pa.RecordBatch:
    columns = [pa.array([value], field.type) for value, field in zip(values, BATCHES, strict=True)]
    return pa.record_batch(columns, schema=BATCHES)
