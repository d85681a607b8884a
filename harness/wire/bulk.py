"""Records in messages without copies: the records of a fetch response are views of its frame, and a
frame to send is a list of pieces.

kio copies records out of its input, and joins all of its output. So this module splits the records
off a response before kio reads the rest, and leaves them where they are in a request. kio reads
everything else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from linkflap.harness.log.layout import read_unsigned_varint

Buffer = bytes | bytearray | memoryview
Message = Any
VIEWED_FROM: Final = 13
"""The first version of the fetch response with the layout of `_records`: compact fields (KIP-482),
topic ids (KIP-516)."""

_LENGTH: Final = struct.Struct(">i")
_HEAD_SIZE: Final = 4 + 2 + 4
"""Throttle time, error code, session id."""
_ID_SIZE: Final = 16
_ROW_SIZE: Final = 4 + 2 + 3 * 8
"""Partition, error code, high watermark, last stable offset, log start offset."""
_ABORTED_SIZE: Final = 8 + 8 + 1
"""Producer id, first offset, no tagged fields."""
_PREFERRED_SIZE: Final = 4
_EMPTY: Final = b"\1"


class Pieces:
    """Bytes in several buffers, sent from there. `len` is the total."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Iterable[Buffer] = ()) -> None:
        self.parts = tuple(parts)
        self._size = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


class Sink:
    """kio's writers write to it. Joins small writes, keeps pieces where they are, and puts the
    total length first."""

    def __init__(self) -> None:
        self._head = self._small = bytearray(_LENGTH.size)
        self._done: list[Buffer] = []

    def write(self, data: bytes | Pieces) -> None:
        if isinstance(data, Pieces):
            self._done += (self._small, *data.parts)
            self._small = bytearray()
        else:
            self._small += data

    def framed(self) -> Pieces:
        """Everything that was written. Nothing may be written after this."""
        parts = [*self._done, self._small]
        _LENGTH.pack_into(self._head, 0, sum(map(len, parts)) - _LENGTH.size)
        return Pieces(part for part in parts if len(part))


def split(frame: memoryview, start: int) -> tuple[bytes, list[memoryview | None]]:
    """A fetch response from `start` of a frame on, without its records; and the records per
    partition, None where there are none. Raises ValueError or IndexError for other bytes."""
    rest: list[Buffer] = []
    found: list[memoryview | None] = []
    for before, at, end in _records(frame, start):
        if end > len(frame):
            raise ValueError(f"records up to byte {end} in a frame of {len(frame)}")
        found.append(frame[at:end] if end > at else None)
        if end > at:
            rest += [frame[start:before], _EMPTY]
            start = end
    return b"".join([*rest, frame[start:]]), found


def put_back(answer: Message, records: Sequence[memoryview | None]) -> Message:
    """The response with the records that were split off. Raises ValueError when they belong to
    another response."""
    if sum(len(topic.partitions) for topic in answer.responses) != len(records):
        raise ValueError(f"records of {len(records)} partitions for a response of another number")
    if not any(records):
        return answer
    left = iter(records)
    topics = []
    for topic in answer.responses:
        rows = [
            row if (found := next(left)) is None else replace(row, records=found)
            for row in topic.partitions
        ]
        topics.append(replace(topic, partitions=tuple(rows)))
    return replace(answer, responses=tuple(topics))


def _records(frame: memoryview, at: int) -> Iterator[tuple[int, int, int]]:
    """Per partition of a fetch response: the positions of the length of its records, of their
    start, and of their end."""
    topics, at = read_unsigned_varint(frame, at + _HEAD_SIZE)
    for _ in range(topics - 1):
        rows, at = read_unsigned_varint(frame, at + _ID_SIZE)
        for _ in range(rows - 1):
            aborted, at = read_unsigned_varint(frame, at + _ROW_SIZE)
            before = at + max(0, aborted - 1) * _ABORTED_SIZE + _PREFERRED_SIZE
            size, at = read_unsigned_varint(frame, before)
            end = at + max(0, size - 1)
            yield before, at, end
            at = _after_tags(frame, end)
        at = _after_tags(frame, at)


def _after_tags(frame: memoryview, at: int) -> int:
    count, at = read_unsigned_varint(frame, at)
    for _ in range(count):
        _, at = read_unsigned_varint(frame, at)
        size, at = read_unsigned_varint(frame, at)
        at += size
    return at
