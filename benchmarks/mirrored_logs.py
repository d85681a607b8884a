"""Logs of two clusters of any size, where B is an offset-exact mirror of A, written at the speed of
the disk.

There is one topic `A.orders` with a few partitions, and segments as a broker rolls them. A batch is
a template of 300 records of about 100 bytes; each copy has its own base offset, sequence, timestamp
and CRC. Ten batches are a transaction, which a COMMIT marker ends. B has A's batches with its own
leader epochs, which no CRC covers. `diverge` gives B other values in one range.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from linkflap.harness.log.layout import CONTROL, TRANSACTIONAL, batch_of, record

TOPIC = "A.orders"
RECORDS, BATCHES = 300, 10
KEY, VALUE = 16, 72
SEGMENT = 1 << 30
TIME = 1_700_000_000_000
LEADER_EPOCHS = {"A": 3, "B": 11}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """In one partition, batches `first` to `first + count` have other values on B, with correct
    CRCs."""

    partition: int
    first: int
    count: int = 4


def write(
    folder: Path,
    *,
    records: int,
    partitions: int = 4,
    diverge: Divergence | None = None,
    side: str = "A",
) -> Path:
    """Writes one cluster's log directory with at least `records` data records in total, and returns
    it."""
    templates = [_records(random.Random(seed)) for seed in range(8)]
    other = _records(random.Random(99))
    for partition in range(partitions):
        into = folder / f"{TOPIC}-{partition}"
        into.mkdir(parents=True)
        changed = range(0)
        if diverge and diverge.partition == partition:
            changed = range(diverge.first, diverge.first + diverge.count)
        with _Segments(into) as out:
            for offset, batch in _batches(
                -(-records // partitions), partition, templates, other, changed, LEADER_EPOCHS[side]
            ):
                out.write(offset, batch)
    return folder


class _Segments:
    """Writes batches to segment files named by their first offset."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._size = folder, SEGMENT
        self._file: BinaryIO | None = None

    def __enter__(self) -> _Segments:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def write(self, offset: int, batch: bytes) -> None:
        if self._size + len(batch) > SEGMENT or self._file is None:
            if self._file:
                self._file.close()
            self._file = (self._folder / f"{offset:020d}.log").open("wb", buffering=1 << 20)
            self._size = 0
        self._size += self._file.write(batch)


def _batches(
    records: int,
    partition: int,
    templates: list[bytes],
    other: bytes,
    changed: range,
    leader_epoch: int,
) -> Iterator[tuple[int, bytes]]:
    offset = sequence = number = 0
    while sequence < records:
        body = other if number in changed else templates[number % len(templates)]
        made = partial(batch_of, leader_epoch=leader_epoch, producer=(1000 + partition, 0))
        yield (
            offset,
            made(
                body,
                RECORDS,
                offset=offset,
                attributes=TRANSACTIONAL,
                time=TIME + offset,
                sequence=sequence & 0x7FFFFFFF,
            ),
        )
        offset, sequence, number = offset + RECORDS, sequence + RECORDS, number + 1
        if number % BATCHES == 0 or sequence >= records:
            yield (
                offset,
                made(
                    _MARKER,
                    1,
                    offset=offset,
                    attributes=TRANSACTIONAL | CONTROL,
                    time=TIME + offset,
                    sequence=-1,
                ),
            )
            offset += 1


def _records(values: random.Random) -> bytes:
    rows = (
        record(delta, values.randbytes(KEY), values.randbytes(VALUE)) for delta in range(RECORDS)
    )
    return b"".join(rows)


_MARKER = record(0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7))
