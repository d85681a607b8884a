"""Batch headers of all segments of a log as numpy columns, one element per batch in file order,
with the CRC-32C recomputed.

A batch with a wrong CRC is kept with `crc_ok` False: its header is evidence, but nothing below the
header is used. The CRC covers attributes to end, and so neither the base offset, the length, nor
the leader epoch. A batch with impossible offsets is left out: arithmetic with them would overflow.
Any other header that no broker writes is kept and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from linkflap.harness.log import batch_headers, layout, old_messages
from linkflap.harness.log.batch_headers import Headers, Ints
from linkflap.harness.log.codecs import NONE, CannotInflate, DecodingLimit
from linkflap.harness.log.reference import (
    MalformedBatch,
    Record,
    control_type,
    coordinator_epoch,
)
from linkflap.harness.log.segments import (
    BatchRun,
    Kind,
    Segment,
    SegmentDamage,
    headers_at,
    map_segments,
    runs,
)


def unwritten(log: ReplicaLog) -> Iterator[SegmentDamage]:
    """Headers under a CRC that holds which no broker writes, whatever became of the records.

    Compaction takes records away and leaves the offsets: fewer records than offsets, and none at
    all, are as they should be. Ids below -1 are what some mirrors make of others' ids.
    """
    headers = log.headers
    offsets = headers.last_offset - headers.base_offset + 1
    data, marker = (
        headers.control == layout.DATA,
        np.isin(headers.control, (layout.ABORT, layout.COMMIT)),
    )
    rules = (
        (headers.count < 0, "its header counts {count} records"),
        ((headers.count > offsets) & (offsets > 0), "its header counts {count} records"),
        (marker & ~headers.transactional, "the marker of a transaction that is not transactional"),
        (
            data & headers.transactional & (headers.producer_id == -1),
            "transactional, and of no producer",
        ),
    )
    for broken, words in rules:
        for i in np.flatnonzero(broken & headers.crc_ok).tolist():
            yield log.damage_of(i, "impossible-header", words.format(count=headers.count[i]))


def corrupt(log: ReplicaLog) -> Iterator[SegmentDamage]:
    for i in np.flatnonzero(~log.headers.crc_ok).tolist():
        yield log.damage_of(i, "corrupt-batch", f"the CRC-32C is not {log.headers.crc[i]:#010x}")


def disorder(log: ReplicaLog) -> Iterator[SegmentDamage]:
    """Batches that do not begin after everything before them, and segments whose name is not below
    their offsets."""
    base, last = log.headers.base_offset, log.headers.last_offset
    reached = np.maximum.accumulate(last)
    for i in (np.flatnonzero(base[1:] <= reached[:-1]) + 1).tolist():
        detail = f"begins at offset {base[i]}, the log before it reaches {reached[i - 1]}"
        yield log.damage_at(i, "overlap", detail)
    for i in np.flatnonzero(last < base).tolist():
        detail = f"ends at offset {last[i]}, before its first offset {base[i]}"
        yield log.damage_at(i, "overlap", detail)
    for index, segment in enumerate(log.segments):
        first = base[log.headers.segment == index][:1]
        if len(first) and first[0] < segment.base_offset:
            detail = (
                f"the first batch begins at offset {first[0]}, below the offset in the file's name"
            )
            yield segment.damage("misplaced-segment", 0, detail)


_MARKER_BYTES: Final = np.array([0, 0, 8, 0, 0, 0], np.uint8)
"""Timestamp delta 0, offset delta 0, key length 4 (zigzag), version 0, and the high byte of the
type."""
_USUAL_VALUE: Final = 9
"""Where the length of a control record's value is, in bytes behind the batch header, when its own
length, its deltas and its key length take one byte each and its key has 4; the coordinator epoch is
3 to 6 bytes behind that."""
_HEAD: Final = _USUAL_VALUE + 7
"""Bytes behind the header up to the end of that epoch."""
_MARKER_VALUE: Final = 12
"""The length 6, as a zigzag varint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """The log of one replica: its files, its batch headers, what is wrong with the bytes, and what
    reading compressed records may still cost."""

    segments: Sequence[Segment]
    headers: Headers
    decoding_limit: DecodingLimit
    damage: Sequence[SegmentDamage] = ()

    def segment_of(self, batch: int) -> Segment:
        """The file of a batch."""
        return self.segments[int(self.headers.segment[batch])]

    def where(self, batch: int) -> tuple[str, int]:
        """File and position of a batch."""
        return self.segment_of(batch).name, int(self.headers.position[batch])

    def bytes_of(self, batch: int) -> bytes:
        """The bytes of a batch."""
        begin, size = int(self.headers.position[batch]), int(self.headers.length[batch])
        return self.segment_of(batch).data[begin : begin + size].tobytes()

    def records_of(self, batch: int) -> list[Record]:
        """The records of a batch, read one by one; none where they cannot be read."""
        try:
            return old_messages.records_of(self.bytes_of(batch))
        except (MalformedBatch, CannotInflate):
            return []

    def damage_at(self, batch: int, kind: Kind, detail: str) -> SegmentDamage:
        """Damage of a batch."""
        return self.segment_of(batch).damage(kind, int(self.headers.position[batch]), detail)

    def damage_of(self, batch: int, kind: Kind, reason: str) -> SegmentDamage:
        """Damage of a batch, with its offsets."""
        first, last = self.headers.base_offset[batch], self.headers.last_offset[batch]
        return self.damage_at(batch, kind, f"offsets {first} to {last}: {reason}")


Look = Callable[[BatchRun, NDArray[np.void], Ints], None]
"""Is shown the batches of a log as they are read: their bytes, their headers, and their CRCs as
recomputed."""


def scan(paths: Iterable[Path], *, sums: bool = True, look: Look | None = None) -> ReplicaLog:
    """Reads the headers of one replica's segment files, given in offset order. Damage is listed in
    the order of the bytes.

    Without `sums` only those of control batches are recomputed, which takes half the time;
    `is_sound` asks for any other. What needs more than headers `look`s at the bytes while they are
    at hand.
    """
    segments, damage = map_segments(paths)
    decoding_limit = DecodingLimit(sum(len(segment.data) for segment in segments))
    parts: list[tuple[NDArray[np.void], Ints, NDArray[np.uint8], Ints, Ints]] = []
    for index, segment in enumerate(segments):
        for run in runs(segment, damage):
            if run.old:
                rows, found, unread = old_messages.rows(
                    run.data, run.positions.tolist(), decoding_limit
                )
                damage += [
                    segment.damage("unreadable-records", run.begins + position, reason)
                    for position, reason in unread
                ]
            else:
                rows = headers_at(run.data, run.positions)
                found = _checksums(run, rows, only_control=not sums)
            if look is not None and not run.old:
                look(run, rows, found)
            located = np.full(len(rows), index, np.int64), run.begins + run.positions
            parts.append((rows, found, _control_heads(run, rows), *located))
    nothing = (
        np.zeros(0, batch_headers.HEADER),
        np.zeros(0, np.int64),
        np.zeros((0, _HEAD), np.uint8),
        *[np.zeros(0, np.int64)] * 2,
    )
    every, computed, heads, files, there = (
        np.concatenate(columns) for columns in zip(nothing, *parts, strict=True)
    )
    possible = batch_headers.possible_offsets(every)
    for i in np.flatnonzero(~possible).tolist():
        detail = f"no batch begins at offset {every['base_offset'][i]}"
        damage.append(segments[files[i]].damage("impossible-offset", int(there[i]), detail))
    headers = _columns(every[possible], computed[possible], files[possible], there[possible])
    log = ReplicaLog(segments=segments, headers=headers, decoding_limit=decoding_limit)
    damage.extend(corrupt(log))
    damage.extend(_read_control_types(log, heads[possible]))
    damage.extend(unwritten(log))
    damage.extend(disorder(log))
    order = {segment.name: index for index, segment in enumerate(segments)}
    damage.sort(key=lambda d: (order[d.file], d.position))
    return replace(log, damage=tuple(damage))


def log_end(log: ReplicaLog) -> int:
    """The offset after the last batch, as `segments.log_end` reads it from the files."""
    for index, segment in reversed([*enumerate(log.segments)]):
        mine = log.headers.last_offset[log.headers.segment == index]
        if len(mine):
            return int(mine[-1]) + 1
        if segment.base_offset > 0:
            return segment.base_offset
    return 0


def _checksums(run: BatchRun, rows: NDArray[np.void], *, only_control: bool) -> Ints:
    data, sums = run.data.data, np.asarray(rows["crc"], np.int64)
    wanted = (
        np.flatnonzero(rows["attributes"] & layout.CONTROL)
        if only_control
        else np.arange(len(rows))
    )
    starts, ends = (
        run.positions[wanted],
        run.positions[wanted] + layout.LENGTH_ENDS + rows["length"][wanted],
    )
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    sums[wanted] = [crc32c(data[start + layout.CRC_FROM : end]) for start, end in spans]
    return sums


def is_sound(log: ReplicaLog, batch: int) -> bool:
    """Whether the CRC of one batch, recomputed now, is right."""
    if log.headers.magic[batch] != layout.MAGIC:
        return bool(log.headers.crc_ok[batch])
    return bool(crc32c(log.bytes_of(batch)[layout.CRC_FROM :]) == log.headers.crc[batch])


def _columns(rows: NDArray[np.void], sums: Ints, segment: Ints, position: Ints) -> Headers:
    def column(name: str) -> Ints:
        return np.asarray(rows[name], np.int64)

    attributes = column("attributes")
    base_offset, delta, base_sequence = (
        column("base_offset"),
        column("last_offset_delta"),
        column("base_sequence"),
    )
    control = (attributes & layout.CONTROL) != 0
    return Headers(
        base_offset=base_offset,
        last_offset=base_offset + delta,
        length=column("length") + layout.LENGTH_ENDS,
        count=column("count"),
        crc=column("crc"),
        crc_ok=column("crc") == sums,
        leader_epoch=column("leader_epoch"),
        producer_id=column("producer_id"),
        producer_epoch=column("producer_epoch"),
        base_sequence=base_sequence,
        last_sequence=np.where(
            base_sequence < 0, np.int64(-1), (base_sequence + delta) & 0x7FFFFFFF
        ),
        transactional=(attributes & layout.TRANSACTIONAL) != 0,
        control=np.select(
            [~control, column("count") == 0], [layout.DATA, layout.EMPTIED], layout.OTHER_CONTROL
        ).astype(np.int64),
        coordinator_epoch=np.full(len(rows), -1, np.int64),
        attributes=attributes,
        codec=attributes & layout.CODEC_MASK,
        magic=column("magic"),
        log_append_time=(attributes & layout.LOG_APPEND_TIME) != 0,
        base_timestamp=column("base_timestamp"),
        max_timestamp=column("max_timestamp"),
        segment=segment,
        position=position,
    )


def _control_heads(run: BatchRun, rows: NDArray[np.void]) -> NDArray[np.uint8]:
    """The bytes behind the header that contain a usual marker's content; zeros for any other
    batch."""
    heads = np.zeros((len(rows), _HEAD), np.uint8)
    long = rows["length"] >= layout.HEADER_SIZE + _HEAD - layout.LENGTH_ENDS
    control = np.flatnonzero(((rows["attributes"] & layout.CONTROL) != 0) & long)
    heads[control] = run.data[run.positions[control, None] + layout.HEADER_SIZE + np.arange(_HEAD)]
    return heads


def _read_control_types(log: ReplicaLog, heads: NDArray[np.uint8]) -> Iterator[SegmentDamage]:
    """Fills in the content of each control batch; an unreadable one is damage.

    Markers as brokers write them (uncompressed, deltas of 0, a key of 4 bytes) are read all at
    once, any other by itself.
    """
    headers = log.headers
    wanted = np.flatnonzero((headers.control == layout.OTHER_CONTROL) & headers.crc_ok)
    usual = wanted[
        (headers.codec[wanted] == NONE) & (headers.length[wanted] >= layout.HEADER_SIZE + _HEAD)
    ]
    head = heads[usual]
    plain = (
        (head[:, 0] < 0x80)
        & (head[:, 2:8] == _MARKER_BYTES).all(axis=1)
        & (head[:, 8] <= layout.COMMIT)
    )
    plain &= head[:, _USUAL_VALUE] == _MARKER_VALUE
    headers.control[usual[plain]] = head[plain, 8]
    epochs = np.ascontiguousarray(head[plain, _USUAL_VALUE + 3 :]).view(">i4")[:, 0]
    headers.coordinator_epoch[usual[plain]] = epochs
    for i in np.setdiff1d(wanted, usual[plain]).tolist():
        codec, records = int(headers.codec[i]), log.bytes_of(i)[layout.HEADER_SIZE :]
        headers.control[i], reason = control_type(codec, records)
        if headers.control[i] in (layout.ABORT, layout.COMMIT):
            headers.coordinator_epoch[i] = coordinator_epoch(codec, records)
        if reason:
            detail = f"offset {headers.base_offset[i]}: {reason}"
            yield log.damage_at(i, "unknown-control", detail)
