"""Record batches as bytes (message format v2, KIP-98): walks them, stamps leader epochs and
producer ids, and makes control batches.

The CRC covers the bytes from the attributes to the end of the batch. The leader epoch lies before
them, so it is patched in place; a new producer id needs a new CRC.

Strategies for mirrored producer ids, as KIP-1279's drafts have them (discussion thread; RS12, VK4,
VK8, VK9).

keep: unchanged (KIP-1279 from March 2026 on, before its reset record). The destination allocates
the same ids again.

negate: -(pid + 2) (February 2026). Brokers treat negative ids as no producer id, and track no
transactions for them.

complement: Long.MAX - pid - 1 (proposed in the thread). Stays positive. A second hop restores the
original id, as with negate.

region: sign bit, 32 bits of the source's cluster id, 31 bits of pid (proposed). Negative, and ids
that differ by a multiple of 2^31 collide.

jump: unchanged; the destination's own allocation is moved past them (`producer_id_advance`).

reset: unchanged; the failover appends a MIRROR_PID_RESET, which unmodified brokers ignore.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from crc32c import crc32c

from linkflap.harness.log import layout
from linkflap.harness.log.layout import INT, LONG, walk
from linkflap.harness.mirrors.shadow.settings import ShadowOptions
from linkflap.harness.wire.messages import Buffer

NO_PRODUCER: Final = -1
ABORT, RESET = layout.ABORT, 7
"""Control record types: KIP-98's ABORT, and KIP-1279's MIRROR_PID_RESET."""

_HEAD: Final = struct.Struct(">qii")
# Module constants, not attributes of `layout`: `stamp` limits the mirror's throughput.
_SIZE, _ENDS = layout.HEADER_SIZE, layout.LENGTH_ENDS
_EPOCH_AT, _CRC_AT, _CRC_FROM = layout.EPOCH_AT, layout.CRC_AT, layout.CRC_FROM
_DELTA_AT, _PRODUCER_AT = layout.LAST_DELTA_AT, layout.PRODUCER_ID_AT
_CONTROL_TYPE_AT: Final = layout.HEADER_SIZE + 7
"""After the record's length, attributes, two deltas and key length (one byte each), and the version
in the key (two bytes)."""
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
    """The control records of a buffer of markers, which are never compressed: (offset, type,
    producer id, producer epoch)."""
    for batch in walk(buffer):
        (attributes,) = _SHORT.unpack_from(buffer, batch.start + layout.CRC_FROM)
        if attributes & layout.CONTROL:
            (epoch,) = _SHORT.unpack_from(buffer, batch.start + layout.PRODUCER_EPOCH_AT)
            (kind,) = _SHORT.unpack_from(buffer, batch.start + _CONTROL_TYPE_AT)
            yield batch.base, kind, batch.producer_id, epoch


@dataclass(slots=True, kw_only=True)
class Stamped:
    """Complete batches, ready for the destination. `data` has the offsets [base, end), gaps
    included.

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
        """The buffer that `data` is a view of, and keeps in memory."""
        return cast(Buffer, self.data.obj)

    def from_offset(self, offset: int) -> memoryview:
        """The data from the batch that contains `offset`, or the next later one, on."""
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
    """As many complete batches as fit into `limit` bytes. With `at_least_one`, the first batch in
    any case, as brokers do (KIP-74)."""
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
    """Prepares a source's answer to a fetch at `position`, in place. Keeps the batches that end at
    or after `position` and before offset `below`.

    A batch gets the leader epoch `epoch_at(base offset, source epoch)`. `ids` maps its producer id
    unless that is -1.
    """
    first = stop = 0
    end, top, known = position, -1, source_epoch
    started = False
    epochs: list[tuple[int, int]] = []
    size = len(data)
    at = 0
    head, delta_of, long_of = _HEAD.unpack_from, INT.unpack_from, LONG.unpack_from
    # The same as `walk`, without an object per batch: this loop limits the mirror's throughput.
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
    """A batch with one control record, like a marker of a coordinator (KIP-98: key = version 0,
    type)."""
    key = struct.pack(">hh", 0, kind)
    return layout.batch(
        [(key, value)],
        offset=offset,
        leader_epoch=epoch,
        attributes=layout.CONTROL | (layout.TRANSACTIONAL if transactional else 0),
        time=int(time.time() * 1000),
        producer=(producer_id, producer_epoch),
    )


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
    """KIP-1279's MIRROR_PID_RESET: not transactional, no producer id; value = version 0, compact
    string, no tagged fields.

    It has no effect on unmodified brokers and clients: they skip control records of unknown types,
    and keep their producer states.
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


_LONGEST: Final = (1 << 63) - 1
MARGIN: Final = 1000
"""Distance from the mirrored ids to the destination's own, at least: the size of one allocated
block (ProducerIdsBlock)."""


def negate(producer_id: int) -> int:
    return -(producer_id + 2)


def complement(producer_id: int) -> int:
    return _LONGEST - producer_id - 1


def region(cluster_id: str) -> Callable[[int], int]:
    """The mapping for producer ids of this cluster."""
    region = zlib.crc32(cluster_id.encode()) << 31

    def mapped(producer_id: int) -> int:
        return region + (producer_id & 0x7FFFFFFF) - (1 << 63)

    return mapped


def mapping(options: ShadowOptions, source_cluster_id: str) -> ProducerIds | None:
    """The mapping of producer ids; None when they are unchanged."""
    changed: dict[str, ProducerIds] = {
        "negate": negate,
        "complement": complement,
        "region": region(source_cluster_id),
    }
    return changed.get(options.producer_ids)
