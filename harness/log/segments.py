"""Segment files, memory-mapped, and the walk from batch to batch. Damage to the bytes is a value.

The walk needs only the length field, so a batch with a bad CRC does not end it. If a length is
wrong and the rest of the batch is sound, its CRC shows where it ends (`_true_end`). Otherwise the
sizes of its records show it, if it is not compressed (`_end_by_records`). In all other cases the
walk ends there, because the next batch could only be guessed: a payload may contain bytes that look
like one.

Files are read once, in parts. To read a part again, it is mapped and then unmapped, because pages
of a mapped file count as memory of the process that touched them.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from linkflap.harness.log import batch_headers, codecs, layout
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
    """Bytes that Kafka cannot have written, or in a format that this reader does not know.
    `position` is in bytes of `file`."""

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

    def damage(self, kind: Kind, position: int, detail: str) -> SegmentDamage:
        """Damage at a byte of this file."""
        return SegmentDamage(kind=kind, file=self.name, position=position, detail=detail)

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
    try:
        with untrusted_files.opened(path) as file:
            return Segment(path=path, data=_mapped(file), base_offset=base_offset), []
    except OSError as error:
        empty = Segment(path=path, data=np.zeros(0, np.uint8), base_offset=base_offset)
        return empty, [empty.damage("unreadable-file", 0, error.strerror or str(error))]


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


# Compiled code sees globals of its own module as constants, and no attributes of others.
_LENGTH_AT, _LENGTH_ENDS, _MAGIC_AT, _MAGIC = (
    layout.LENGTH_AT,
    layout.LENGTH_ENDS,
    layout.MAGIC_AT,
    layout.MAGIC,
)
_SMALLEST_BATCH, _LARGEST = layout.HEADER_SIZE, layout.LARGEST_LENGTH
OLD_FORMATS: Final = (0, 1)
"""Magic of the messages that `harness.log.old_messages` reads."""
_OFFSET: Final = struct.Struct(">q")
WINDOW: Final = 16 << 20
"""Bytes of a file that are held in memory at a time."""
AT_ONCE: Final = 4 << 20
"""Bytes of a file that are read at a time, while they are looked through once."""
SMALL: Final = 4 << 20
"""Files up to this size are walked in Python, because importing numba would take longer."""
_COMPILED: Final = "linkflap.harness.machine.compiled"
_SEARCHED: Final = 2 << 20
"""The number of bytes searched for the end of a batch with a wrong length: twice the default size
of a batch (message.max.bytes)."""
_SEARCHES: Final = 64
"""The number of such searches in one file."""
_LOOK_ALIKE: Final = 1 << 16
"""The number of candidate positions for the next batch: twice as many as the smallest batches
have."""
_INFLATED, _MOST = 16, 8 << 20
"""The number of candidates tried as the end of a compressed batch, and the largest size of its
decompressed records."""
_COUNTED: Final = 1 << 16
"""How many records of such a batch are counted, one by one."""
_STARTS_AT_ONCE: Final = 1 << 14
"""Positions that are looked at together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """Complete v2 batches of a segment that follow each other, or messages of formats 0 and 1
    (`old`), and their bytes, which stay until the next run is asked for.

    `positions` are in `data`, which begins at byte `begins` of the file.
    """

    begins: int
    positions: Ints
    data: Bytes
    old: bool = False


def walk(segment: Segment) -> tuple[Ints, list[SegmentDamage]]:
    """Positions of the complete batches and messages of a segment, in file order."""
    damage: list[SegmentDamage] = []
    return (
        np.concatenate(
            [np.zeros(0, np.int64), *(run.begins + run.positions for run in runs(segment, damage))]
        ),
        damage,
    )


def runs(segment: Segment, damage: list[SegmentDamage]) -> Iterator[BatchRun]:
    """The complete batches and messages of a segment in file order, as many at a time as are read
    at once; what is wrong goes to `damage`.

    Batches are read into one buffer, because mapping a file page by page costs more than copying
    it. A zero-filled tail is preallocation and no damage. A torn batch that has only the leading
    zeros of its offset, at most seven bytes, looks the same.
    """
    data = segment.data.data
    size = len(data)
    if not size:
        return
    unknown = _UnknownFormat()
    sound = _sound if size < SMALL and _COMPILED not in sys.modules else _compiled_sound()
    buffer = np.empty(min(size, AT_ONCE), np.uint8)
    position, last, searches = 0, -1, _SEARCHES
    with untrusted_files.opened(segment.path) as file:
        while position < size:
            file.seek(position)
            here = buffer[: file.readinto(buffer.data)]
            here.flags.writeable = False  # as mapped bytes: compiled code is made for one of both
            found, after = sound(here, 0, len(here))
            if len(found):
                unknown.end(segment, damage)
                yield BatchRun(begins=position, positions=found, data=here)
                last = position + int(found[-1])
                position += after
                continue
            step = _step(segment, data, position)
            if isinstance(step, SegmentDamage):
                unknown.end(segment, damage)
                position, wrong = (
                    _resumed(segment, position, last, sound) if searches else (-1, step)
                )
                damage.append(wrong or step)
                if position < 0:
                    break
                searches, last = searches - 1, -1
                continue
            if step == 0:
                break
            if step > len(here) and data[position + layout.MAGIC_AT] == layout.MAGIC:
                buffer = np.empty(step, np.uint8)  # a batch larger than the buffer
                continue
            if data[position + layout.MAGIC_AT] in OLD_FORMATS:
                unknown.end(segment, damage)
                run = _old(segment, data, position)
                yield run
                position += len(run.data)
                continue
            unknown.add(position, data[position + layout.MAGIC_AT], segment, damage)
            position += step
    unknown.end(segment, damage)


def _old(segment: Segment, data: memoryview, position: int) -> BatchRun:
    """The complete messages from here on, as many as are read at once."""
    positions, begins = list[int](), position
    while (
        position - begins < AT_ONCE
        and position + layout.MAGIC_AT < len(data)
        and data[position + layout.MAGIC_AT] in OLD_FORMATS
    ):
        step = _step(segment, data, position)
        if isinstance(step, SegmentDamage) or not step:
            break
        positions.append(position - begins)
        position += step
    return BatchRun(
        begins=begins,
        positions=np.array(positions, np.int64),
        data=segment.data[begins:position],
        old=True,
    )


def log_end(paths: Sequence[Path]) -> tuple[int, list[SegmentDamage]]:
    """The offset after the last complete batch of segment files given in offset order, 0 without
    any; and what is wrong with the file that shows it. A batch with impossible offsets does not
    count.
    """
    for path in reversed(paths):
        segment, damage = map_segment(path)
        positions, wrong = walk(segment)
        damage += wrong
        for position in positions[::-1].tolist():
            head = segment.data[position : position + layout.HEADER_SIZE].tobytes()
            (last,) = _OFFSET.unpack_from(head)
            if head[layout.MAGIC_AT] == layout.MAGIC:
                header = np.frombuffer(head, batch_headers.HEADER)
                if not batch_headers.possible_offsets(header)[0]:
                    continue
                last += int(header["last_offset_delta"][0])
            return last + 1, damage
        if segment.base_offset > 0:
            return segment.base_offset, damage
    return 0, []


Sound = Callable[[Bytes, int, int], tuple[Ints, int]]


def _resumed(
    segment: Segment, position: int, before: int, sound: Sound
) -> tuple[int, SegmentDamage | None]:
    """The position at which a walk that failed at `position` resumes (-1: nowhere), and the damage:
    the length of the batch there is wrong, or that of the previous batch (-1: none), which led to a
    place without a batch."""
    for begin, (ends, by) in product(
        (position, before), ((_true_end, "its CRC-32C"), (_end_by_records, "its records"))
    ):
        end = ends(segment, begin, sound) if begin >= 0 else -1
        if end >= 0:
            (length,) = layout.INT.unpack_from(segment.data.data, begin + layout.LENGTH_AT)
            detail = (
                f"a batch cannot have length {length}: by {by} it has "
                f"{end - begin - layout.LENGTH_ENDS}; its bytes, {begin} to {end}, are not read"
            )
            return end, segment.damage("impossible-length", begin, detail)
    return -1, None


def _true_end(segment: Segment, begin: int, sound: Sound) -> int:
    """The end of a batch in which only the length is wrong, and so the begin of the next batch; -1
    if not certain.

    The CRC-32C must be right up to that end, and at no other candidate: a producer may have put
    batches into a payload, with a right CRC before them. The next batch must be complete, and
    offsets must rise over all following batches: in a log without gaps no forged batch fits between
    two real ones.
    """
    data = segment.data[begin : begin + _SEARCHED]
    head = _header(data)
    if head is None:
        return -1
    first, delta = int(head["base_offset"][0]), int(head["last_offset_delta"][0])
    ends, total, at = list[int](), 0, layout.CRC_FROM
    for number, end in enumerate(_like_batches(data, first + delta)):
        total, at = crc32c(data[at:end].data, total), end
        if total == head["crc"][0]:
            ends.append(begin + end)
        if number == _LOOK_ALIKE:
            return -1
    if len(ends) != 1:
        return -1
    return ends[0] if _goes_on(segment, ends[0], first + delta, sound) else -1


def _header(data: Bytes) -> NDArray[np.void] | None:
    """The header with which these bytes begin, if a batch of format 2 can have its offsets."""
    if len(data) < layout.HEADER_SIZE:
        return None
    head = np.frombuffer(data[: layout.HEADER_SIZE].tobytes(), batch_headers.HEADER)
    possible = head["magic"][0] == layout.MAGIC and batch_headers.possible_offsets(head)[0]
    return head if possible and head["last_offset_delta"][0] >= 0 else None


def _end_by_records(segment: Segment, begin: int, sound: Sound) -> int:
    """The end of a batch with a wrong length and other damage: behind its last record, if a
    complete batch begins there and the offsets rise; -1 if not certain. A batch in a payload lies
    within a record, so it is not found."""
    data = segment.data[begin : begin + _SEARCHED]
    head = _header(data)
    if head is None:
        return -1
    if codec := int(head["attributes"][0]) & layout.CODEC_MASK:
        return _end_of_compressed(segment, begin, codec, sound)
    count, at, packed = int(head["count"][0]), layout.HEADER_SIZE, data.data
    if not 0 < count <= len(data) // layout.SMALLEST_RECORD:
        return -1
    try:
        for _ in range(count):
            at = _behind_record(packed, at)
    except (ValueError, IndexError):
        return -1
    above = int(head["base_offset"][0]) + int(head["last_offset_delta"][0])
    return begin + at if _goes_on(segment, begin + at, above, sound) else -1


def _behind_record(data: memoryview, at: int) -> int:
    """Where a record ends that begins here. Raises ValueError if its size is none, IndexError if it
    lacks its end."""
    size, at = layout.read_unsigned_varint(data, at)
    if size & 1 or size < 2 * (layout.SMALLEST_RECORD - 1):
        raise ValueError(f"a record cannot have {size >> 1} bytes")
    if (end := at + (size >> 1)) > len(data):
        raise IndexError(f"a record of {size >> 1} bytes begins {len(data) - at} before the end")
    return end


def _end_of_compressed(segment: Segment, begin: int, codec: int, sound: Sound) -> int:
    """As `_end_by_records`, for a compressed batch: the bytes up to the next batch must decompress
    completely to as many records as the header counts or has offsets."""
    data = segment.data[begin : begin + _SEARCHED]
    head = headers_at(data, np.zeros(1, np.int64))
    delta, count = int(head["last_offset_delta"][0]), int(head["count"][0])
    above = int(head["base_offset"][0]) + delta
    for end in islice(_like_batches(data, above), _INFLATED):
        try:
            records = codecs.inflate(codec, data[layout.HEADER_SIZE : end].tobytes(), _MOST)
            at = found = 0
            while at < len(records) and found < _COUNTED:
                at, found = _behind_record(memoryview(records), at), found + 1
        except (ValueError, IndexError):
            continue
        if found and at == len(records) and found in (count, delta + 1):
            return begin + end if _goes_on(segment, begin + end, above, sound) else -1
    return -1


def _like_batches(data: Bytes, above: int) -> Iterator[int]:
    """Where the bytes behind a batch header look like another header, of an offset above one."""
    for begin in range(layout.HEADER_SIZE, len(data) - layout.HEADER_SIZE + 1, _STARTS_AT_ONCE):
        magic = data[begin : len(data) - layout.HEADER_SIZE + 1 + layout.MAGIC_AT][
            layout.MAGIC_AT : layout.MAGIC_AT + _STARTS_AT_ONCE
        ]
        starts = begin + np.flatnonzero(magic == layout.MAGIC)
        rows = headers_at(data, starts)
        like = (rows["base_offset"] > above) & (rows["length"] >= layout.SMALLEST_LENGTH)
        like &= (rows["last_offset_delta"] >= 0) & (rows["length"] <= layout.LARGEST_LENGTH)
        yield from starts[like].tolist()


def headers_at(data: Bytes, positions: Ints) -> NDArray[np.void]:
    """The fixed part of the batches at these positions, gathered at once: one row of 61 bytes per
    batch, seen as a structure."""
    raw = data[positions[:, None] + np.arange(layout.HEADER_SIZE)]
    return np.ascontiguousarray(raw).view(batch_headers.HEADER)[:, 0]


def _goes_on(segment: Segment, begin: int, above: int, sound: Sound) -> bool:
    """Whether a complete batch begins here with an offset above `above`, and every following batch
    begins above the end of its predecessor."""
    position = begin
    while True:
        found, after = sound(segment.data, position, position + AT_ONCE)
        if not len(found):
            return position > begin
        rows = headers_at(segment.data, found)
        base = rows["base_offset"].astype(np.int64)
        last = base + rows["last_offset_delta"]
        reached = np.concatenate(([above], last[:-1]))
        possible = batch_headers.possible_offsets(rows) & (last >= base)
        if not (possible & (base > reached)).all():
            return False
        end = begin + layout.LENGTH_ENDS + int(rows["length"][0])
        covered = segment.data[begin + layout.CRC_FROM : end].data
        if position == begin and crc32c(covered) != rows["crc"][0]:
            return False
        segment.let_go(position, after)
        position, above = after, int(last[-1])


@cache
def _compiled_sound() -> Sound:
    """`_sound` as machine code. numba takes longer to import than all else that a recording process
    imports."""
    from linkflap.harness.machine.compiled import compiled

    return compiled(_sound)


def load_compiled() -> None:
    """Loads the compiled code of this module: processes that are forked afterwards have it."""
    _compiled_sound()(np.frombuffer(b"", np.uint8), 0, 0)


def _sound(data: Bytes, position: int, until: int) -> tuple[Ints, int]:
    """Positions of the neighbouring complete v2 batches that begin in [position, until), and the
    position after them."""
    found = np.empty((min(until, len(data)) - position) // _SMALLEST_BATCH + 1, np.int64)
    count = 0
    while (
        position < until
        and len(data) - position >= _SMALLEST_BATCH
        and data[position + _MAGIC_AT] == _MAGIC
    ):
        length: Any = np.int64(0)
        for i in range(_LENGTH_AT, _LENGTH_ENDS):
            length = (length << 8) | np.int64(data[position + i])
        if length < _SMALLEST_BATCH - _LENGTH_ENDS or length > min(
            _LARGEST, len(data) - position - _LENGTH_ENDS
        ):
            break
        found[count] = position
        count += 1
        position += _LENGTH_ENDS + int(length)
    return found[:count].copy(), position


@dataclass(slots=True)
class _UnknownFormat:
    """Neighbouring batches of one unknown magic, reported as one damage: a log of a later format
    would otherwise have one per batch."""

    position: int = -1
    magic: int = -1
    count: int = 0

    def add(self, position: int, magic: int, segment: Segment, damage: list[SegmentDamage]) -> None:
        if self.count and magic != self.magic:
            self.end(segment, damage)
        if not self.count:
            self.position, self.magic = position, magic
        self.count += 1

    def end(self, segment: Segment, damage: list[SegmentDamage]) -> None:
        if self.count:
            detail = f"{self.count} batches of magic {self.magic}; only magic 0, 1 and 2 are read"
            damage.append(segment.damage("unknown-magic", self.position, detail))
        self.count = 0


def _first_nonzero(segment: Segment, position: int) -> int:
    """Where the zeros from `position` on end; -1 where they reach the end of the file."""
    for begin in range(position, len(segment.data), AT_ONCE):
        part = segment.data[begin : begin + AT_ONCE] != 0
        if part.any():
            return begin + int(part.argmax())
        segment.let_go(begin, begin + AT_ONCE)
    return -1


def _step(segment: Segment, data: memoryview, position: int) -> int | SegmentDamage:
    """Bytes to the next batch; 0 where only zeros follow; or why there is no next batch."""
    left = len(data) - position
    head = bytes(data[position : position + layout.HEADER_SIZE])
    if not any(head):
        nonzero = _first_nonzero(segment, position)
        if nonzero < 0:
            return 0
        detail = (
            f"zeros, and {len(data) - nonzero} bytes from byte {nonzero} on that no batch leads to"
        )
        return segment.damage("bytes-after-zeros", position, detail)
    if left <= layout.MAGIC_AT:
        return segment.damage("torn-tail", position, f"{left} bytes, less than a batch header")
    (length,) = struct.unpack_from(">i", head, layout.LENGTH_AT)
    smallest = (
        layout.SMALLEST_OLD_LENGTH
        if head[layout.MAGIC_AT] in OLD_FORMATS
        else layout.SMALLEST_LENGTH
    )
    if not smallest <= length <= layout.LARGEST_LENGTH:
        detail = (
            f"a batch cannot have length {length}; the last {left} bytes of the file are not read"
        )
        return segment.damage("impossible-length", position, detail)
    if layout.LENGTH_ENDS + length > left:
        detail = f"{left} bytes of a batch of {layout.LENGTH_ENDS + length}"
        return segment.damage("torn-tail", position, detail)
    return layout.LENGTH_ENDS + int(length)
