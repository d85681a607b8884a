"""Checks a message before kio reads it: its arrays must have the elements that they claim to have,
and in a request no more of them than a client sends.

kio reserves memory for as many elements as an array claims to have. Where the system does not give
it that, the process ends (SIGABRT), and no exception says so. A message of a hundred megabytes that
does have its elements would take kio a minute.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Final, get_args, get_origin, get_type_hints

from linkflap.harness.log.layout import read_unsigned_varint

MOST_PARTS: Final = 20_000
"""How many elements all arrays of a request may have: topics, partitions and the like."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("bool", "int8"), 1),
    **dict.fromkeys(("int16", "uint16", "error_code"), 2),
    **dict.fromkeys(("int32", "timedelta_i32"), 4),
    **dict.fromkeys(("int64", "timedelta_i64", "datetime_i64", "float64"), 8),
    "uuid": 16,
}
"""The sizes of the types that have one."""


@dataclass(slots=True)
class _Walk:
    """A walk over the bytes of a message; `left`: how many more elements it may have."""

    data: memoryview
    left: int


Skip = Callable[[_Walk, int], int]
"""Returns the position behind a value. Raises ValueError, IndexError or struct.error."""


def check(entity: type, data: memoryview, at: int, most: int = MOST_PARTS) -> None:
    """Raises ValueError, IndexError or struct.error for bytes that are no such message, from `at`
    on, or whose arrays have more elements than `most`."""
    end = _entity(entity)(_Walk(data, most), at)
    if end > len(data):
        raise ValueError(f"it ends at byte {end} of {len(data)}")


@cache
def _entity(entity: type) -> Skip:
    flexible, hints = bool(vars(entity)["__flexible__"]), get_type_hints(entity)
    skips: list[Skip] = []
    tagged: dict[int, Skip] = {}
    for each in fields(entity):
        skip = _value(hints[each.name], each.metadata.get("kafka_type", ""), flexible)
        if "tag" in each.metadata:
            tagged[each.metadata["tag"]] = skip
        else:
            skips.append(skip)

    def whole(walk: _Walk, at: int) -> int:
        for skip in skips:
            at = skip(walk, at)
        return _tags(walk, at, tagged) if flexible else at

    return whole


def _tags(walk: _Walk, at: int, tagged: Mapping[int, Skip]) -> int:
    """Tagged fields (KIP-482). kio does not read those that it does not know."""
    count, at = read_unsigned_varint(walk.data, at)
    for _ in range(count):
        tag, at = read_unsigned_varint(walk.data, at)
        size, at = read_unsigned_varint(walk.data, at)
        if tag in tagged and tagged[tag](walk, at) != at + size:
            raise ValueError(f"tagged field {tag} is not of {size} bytes")
        at += size
    return at


def _value(hint: object, kind: str, flexible: bool) -> Skip:
    nullable = NoneType in get_args(hint)
    inner = next(each for each in get_args(hint) if each is not NoneType) if nullable else hint
    if get_origin(inner) is tuple:
        return _array(_value(get_args(inner)[0], kind, flexible), flexible, _SIZES.get(kind, 0))
    if isinstance(inner, type) and is_dataclass(inner):
        skip = _entity(inner)
        # a struct that may be null begins with a byte that says so
        return (lambda walk, at: _nullable(walk, at, skip)) if nullable else skip
    if kind in _SIZES:
        size = _SIZES[kind]
        return lambda _, at: at + size
    prefix = _length(flexible, _INT16 if kind == "string" else _INT32)

    def bytes_(walk: _Walk, at: int) -> int:
        length, at = prefix(walk, at)
        return at + max(length, 0)

    return bytes_


def _nullable(walk: _Walk, at: int, skip: Skip) -> int:
    null = walk.data[at] & 0x80
    return at + 1 if null else skip(walk, at + 1)


def _array(skip: Skip, flexible: bool, size: int) -> Skip:
    """`size`: of an element; 0 if elements differ."""
    prefix = _length(flexible, _INT32)

    def array(walk: _Walk, at: int) -> int:
        count, at = prefix(walk, at)
        walk.left -= max(count, 0)
        if walk.left < 0:
            raise ValueError("its arrays have too many elements")
        if size:
            return at + max(count, 0) * size
        for _ in range(count):
            at = skip(walk, at)
        return at

    return array


def _length(flexible: bool, kind: struct.Struct) -> Callable[[_Walk, int], tuple[int, int]]:
    """The length with which an array, a text or bytes begin; -1: null."""

    def compact(walk: _Walk, at: int) -> tuple[int, int]:
        length, at = read_unsigned_varint(walk.data, at)
        return length - 1, at

    def legacy(walk: _Walk, at: int) -> tuple[int, int]:
        (length,) = kind.unpack_from(walk.data, at)
        if length < -1:
            raise ValueError(f"a length of {length}")
        return length, at + kind.size

    return compact if flexible else legacy
