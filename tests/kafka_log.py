"""Writes Kafka logs for tests, and changes captured ones: batches from plain values, markers, CRC
repair.

From the protocol guide (record batch, message format v2) alone: nothing here is `harness.log`'s,
which is tested with it, and the codecs are other libraries' (zlib and Arrow's; there cramjam and
zstandard).

records    [Plain(uid=…), …]  or  record(b"value", key=b"k", headers=[("h", b"v")])
batch      one v2 batch as bytes;  marker  one COMMIT or ABORT batch
segment    writes batches to <folder>/00000000000000000000.log
batches_in, rewrite, recrc, changed     take a segment apart, put it together again
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from linkflap.harness.model.payload import HEADER, encode

ABORT, COMMIT, MIRROR_PID_RESET = 0, 1, 7
WITHOUT_ID = ((-1, -1), (-1, 0), (0, 0))
"""Epoch and base sequence that clients write where there is no producer id: librdkafka, Java and
kafka-go; franz-go, sarama and aiokafka; KafkaJS and older releases of sarama."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "xerial": 2}
"""Names for `codec=`; `snappy` is librdkafka's framing, `xerial` Java's."""
MAGIC = 2
LENGTH_AT, LENGTH_ENDS, CRC_AT, CRC_FROM, PRODUCER_ID_ENDS, HEADER_SIZE = 8, 12, 17, 21, 51, 61
"""Positions in a batch: the length field and what it does not count; the CRC field and where its
range begins; the end of the producer id; the first record."""
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A record to be written. `delta` is its offset in the batch (-1: the next one); `timestamp` is
    in milliseconds."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] = field(default_factory=tuple)
    timestamp: int = 1_700_000_000_000
    delta: int = -1


def record(value: bytes | None, **rest: object) -> Plain:
    """A record that no client of linkflap wrote."""
    return Plain(value=value, **rest)  # type: ignore[arg-type]


def ours(
    uid: int, operation: int = 0, counter: int = 0, *, value: bytes | None = None, **rest: object
) -> Plain:
    """A record as the workloads write it, with the `linkflap` header."""
    value = b"v%d" % uid if value is None else value
    return Plain(value=value, headers=((HEADER, encode(uid, operation, counter)),), **rest)  # type: ignore[arg-type]


def varint(value: int, bits: int = 32) -> bytes:
    """A zigzag varint."""
    number = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _record(plain: Plain, delta: int, base_timestamp: int) -> bytes:
    body = (
        b"\x00"
        + varint(plain.timestamp - base_timestamp, 64)
        + varint(delta)
        + _nullable(plain.key)
        + _nullable(plain.value)
    )
    body += varint(len(plain.headers))
    for name, value in plain.headers:
        body += _nullable(name.encode() if isinstance(name, str) else name) + _nullable(value)
    return varint(len(body)) + body


def _xerial(data: bytes) -> bytes:
    blocks = [_arrow("snappy", data[i : i + 32768]) for i in range(0, len(data), 32768)]
    return (
        b"\x82SNAPPY\x00"
        + struct.pack(">ii", 1, 1)
        + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
    )


def _arrow(codec: str, data: bytes) -> bytes:
    return bytes(pa.compress(data, codec=codec, asbytes=True))


def _zstd(data: bytes) -> bytes:
    """The format of Java's clients: a stream whose frame does not contain its length."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


_DEFLATE: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: zlib.compress(data, wbits=31),
    "snappy": lambda data: _arrow("snappy", data),
    "xerial": _xerial,
    "lz4": lambda data: _arrow("lz4", data),
    "zstd": _zstd,
}


def batch(
    base_offset: int,
    records: Sequence[Plain],
    *,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    transactional: bool = False,
    control: bool = False,
    codec: str = "none",
    leader_epoch: int = 0,
    log_append_time: int | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    horizon: int | None = None,
) -> bytes:
    """One v2 batch. `count`, `last_delta` and extra `attributes` bits allow batches that no broker
    would write. `horizon` is the delete horizon, which the log cleaner writes in place of the base
    timestamp (KIP-534)."""
    base_timestamp = horizon if horizon is not None else records[0].timestamp if records else 0
    latest = (
        max((r.timestamp for r in records), default=-1)
        if log_append_time is None
        else log_append_time
    )
    body, delta = b"", -1
    for plain in records:
        delta = delta + 1 if plain.delta < 0 else plain.delta
        body += _record(plain, delta, base_timestamp)
    flags = CODECS[codec] | attributes
    flags |= TRANSACTIONAL if transactional else 0
    flags |= CONTROL if control else 0
    flags |= LOG_APPEND_TIME if log_append_time is not None else 0
    flags |= DELETE_HORIZON if horizon is not None else 0
    covered = struct.pack(
        ">hiqqqhii", flags, delta if last_delta is None else last_delta, base_timestamp, latest,
        pid, epoch, seq,
        len(records) if count is None else count,
    ) + _DEFLATE[codec](body)  # fmt: skip
    head = struct.pack(
        ">qiibI", base_offset, len(covered) + 9, leader_epoch, MAGIC, crc32c(covered)
    )
    return head + covered


def marker(
    offset: int, kind: int, *, pid: int, epoch: int, leader_epoch: int = 0, version: int = 0,
    coordinator: int = 0,
) -> bytes:  # fmt: skip
    """A control batch that ends a transaction: kind COMMIT or ABORT (EndTxnMarker: version i16,
    coordinator epoch i32)."""
    plain = Plain(
        key=struct.pack(">hh", version, kind),
        value=struct.pack(">hi", 0, coordinator),
        timestamp=1_700_000_000_000,
    )
    return batch(
        offset,
        [plain],
        pid=pid,
        epoch=epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def mirror_pid_reset(offset: int, *, leader_epoch: int = 0) -> bytes:
    """KIP-1279's control batch that clears all producer state: control, not transactional, producer
    id -1."""
    cluster = b"source"
    value = struct.pack(">h", 0) + varint(len(cluster)) + cluster + b"\x00"
    plain = Plain(key=struct.pack(">hh", 0, MIRROR_PID_RESET), value=value)
    return batch(offset, [plain], control=True, leader_epoch=leader_epoch)


def segment(
    folder: Path, batches: Sequence[bytes], *, base_offset: int = 0, tail: bytes = b""
) -> Path:
    """Writes a segment file into a partition folder, and creates the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batches) + tail)
    return path


def batches_in(path: Path) -> list[tuple[int, bytes]]:
    """(position, bytes) of the batches of an undamaged segment file."""
    whole = path.read_bytes()
    written = len(whole.rstrip(b"\x00"))
    found: list[tuple[int, bytes]] = []
    position = 0
    while position < written:
        end = position + LENGTH_ENDS + int(struct.unpack_from(">i", whole, position + LENGTH_AT)[0])
        found.append((position, whole[position:end]))
        position = end
    return found


def rewrite(path: Path, batches: Sequence[bytes]) -> None:
    """Replaces the content of a segment file."""
    path.write_bytes(b"".join(batches))


def old_message(
    offset: int, value: bytes | None, *, magic: int = 1,
    timestamp: int = 1_400_000_000_000, attributes: int = 0,
) -> bytes:  # fmt: skip
    """A message of format 0 or 1 (before Kafka 0.11): CRC-32, magic, attributes, [timestamp,] key,
    value."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for part in (None, value):  # no key
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def crc_with_id(crc: int, length: int, before: int, after: int) -> int:
    """The CRC of a batch with this length and CRC after another producer id was written into it."""
    change = struct.pack(">Q", (before ^ after) % 2**64) + bytes(length - PRODUCER_ID_ENDS)
    return int(crc ^ crc32c(change) ^ crc32c(bytes(len(change))))


def recrc(data: bytes) -> bytes:
    """The batch with the correct length and CRC for its bytes."""
    head = data[:LENGTH_AT] + struct.pack(">i", len(data) - LENGTH_ENDS) + data[LENGTH_ENDS:CRC_AT]
    return head + struct.pack(">I", crc32c(data[CRC_FROM:])) + data[CRC_FROM:]


_FIELD_OFFSETS = {
    "base_offset": (0, ">q"),
    "leader_epoch": (12, ">i"),
    "attributes": (21, ">h"),
    "last_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "pid": (43, ">q"),
    "epoch": (51, ">h"),
    "seq": (53, ">i"),
    "count": (57, ">i"),
}


def changed(data: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a correct CRC. Names are as for `batch`, and
    base_offset, attributes."""
    out = bytearray(data)
    for name, value in fields.items():
        offset_of_field, layout_of = _FIELD_OFFSETS[name]
        struct.pack_into(layout_of, out, offset_of_field, value)
    return recrc(bytes(out))


def with_length(data: bytes, length: int) -> bytes:
    """A batch whose header has another length."""
    return data[:LENGTH_AT] + struct.pack(">i", length) + data[LENGTH_ENDS:]


def field_of(data: bytes, name: str) -> int:
    """One header field of a batch, by the names of `changed`."""
    offset_of_field, layout_of = _FIELD_OFFSETS[name]
    return int(struct.unpack_from(layout_of, data, offset_of_field)[0])


def with_marker_kind(data: bytes, kind: int) -> bytes:
    """A control batch changed to another type (in its key), with a correct CRC."""
    # Before the key are length, attributes, timestamp delta, offset delta and key length: one byte
    # each.
    key = HEADER_SIZE + 5
    assert data[key - 1 : key + 2] == varint(4) + struct.pack(">h", 0), (
        "not a control record as brokers write them"
    )
    return recrc(data[: key + 2] + struct.pack(">h", kind) + data[key + 4 :])
