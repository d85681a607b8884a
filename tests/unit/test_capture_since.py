"""Copies of logs from an offset on: the copy is a log of whole batches that begins there."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.capture import replicas
from linkflap.harness.capture.since import drop_before
from linkflap.harness.log import batches
from tests.kafka_log import batch, ours, segment

# Batches of two records at 0, 2, 4 and 6; the segment is rolled after the first two, where it is.
BATCHES = [batch(offset, [ours(offset), ours(offset + 1)]) for offset in (0, 2, 4, 6)]


def left(folder: Path) -> list[int]:
    """Base offsets of the batches; file names and checksums are checked first."""
    paths = sorted(folder.glob("*.log"))
    headers = batches.scan(paths).headers
    assert headers.crc_ok.all()
    firsts = [batches.scan([path]).headers.base_offset[:1].tolist() for path in paths]
    assert [[int(path.stem)] for path, first in zip(paths, firsts, strict=True) if first] == [
        first for first in firsts if first
    ]
    offsets: list[int] = headers.base_offset.tolist()
    return offsets


@pytest.mark.parametrize(
    ("since", "expected"),
    [(0, [0, 2, 4, 6]), (1, [0, 2, 4, 6]), (2, [2, 4, 6]), (4, [4, 6]), (5, [4, 6]), (6, [6])],
)
@pytest.mark.parametrize("rolled", [False, True], ids=["one-segment", "two"])
def test_batches_that_end_before_it_are_gone_and_the_others_as_they_were(
    tmp_path: Path, since: int, expected: list[int], rolled: bool
) -> None:
    segment(tmp_path, BATCHES[:2] if rolled else BATCHES)
    if rolled:
        segment(tmp_path, BATCHES[2:], base_offset=4)
    drop_before(tmp_path, since)
    assert left(tmp_path) == expected
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log"))) == b"".join(
        BATCHES[-len(expected) :]
    )


def test_a_log_that_nothing_was_written_to_since_is_empty_and_begins_and_ends_there(
    tmp_path: Path,
) -> None:
    segment(tmp_path, BATCHES)
    drop_before(tmp_path, 8)
    assert left(tmp_path) == []
    assert replicas.log_end(tmp_path) == 8


def test_a_batch_that_was_being_written_stays(tmp_path: Path) -> None:
    segment(tmp_path, BATCHES, tail=batch(8, [ours(8)])[:-1])
    drop_before(tmp_path, 8)
    (path,) = tmp_path.glob("*.log")
    assert path.stem == f"{8:020d}"
    assert path.read_bytes() == batch(8, [ours(8)])[:-1]
