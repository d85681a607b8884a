"""The leader epochs of a promotion: above every epoch that the source can write before it is
truncated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.mirrors.shadow import open_transactions
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.open_transactions import SOURCE_MARGIN
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.mirrors.shadow.settings import LeaderEpochs, ShadowOptions
from tests.shadows import config


class Followers:
    """The destination: gives a new leader epoch on request, and has no open transaction."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._mirrored = mirrored

    async def settled(self) -> None:
        for partition in self._mirrored.partitions.values():
            if partition.raise_to >= 0:
                self._mirrored.lead(partition, partition.raise_to)

    def live(self, partition: Partition) -> frozenset[int]:
        return frozenset((1,))

    async def producers(self, address: str, partition: tuple[str, int]) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("kept", "led", "promoted"),
    [
        ("keep", 3, 3 + SOURCE_MARGIN + 1),
        ("keep", 3 + SOURCE_MARGIN, 3 + SOURCE_MARGIN + 1),
        ("keep", 40, 40),
        ("rewrite", 3, 3),
    ],
)
def test_a_promotion_passes_the_epochs_that_its_source_can_still_use(
    tmp_path: Path, kept: LeaderEpochs, led: int, promoted: int
) -> None:
    options = ShadowOptions(leader_epochs=kept, producer_ids="keep")
    mirrored = MirroredLog(replace(config(), options=options), Journal(tmp_path))
    partition = mirrored.add("A.t", 0)
    partition.source_epochs.begin(3, 0)
    mirrored.lead(partition, led)
    followers: Any = Followers(mirrored)
    asyncio.run(open_transactions.end(followers, mirrored, followers, followers))
    assert partition.leader_epoch == promoted
