"""Varints, and record batches (v2, `harness.log.layout`) that linkflap writes itself: uncompressed,
without headers.

What reads record batches does not use this module, and is tested with another writer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from linkflap.harness.log import layout

_COVERED: Final = struct.Struct(">hiqqqhii")
_HEAD: Final = struct.Struct(">qiibI")
_LONGEST: Final = 28
"""The last shift of a varint of 32 bits."""


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def varint(value: int) -> bytes:
    """Zigzag, as the fields of records have it."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_unsigned_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it. Raises ValueError, and IndexError at the
    end of the data."""
    value = shift = 0
    while (byte := data[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > _LONGEST:
            raise ValueError("a number of more than 32 bits")
    return value | byte << shift, at + 1


def batch(
    records: Sequence[tuple[bytes | None, bytes]],
    *,
    offset: int = 0,
    leader_epoch: int,
    attributes: int = 0,
    time: int = 0,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
) -> bytes:
    """A batch of records (key, value). `time` is in milliseconds; `producer` is an id and its
    epoch."""
    body = b"".join(record(delta, *each) for delta, each in enumerate(records))
    count = len(records)
    covered = _COVERED.pack(attributes, count - 1, time, time, *producer, sequence, count) + body
    length = len(covered) + layout.CRC_FROM - layout.LENGTH_ENDS
    return _HEAD.pack(offset, length, leader_epoch, layout.MAGIC, crc32c(covered)) + covered


def record(delta: int, key: bytes | None, value: bytes) -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    content = b"\0\0" + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(content)) + content
