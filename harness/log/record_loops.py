"""The compiled loops that decode records in place: one batch after the other, record by record."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log.segments import Bytes, Ints
from linkflap.harness.machine.compiled import compiled
from linkflap.harness.model import payload

_OURS: Final = np.frombuffer(payload.HEADER.encode(), np.uint8)
_OURS_SIZE: Final = payload.LAYOUT.size
_BASIS: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_FOREIGN: Final = payload.FOREIGN


@compiled
def any_ours(data: Bytes, starts: Ints, ends: Ints) -> bool:
    """Whether the first record of any of these batches has our header."""
    out = np.zeros((7, 1), np.int64)
    for i in range(len(starts)):
        if _record(data, starts[i], ends[i], 0, 0, 0, False, out, 0) >= 0 and out[1, 0] != _FOREIGN:
            return True
    return False


@compiled
def decode_batches(
    data: Bytes, starts: Ints, ends: Ints, counts: Ints, firsts: Ints, bases: Ints, lasts: Ints,
    base_timestamps: Ints, max_timestamps: Ints, fixed: NDArray[np.bool_], out: Ints,
    readable: NDArray[np.bool_],
) -> None:  # fmt: skip
    for i in range(len(starts)):
        position = starts[i]
        previous = -1
        whole = counts[i] >= 0
        for row in range(firsts[i], firsts[i] + max(counts[i], 0)):
            position = _record(
                data,
                position,
                ends[i],
                bases[i],
                base_timestamps[i],
                max_timestamps[i],
                fixed[i],
                out,
                row,
            )
            delta = out[0, row] - bases[i]
            if position < 0 or not previous < delta <= lasts[i] - bases[i]:
                whole = False
                break
            previous = delta
        readable[i] = whole and position == ends[i]


@compiled
def contents(keys: Bytes, ends: Ints, key: Ints, pool: Bytes, starts: Ints, size: int) -> Ints:
    """The digest of each key and value. The distinct keys lie one after the other, each up to one
    of `ends`; `key` is an index into them. A value is the `size` bytes of a pool from `starts` on,
    null where that is -1."""
    out = np.empty(len(starts), np.int64)
    for i in range(len(starts)):
        begin, end = 0 if key[i] == 0 else ends[key[i] - 1], ends[key[i]]
        state = _folded(_number(_BASIS, end - begin, 4), keys, begin, end)
        if starts[i] < 0:
            state = _number(state, -1, 4)
        else:
            state = _folded(_number(state, size, 4), pool, starts[i], starts[i] + size)
        out[i] = np.int64(state)
    return out


@compiled
def folded(data: Bytes) -> int:
    """The digest of bytes (`reference.digest`)."""
    return int(np.int64(_folded(_BASIS, data, 0, len(data))))


@compiled
def _record(
    data: Bytes,
    position: int,
    limit: int,
    base: int,
    base_timestamp: int,
    max_timestamp: int,
    fixed: bool,
    out: Ints,
    row: int,
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
    state, position = _bytes(data, position, end, _BASIS)
    state, position = _bytes(data, position, end, state)
    out[6, row] = np.int64(state)
    state = _number(state, timestamp, 8)
    state, position = _headers(data, position, end, state, out, row)
    out[3, row] = np.int64(state)
    return position if position == end else -1


@compiled
def _headers(
    data: Bytes, position: int, end: int, state: np.uint64, out: Ints, row: int
) -> tuple[np.uint64, int]:
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
    """Folds a length-prefixed byte string into the digest; the position after it, or -1 (also when
    called with -1)."""
    if position < 0:
        return state, -1
    size, position = _varint(data, position, end, 32)
    if position < 0 or size < -1 or position + max(size, 0) > end:
        return state, -1
    behind = position + max(size, 0)
    return _folded(_number(state, size, 4), data, position, behind), behind


@compiled
def _folded(state: np.uint64, data: Bytes, begin: int, end: int) -> np.uint64:
    """Folds bytes into the digest."""
    for i in range(begin, end):
        state = (state ^ np.uint64(data[i])) * _PRIME
    return state


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
