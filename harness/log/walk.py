"""Walks over the batches of a buffer with the standard library alone, for processes that load no
numpy.

It reads only the header fields that forwarding, truncating or copying a batch needs. It does not
read the records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from linkflap.harness.log import layout

Buffer = bytes | bytearray | memoryview
HEAD: Final = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: what every batch of format 2 begins with."""
INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
SMALLEST_BATCH: Final = layout.LENGTH_ENDS + layout.SMALLEST_OLD_LENGTH


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
        stop = start + layout.LENGTH_ENDS + length
        if stop - start < SMALLEST_BATCH:
            raise ValueError(f"a batch of {stop - start} bytes at offset {base}")
        if stop > size:
            return
        last, producer = base, -1
        if magic < layout.MAGIC or stop - start < layout.HEADER_SIZE:
            epoch = -1
        else:
            last = base + INT.unpack_from(buffer, start + layout.LAST_DELTA_AT)[0]
            (producer,) = LONG.unpack_from(buffer, start + layout.PRODUCER_ID_AT)
        yield Batch(start=start, stop=stop, base=base, last=last, epoch=epoch, producer_id=producer)
        start = stop
