"""The clamp of group offsets (KIP-1279, VK12): never to an offset that the mirror does not have."""

from __future__ import annotations

from typing import Any

import pytest

from linkflap.harness.mirrors.shadow.group_offsets import clamped, reached
from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.partition import Lineage, Partition


def partition(**state: Any) -> Partition:
    return Partition(
        topic="t",
        number=0,
        note=PartitionNote(),
        epochs=Lineage(),
        source_epochs=Lineage(),
        **state,
    )


@pytest.mark.parametrize(
    ("committed", "start", "end", "wanted"),
    [
        (30, 0, 100, 30),
        (130, 0, 100, 100),  # the mirror is behind the group
        (5, 20, 100, 20),  # the records that the group has still to read are deleted
        (0, 0, 0, 0),
        (30, 40, 35, 35),  # the mirror has not reached the source's log start yet
    ],
)
def test_at_least_the_log_start_and_at_most_what_the_mirror_has(
    committed: int, start: int, end: int, wanted: int
) -> None:
    assert clamped(committed, partition(start=start), end) == wanted


def test_how_far_a_mirror_has_got_is_unknown_until_its_followers_have_said() -> None:
    """Otherwise a restarted shadow would reset every group to the beginning."""
    p = partition(leader_epoch=4, end=100)
    assert reached(p) is None
    p.heard(1, 90, 4)
    p.heard(2, 95, 4)
    assert reached(p) == 90
    p.heard(1, 120, 4)  # it has more than the log is known to have: it will be truncated
    p.heard(2, 100, 4)
    assert reached(p) == 100
    p.advance()
    p.heard(1, 5, 4)  # it came back with an empty disk
    assert reached(p) == 100
    p.leader_epoch = 6
    assert reached(p) is None
    assert reached(partition(leader_epoch=4)) is None
