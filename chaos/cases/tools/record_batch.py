"""A record batch (v2) that a case sends: records without keys and headers, with any producer id,
epoch and sequence."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from linkflap.harness.log import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What InitProducerId gave."""

    id: int
    epoch: int


def record_batch(
    values: Sequence[bytes],
    *,
    producer: ProducerIdentity | None = None,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One v2 batch of records without keys and headers, as a client sends it: base offset 0, leader
    epoch -1."""
    now = int(time.time() * 1000)
    body = b"".join(_record(delta, value) for delta, value in enumerate(values))
    who = producer or ProducerIdentity(id=-1, epoch=-1)
    attributes = layout.TRANSACTIONAL if transactional else 0
    covered = struct.pack(
        ">hiqqqhii", attributes, len(values) - 1, now, now, who.id, who.epoch, sequence, len(values)
    ) + body  # fmt: skip
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, layout.MAGIC, crc32c(covered)) + covered


def _record(delta: int, value: bytes) -> bytes:
    inner = (
        b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    )
    return _varint(len(inner)) + inner


def _varint(value: int) -> bytes:
    """Zigzag, as record fields have it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
