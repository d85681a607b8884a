"""A shadow stops at a failpoint, once, and continues when it is released."""

from __future__ import annotations

import asyncio

import pytest

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT, STEPS, Step, Steps
from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.partition import Lineage, Partition
from linkflap.harness.model.errors import InputError


async def returns(steps: Steps, step: Step) -> bool:
    try:
        await asyncio.wait_for(steps.reach(step), 0.05)
    except TimeoutError:
        return False
    return True


def test_it_stops_nowhere_unless_it_is_asked_to() -> None:
    async def play() -> None:
        steps = Steps.of({})
        assert [step for step in STEPS if not await returns(steps, step)] == []

    asyncio.run(play())


@pytest.mark.parametrize("wanted", STEPS)
def test_whoever_comes_there_stops_until_it_is_released_and_not_again(wanted: Step) -> None:
    async def play() -> None:
        steps = Steps.of({PAUSE_AT: wanted})
        standing = [asyncio.create_task(steps.reach(wanted)) for _ in range(2)]
        await asyncio.sleep(0)
        assert steps.at == wanted
        assert await returns(steps, STEPS[STEPS.index(wanted) - 1])
        steps.go_on()
        await asyncio.wait_for(asyncio.gather(*standing), 1)
        assert not steps.at
        assert await returns(steps, wanted)

    asyncio.run(play())


def test_a_step_that_there_is_not_is_named() -> None:
    with pytest.raises(
        InputError,
        match=f"{PAUSE_AT} is 'settle', which is not a step of a shadow; set it to one of",
    ):
        Steps.of({PAUSE_AT: "settle"})


@pytest.mark.parametrize(
    ("offset", "last_epoch", "agreed"),
    [
        (7, 3, 7),
        (12, 3, 12),  # more of the same log: the follower with most of it is read
        (12, 1, 5),  # of a log that ended at 5 here
        (12, 2, 5),
        (4, 1, 4),
        (12, 9, 12),  # an epoch that is unknown here proves nothing yet
        (0, -1, 0),
    ],
)
def test_a_follower_counts_up_to_where_its_log_is_this_one(
    offset: int, last_epoch: int, agreed: int
) -> None:
    partition = Partition(
        topic="t",
        number=0,
        note=PartitionNote(),
        epochs=Lineage([(1, 0), (3, 5)]),
        source_epochs=Lineage(),
        leader_epoch=3,
    )
    assert partition.agreed(partition.heard(1, offset, 3, last_epoch)) == agreed
    assert partition.agreed(None) == -1
