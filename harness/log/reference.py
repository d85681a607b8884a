"""The slow and obvious decoder: one Python object per batch and record, straight from the
description of the format.

Tests compare the columnar decoders (`batches`, `records`) with it, and commands print batches by
it. It shares with the fast ones only the layout's constants and the codecs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from linkflap.harness.log import layout
from linkflap.harness.log.codecs import CannotInflate, DecodingLimit, inflate
from linkflap.harness.model.payload import FOREIGN, HEADER, LAYOUT


class MalformedBatch(ValueError):
    """Bytes that are no record batch. Never leaves `harness.log`, except from this module's own
    functions."""


class Cursor:
    """Reads a record's fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self._data):
            raise MalformedBatch(
                f"{size} bytes wanted at byte {self.position} of {len(self._data)}"
            )
        self.position += size
        return self._data[self.position - size : self.position]

    def varint(self, bits: int = 32) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift >= bits:
                raise MalformedBatch(
                    f"a varint of more than {bits} bits before byte {self.position}"
                )
        value &= (1 << bits) - 1
        return (value >> 1) ^ -(value & 1)

    def nullable(self) -> bytes | None:
        length = self.varint()
        if length < -1:
            raise MalformedBatch(f"length {length} before byte {self.position}")
        return None if length == -1 else self.take(length)

    def at_end(self) -> bool:
        return self.position == len(self._data)


def control_type(codec: int, body: bytes) -> tuple[int, str]:
    """The type of a control batch by its first record: ABORT, COMMIT, OTHER_CONTROL or
    SKIPPED_CONTROL, and what is wrong with it or "".

    KIP-98: the key is version i16 | type i16; later versions may add fields behind. As Kafka's
    consumers do (ControlRecordType), any version from 0 on is read as version 0, and types that are
    not known are skipped; a lower version or a shorter key is an error to them.
    """
    try:
        key, _ = _control_record(codec, body)
    except (MalformedBatch, CannotInflate) as error:
        return layout.SKIPPED_CONTROL, f"a control record that cannot be read: {error}"
    if key is None or len(key) < 4:
        return layout.SKIPPED_CONTROL, f"a control record with the key {key!r}"
    version, kind = struct.unpack_from(">hh", key)
    if version < 0:
        return layout.SKIPPED_CONTROL, f"a control record of version {version}, type {kind}"
    if kind in (layout.ABORT, layout.COMMIT):
        return kind, ""
    return layout.OTHER_CONTROL if kind == layout.RESET_TYPE else layout.SKIPPED_CONTROL, ""


def coordinator_epoch(codec: int, body: bytes) -> int:
    """The epoch of the coordinator that wrote a marker; -1 where it cannot be read, or has none.

    KIP-98, EndTxnMarker: the value is version i16 | coordinator epoch i32; later versions may add
    fields behind.
    """
    try:
        _, value = _control_record(codec, body)
    except (MalformedBatch, CannotInflate):
        return -1
    if value is None or len(value) < 6:
        return -1
    return int(struct.unpack_from(">hi", value)[1])


def _control_record(codec: int, body: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of the first record of a batch."""
    cursor = Cursor(inflate(codec, body, _LARGEST_CONTROL))
    cursor.varint()
    cursor.take(1)
    cursor.varint(bits=64)
    cursor.varint()
    key = cursor.nullable()
    return key, None if cursor.at_end() else cursor.nullable()


Header = tuple[bytes, bytes | None]
_LARGEST_CONTROL: Final = 64 << 10
"""Bytes of the records of a control batch: Kafka writes some 20, and compresses none."""
_CASTAGNOLI: Final = 0x82F63B78
_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. `timestamp` is milliseconds; None is null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBatch:
    """One batch header, as written."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    covered: bytes
    """The bytes that the checksum covers."""

    @property
    def crc_ok(self) -> bool:
        return crc32c(self.covered) == self.crc

    @property
    def body(self) -> bytes:
        return self.covered[layout.HEADER_SIZE - layout.CRC_FROM :]

    @property
    def codec(self) -> int:
        return self.attributes & layout.CODEC_MASK

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & layout.TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & layout.CONTROL)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return (
            -1
            if self.base_sequence < 0
            else (self.base_sequence + self.last_offset_delta) % (1 << 31)
        )


_FIELDS: Final = tuple(each.name for each in fields(ReferenceBatch) if each.name != "covered")
_FORM: Final = ">qiibIhiqqqhii"


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batches(data: bytes) -> Iterator[ReferenceBatch]:
    """The batches of a segment's bytes. Raises MalformedBatch where a complete v2 batch should be
    and is not."""
    position = 0
    while position < len(data):
        if len(data) - position < layout.HEADER_SIZE:
            raise MalformedBatch(
                f"{len(data) - position} bytes at byte {position} are less than a batch header"
            )
        header = dict(zip(_FIELDS, struct.unpack_from(_FORM, data, position), strict=True))
        length, magic = header.pop("length"), header["magic"]
        if magic != layout.MAGIC:
            raise MalformedBatch(f"magic {magic} at byte {position}")
        end = position + layout.LENGTH_ENDS + length
        if length < layout.SMALLEST_LENGTH or end > len(data):
            raise MalformedBatch(
                f"a batch at byte {position} of length {length} where {len(data) - position} bytes "
                "are left"
            )
        covered = data[position + layout.CRC_FROM : end]
        yield ReferenceBatch(length=end - position, covered=covered, **header)
        position = end


def records(batch: ReferenceBatch, decoding_limit: DecodingLimit | None = None) -> list[Record]:
    """The records of a batch, data or control. Raises MalformedBatch, and CannotInflate for its
    codec, or where the limit of its log (by default of itself) is used up."""
    if batch.count > layout.MOST_RECORDS:
        raise MalformedBatch(f"{batch.count} records")
    decoding_limit = decoding_limit or DecodingLimit(batch.length)
    cursor = Cursor(decoding_limit.inflate(batch.codec, batch.body))
    found: list[Record] = []
    previous = -1
    for _ in range(batch.count):
        size = cursor.varint()
        inner = Cursor(cursor.take(size))
        delta, record = _record(inner, batch, decoding_limit)
        if not inner.at_end():
            raise MalformedBatch(f"a record of {size} bytes ends after {inner.position}")
        if not previous < delta <= batch.last_offset_delta:
            raise MalformedBatch(
                f"offset delta {delta} after {previous} in a batch that ends at "
                f"{batch.last_offset_delta}"
            )
        previous = delta
        found.append(record)
        if batch.codec:
            decoding_limit.take(1)
    if not cursor.at_end():
        raise MalformedBatch(f"bytes are left after {batch.count} records")
    return found


def _record(
    cursor: Cursor, batch: ReferenceBatch, decoding_limit: DecodingLimit
) -> tuple[int, Record]:
    cursor.take(1)
    timestamp = _wrapped(batch.base_timestamp + cursor.varint(bits=64))
    if batch.attributes & layout.LOG_APPEND_TIME:
        timestamp = batch.max_timestamp
    delta = cursor.varint()
    key, value = cursor.nullable(), cursor.nullable()
    count = cursor.varint()
    if count < 0:
        raise MalformedBatch(f"{count} headers")
    headers: list[Header] = []
    for _ in range(count):
        name = cursor.nullable()
        if name is None:
            raise MalformedBatch("a header without a key")
        headers.append((name, cursor.nullable()))
        if batch.codec:
            decoding_limit.take(1)
    return delta, Record(
        offset=batch.base_offset + delta, timestamp=timestamp, key=key, value=value, headers=headers
    )


def _wrapped(value: int) -> int:
    """Two's complement in 64 bits: what Kafka's Java arithmetic does."""
    value &= _64_BITS
    return value - (1 << 64) if value >> 63 else value


def identity(record: Record) -> tuple[int, int]:
    """(uid, operation) of a record, FOREIGN twice where it is not ours."""
    for name, value in record.headers:
        if name == HEADER.encode() and value is not None and len(value) == LAYOUT.size:
            uid, operation, _ = LAYOUT.unpack(value)
            return int(uid), int(operation)
    return FOREIGN, FOREIGN


def digest(record: Record) -> int:
    """64 bits, signed, over everything a record is except its offset.

    FNV-1a-64 (Fowler, Noll, Vo) over: key | value | timestamp i64 | header count i32 | (key, value)
    of each header, in order; a byte string is its length i32 and its bytes, null is length -1
    alone; integers are big-endian.
    """
    return _fnv(digest_bytes(record))


def digest_bytes(record: Record) -> bytes:
    """The bytes that `digest` is computed over."""
    parts = [*_sized(record.key), *_sized(record.value), struct.pack(">q", record.timestamp)]
    parts.append(struct.pack(">i", len(record.headers)))
    for name, value in record.headers:
        parts += [*_sized(name), *_sized(value)]
    return b"".join(parts)


def content(key: bytes | None, value: bytes | None) -> int:
    """The same over a key and a value alone."""
    return _fnv(content_bytes(key, value))


def content_bytes(key: bytes | None, value: bytes | None) -> bytes:
    """The bytes that `content` is computed over."""
    return b"".join([*_sized(key), *_sized(value)])


def _fnv(data: bytes) -> int:
    state = _FNV_BASIS
    for byte in data:
        state = ((state ^ byte) * _FNV_PRIME) & _64_BITS
    return _wrapped(state)


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (struct.pack(">i", -1),) if data is None else (struct.pack(">i", len(data)), data)
