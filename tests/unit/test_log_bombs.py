"""Bytes that decompress to far more than they are, and headers that tell of far more than there is,
are unreadable, and cost no more memory than a batch may have."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import cramjam
import pytest
import zstandard
from crc32c import crc32c

from linkflap.harness.log import batches, coordinators, layout, records
from linkflap.harness.log.codecs import GZIP, LZ4, SNAPPY, XERIAL, ZSTD, CannotInflate, inflate

MIB: Final = 1 << 20
BIG: Final = bytes(MIB)


def _zstd(size: int) -> bytes:
    frame = zstandard.ZstdCompressor().compressobj()
    return b"".join(frame.compress(BIG) for _ in range(size)) + frame.flush()


def _gzip(size: int) -> bytes:
    member = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(member.compress(BIG) for _ in range(size)) + member.flush()


def _xerial(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(BIG))
    return XERIAL + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * size


BOMBS: Final = {
    "zstd": (ZSTD, _zstd),
    "zstd-frames": (ZSTD, lambda size: zstandard.ZstdCompressor().compress(BIG) * size),
    "gzip": (GZIP, _gzip),
    "gzip-members": (GZIP, lambda size: gzip.compress(BIG) * size),
    "lz4": (LZ4, lambda size: bytes(cramjam.lz4.compress(BIG * size))),
    "snappy": (SNAPPY, lambda size: bytes(cramjam.snappy.compress_raw(BIG * size))),
    "snappy-xerial": (SNAPPY, _xerial),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_decompresses_to_more_than_a_batch_has_is_unreadable(name: str) -> None:
    codec, made = BOMBS[name]
    assert inflate(codec, made(2), 2 * MIB) == BIG * 2
    with pytest.raises(CannotInflate, match="more than"):
        inflate(codec, made(5), 2 * MIB)


@pytest.mark.parametrize("name", ["zstd", "gzip", "gzip-members"])
def test_memory_is_used_up_to_the_limit_and_no_further(name: str, tmp_path: Path) -> None:
    codec, made = BOMBS[name]
    (tmp_path / "bomb").write_bytes(made(1024))
    program = (
        "import resource, sys\n"
        "from linkflap.harness.log.codecs import CannotInflate, inflate\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try:\n    inflate(int(sys.argv[1]), open(sys.argv[2], 'rb').read())\n"
        "except CannotInflate as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(codec), str(tmp_path / "bomb")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "decompress to more than 67108864" in done.stdout, done.stderr


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff" * 9])
def test_the_length_that_a_snappy_block_begins_with_is_not_believed(length: bytes) -> None:
    with pytest.raises(CannotInflate):
        inflate(SNAPPY, length + b"\0\0")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_empty_frames_without_end_take_little_time(pack: Callable[[bytes], bytes]) -> None:
    codec = GZIP if pack is gzip.compress else ZSTD
    assert inflate(codec, pack(b"") * 20_000) == b""


def _batch(count: int, body: bytes, codec: int = 0, base: int = 0, delta: int = 0) -> bytes:
    rest = struct.pack(">hiqqqhii", codec, delta or count - 1, 0, 0, -1, -1, -1, count) + body
    length = len(rest) + layout.CRC_FROM - layout.LENGTH_ENDS
    return struct.pack(">qiibI", base, length, 0, 2, crc32c(rest)) + rest


def _record(delta: int) -> bytes:
    def varint(value: int) -> bytes:
        value, out = value << 1, b""
        while value > 0x7F:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    inside = b"\0\0" + varint(delta) + b"\x01\x01\0"
    return varint(len(inside)) + inside


def _scanned(folder: Path, content: bytes) -> batches.ReplicaLog:
    path = folder / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return batches.scan([path])


@pytest.mark.parametrize("count", [2**31 - 1, layout.MOST_RECORDS + 1, 1000, -1, -(2**31)])
def test_a_count_of_records_that_are_not_there(tmp_path: Path, count: int) -> None:
    good = _batch(1, _record(0), base=2**31)
    log = _scanned(tmp_path, _batch(count, _record(0), delta=2**31 - 1) + good)
    decoded, damage = records.decode(log)
    assert decoded.offset.tolist() == [2**31]
    assert [d.kind for d in damage] == ["unreadable-records"]
    assert [*records.spans(log)] == [(0, 2)]
    assert coordinators.entries(log, "__consumer_offsets")[1]


def test_records_that_are_alike_may_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_RECORDS_FOR_NOTHING", 5000)
    monkeypatch.setattr(records, "_RECORDS_EACH_BYTE", 0)
    packed = zstandard.ZstdCompressor().compress(b"".join(map(_record, range(4000))))
    every = b"".join(_batch(4000, packed, ZSTD, base=4000 * n) for n in range(9))
    decoded, damage = records.decode(_scanned(tmp_path, every))
    assert 4000 <= len(decoded) < 36_000
    assert [d.kind for d in damage] == ["unreadable-records"]
    assert "more records than its size allows" in damage[0].detail


def test_a_file_of_other_bytes_behind_zeros_takes_no_memory(tmp_path: Path) -> None:
    log = _scanned(tmp_path, bytes(5 * MIB) + b"\x01" * 5 * MIB)
    assert [d.kind for d in log.damage] == ["bytes-after-zeros"]
    assert f"{5 * MIB} bytes from byte {5 * MIB} on" in log.damage[0].detail
