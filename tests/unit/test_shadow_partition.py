"""A shadow's mirrored log: its partitions, their windows, and their leader epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.mirrors.shadow import partition as partitions
from linkflap.harness.mirrors.shadow.batches import Stamped, stamp
from linkflap.harness.mirrors.shadow.group_offsets import clamped
from linkflap.harness.mirrors.shadow.journal import Journal, PartitionNote
from linkflap.harness.mirrors.shadow.partition import NONE, Lineage, MirroredLog, Partition
from tests.kafka_log import batch, record
from tests.shadows import config


def test_epochs_rise_and_an_old_one_changes_nothing() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert not lineage.begin(3, 20)
    assert not lineage.begin(1, 20)
    assert lineage.begin(5, 20)
    assert lineage.entries == [(0, 0), (3, 10), (5, 20)]
    assert [lineage.at(offset) for offset in (-1, 0, 9, 10, 19, 20, 99)] == [NONE, 0, 0, 3, 3, 5, 5]


def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    lineage.begin(4, 10)
    assert lineage.entries == [(0, 0), (4, 10)]


def test_a_follower_that_agrees_gets_no_divergence() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(-1, 0, 15) is None  # its log is empty
    assert lineage.diverges(0, 10, 15) is None
    assert lineage.diverges(3, 15, 15) is None


def test_a_follower_with_more_of_an_epoch_is_truncated_to_its_end() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(0, 12, 15) == (0, 10)
    assert lineage.diverges(3, 17, 15) == (3, 15)


def test_an_epoch_that_is_not_known_is_answered_with_the_one_below() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(2, 12, 15) == (0, 10)
    assert lineage.diverges(7, 12, 15) == (3, 15)
    assert Lineage().diverges(7, 12, 0) == (7, 0)


def test_a_truncation_forgets_epochs_that_begin_after_it() -> None:
    lineage = Lineage([(0, 0), (3, 10), (5, 20)])
    lineage.truncate(10)
    assert lineage.entries == [(0, 0)]
    lineage.begin(6, 10)
    assert lineage.diverges(3, 12, 12) == (0, 10)


FRAME = 1 << 20


@pytest.fixture
def mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirroredLog:
    monkeypatch.setattr(partitions, "BUDGET_BYTES", 3 * FRAME)
    return MirroredLog(config(), Journal(tmp_path))


def read_log(mirrored: MirroredLog, sizes: dict[int, int]) -> bytearray:
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
    read_log(mirrored, {0: 10, 1: FRAME - 10})
    assert (mirrored.memory(), mirrored.held) == (FRAME, FRAME)
    mirrored.partitions["t", 1].drop_window(0)
    assert (mirrored.memory(), mirrored.held) == (FRAME, 10)


def test_the_rest_of_many_frames_is_copied_when_the_budget_is_used(
    mirrored: MirroredLog,
) -> None:
    used = read_log(mirrored, {0: 10, 1: FRAME - 10})
    for _ in range(3):
        read_log(mirrored, {2: 100})
    assert mirrored.memory() == FRAME + 3 * 100
    assert {bytes(chunk.data) for p in mirrored.partitions.values() for chunk in p.window} == {
        b"x" * size for size in (10, FRAME - 10, 100)
    }
    assert mirrored.partitions["t", 0].window[0].frame is used


def test_frames_that_are_in_use_stay(mirrored: MirroredLog) -> None:
    for _ in range(4):
        read_log(mirrored, {0: FRAME // 2, 1: FRAME // 2})
    assert mirrored.memory() == 4 * FRAME == mirrored.held


def one(offset: int) -> bytes:
    return batch(offset, [record(b"x" * 50)])


def read(partition: Partition, offset: int, limit: int) -> tuple[bytes, int]:
    found = partition.read(offset, limit)
    assert found is not None
    return bytes(found[0]), found[1]


@pytest.fixture
def partition() -> Partition:
    """Led in epoch 0, offsets 0 to 9 in two batches of five."""
    made = Partition(
        topic="t",
        number=0,
        note=PartitionNote(),
        epochs=Lineage([(0, 0)]),
        source_epochs=Lineage(),
        leader_epoch=0,
        position=0,
    )
    for first in (0, 5):
        raw = b"".join(map(one, range(first, first + 5)))
        made.keep(
            stamp(
                memoryview(bytearray(raw)),
                position=first,
                below=1 << 62,
                source_epoch=0,
                epoch_at=lambda _b, _e: 0,
                ids=None,
            )
        )
    made.end = 10
    return made


def test_it_is_read_from_anywhere_in_the_window(partition: Partition) -> None:
    everything = b"".join(map(one, range(10)))
    assert read(partition, 0, 1 << 20) == (everything, 10)
    assert read(partition, 7, 1 << 20) == (everything[7 * len(one(0)) :], 10)
    assert read(partition, 0, len(one(0)) * 6 + 1) == (everything[: 6 * len(one(0))], 6)
    assert read(partition, 3, 1) == (one(3), 4)
    assert read(partition, 10, 1 << 20) == (b"", 10)


def test_batches_that_all_live_followers_have_are_released(partition: Partition) -> None:
    partition.heard(1, 7, 0)
    partition.release()
    assert (partition.window_start, partition.held) == (5, 5 * len(one(0)))
    assert partition.read(4, 1 << 20) is None
    partition.heard(2, 3, 0)  # another one, which is behind: it gets a read of its own
    partition.heard(1, 10, 0)
    partition.release()
    assert partition.window_start == 5


def test_the_high_watermark_does_not_wait_for_a_lagging_follower(
    partition: Partition,
) -> None:
    partition.heard(1, 7, 0)
    partition.heard(2, 4, 0)
    assert partition.advance()
    assert partition.high_watermark == 4
    partition.heard(2, 9, 0)
    partition.followers[1].asked -= 60
    assert partition.advance()
    assert partition.high_watermark == 9
    assert not partition.advance()


def test_a_follower_of_another_epoch_does_not_count(partition: Partition) -> None:
    partition.heard(1, 7, 3)
    assert partition.live() == {}
    assert not partition.advance()


@pytest.mark.parametrize("end", [0, 3, 5, 8, 10])
def test_a_truncation_keeps_batches_that_end_below_it(partition: Partition, end: int) -> None:
    partition.heard(1, 10, 0)
    partition.advance()
    partition.served = 10
    partition.truncate(end)
    assert (partition.end, partition.high_watermark, partition.served, partition.position) == (
        end,
        end,
        end,
        end,
    )
    assert read(partition, 0, 1 << 20) == (b"".join(map(one, range(end))), end)


def test_it_is_not_ready_before_its_end_is_known_nor_while_it_needs_an_epoch(
    partition: Partition,
) -> None:
    assert partition.ready
    partition.raise_to = 1
    assert not partition.ready
    partition.raise_to, partition.end = -1, -1
    assert not partition.ready


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(5, 5), (0, 2), (12, 8)],
    ids=["within", "below the log start", "beyond the end"],
)
def test_group_offsets_are_clamped(partition: Partition, committed: int, expected: int) -> None:
    partition.start = 2
    assert clamped(committed, partition, 8) == expected
