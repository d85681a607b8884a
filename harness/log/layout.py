"""The v2 record batch (KIP-98, KIP-32, KIP-35; Kafka's DefaultRecordBatch), the only format since
Kafka 0.11.

    offset  size  field
    0       8     base offset               not covered by the CRC
    8       4     length of what follows    not covered
    12      4     partition leader epoch    not covered
    16      1     magic = 2                 not covered
    17      4     CRC-32C of everything from attributes on
    21      2     attributes: 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete
            horizon
    23      4     last offset delta
    27      8     base timestamp
    35      8     max timestamp
    43      8     producer id
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61            records, compressed as one where there is a codec

A record is: varint length | attributes i8 | varlong timestamp delta | varint offset delta | varint
key length, key | varint value length, value | varint header count | (varint key length, key, varint
value length, value)*; varints are zigzag, length -1 is null.

Here are the positions, a walk over the batches of bytes, and the writing of a batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

LENGTH_AT: Final = 8
LENGTH_ENDS: Final = 12
EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_FROM: Final = 21
LAST_DELTA_AT: Final = 23
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
HEADER_SIZE: Final = 61
MAGIC: Final = 2
SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_ENDS
SMALLEST_OLD_LENGTH: Final = 14
"""The head of a v0 message: CRC, magic, attributes, key length, value length."""
LARGEST_LENGTH: Final = 1 << 30
"""Kafka's largest segment.bytes is 2 GiB, and a batch is bounded by message.max.bytes: more than
this is no length."""
SMALLEST_RECORD: Final = 7
MOST_RECORDS: Final = 1 << 21
"""The records of one batch at most: message.max.bytes, by default 1 MiB, holds 150,000 of the
smallest."""
LARGEST_OFFSET: Final = 1 << 62
"""No log gets there: at a billion records a second it takes a century. Sums of any two offsets
below it fit 64 bits."""
NO_EPOCH: Final = -2
"""The leader epoch of messages of formats 0 and 1, which have none."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
UNUSED: Final = ~0x7F
"""The bits of the attributes that have no meaning."""

DATA: Final = -1
ABORT: Final = 0
COMMIT: Final = 1
OTHER_CONTROL: Final = 2
"""MIRROR_PID_RESET (KIP-1279), type 7."""
EMPTIED: Final = 3
"""A control batch without a record: compaction took the marker away, and kept the batch for the
producer's last sequence."""
SKIPPED_CONTROL: Final = 4
"""A control batch of another type, which consumers skip: KRaft's (2 to 6), or a later release's."""
RESET_TYPE: Final = 7


Buffer = bytes | bytearray | memoryview
HEAD: Final = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: what every batch of format 2 begins with."""
INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
SMALLEST_BATCH: Final = LENGTH_ENDS + SMALLEST_OLD_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Where one complete batch is in a buffer: bytes [start, stop); offsets [base, last].

    Of a message of format 0 or 1 `base` and `last` are its last offset; leader epoch and producer
    id are -1.
    """

    start: int
    stop: int
    base: int
    last: int
    epoch: int
    producer_id: int


def walk(buffer: Buffer) -> Iterator[Batch]:
    """The complete batches that a buffer begins with; a partial one at the end is left out, as
    followers do.

    Raises ValueError where a length cannot be one.
    """
    start, size = 0, len(buffer)
    while size - start >= SMALLEST_BATCH:
        base, length, epoch, magic = HEAD.unpack_from(buffer, start)
        stop = start + LENGTH_ENDS + length
        if stop - start < SMALLEST_BATCH:
            raise ValueError(f"a batch of {stop - start} bytes at offset {base}")
        if stop > size:
            return
        last, producer = base, -1
        if magic < MAGIC or stop - start < HEADER_SIZE:
            epoch = -1
        else:
            last = base + INT.unpack_from(buffer, start + LAST_DELTA_AT)[0]
            (producer,) = LONG.unpack_from(buffer, start + PRODUCER_ID_AT)
        yield Batch(start=start, stop=stop, base=base, last=last, epoch=epoch, producer_id=producer)
        start = stop


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
    return batch_of(
        b"".join(record(delta, *each) for delta, each in enumerate(records)),
        len(records),
        offset=offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        time=time,
        producer=producer,
        sequence=sequence,
    )


def batch_of(
    body: bytes,
    count: int,
    *,
    offset: int,
    leader_epoch: int,
    attributes: int,
    time: int,
    producer: tuple[int, int],
    sequence: int,
) -> bytes:
    """A batch of `count` records whose bytes are `body`."""
    covered = _COVERED.pack(attributes, count - 1, time, time, *producer, sequence, count) + body
    length = len(covered) + CRC_FROM - LENGTH_ENDS
    return _HEAD.pack(offset, length, leader_epoch, MAGIC, crc32c(covered)) + covered


def record(delta: int, key: bytes | None, value: bytes) -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    content = b"\0\0" + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(content)) + content
