"""Data records of a whole log as numpy columns, decoded in place by compiled loops; no Python object per record.

Compressed batches are inflated into parcels of some MiB and decoded the same way. Records of a batch whose CRC is wrong are
not read; a batch that cannot be inflated or parsed yields no record at all, and a Damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout
from linkflap.harness.log.batches import Headers, Log
from linkflap.harness.log.batches import windows as batch_windows
from linkflap.harness.log.codecs import NAMES, NONE, CannotInflate, inflate
from linkflap.harness.log.segments import WINDOW, Bytes, Damage, Kind
from linkflap.harness.machine.compiled import compiled
from linkflap.harness.model import payload

Ints = NDArray[np.int64]

_PARCEL: Final = 32 << 20
_ASKED_FIRST: Final = 16
_ASKED_EACH: Final = 64
_OURS: Final = np.frombuffer(payload.HEADER.encode(), np.uint8)
_OURS_SIZE: Final = payload.LAYOUT.size
_BASIS: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_FOREIGN: Final = payload.FOREIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One element per data record in file order. `batch` is an index into the log's headers; timestamps are milliseconds.

    `digest` is `harness.log.reference.digest`; `uid` and `operation` are payload.FOREIGN for records that are not ours.
    """

    offset: Ints
    uid: Ints
    operation: Ints
    digest: Ints
    timestamp: Ints
    batch: Ints

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    """Bytes that hold the inflated records of some batches, from `starts` to `ends`."""

    data: Bytes
    batches: Ints
    starts: Ints
    ends: Ints


def decode(log: Log, first: int = 0, after: int | None = None) -> tuple[Columns, list[Damage]]:
    """Every data record of a log, or of its batches [first, after). Damage is listed in the order of the bytes."""
    damage: list[Damage] = []
    chosen = np.zeros(len(log.headers), np.bool_)
    chosen[first:after] = True
    parts = [_decode(log, parcel, damage) for parcel in _parcels(log, chosen, damage)]
    _let_go(log, np.flatnonzero(chosen))
    nothing = np.zeros((6, 0), np.int64)
    table = np.concatenate([nothing, *parts], axis=1)
    # Parcels hold plain batches first: back to the order of the file.
    table = table[:, np.argsort(table[5], kind="stable")]
    offset, uid, operation, digest, timestamp, batch = table
    columns = Columns(offset=offset, uid=uid, operation=operation, digest=digest, timestamp=timestamp, batch=batch)
    order = {segment.name: index for index, segment in enumerate(log.segments)}
    damage.sort(key=lambda d: (order[d.file], d.position))
    return columns, damage


def spans(log: Log) -> Iterator[tuple[int, int]]:
    """All batches, [first, after) each, so many at a time as take a bounded number of bytes: what to decode at once."""
    window = np.cumsum(log.headers.length) // WINDOW
    edges = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), len(log.headers)]
    yield from ((first, after) for first, after in pairwise(edges) if after > first)


def unknown_codecs(log: Log) -> list[Damage]:
    """Batches of unknown codecs, found by their headers: the damage that `decode` would report of them."""
    headers = log.headers
    wanted = (headers.control == layout.DATA) & headers.crc_ok & ~np.isin(headers.codec, list(NAMES))
    return [
        _damage(log, i, "unknown-codec", f"compression codec {headers.codec[i]} is unknown")
        for i in np.flatnonzero(wanted).tolist()
    ]


def _let_go(log: Log, batches: Ints) -> None:
    for index in np.unique(log.headers.segment[batches]).tolist():
        mine = batches[log.headers.segment[batches] == index]
        log.segments[index].let_go(
            int(log.headers.position[mine[0]]), int(log.headers.position[mine[-1]] + log.headers.length[mine[-1]])
        )


def holds_ours(log: Log) -> bool:
    """Whether any record is ours, as far as the first record of each batch tells.

    A batch is one producer's, so that its first record speaks for all. Of compressed batches, which must be inflated for it, the
    first 16 of each segment and every 64th are asked: by segment, so that a log says the same read whole or in pieces.
    """
    headers = log.headers
    wanted = (headers.control == layout.DATA) & headers.crc_ok & (headers.count > 0)
    for index, segment in enumerate(log.segments):
        mine = np.flatnonzero(wanted & (headers.segment == index) & (headers.codec == NONE))
        for window in batch_windows(headers.position[mine]):
            rows = mine[window]
            ends = headers.position[rows] + headers.length[rows]
            if _any_ours(segment.data, headers.position[rows] + layout.HEADER_SIZE, ends):
                return True
            segment.let_go(int(headers.position[rows[0]]), int(ends[-1]))
    packed = np.flatnonzero(wanted & (headers.codec != NONE))
    position = np.arange(len(packed)) - np.searchsorted(headers.segment[packed], headers.segment[packed])
    asked = packed[(position < _ASKED_FIRST) | (position % _ASKED_EACH == 0)]
    return any(_any_ours(p.data, p.starts, p.ends) for p in _inflated(log, asked, []))


def _parcels(log: Log, chosen: NDArray[np.bool_], damage: list[Damage]) -> Iterator[_Parcel]:
    headers = log.headers
    wanted = (headers.control == layout.DATA) & headers.crc_ok & chosen
    for index, segment in enumerate(log.segments):
        plain = np.flatnonzero(wanted & (headers.segment == index) & (headers.codec == NONE))
        starts = headers.position[plain] + layout.HEADER_SIZE
        ends = headers.position[plain] + headers.length[plain]
        yield _Parcel(data=segment.data, batches=plain, starts=starts, ends=ends)
    yield from _inflated(log, np.flatnonzero(wanted & (headers.codec != NONE)), damage)


def _inflated(log: Log, packed: Ints, damage: list[Damage]) -> Iterator[_Parcel]:
    headers = log.headers
    bodies: list[bytes] = []
    held: list[int] = []
    size = 0
    for i in packed.tolist():
        begin = int(headers.position[i])
        data = log.segments[int(headers.segment[i])].data
        try:
            body = inflate(int(headers.codec[i]), data[begin + layout.HEADER_SIZE : begin + int(headers.length[i])].tobytes())
        except CannotInflate as error:
            kind: Kind = "unreadable-records" if int(headers.codec[i]) in NAMES else "unknown-codec"
            damage.append(_damage(log, i, kind, str(error)))
            continue
        bodies.append(body)
        held.append(i)
        size += len(body)
        if size >= _PARCEL:
            yield _parcel(bodies, held)
            bodies, held, size = [], [], 0
    if held:
        yield _parcel(bodies, held)


def _parcel(bodies: Sequence[bytes], held: Sequence[int]) -> _Parcel:
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return _Parcel(data=np.frombuffer(b"".join(bodies), np.uint8), batches=np.array(held, np.int64), starts=starts, ends=ends)


def _damage(log: Log, batch: int, kind: Kind, reason: str) -> Damage:
    file, position = log.where(batch)
    first, last = log.headers.base_offset[batch], log.headers.last_offset[batch]
    return Damage(kind=kind, file=file, position=position, detail=f"offsets {first} to {last}: {reason}")


def _decode(log: Log, parcel: _Parcel, damage: list[Damage]) -> Ints:
    headers: Headers = log.headers
    b = parcel.batches
    counts = headers.count[b].copy()
    # A count that its bytes cannot hold must not size the columns.
    counts[(counts < 0) | (counts * layout.SMALLEST_RECORD > parcel.ends - parcel.starts)] = -1
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(counts, 0))])
    out = np.zeros((6, int(firsts[-1])), np.int64)
    readable = np.zeros(len(b), np.bool_)
    base_timestamp, fixed = headers.base_timestamp[b], headers.log_append_time[b]
    _batches(
        parcel.data, parcel.starts, parcel.ends, counts, firsts, headers.base_offset[b], headers.last_offset[b],
        base_timestamp, headers.max_timestamp[b], fixed, out, readable,
    )  # fmt: skip
    out[5] = np.repeat(b, np.maximum(counts, 0))
    for i in np.flatnonzero(~readable):
        damage.append(_damage(log, int(b[i]), "unreadable-records", f"not the {headers.count[b[i]]} records its header tells of"))
    return out if readable.all() else out[:, np.repeat(readable, np.maximum(counts, 0))]


@compiled
def _any_ours(data: Bytes, starts: Ints, ends: Ints) -> bool:
    """Whether the first record of any of these batches has our header."""
    out = np.zeros((6, 1), np.int64)
    for i in range(len(starts)):
        if _record(data, starts[i], ends[i], 0, 0, 0, False, out, 0) >= 0 and out[1, 0] != _FOREIGN:
            return True
    return False


@compiled
def _batches(
    data: Bytes, starts: Ints, ends: Ints, counts: Ints, firsts: Ints, bases: Ints, lasts: Ints,
    base_timestamps: Ints, max_timestamps: Ints, fixed: NDArray[np.bool_], out: Ints, readable: NDArray[np.bool_],
) -> None:  # fmt: skip
    for i in range(len(starts)):
        position = starts[i]
        previous = -1
        whole = counts[i] >= 0
        for row in range(firsts[i], firsts[i] + max(counts[i], 0)):
            position = _record(data, position, ends[i], bases[i], base_timestamps[i], max_timestamps[i], fixed[i], out, row)
            delta = out[0, row] - bases[i]
            if position < 0 or not previous < delta <= lasts[i] - bases[i]:
                whole = False
                break
            previous = delta
        readable[i] = whole and position == ends[i]


@compiled
def _record(
    data: Bytes, position: int, limit: int, base: int, base_timestamp: int, max_timestamp: int, fixed: bool, out: Ints, row: int
) -> int:
    """Decodes one record into column `row` of `out`; the position after it, or -1."""
    size, position = _varint(data, position, limit, 32)
    if position < 0 or size < 1 or position + size > limit:
        return -1
    end = position + size
    delta, position = _varint(data, position + 1, end, 64)
    if position < 0:
        return -1
    offset_delta, position = _varint(data, position, end, 32)
    if position < 0:
        return -1
    timestamp = max_timestamp if fixed else base_timestamp + delta
    out[0, row] = base + offset_delta
    out[4, row] = timestamp
    state = _number(_BASIS, timestamp, 8)
    state, position = _bytes(data, position, end, state)
    state, position = _bytes(data, position, end, state)
    state, position = _headers(data, position, end, state, out, row)
    out[3, row] = np.int64(state)
    return position if position == end else -1


@compiled
def _headers(data: Bytes, position: int, end: int, state: np.uint64, out: Ints, row: int) -> tuple[np.uint64, int]:
    """Folds the headers into the digest and finds our own."""
    out[1, row] = _FOREIGN
    out[2, row] = _FOREIGN
    count, position = _varint(data, position, end, 32)
    if position < 0 or count < 0:
        return state, -1
    state = _number(state, count, 4)
    unseen = True
    for _ in range(count):
        size, _ = _varint(data, position, end, 32)
        if size < 0:
            return state, -1
        ours = unseen and _is_ours(data, position, end)
        state, position = _bytes(data, position, end, state)
        size, value_at = _varint(data, position, end, 32)
        state, position = _bytes(data, position, end, state)
        if position < 0:
            return state, -1
        if ours and size == _OURS_SIZE:
            out[1, row] = _big_endian(data, value_at)
            out[2, row] = _big_endian(data, value_at + 8)
            unseen = False
    return state, position


@compiled
def _is_ours(data: Bytes, position: int, end: int) -> bool:
    size, position = _varint(data, position, end, 32)
    if position < 0 or size != len(_OURS) or position + size > end:
        return False
    return np.array_equal(data[position : position + size], _OURS)


@compiled
def _big_endian(data: Bytes, position: int) -> int:
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(data[position + i])
    return np.int64(value)  # type: ignore[return-value]


@compiled
def _number(state: np.uint64, value: int, size: int) -> np.uint64:
    """Folds `value` into the digest, big-endian in `size` bytes."""
    for i in range(size):
        byte = np.uint64((value >> (8 * (size - 1 - i))) & 0xFF)
        state = (state ^ byte) * _PRIME
    return state


@compiled
def _bytes(data: Bytes, position: int, end: int, state: np.uint64) -> tuple[np.uint64, int]:
    """Folds a length-prefixed byte string into the digest; the position after it, or -1 (also when called with -1)."""
    if position < 0:
        return state, -1
    size, position = _varint(data, position, end, 32)
    if position < 0 or size < -1 or position + max(size, 0) > end:
        return state, -1
    state = _number(state, size, 4)
    for i in range(position, position + max(size, 0)):
        state = (state ^ np.uint64(data[i])) * _PRIME
    return state, position + max(size, 0)


@compiled
def _varint(data: Bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """Zigzag varint of at most `bits` bits, and the position after it, or -1."""
    value = np.uint64(0)
    shift = 0
    while True:
        if position < 0 or position >= end:
            return 0, -1
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        shift += 7
        if byte < np.uint64(0x80):
            break
        if shift >= bits:
            return 0, -1
    if bits == 32:
        value &= np.uint64(0xFFFFFFFF)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position  # type: ignore[return-value]
