"""Batches of records that differ only in their payload ids."""

from __future__ import annotations

import numpy as np
from crc32c import crc32c

from linkflap.harness.model.payload import HEADER, LAYOUT

_VARINT_SHORT = 64
"""Below this number, a zigzag varint takes one byte."""
COMMIT = bytes([32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 7, 0])
ABORT = bytes([32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 7, 0])
ABORTED = 50
"""One transaction of this many is aborted."""


class Batches:
    """Batches of `count` records of one size, in which only the payload ids differ."""

    def __init__(self, count: int) -> None:
        value = bytes(range(48, 120))
        name = HEADER.encode()
        head = bytes([0, 0, 0, 32]) + b"key-" + bytes(12) + bytes([0x90, 0x01]) + value
        tail = bytes([2, 2 * len(name)]) + name + bytes([2 * LAYOUT.size])
        body = len(head) + len(tail) + LAYOUT.size
        length = bytes([(2 * body) & 0x7F | 0x80, (2 * body) >> 7])
        one = length + head + tail + bytes(LAYOUT.size)
        assert count <= _VARINT_SHORT, "offset deltas of one byte"
        self._records = np.tile(np.frombuffer(one, np.uint8), (count, 1))
        self._records[:, len(length) + 2] = 2 * np.arange(count)
        self._at = len(one) - LAYOUT.size
        self.count = count

    def data(
        self,
        offset: int,
        producer: int,
        sequence: int,
        first: int,
        operation: int,
        epoch: int,
        time: int,
    ) -> bytes:
        ids = np.empty(self.count, [("uid", ">i8"), ("operation", ">i8"), ("counter", ">i4")])
        ids["uid"], ids["operation"] = first + np.arange(self.count), operation
        ids["counter"] = sequence + np.arange(self.count)
        self._records[:, self._at :] = ids.view(np.uint8).reshape(self.count, -1)
        return batch(
            self._records.tobytes(), offset, self.count, producer, sequence, 0x10, epoch, time
        )


def batch(
    body: bytes,
    offset: int,
    count: int,
    producer: int,
    sequence: int,
    attributes: int,
    epoch: int,
    time: int,
) -> bytes:
    covered = (
        b"".join(
            n.to_bytes(size, "big", signed=True)
            for n, size in (
                (attributes, 2),
                (count - 1, 4),
                (time, 8),
                (time, 8),
                (producer, 8),
                (0, 2),
                (sequence, 4),
                (count, 4),
            )
        )
        + body
    )
    length = 9 + len(covered)
    head = (
        offset.to_bytes(8, "big") + length.to_bytes(4, "big") + epoch.to_bytes(4, "big") + b"\x02"
    )
    return head + crc32c(covered).to_bytes(4, "big") + covered
