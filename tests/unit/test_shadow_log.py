"""Memory of the windows of all partitions, when many of them are views of one frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.mirrors.shadow import partition
from linkflap.harness.mirrors.shadow.batches import Stamped
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from tests.shadows import config

FRAME = 1 << 20


@pytest.fixture
def mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirroredLog:
    monkeypatch.setattr(partition, "BUDGET_BYTES", 3 * FRAME)
    return MirroredLog(config(), Journal(tmp_path))


def read(mirrored: MirroredLog, sizes: dict[int, int]) -> bytearray:
    """A frame that has so many bytes for each partition."""
    frame = bytearray(b"x" * FRAME)
    at = 0
    for number, size in sizes.items():
        partition = mirrored.add("t", number)
        base = max(partition.position, 0)
        data = memoryview(frame)[at : at + size]
        partition.keep(Stamped(base=base, end=base + 1, data=data, epochs=[], top_producer=-1))
        at += size
    return frame


def test_a_frame_counts_whole_and_once(mirrored: MirroredLog) -> None:
    read(mirrored, {0: 10, 1: FRAME - 10})
    assert (mirrored.memory(), mirrored.held) == (FRAME, FRAME)
    mirrored.partitions["t", 1].drop_window(0)
    assert (mirrored.memory(), mirrored.held) == (FRAME, 10)


def test_the_rest_of_many_frames_is_copied_when_the_budget_is_used(
    mirrored: MirroredLog,
) -> None:
    used = read(mirrored, {0: 10, 1: FRAME - 10})
    for _ in range(3):
        read(mirrored, {2: 100})
    assert mirrored.memory() == FRAME + 3 * 100
    assert {bytes(chunk.data) for p in mirrored.partitions.values() for chunk in p.window} == {
        b"x" * size for size in (10, FRAME - 10, 100)
    }
    assert mirrored.partitions["t", 0].window[0].frame is used


def test_frames_that_are_in_use_stay(mirrored: MirroredLog) -> None:
    for _ in range(4):
        read(mirrored, {0: FRAME // 2, 1: FRAME // 2})
    assert mirrored.memory() == 4 * FRAME == mirrored.held
