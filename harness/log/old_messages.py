"""Messages of formats 0 and 1, which brokers wrote before Kafka 0.11 and keep until retention
deletes them (KIP-31, KIP-32; Kafka's LegacyRecord and AbstractLegacyRecordBatch).

    offset  size  field
    0       8     offset; of a compressed message the last one in it
    8       4     length of what follows
    12      4     CRC-32 of everything from magic on
    16      1     magic: 0 or 1
    17      1     attributes: 0-2 codec, 3 timestamp type (format 1)
    18      8     timestamp (format 1 only)
                  key and value, each a length i32 (-1: null) and its bytes

The value of a compressed message is a sequence of such messages. Their offsets are those of the log
in format 0, and count from the first of the original ones in format 1. Where the broker set the
time, the outer message has it for all. A message, with all those in it, is a batch to the rest of
`harness.log`: of no producer, of no leader epoch, and without headers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import cramjam
import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import batch_headers, layout, reference
from linkflap.harness.log.codecs import LZ4, CannotInflate, DecodingLimit, inflate, limit
from linkflap.harness.log.reference import MalformedBatch
from linkflap.harness.log.segments import OLD_FORMATS

_HEAD: Final = struct.Struct(">qiIbb")
_LONG, _INT = struct.Struct(">q"), struct.Struct(">i")
_CRC_FROM: Final = 16
_ATTRIBUTES: Final = layout.CODEC_MASK | layout.LOG_APPEND_TIME
NO_TIMESTAMP: Final = -1
_MOST: Final = 1 << 19
"""Messages in one: more would not fit into memory as values, and a set of 1 MiB has 40,000."""
_LZ4_FRAME: Final = struct.Struct("<IBB")
_LZ4_BLOCK: Final = struct.Struct("<I")
_LZ4_CONTENT_SIZE, _LZ4_BLOCK_CHECKSUM, _LZ4_PLAIN = 0x08, 0x10, 1 << 31


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it is in the log, not inflated."""

    offset: int
    size: int
    crc: int
    crc_ok: bool
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & layout.CODEC_MASK


def message(data: bytes) -> Message:
    """The message that bytes begin with. Raises MalformedBatch, unless its CRC is wrong."""
    if len(data) < layout.LENGTH_ENDS + layout.SMALLEST_OLD_LENGTH:
        raise MalformedBatch(f"{len(data)} bytes are less than a message")
    offset, length, crc, magic, attributes = _HEAD.unpack_from(data)
    end = layout.LENGTH_ENDS + length
    if magic not in OLD_FORMATS or not layout.SMALLEST_OLD_LENGTH <= length <= len(data) - 12:
        raise MalformedBatch(f"no message of format 0 or 1: magic {magic}, length {length}")
    sound = zlib.crc32(data[_CRC_FROM:end]) == crc
    timestamp, at = NO_TIMESTAMP, _HEAD.size
    key = value = None
    try:
        if magic:
            (timestamp,), at = _LONG.unpack_from(data, at), at + _LONG.size
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
        if at != end:
            raise MalformedBatch(f"{end - at} bytes are left after the value")
    except (MalformedBatch, struct.error) as error:
        if sound:
            raise MalformedBatch(f"a message that cannot be read: {error}") from None
    attributes &= _ATTRIBUTES if magic else layout.CODEC_MASK
    return Message(offset, end, crc, sound, magic, attributes, timestamp, key, value)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _INT.unpack_from(data, at)
    at += _INT.size
    if size < -1 or at + max(size, 0) > end:
        raise MalformedBatch(f"{size} bytes where {end - at} are left")
    return (None, at) if size == -1 else (data[at : at + size], at + size)


def inner(outer: Message, decoding_limit: DecodingLimit) -> Sequence[Message]:
    """The messages of one, with their own offsets and timestamps; itself where it is not
    compressed. Raises MalformedBatch and CannotInflate.

    What it costs counts twice: the messages of a log are read with its headers, and again.
    """
    if not outer.codec:
        return [outer]
    if outer.value is None:
        raise MalformedBatch("a compressed message without a value")
    of_format_0 = outer.codec == LZ4 and not outer.magic
    inside = decoding_limit.inflate(outer.codec, outer.value, by=_lz4 if of_format_0 else inflate)
    found = list[Message]()
    for each in islice(_messages(inside), _MOST + 1):
        decoding_limit.take(2)
        found.append(each)
    if not 0 < len(found) <= _MOST:
        raise MalformedBatch(f"a compressed message with {len(found)} or more in it")
    for each in found:
        if each.magic != outer.magic or each.codec or not each.crc_ok:
            raise MalformedBatch(
                "a message of another format, compressed again, or with a wrong CRC"
            )
    begin = outer.offset - found[-1].offset if outer.magic else 0
    given = bool(outer.attributes & layout.LOG_APPEND_TIME)
    return [
        replace(
            each,
            offset=each.offset + begin,
            timestamp=outer.timestamp if given else each.timestamp,
        )
        for each in found
    ]


def _messages(data: bytes) -> Iterator[Message]:
    position = 0
    while position < len(data):
        if len(data) - position < layout.LENGTH_ENDS:
            raise MalformedBatch(f"{len(data) - position} bytes are left after the last message")
        (length,) = _INT.unpack_from(data, position + layout.LENGTH_AT)
        found = message(data[position : position + layout.LENGTH_ENDS + max(length, 0)])
        position += found.size
        yield found


def _lz4(codec: int, data: bytes) -> bytes:
    """The blocks of an LZ4 frame. Brokers and clients of format 0 computed the checksum of its
    header wrongly (KAFKA-3160), so it is not looked at."""
    try:
        _, flags, sizes = _LZ4_FRAME.unpack_from(data)
        position = _LZ4_FRAME.size + (8 if flags & _LZ4_CONTENT_SIZE else 0) + 1
        buffer, found = bytearray(1 << (2 * (sizes >> 4 & 7) + 8)), bytearray()
        while size := _LZ4_BLOCK.unpack_from(data, position)[0]:
            position += _LZ4_BLOCK.size
            plain, size = size & _LZ4_PLAIN, size & ~_LZ4_PLAIN
            block = data[position : position + size]
            if len(block) < size:
                raise CannotInflate(f"lz4: a block of {size} bytes where {len(block)} are left")
            found += block if plain else _lz4_block(block, buffer)
            if len(found) > limit(len(data)):
                raise CannotInflate(f"lz4: {len(data)} bytes decompress to more than their limit")
            position += size + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    except (struct.error, cramjam.DecompressionError) as error:
        raise CannotInflate(f"lz4: {error}") from None
    return bytes(found)


def _lz4_block(block: bytes, buffer: bytearray) -> memoryview:
    size = cramjam.lz4.decompress_block_into(block, buffer)
    return memoryview(buffer)[:size]


def records_of(data: bytes, decoding_limit: DecodingLimit | None = None) -> list[reference.Record]:
    """The records of a batch of any format; `decoding_limit`: of its log. Raises MalformedBatch and
    CannotInflate."""
    if data[layout.MAGIC_AT] not in OLD_FORMATS:
        batches = reference.batches(data)
        return [r for batch in batches for r in reference.records(batch, decoding_limit)]
    return [
        reference.Record(
            offset=each.offset, timestamp=each.timestamp, key=each.key, value=each.value, headers=()
        )
        for each in inner(message(data), decoding_limit or DecodingLimit(len(data)))
    ]


def rows(
    data: NDArray[np.uint8], positions: Sequence[int], decoding_limit: DecodingLimit
) -> tuple[NDArray[np.void], NDArray[np.int64], list[tuple[int, str]]]:
    """Messages as headers of batches, their CRCs as recomputed, and the positions of those that
    cannot be read, with the reason: of those only the offset is known."""
    found = np.zeros(len(positions), batch_headers.HEADER)
    sums = np.zeros(len(positions), np.int64)
    unread: list[tuple[int, str]] = []
    for n, position in enumerate(positions):
        (length,) = _INT.unpack_from(data.data, position + layout.LENGTH_AT)
        whole = data[position : position + layout.LENGTH_ENDS + length].tobytes()
        offset, _, crc, magic, attributes = _HEAD.unpack_from(whole)
        sums[n] = zlib.crc32(whole[_CRC_FROM:])
        first, last, count, times = offset, offset, 1, [NO_TIMESTAMP]
        if sums[n] == crc:
            try:
                inside = inner(message(whole), decoding_limit)
                first, last, count = inside[0].offset, inside[-1].offset, len(inside)
                times = [each.timestamp for each in inside]
            except (MalformedBatch, CannotInflate) as error:
                unread.append((position, f"offset {offset}: {error}"))
        attributes &= _ATTRIBUTES if magic else layout.CODEC_MASK
        found[n] = (
            first, length, layout.NO_EPOCH, magic, crc, attributes, last - first, times[0],
            max(times), -1, -1, -1, count,
        )  # fmt: skip
    return found, sums, unread
