"""Decompresses the records of a batch, with every codec and framing that Kafka clients write.

Snappy has two framings: Java writes xerial blocks (magic 82 53 4e 41 50 50 59 00, two versions,
then length-prefixed raw blocks), librdkafka writes one raw block. LZ4 is the frame format. A zstd
frame may lack its size.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import cramjam
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


class CannotInflate(ValueError):
    """The bytes are not what their codec writes. Never leaves `harness.log`."""


def inflate(codec: int, data: bytes) -> bytes:
    """The records of a batch. Raises CannotInflate, also for a codec that is not known."""
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise CannotInflate(f"compression codec {codec} is unknown")
    try:
        return decompress(data)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, struct.error) as error:
        raise CannotInflate(f"{NAMES[codec]}: {error}") from None


def _gzip(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=_GZIP_WINDOW)


def _snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks: list[bytes] = []
    position = _XERIAL_HEADER
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or position + length > len(data):
            raise CannotInflate(
                f"snappy: a block of {length} bytes where {len(data) - position} are left"
            )
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position : position + length])))
        position += length
    return b"".join(blocks)


def _lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(data))


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


_DECOMPRESS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    NONE: bytes,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
