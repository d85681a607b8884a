"""Decompresses the records of a batch, with every codec and framing that Kafka clients write.

Snappy has two framings: Java writes xerial blocks (magic 82 53 4e 41 50 50 59 00, two versions,
then length-prefixed raw blocks), librdkafka writes one raw block. LZ4 is the frame format. A zstd
frame may lack its size. Gzip, LZ4 and zstd may be several frames, one after the other.

A few KiB can decompress to as many GiB. So what comes out has a limit, and memory is used only up
to it: beyond, the records are unreadable. What all batches of a log decompress to is limited too
(`DecodingLimit`): thousands of small batches could take hours.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import cramjam
import numpy as np
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final[Mapping[int, str]] = {
    NONE: "none",
    GZIP: "gzip",
    SNAPPY: "snappy",
    LZ4: "lz4",
    ZSTD: "zstd",
}
XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_GZIP_WINDOW: Final = 31
_LARGEST: Final = 512 << 20
"""Twice as much is in memory for a moment, or three times for LZ4."""
_USUAL: Final = 64 << 20
_RATIO: Final = 32
_LZ4_RATIO: Final = 255
_LEAST: Final = 4 << 30
_PER_BYTE: Final = 256
_PER_VALUE: Final = 1 << 10
"""A Python object of a message, a header or a partition takes some microseconds to make."""
_PART: Final = 4 << 20
_HANDED: Final = 64 << 10


class CannotInflate(ValueError):
    """The bytes are not what their codec writes. Never leaves `harness.log`."""


class DecodingLimit:
    """Limits the cost of reading the compressed batches of one log, by the log's size: the
    decompressed bytes, and the values that are made of them one by one."""

    def __init__(self, size: int) -> None:
        self._left = _LEAST + _PER_BYTE * size

    def inflate(
        self, codec: int, data: bytes, by: Callable[[int, bytes], bytes] | None = None
    ) -> bytes:
        """As `inflate`, or another function for codecs; raises CannotInflate too where nothing is
        left."""
        if codec == NONE:
            return data
        self.take(0)
        size = limit(len(data))  # a failed decompression may have cost as much
        try:
            found = (by or inflate)(codec, data)
            size = len(found)
        finally:
            self._left -= size
        return found

    def take(self, values: int) -> None:
        """Counts values that come out of a compressed batch. Raises CannotInflate where nothing is
        left."""
        self._left -= values * _PER_VALUE
        if self._left < 0:
            raise CannotInflate("the batches of the log decompress to more than its size allows")


def limit(size: int) -> int:
    """How many bytes the records of a batch of `size` bytes may have: 64 times message.max.bytes of
    1 MiB, the default; of larger batches, for which it must have been raised, 32 times their size.
    """
    return min(_LARGEST, max(_USUAL, _RATIO * size))


def inflate(codec: int, data: bytes, most: int | None = None) -> bytes:
    """The records of a batch, at most `most` bytes (by default `limit`). Raises CannotInflate, also
    for a codec that is not known."""
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise CannotInflate(f"compression codec {codec} is unknown")
    most = limit(len(data)) if most is None else most
    found = bytearray()
    try:
        for part in decompress(data, most):
            found += part
            if len(found) > most:
                raise CannotInflate(
                    f"{NAMES[codec]}: {len(data)} bytes decompress to more than {most}"
                )
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, struct.error) as error:
        raise CannotInflate(f"{NAMES[codec]}: {error}") from None
    return bytes(found)


def _none(data: bytes, most: int) -> Iterator[bytes]:
    yield data


def _gzip(data: bytes, most: int) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            # Handed over in parts: what a member leaves unused is copied.
            waiting = data[position : position + _HANDED]
            if not waiting:
                raise CannotInflate("gzip: it ends in the middle of its data")
            yield member.decompress(waiting, _PART)
            position += len(waiting) - len(member.unconsumed_tail) - len(member.unused_data)


def _snappy(data: bytes, most: int) -> Iterator[bytes]:
    if not data.startswith(XERIAL):
        yield _raw_snappy(data, most)
        return
    position = _XERIAL_HEADER
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or position + length > len(data):
            raise CannotInflate(
                f"snappy: a block of {length} bytes where {len(data) - position} are left"
            )
        yield _raw_snappy(data[position : position + length], most)
        position += length


def _raw_snappy(data: bytes, most: int) -> bytes:
    """A block begins with its length, for which memory is taken at once."""
    length = cramjam.snappy.decompress_raw_len(data)
    if length > most:
        raise CannotInflate(f"snappy: {len(data)} bytes decompress to {length}, more than {most}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: bytes, most: int) -> Iterator[bytes | memoryview]:
    # A byte of LZ4 stands for at most 255.
    room = np.empty(min(most + 1, _LZ4_RATIO * len(data)), np.uint8)
    try:
        size = cramjam.lz4.decompress_into(data, room.data)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise CannotInflate(f"lz4: {len(data)} bytes decompress to more than {most}") from None
        raise
    yield room[:size].data


def _zstd(data: bytes, most: int) -> Iterator[bytes]:
    frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    while part := frames.read(_PART):
        yield part


_DECOMPRESS: Final[Mapping[int, Callable[[bytes, int], Iterator[bytes | memoryview]]]] = {
    NONE: _none,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
