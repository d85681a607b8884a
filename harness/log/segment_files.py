"""Segment files, mapped into memory, and the damage to their bytes."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout
from linkflap.harness.machine import untrusted_files

Bytes = NDArray[np.uint8]


Ints = NDArray[np.int64]


_DIGITS: Final = 20
LARGEST_FILE: Final = (1 << 31) - 1
"""segment.bytes is an int, and a segment ends before it would exceed it."""


Kind = Literal[
    "unreadable-file",
    "torn-tail",
    "impossible-length",
    "unknown-magic",
    "bytes-after-zeros",
    "corrupt-batch",
    "unknown-codec",
    "unreadable-records",
    "unknown-control",
    "impossible-offset",
    "impossible-header",
    "overlap",
    "misplaced-segment",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDamage:
    """Bytes that cannot be what Kafka writes, or that this reader does not know. `position` is in
    bytes of `file`."""

    kind: Kind
    file: str
    position: int
    detail: str

    def __str__(self) -> str:
        return f"{self.file} at byte {self.position}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment file. `base_offset` is the number in its name, -1 if the name is not a number."""

    path: Path
    data: Bytes
    base_offset: int

    @property
    def name(self) -> str:
        """Partition folder and file: enough to find it in a capture."""
        return f"{self.path.parent.name}/{self.path.name}"

    def let_go(self, start: int, end: int) -> None:
        """Frees the memory of the bytes [start, end); another access reads them from the file
        again."""
        pages = getattr(self.data.base, "_mmap", None)
        start, end = start - start % mmap.PAGESIZE, min(end, len(self.data))
        if pages is not None and end > start:
            pages.madvise(mmap.MADV_DONTNEED, start, end - start)


def offset_in(name: str) -> int:
    """The offset that a segment file's name tells; -1 for a name that is no offset."""
    stem = name.removesuffix(".log")
    number = int(stem) if stem.isascii() and stem.isdigit() and len(stem) <= _DIGITS else -1
    return number if number <= layout.LARGEST_OFFSET else -1


def map_segment(path: Path) -> tuple[Segment, list[SegmentDamage]]:
    """Maps a file; one that cannot be read becomes an empty segment and a damage."""
    base_offset = offset_in(path.name)
    damage: list[SegmentDamage] = []
    try:
        with untrusted_files.opened(path) as file:
            data = _mapped(file)
    except OSError as error:
        data = np.zeros(0, np.uint8)
        reason = error.strerror or str(error)
        damage.append(
            SegmentDamage(
                kind="unreadable-file",
                file=f"{path.parent.name}/{path.name}",
                position=0,
                detail=reason,
            )
        )
    return Segment(path=path, data=data, base_offset=base_offset), damage


def _mapped(file: BinaryIO) -> Bytes:
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_FILE:
        raise OSError(errno.EFBIG, f"has {size} bytes, and Kafka's largest segment {LARGEST_FILE}")
    # An empty file cannot be mapped.
    return np.memmap(file, np.uint8, "r").view(np.ndarray) if size else np.zeros(0, np.uint8)


def map_segments(paths: Iterable[Path]) -> tuple[list[Segment], list[SegmentDamage]]:
    """Maps several files in the order given."""
    segments: list[Segment] = []
    damage: list[SegmentDamage] = []
    for path in paths:
        segment, wrong = map_segment(path)
        segments.append(segment)
        damage.extend(wrong)
    return segments, damage
