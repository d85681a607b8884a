"""One mirrored partition: its window, its followers, and its end."""

from __future__ import annotations

import pytest

from linkflap.harness.mirrors.shadow.batches import stamp
from linkflap.harness.mirrors.shadow.group_offsets import clamped
from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.partition import Lineage, Partition
from tests.kafka_log import batch, record


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
