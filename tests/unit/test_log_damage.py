"""Damaged batches: every kind of wrong bytes is a value that names file and position; nothing
raises, and nothing takes more memory than a batch may have."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import cramjam
import numpy as np
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.harness.log import (
    batches,
    codecs,
    coordinators,
    layout,
    records,
    reference,
    segments,
)
from linkflap.harness.log.codecs import GZIP, LZ4, SNAPPY, XERIAL, ZSTD, CannotInflate, inflate
from linkflap.harness.log.segments import Bytes
from tests.command_line import ran
from tests.kafka_log import (
    ABORT,
    CODECS,
    COMMIT,
    batch,
    batches_in,
    changed,
    field_of,
    marker,
    mirror_pid_reset,
    old_message,
    ours,
    record,
    recrc,
    rewrite,
    segment,
    varint,
    with_length,
    with_marker_kind,
)

# Headers and damage: every kind of wrong bytes is a value that names file and position; nothing
# raises.


FOLDER = "A.t-0"
NAME = f"{FOLDER}/{0:020}.log"
DATA = [
    batch(0, [ours(1), ours(2)], pid=5, epoch=1, seq=7, transactional=True, leader_epoch=3),
    marker(2, COMMIT, pid=5, epoch=1),
]


def damage(found: batches.ReplicaLog) -> list[tuple[str, str, int]]:
    return [(d.kind, d.file, d.position) for d in found.damage]


def test_every_header_field(tmp_path: Path) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, DATA)])
    h = found.headers
    assert not found.damage
    assert (h.base_offset.tolist(), h.last_offset.tolist()) == ([0, 2], [1, 2])
    assert h.length.tolist() == [len(one) for one in DATA]
    assert h.position.tolist() == [0, len(DATA[0])]
    assert h.count.tolist() == [2, 1]
    assert h.crc.tolist() == [crc32c(one[layout.CRC_FROM :]) for one in DATA]
    assert h.crc_ok.all()
    assert h.leader_epoch.tolist() == [3, 0]
    assert (h.producer_id.tolist(), h.producer_epoch.tolist()) == ([5, 5], [1, 1])
    assert (h.base_sequence.tolist(), h.last_sequence.tolist()) == ([7, -1], [8, -1])
    assert h.transactional.all()
    assert h.control.tolist() == [layout.DATA, layout.COMMIT]
    assert found.where(1) == (NAME, len(DATA[0]))


def test_sequences_wrap_at_two_to_the_31(tmp_path: Path) -> None:
    one = batch(0, [ours(i) for i in range(4)], pid=1, epoch=0, seq=2**31 - 2)
    h = batches.scan([segment(tmp_path / FOLDER, [one])]).headers
    assert h.last_sequence.tolist() == [1]
    assert [b.last_sequence for b in reference.batches(one)] == [1]


def test_no_segment_and_an_empty_segment_are_an_empty_log(tmp_path: Path) -> None:
    for found in (batches.scan([]), batches.scan([segment(tmp_path / FOLDER, [])])):
        assert len(found.headers) == 0
        assert not found.damage
        assert len(records.decode(found)[0]) == 0


def test_a_preallocated_tail_is_no_damage(tmp_path: Path) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, DATA, tail=bytes(4096))])
    assert len(found.headers) == 2
    assert not found.damage


def test_bytes_after_zeros_are_damage(tmp_path: Path) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, DATA, tail=bytes(100) + b"x")])
    assert damage(found) == [("bytes-after-zeros", NAME, sum(map(len, DATA)))]


@pytest.mark.parametrize("kept", [8, 11, 16, 17, 40, 60, 61, -1])
def test_a_torn_tail_is_reported_with_its_position(tmp_path: Path, kept: int) -> None:
    torn = batch(3, [record(b"value")])[:kept]
    found = batches.scan([segment(tmp_path / FOLDER, DATA, tail=torn)])
    assert len(found.headers) == 2
    assert damage(found) == [("torn-tail", NAME, sum(map(len, DATA)))]
    assert str(len(torn)) in found.damage[0].detail


AFTER = [batch(5, [record(b"v")], pid=6, epoch=0, seq=0), batch(7, [record(b"w")])]
BEHIND = segments.LARGEST_FILE
"""More than any file has."""


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("length", [-1, 0, 48, 60, 61, 74, 75, 77, 100, 5000, 1 << 29, BEHIND])
def test_a_wrong_length_hides_no_batch_behind_it(tmp_path: Path, length: int) -> None:
    bad = batch(3, [record(b"v"), record(b"w" * 12)])
    assert len(bad) - layout.LENGTH_ENDS not in (length, 0)
    before = sum(map(len, DATA))
    for more in ([], [with_length(batch(8, [record(b"x")]), length), batch(9, [record(b"y")])]):
        log = [*DATA, with_length(bad, length), *AFTER, *more]
        found = batches.scan([segment(tmp_path / FOLDER, log)])
        whole = found.headers.crc_ok
        assert found.headers.base_offset[whole].tolist() == [0, 2, 5, 7, *([9] if more else [])]
        (first, *_) = [d for d in found.damage if d.kind == "impossible-length"]
        assert first.position == before
        assert f"cannot have length {length}" in first.detail
        assert f"its bytes, {before} to {before + len(bad)}, are not read" in first.detail
        assert segments.log_end([tmp_path / NAME])[0] == (10 if more else 8)


@pytest.mark.parametrize(
    ("bad", "after"),
    [
        (flipped(batch(3, [record(b"v")]), 61), AFTER),
        (batch(3, [record(b"v")])[: layout.HEADER_SIZE] + b"\xfe\x7f" + b"v" * 7, AFTER),
        (flipped(batch(3, [record(b"v")], codec="zstd"), layout.HEADER_SIZE), AFTER),
        (flipped(batch(3, [record(b"v")]), layout.HEADER_SIZE - 1), AFTER),
        (changed(batch(3, [record(b"v")]), base_offset=-1), AFTER),
        (batch(3, [record(b"v")]), [batch(3, [record(b"w")])]),
        (batch(3, [record(b"v")]), [AFTER[0], AFTER[0]]),
        (batch(3, [record(b"v")]), [flipped(AFTER[0], 61), AFTER[1]]),
        (batch(3, [record(b"v")]), [AFTER[0][:-1]]),
        (batch(3, [record(b"v")]), []),
    ],
    ids=[
        "size",
        "beyond",
        "frame",
        "count",
        "offset",
        "same",
        "again",
        "next",
        "torn",
        "none",
    ],
)
def test_a_wrong_length_ends_the_file_where_the_end_is_not_certain(
    tmp_path: Path, bad: bytes, after: list[bytes]
) -> None:
    """The batch has another fault too, and its records do not tell its end; or what follows is no
    batch that can follow it."""
    found = batches.scan([segment(tmp_path / FOLDER, [DATA[0], with_length(bad, -1), *after])])
    assert found.headers.base_offset.tolist() == [0]
    assert damage(found) == [("impossible-length", NAME, len(DATA[0]))]


@pytest.mark.parametrize("length", [-1, 0, 48, 5000, BEHIND])
def test_a_wrong_length_and_another_fault_hide_no_batch_behind_the_records(
    tmp_path: Path, length: int
) -> None:
    """What the payload holds looks like the next batch: it ends within a record."""
    fake = batch(4, [record(b"fake")], pid=9, epoch=0, seq=0)
    bad = batch(3, [record(b"v", headers=((b"h", fake),)), record(b"w")])
    for at in (layout.CRC_AT, layout.CRC_FROM + 20, len(bad) - 2):
        for after in (AFTER, [batch(5, [record(b"v")]), AFTER[1]]):
            log = [*DATA, with_length(flipped(bad, at), length), *after]
            found = batches.scan([segment(tmp_path / FOLDER, log)])
            whole = found.headers.base_offset[found.headers.crc_ok].tolist()
            assert whole == [0, 2, 5, 7]
            (first, *_) = [d for d in found.damage if d.kind == "impossible-length"]
            assert first.position == sum(map(len, DATA))
            assert f"by its records it has {len(bad) - layout.LENGTH_ENDS}" in first.detail


@pytest.mark.parametrize("codec", sorted({*CODECS} - {"none"}))
def test_a_compressed_batch_with_a_wrong_length_and_another_fault_ends_with_its_records(
    tmp_path: Path, codec: str
) -> None:
    """Its CRC or its number of records is wrong too; what a payload holds looks like a batch."""
    fake = batch(5, [record(b"fake")], pid=9, epoch=0, seq=0)
    records = [record(bytes(range(256)) * 300, headers=((b"h", fake),)), record(b"w")]
    bad = batch(3, records, codec=codec)
    for at in (layout.CRC_AT, layout.HEADER_SIZE - 1):
        log = [*DATA, with_length(flipped(bad, at), 5000), *AFTER]
        found = batches.scan([segment(tmp_path / FOLDER, log)])
        assert found.headers.base_offset[found.headers.crc_ok].tolist() == [0, 2, 5, 7]
        (first, *_) = [d for d in found.damage if d.kind == "impossible-length"]
        assert f"by its records it has {len(bad) - layout.LENGTH_ENDS}" in first.detail
    torn = with_length(bad[: layout.HEADER_SIZE] + bad[layout.HEADER_SIZE + 9 :], 5000)
    found = batches.scan([segment(tmp_path / FOLDER, [*DATA, torn, *AFTER])])
    assert found.headers.base_offset.tolist() == [0, 2]


def crc_of(data: bytes) -> int:
    return int.from_bytes(data[layout.CRC_AT : layout.CRC_FROM], "big")


def hiding(inside: bytes, pad: int = 0) -> bytes:
    """A batch whose last bytes, in the value of a header, look like a batch."""
    value = struct.pack(">I", pad) + inside
    return batch(3, [record(b"v", headers=((b"h", value),))], pid=6, epoch=0, seq=0)


def forging(offset: int) -> tuple[bytes, int]:
    """A batch that hides another, before which its CRC-32C is right too; and where that begins."""
    for tried in range(8):
        inside = batch(offset, [record(b"fake")], pid=9, epoch=0, seq=0, leader_epoch=tried)

        def difference(pad: int, inside: bytes = inside) -> int:
            data = hiding(inside, pad)
            return crc32c(data[layout.CRC_FROM : -len(inside)]) ^ crc_of(data)

        pad = solved(difference)
        if pad >= 0:
            data = hiding(inside, pad)
            assert crc32c(data[layout.CRC_FROM : -len(inside)]) == crc_of(data)
            return data, len(data) - len(inside)
    raise AssertionError("no sum came out right")


def solved(difference: Callable[[int], int]) -> int:
    """The number for which a function that is affine over its 32 bits is 0; -1 without any."""
    constant, rows = difference(0), list[tuple[int, int]]()
    for bit in range(32):
        value, mine = difference(1 << bit) ^ constant, 1 << bit
        for other, bits in rows:
            if value ^ other < value:
                value, mine = value ^ other, mine ^ bits
        if value:
            rows = sorted([*rows, (value, mine)], reverse=True)
    number = 0
    for other, bits in rows:
        if constant ^ other < constant:
            constant, number = constant ^ other, number ^ bits
    return -1 if constant else number


@pytest.mark.parametrize("length", [-1, 90, 1 << 29])
def test_a_payload_that_looks_like_a_batch_is_never_one(tmp_path: Path, length: int) -> None:
    for offset in (3, 4):
        whole = hiding(batch(offset, [record(b"fake")], pid=9, epoch=0, seq=0))
        log = [*DATA, with_length(whole, length), *AFTER]
        found = batches.scan([segment(tmp_path / FOLDER, log)])
        assert found.headers.base_offset[found.headers.crc_ok].tolist() == [0, 2, 5, 7]
        forged, _ = forging(offset)
        for then in (AFTER, [batch(4, [record(b"v")]), *AFTER]):
            # the sum comes out right before it and at the end; and before it alone
            for wrong in (forged, flipped(forged, len(forged) - 1)):
                if offset == 4 and wrong is not forged and then is AFTER:
                    continue  # it lies in a gap of the log, as nothing else shows
                log = [*DATA, with_length(wrong, length), *then]
                found = batches.scan([segment(tmp_path / FOLDER, log)])
                assert 9 not in found.headers.producer_id[found.headers.crc_ok]


@settings(max_examples=150)
@given(st.data())
def test_only_a_batch_with_a_wrong_length_is_missing(data: st.DataObject) -> None:
    """Whatever payloads hold; no length is drawn that leads to the batch in a payload."""
    fakes = [batch(at, [record(b"x")], leader_epoch=77) for at in range(6)]
    values = st.lists(st.sampled_from([b"", b"\x02" * 70, *fakes]), max_size=3).map(b"".join)
    log = [batch(n, [record(b"v", headers=((b"h", data.draw(values)),))]) for n in range(5)]
    wrong = data.draw(st.integers(0, 3))
    off = st.integers(-5, 5).filter(bool).map(lambda by: len(log[wrong]) - layout.LENGTH_ENDS + by)
    beyond = st.integers(sum(map(len, log)), 2**31 - 1)
    length = data.draw(st.integers(-(2**31), 48) | off | beyond)
    log[wrong] = with_length(log[wrong], length)
    with tempfile.TemporaryDirectory() as folder:
        found = batches.scan([segment(Path(folder) / FOLDER, log)]).headers
    assert 77 not in found.leader_epoch
    whole = set(found.base_offset[found.crc_ok].tolist())
    if 0 < length - 48 <= sum(map(len, log)):
        # from where that leads to, the walk may go on to nowhere
        assert {*range(wrong)} <= whole <= {*range(5)} - {wrong}
    else:
        assert whole == {*range(5)} - {wrong}


def test_many_wrong_lengths_take_little_time(tmp_path: Path) -> None:
    many = [batch(n, [record(b"v" * 40)]) for n in range(20_000)]
    log = [with_length(each, -1) if n % 2 else each for n, each in enumerate(many)]
    begun = time.monotonic()
    assert len(batches.scan([segment(tmp_path / FOLDER, log)]).headers) == 65
    # everything looks like a batch
    path = segment(tmp_path / FOLDER, log[:2], tail=bytes([2]) * (32 << 20))
    assert len(batches.scan([path]).headers) == 1
    assert time.monotonic() - begun < 60


def test_a_corrupt_batch_is_kept_and_flagged(tmp_path: Path) -> None:
    bad = bytearray(DATA[0])
    bad[-1] ^= 0x40
    found = batches.scan([segment(tmp_path / FOLDER, [bytes(bad), DATA[1]])])
    assert found.headers.crc_ok.tolist() == [False, True]
    assert found.headers.producer_id.tolist() == [5, 5]
    assert damage(found) == [("corrupt-batch", NAME, 0)]
    assert "offsets 0 to 1" in str(found.damage[0])


def test_leader_epoch_and_base_offset_are_not_under_the_crc(tmp_path: Path) -> None:
    moved = bytearray(DATA[0])
    struct.pack_into(">q", moved, 0, 40)
    struct.pack_into(">i", moved, layout.LENGTH_ENDS, 9)
    h = batches.scan([segment(tmp_path / FOLDER, [bytes(moved)])]).headers
    assert (h.crc_ok.tolist(), h.base_offset.tolist(), h.leader_epoch.tolist()) == (
        [True],
        [40],
        [9],
    )


@pytest.mark.parametrize("magic", [3, 4, 0x80])
def test_an_unknown_magic_is_reported_once_for_its_run(tmp_path: Path, magic: int) -> None:
    old = bytearray(batch(3, [record(b"v")]))
    old[layout.MAGIC_AT] = magic
    found = batches.scan(
        [segment(tmp_path / FOLDER, [*DATA, bytes(old), bytes(old), batch(9, [record(b"w")])])]
    )
    assert found.headers.base_offset.tolist() == [0, 2, 9]
    assert damage(found) == [("unknown-magic", NAME, sum(map(len, DATA)))]
    assert "2 batches" in found.damage[0].detail


def test_a_repeated_batch_and_one_out_of_order_are_overlaps(tmp_path: Path) -> None:
    repeated = batches.scan([segment(tmp_path / FOLDER, [DATA[0], DATA[0], DATA[1]])])
    assert damage(repeated) == [("overlap", NAME, len(DATA[0]))]
    assert len(repeated.headers) == 3, "the evidence stays"
    swapped = batches.scan([segment(tmp_path / "A.t-1", [DATA[1], DATA[0]])])
    assert [d.kind for d in swapped.damage] == ["overlap"]


def test_segments_overlap_and_order(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    first = segment(folder, [batch(0, [ours(1), ours(2)])])
    second = segment(folder, [batch(2, [ours(3)])], base_offset=2)
    assert not batches.scan([first, second]).damage
    segment(folder, [batch(1, [ours(3)])], base_offset=2)
    assert [d.kind for d in batches.scan([first, second]).damage] == [
        "overlap",
        "misplaced-segment",
    ]


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    found = batches.scan([tmp_path / FOLDER / "00000000000000000000.log"])
    assert damage(found) == [("unreadable-file", NAME, 0)]


@settings(max_examples=300)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_without_raising(noise: bytes, behind: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = batches.scan([segment(Path(folder) / FOLDER, DATA if behind else [], tail=noise)])
        columns, unreadable = records.decode(found)
    assert len(found.headers) >= (2 if behind else 0)
    assert bool(found.damage) or bool(unreadable) or not noise.strip(b"\x00")
    assert all(0 <= d.position <= len(noise) + sum(map(len, DATA)) for d in found.damage)
    assert len(columns) >= (2 if behind else 0)


@settings(max_examples=200)
@given(st.integers(0, len(DATA[0]) * 8 - 1))
def test_any_flipped_bit_is_noticed_or_is_not_under_the_crc(bit: int) -> None:
    flipped = bytearray(DATA[0])
    flipped[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        found = batches.scan([segment(Path(folder) / FOLDER, [bytes(flipped)])])
    assert found.damage or bit // 8 < layout.CRC_AT


def test_rewriting_a_captured_segment(tmp_path: Path) -> None:
    path = segment(tmp_path / FOLDER, DATA, tail=bytes(64))
    taken = [one for _, one in batches_in(path)]
    assert taken == DATA
    rewrite(path, [changed(taken[0], pid=77, base_offset=5), with_marker_kind(taken[1], ABORT)])
    h = batches.scan([path]).headers
    assert h.crc_ok.all()
    assert (h.producer_id.tolist(), h.control.tolist()) == ([77, 5], [layout.DATA, layout.ABORT])
    assert field_of(batches_in(path)[0][1], "base_offset") == 5
    longer = recrc(taken[0] + b"xyz")
    rewrite(path, [longer])
    assert batches.scan([path]).headers.length.tolist() == [len(longer)]


def test_the_slow_crc_is_the_published_one() -> None:
    assert reference.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("offset", [-5, (1 << 62) + 1, (1 << 63) - 2])
def test_a_batch_whose_offset_no_log_has_is_left_out_and_reported(
    tmp_path: Path, offset: int
) -> None:
    path = segment(tmp_path / FOLDER, [DATA[0], changed(DATA[1], base_offset=offset)])
    found = batches.scan([path])
    assert found.headers.base_offset.tolist() == [0]
    assert damage(found) == [("impossible-offset", NAME, len(DATA[0]))]
    assert str(offset) in found.damage[0].detail
    assert segments.log_end([path]) == (2, [])
    assert batches.log_end(found) == 2


def test_a_log_of_nothing_that_can_be_has_no_end(tmp_path: Path) -> None:
    path = segment(tmp_path / FOLDER, [changed(DATA[0], base_offset=-1)])
    assert len(batches.scan([path]).headers) == 0
    assert segments.log_end([path]) == (0, [])
    assert batches.log_end(batches.scan([path])) == 0


THREE = batch(0, [ours(1), ours(2), ours(3)], pid=5, epoch=0, seq=0, transactional=True)
RESET = mirror_pid_reset(0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (changed(THREE, count=4), "counts 4 records"),
        (changed(THREE, last_delta=1), "counts 3 records"),
        (changed(THREE, count=-1), "counts -1 records"),
        (changed(THREE, pid=-1), "of no producer"),
        (changed(DATA[1], attributes=layout.CONTROL), "not transactional"),
    ],
)
def test_a_header_that_no_broker_writes_is_reported_and_stays(
    tmp_path: Path, data: bytes, said: str
) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, [data])])
    assert damage(found) == [("impossible-header", NAME, 0)]
    assert said in found.damage[0].detail
    assert len(found.headers) == 1


@pytest.mark.parametrize(
    "data",
    [
        changed(batch(0, [ours(1), ours(3)], pid=5, epoch=0, seq=0), last_delta=9),  # compacted
        batch(0, [], pid=5, epoch=0, seq=0, transactional=True, last_delta=4),  # and nothing left
        changed(THREE, pid=-7),  # a mirror that negates ids
        RESET,
        changed(RESET, pid=4),
        changed(THREE, pid=-1, attributes=0, seq=-1, epoch=-1),
    ],
)
def test_headers_that_are_odd_and_right_are_no_damage(tmp_path: Path, data: bytes) -> None:
    assert not batches.scan([segment(tmp_path / FOLDER, [data])]).damage


def test_a_file_is_named_by_an_offset_or_by_nothing() -> None:
    names = {
        "00000000000000000020.log": 20,
        "7.log": 7,
        "x.log": -1,
        "٣.log": -1,
        f"{(1 << 62) + 1}.log": -1,
        "9" * 30 + ".log": -1,
    }
    assert {name: segments.offset_in(name) for name in names} == names


# Bytes that decompress to far more than they are, and headers that tell of far more than there
# is, are unreadable, and cost no more memory than a batch may have.


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
def test_batch_that_inflates_beyond_its_limit_is_unreadable(name: str) -> None:
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
    done = ran([sys.executable, "-c", program, str(codec), str(tmp_path / "bomb")], within=60)
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


# Batches that each keep to their limit, and together would take hours or fill the memory.


def _packed(body: bytes, codec: int, *, base: int = 0) -> bytes:
    return _batch(1, zstandard.ZstdCompressor().compress(body), codec, base=base)


def _keyed(key: bytes, value: bytes, headers: bytes = b"\0") -> bytes:
    inside = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + headers
    return varint(len(inside)) + inside


COMMIT_KEY: Final = b"\0\1\0\1a\0\1b\0\0\0\0"


def _costs_at_most(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(codecs, "_LEAST", most)
    monkeypatch.setattr(codecs, "_PER_BYTE", 0)


def test_batches_of_a_log_decompress_to_what_its_size_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = b"".join(_packed(_keyed(b"k", BIG), ZSTD, base=n) for n in range(9))
    assert records.decode(_scanned(tmp_path, every))[0].offset.tolist() == [*range(9)]
    _costs_at_most(monkeypatch, 4 * MIB)
    decoded, damage = records.decode(_scanned(tmp_path, every + _batch(1, _record(0), base=9)))
    assert decoded.offset.tolist() == [0, 1, 2, 3, 9]  # what is not compressed costs nothing
    assert {d.kind for d in damage} == {"unreadable-records"}
    assert "more than its size allows" in damage[0].detail


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_what_coordinators_records_are_made_of_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    some = 1 << 14
    partitions = struct.pack(">ih1si", 1, 1, b"t", some) + bytes(4 * some + 16)
    content = {
        "__consumer_offsets": _keyed(COMMIT_KEY, bytes(20), varint(some) + b"\0\1" * some),
        "__transaction_state": _keyed(
            b"\0\0\0\1x", struct.pack(">hqhib", 0, 1, 0, 1000, 1) + partitions
        ),
    }[topic]
    every = b"".join(_packed(content, ZSTD, base=n) for n in range(3))
    log = _scanned(tmp_path, every)
    found, damage = coordinators.entries(log, topic)
    assert [each.offset for each in found] == [0, 1, 2]
    assert not damage
    _costs_at_most(monkeypatch, 24 * MIB)
    log = _scanned(tmp_path, every)
    assert len(coordinators.entries(log, topic)[0]) < 3
    assert "more than its size allows" in records.decode(log)[1][0].detail


def test_a_transaction_of_millions_of_partitions_is_none(tmp_path: Path) -> None:
    count = 1 << 20
    value = struct.pack(">hqhib", 0, 1, 0, 1000, 1) + struct.pack(">ih1si", 1, 1, b"t", count)
    record = _keyed(b"\0\0\0\1x", value + bytes(4 * count + 16))
    found, damage = coordinators.entries(
        _scanned(tmp_path, _packed(record, ZSTD)), "__transaction_state"
    )
    assert not found
    assert f"a transaction with {count} partitions" in damage[0].detail


def test_a_control_batch_holds_no_more_than_a_marker_can(tmp_path: Path) -> None:
    control = layout.CONTROL | layout.TRANSACTIONAL
    body = zstandard.ZstdCompressor().compress(_keyed(b"\0\0\0\1", BIG))
    log = _scanned(tmp_path, _batch(1, body, ZSTD | control))
    assert [d.kind for d in log.damage] == ["unknown-control"]
    assert "decompress to more than 65536" in log.damage[0].detail


def test_messages_of_old_formats_cost_what_the_size_of_their_log_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = gzip.compress(b"".join(old_message(n, b"") for n in range(1000)))
    every = b"".join(old_message(1000 * n + 999, inner, attributes=GZIP) for n in range(9))
    whole = _scanned(tmp_path, every)
    assert len(records.decode(whole)[0]) == 9000
    assert not whole.damage
    _costs_at_most(monkeypatch, 9 * MIB)
    part = _scanned(tmp_path, every)
    read = records.decode(part)[0]
    assert 0 < len(read) < 9000
    assert len(read) == 1000 * (9 - len(part.damage))  # what is not read is named
    assert {d.kind for d in part.damage} == {"unreadable-records"}


@pytest.mark.parametrize("block", [struct.pack("<I", 1 << 31 | 1) + b"x", b"\1\0\0\0\0"])
def test_small_blocks_without_end_of_format_0_take_little_time(
    tmp_path: Path, block: bytes
) -> None:
    frame = struct.pack("<IBBB", 0x184D2204, 0x60, 0x70, 0) + block * 200_000 + bytes(4)
    began = time.process_time()
    log = _scanned(tmp_path, old_message(5, frame, magic=0, attributes=LZ4))
    assert [d.kind for d in log.damage] == ["unreadable-records"]
    assert time.process_time() - began < 20  # 200 where all are summed up for each


def test_looking_for_the_end_of_a_compressed_batch_takes_little_time(tmp_path: Path) -> None:
    """Behind its records is a frame that codecs skip, full of what looks like a batch."""
    records_there = zstandard.ZstdCompressor().compress(_record(0) * MIB)
    like = b"".join(_batch(1, b"", base=n) for n in range(1, 17))
    skipped = struct.pack("<II", 0x184D2A50, 2 * len(like)) + like
    wrong = bytearray(_batch(9, records_there + skipped, ZSTD))
    wrong[8:12] = b"\xff" * 4
    wrong[17] ^= 1
    began = time.process_time()
    log = _scanned(tmp_path, bytes(wrong))
    assert [d.kind for d in log.damage] == ["impossible-length"]
    assert time.process_time() - began < 5  # 8 where every record is counted


def bytes_like_batches(seed: int) -> Bytes:
    """Bytes like those of a segment: correct, negative, too large and too small lengths; right and
    wrong magics; torn at the end."""
    rng, data = random.Random(seed), bytearray()
    for _ in range(rng.randrange(40)):
        length = rng.randrange(layout.SMALLEST_LENGTH, 300)
        batch = bytearray(rng.randbytes(layout.LENGTH_ENDS + length))
        struct.pack_into(
            ">i",
            batch,
            layout.LENGTH_AT,
            rng.choice([length] * 30 + [-1, 0, 7, length + 1, 2**31 - 1]),
        )
        batch[layout.MAGIC_AT] = rng.choice([layout.MAGIC] * 30 + [0, 1, 255])
        data += batch
    return np.frombuffer(bytes(data[: len(data) - rng.choice([0, 0, 1, 50])]), np.uint8)


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_found_alike_by_the_interpreter_and_by_machine_code(seed: int) -> None:
    data = bytes_like_batches(seed)
    for begin, until in [(0, 16 << 20), (0, len(data) // 2)]:
        plain, plain_end = segments._sound(data, begin, until)
        quick, quick_end = segments._compiled_sound()(data, begin, until)
        assert (plain.tolist(), plain_end) == (quick.tolist(), quick_end)
        assert type(plain_end) is int  # it reads damaged bytes, and damage opens files
