"""Record batches as bytes (message format v2, KIP-98): walked, stamped with another leader epoch or
producer id, and made.

The CRC covers attributes to end, so a leader epoch is patched in place, and a producer id means a
new CRC.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from crc32c import crc32c

from linkflap.harness.log import layout
from linkflap.harness.log.walk import INT, LONG, walk
from linkflap.harness.wire.bulk import Buffer

NO_PRODUCER: Final = -1
ABORT, RESET = layout.ABORT, 7
"""Control record types: KIP-98's ABORT, and KIP-1279's MIRROR_PID_RESET."""

_HEAD: Final = struct.Struct(">qii")
# Looked up once: `stamp` is the mirror's speed.
_SIZE, _ENDS = layout.HEADER_SIZE, layout.LENGTH_ENDS
_EPOCH_AT, _CRC_AT, _CRC_FROM = layout.EPOCH_AT, layout.CRC_AT, layout.CRC_FROM
_DELTA_AT, _PRODUCER_AT = layout.LAST_DELTA_AT, layout.PRODUCER_ID_AT
_CONTROL_TYPE_AT: Final = layout.HEADER_SIZE + 7
"""Behind the record's length, attributes, two deltas and key length, of one byte each, and the
key's version."""
_SHORT: Final = struct.Struct(">h")
_UNSIGNED: Final = struct.Struct(">I")

ProducerIds = Callable[[int], int]


def end_of(buffer: Buffer) -> int:
    """The offset after the last complete batch, or -1."""
    last = -1
    for batch in walk(buffer):
        last = batch.last
    return last + 1 if last >= 0 else -1


def controls(buffer: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """The control records of a buffer of uncompressed markers: (offset, type, producer id, producer
    epoch)."""
    for batch in walk(buffer):
        (attributes,) = _SHORT.unpack_from(buffer, batch.start + layout.CRC_FROM)
        if attributes & layout.CONTROL:
            (epoch,) = _SHORT.unpack_from(buffer, batch.start + layout.PRODUCER_EPOCH_AT)
            (kind,) = _SHORT.unpack_from(buffer, batch.start + _CONTROL_TYPE_AT)
            yield batch.base, kind, batch.producer_id, epoch


@dataclass(slots=True, kw_only=True)
class Stamped:
    """Whole batches ready for the destination: `data` holds offsets [base, end), gaps included.

    `epochs` are the source's leader epochs that begin in it: (epoch, first offset). `top_producer`
    is its highest producer id.
    """

    base: int
    end: int
    data: memoryview
    epochs: list[tuple[int, int]]
    top_producer: int

    @property
    def frame(self) -> Buffer:
        """The memory that `data` is in, and keeps."""
        return cast(Buffer, self.data.obj)

    def from_offset(self, offset: int) -> memoryview:
        """From the batch that has `offset`, or the next one, on."""
        return next(
            (self.data[batch.start :] for batch in walk(self.data) if batch.last >= offset),
            self.data[:0],
        )

    def below(self, end: int) -> Stamped:
        """The batches that end before offset `end`."""
        stop, reached = 0, self.base
        for batch in walk(self.data):
            if batch.last >= end:
                break
            stop, reached = batch.stop, batch.last + 1
        return Stamped(
            base=self.base,
            end=reached,
            data=self.data[:stop],
            epochs=[],
            top_producer=self.top_producer,
        )


def within(data: memoryview, limit: int, *, at_least_one: bool) -> memoryview:
    """As many complete batches as fit in `limit` bytes; the first one in any case if wanted, as
    brokers do (KIP-74)."""
    if len(data) <= limit:
        return data
    stop = 0
    for batch in walk(data):
        if batch.stop > limit and not (at_least_one and batch.start == 0):
            break
        stop = batch.stop
    return data[:stop]


def stamp(
    data: memoryview,
    *,
    position: int,
    below: int,
    source_epoch: int,
    epoch_at: Callable[[int, int], int],
    ids: ProducerIds | None,
) -> Stamped:
    """Prepares, in place, what a source answered to a fetch at `position`: batches that end at or
    after it and before offset `below`.

    `epoch_at(base offset, source epoch)` is the leader epoch that a batch gets; `ids` maps producer
    ids other than -1.
    """
    first = stop = 0
    end, top, known = position, -1, source_epoch
    started = False
    epochs: list[tuple[int, int]] = []
    size = len(data)
    at = 0
    head, delta_of, long_of = _HEAD.unpack_from, INT.unpack_from, LONG.unpack_from
    # as `walk`, without making an object per batch: this loop is the mirror's speed
    while size - at >= _SIZE:
        base, length, epoch = head(data, at)
        after = at + _ENDS + length
        last = base + delta_of(data, at + _DELTA_AT)[0]
        if after > size or last >= below:
            break
        if last >= position:
            if not started:
                first, started = at, True
            if epoch != known:
                epochs.append((epoch, base))
                known = epoch
            producer = long_of(data, at + _PRODUCER_AT)[0]
            if producer > top:
                top = producer
            INT.pack_into(data, at + _EPOCH_AT, epoch_at(base, epoch))
            if ids is not None and producer != NO_PRODUCER:
                LONG.pack_into(data, at + _PRODUCER_AT, ids(producer))
                _UNSIGNED.pack_into(data, at + _CRC_AT, crc32c(data[at + _CRC_FROM : after]))
            end, stop = last + 1, after
        at = after
    return Stamped(base=position, end=end, data=data[first:stop], epochs=epochs, top_producer=top)


def control_batch(
    offset: int,
    *,
    kind: int,
    value: bytes,
    epoch: int,
    producer_id: int,
    producer_epoch: int,
    transactional: bool,
) -> bytes:
    """A batch of one control record, as a coordinator's marker (KIP-98: key = version 0, type)."""
    key = struct.pack(">hh", 0, kind)
    record = b"\0" + b"\0" + b"\0" + _varint(len(key)) + key + _varint(len(value)) + value + b"\0"
    body = _varint(len(record)) + record
    now = int(time.time() * 1000)
    attributes = layout.CONTROL | (layout.TRANSACTIONAL if transactional else 0)
    covered = (
        struct.pack(">hiqqqhii", attributes, 0, now, now, producer_id, producer_epoch, -1, 1) + body
    )
    return struct.pack(">qiibI", offset, len(covered) + 9, epoch, 2, crc32c(covered)) + covered


def abort_marker(
    offset: int, *, epoch: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> bytes:
    """The ABORT marker of one open transaction (EndTransactionMarker: version 0, coordinator
    epoch)."""
    value = struct.pack(">hi", 0, coordinator_epoch)
    return control_batch(
        offset,
        kind=ABORT,
        value=value,
        epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def reset_marker(offset: int, *, epoch: int, source_cluster: str) -> bytes:
    """KIP-1279's MIRROR_PID_RESET: not transactional, no producer; value = version 0, compact
    string, no tagged fields.

    Stock brokers and clients ignore it: they skip control records of types they do not know, and
    forget no producer.
    """
    name = source_cluster.encode()
    value = struct.pack(">h", 0) + bytes([len(name) + 1]) + name + b"\0"
    return control_batch(
        offset,
        kind=RESET,
        value=value,
        epoch=epoch,
        producer_id=-1,
        producer_epoch=-1,
        transactional=False,
    )


def _varint(value: int) -> bytes:
    """Zigzag, as record fields have it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
