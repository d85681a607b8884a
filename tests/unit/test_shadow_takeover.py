"""Where a log is truncated when a mirror takes it over: both rules, on logs that diverged in every
way."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from linkflap.harness.mirrors import check
from linkflap.harness.mirrors.shadow import failback
from linkflap.harness.mirrors.shadow.failback import failback_point
from linkflap.harness.mirrors.shadow.partition import Lineage, parting
from linkflap.harness.mirrors.shadow.settings import TakenPartition
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection

FIVE_THEN_TWO = ((0, 0), (2, 50))


def taken(end: int, *epochs: tuple[int, int]) -> TakenPartition:
    return TakenPartition(end=end, epochs=epochs)


@pytest.mark.parametrize("rule", ["offset", "epoch"])
@pytest.mark.parametrize(
    ("ours", "end", "left", "truncated_to"),
    [
        (((0, 0),), 80, taken(60, (0, 0)), 60),  # a tail in the same epoch
        # a tail in a newer one, and the epoch of the restart
        (((0, 0), (3, 60), (4, 80)), 80, taken(60, (0, 0)), 60),
        (FIVE_THEN_TWO, 60, taken(60, *FIVE_THEN_TWO), 60),  # no tail
        (FIVE_THEN_TWO, 90, taken(0), 0),  # nothing was mirrored
        ((), 0, taken(0), 0),
        (((0, 15), (2, 50)), 90, taken(60, (0, 15), (2, 50)), 60),  # the log begins later
    ],
)
def test_a_log_that_has_all_that_was_mirrored_is_truncated_where_that_ends(
    rule: str, ours: tuple[tuple[int, int], ...], end: int, left: TakenPartition, truncated_to: int
) -> None:
    assert failback_point("A.t-0", left, Lineage(ours), end, rule=rule) == truncated_to


@pytest.mark.parametrize(
    ("ours", "end", "common"),
    [
        (((0, 0),), 40, 40),  # it lost its end
        (((0, 0), (3, 40)), 90, 40),  # and wrote others there
        (((0, 0), (1, 40), (3, 45)), 90, 40),  # in an epoch that the mirror never saw
        (((4, 0),), 90, 0),  # nothing is left of it
    ],
)
def test_a_log_without_its_mirrored_records_is_refused_by_offset_and_truncated_by_epoch(
    ours: tuple[tuple[int, int], ...], end: int, common: int
) -> None:
    left = taken(60, *FIVE_THEN_TWO)
    assert failback_point("A.t-0", left, Lineage(ours), end, rule="epoch") == common
    with pytest.raises(
        InputError,
        match=f"A.t-0 was mirrored up to offset 60, but its log on the destination differs from "
        f"offset {common} on",
    ):
        failback_point("A.t-0", left, Lineage(ours), end, rule="offset")


def test_two_logs_part_at_the_same_offset_whoever_is_asked() -> None:
    one, other = Lineage([(0, 0), (1, 10), (4, 30)]), Lineage([(0, 0), (2, 12), (3, 20)])
    assert parting(one, 50, other, 40) == parting(other, 40, one, 50) == 10


class Answers:
    """A leader that answers OffsetForLeaderEpoch from a lineage, as a broker's epoch cache does."""

    address = "a broker"

    def __init__(self, lineage: Lineage, end: int) -> None:
        self.lineage, self.end = lineage, end
        self.asked = 0

    async def call(self, api: str, version: int, body: Any, **_: object) -> Any:
        m = messages.response(api, version)
        self.asked += 1
        (topic,) = body.topics
        rows = []
        for asked in topic.partitions:
            epoch, end = self.lineage.end_of(asked.leader_epoch, self.end)
            rows.append(
                m.EpochEndOffset(
                    error_code=messages.Error.none,
                    partition=asked.partition,
                    leader_epoch=epoch,
                    end_offset=end,
                )
            )
        result = m.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(rows))
        return m.OffsetForLeaderEpochResponse(topics=(result,), throttle_time=timedelta())


@pytest.mark.parametrize(
    ("entries", "end", "latest"),
    [
        ([(0, 0)], 10, 0),
        ([(0, 0), (1, 10)], 10, 1),  # the newest epoch has no records
        ([(0, 0), (3, 4), (7, 9)], 20, 7),
        ([(0, 0), (3, 4)], 20, 9),  # the leader has written nothing in its newest epoch
        ([(2, 0), (3, 4)], 20, 3),
        ([(0, 0)], 0, 0),
    ],
)
def test_a_lineage_is_asked_for_epoch_by_epoch(
    entries: list[tuple[int, int]], end: int, latest: int
) -> None:
    leader = Answers(Lineage(entries), end)
    found = asyncio.run(failback.epochs_of(cast(Connection, leader), {("t", 0): latest}))
    lineage, known_end = found["t", 0]
    assert (lineage.entries, known_end) == (entries, end)


def test_a_log_that_begins_late_is_known_from_there_on() -> None:
    leader = Answers(Lineage([(5, 15), (6, 40)]), 60)
    lineage, end = asyncio.run(failback.epochs_of(cast(Connection, leader), {("t", 0): 6}))["t", 0]
    assert end == 60
    assert [lineage.at(offset) for offset in (15, 39, 40, 59)] == [5, 5, 6, 6]
    assert leader.asked <= 4


def test_a_mirror_that_cannot_be_reversed_is_refused_before_anything_starts() -> None:
    check(MirrorSpec(kind="shadow"), reversible=True)
    check(MirrorSpec(kind="mm2"))
    with pytest.raises(
        InputError,
        match=(
            "mirror mm2 cannot be reversed, which the schedule needs; use cluster-mirroring, shadow"
        ),
    ):
        check(MirrorSpec(kind="mm2"), reversible=True)
