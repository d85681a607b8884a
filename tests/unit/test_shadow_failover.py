"""A shadow's failover and failback: the handover, promoted logs, group offsets, and where a log is
truncated."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.mirrors import check
from linkflap.harness.mirrors.shadow import (
    failback,
    failover,
    open_transactions,
    producer_id_advance,
)
from linkflap.harness.mirrors.shadow.batches import MARGIN
from linkflap.harness.mirrors.shadow.destination.client import Destination, MetadataSnapshot
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.failback import failback_point
from linkflap.harness.mirrors.shadow.failover import FailoverRun, Handover
from linkflap.harness.mirrors.shadow.group_offsets import clamped, reached
from linkflap.harness.mirrors.shadow.journal import Journal, TopicNote
from linkflap.harness.mirrors.shadow.open_transactions import SOURCE_MARGIN
from linkflap.harness.mirrors.shadow.partition import Lineage, MirroredLog, Partition, parting
from linkflap.harness.mirrors.shadow.producer_id_advance import AHEAD, ProducerIdAdvance
from linkflap.harness.mirrors.shadow.settings import LeaderEpochs, ShadowOptions, TakenPartition
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.requests import Led, Topic
from tests.shadows import config
from tests.unit.test_shadow_log import led as partition


def handing(folder: Path, monkeypatch: pytest.MonkeyPatch, *, leader: int) -> Handover:
    """A destination whose only partition has this leader, and that refuses config changes."""
    monkeypatch.setattr(failover, "WITHIN_SECONDS", 0.2)
    mirrored = MirroredLog(config(), Journal(folder))
    mirrored.journal.notes.topics["A.t"] = TopicNote(source_id="s", destination_id="d")
    mirrored.add("A.t", 0)
    led = Led(leader=leader, epoch=1, replicas=(leader,), in_sync=(leader,))

    async def picture() -> MetadataSnapshot:
        return MetadataSnapshot(brokers={}, topics={"A.t": Topic(id="d", partitions={0: led})})

    async def refuse() -> None:
        raise EnvironmentFailure("topic A.t could not be configured: not today")

    placement = SimpleNamespace(replicas=lambda _number, _topic: [leader])
    topics: Any = SimpleNamespace(placement=placement, gone=set(), restore_configs=refuse)
    destination: Any = SimpleNamespace(picture=picture)
    membership: Any = SimpleNamespace()
    return Handover(mirrored, destination, topics, membership)


@pytest.mark.parametrize(
    ("leader", "sentence"),
    [
        (
            1,
            (
                "all partitions are handed over, but their configs or replicas were not restored "
                "within 0.2 s (topic A.t could not be configured"
            ),
        ),
        (1000, "A.t-0 could not be handed over in 0.2 s; see the brokers' logs"),
    ],
)
def test_a_partition_is_named_only_while_it_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: int, sentence: str
) -> None:
    made = handing(tmp_path, monkeypatch, leader=leader)
    with pytest.raises(DeadlineExceeded) as raised:
        asyncio.run(made.run(lambda _: frozenset()))
    assert sentence in str(raised.value)


class Followers:
    """The destination: gives a new leader epoch on request, and has no open transaction."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._mirrored = mirrored

    async def settled(self) -> None:
        for each in self._mirrored.partitions.values():
            if each.raise_to >= 0:
                self._mirrored.lead(each, each.raise_to)

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


BLOCK = 1000
BROKERS = (1, 2, 3)


class Ids:
    """A destination: its controller's next block, and what each broker has left of its own. It
    plays both partners of a jump."""

    def __init__(self) -> None:
        self.next = 0
        self.left: dict[str, tuple[int, int]] = {}
        self.still: set[str] = set()
        """Brokers that do not answer."""
        self.cut: set[str] = set()
        """Brokers that get no block from the controller."""

    async def producer_block(self) -> tuple[int, int]:
        self.next += BLOCK
        return self.next - BLOCK, BLOCK

    async def draw_producer_id(self, address: str, *, within: float) -> int:
        await asyncio.sleep(0)
        if address in self.still:
            await asyncio.sleep(within)
            raise Unanswered(f"{address} did not answer")
        at, end = self.left.get(address, (0, 0))
        if at == end:
            if address in self.cut:
                return -1
            at, count = await self.producer_block()
            end = at + count
        self.left[address] = at + 1, end
        return at

    def draw(self, broker: int) -> int:
        return asyncio.run(self.draw_producer_id(str(broker), within=0))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_advance, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(producer_id_advance, "BLOCK_SECONDS", 0.2)


@pytest.fixture
def mirrored(tmp_path: Path) -> MirroredLog:
    real = {"INTERNAL": {broker: str(broker) for broker in BROKERS}}
    made = MirroredLog(config(real=real), Journal(tmp_path))
    made.brokers = frozenset(BROKERS)
    return made


def advance(mirrored: MirroredLog, ids: Ids) -> ProducerIdAdvance:
    return ProducerIdAdvance(mirrored, cast(Destination, ids), cast(Membership, ids))


def kept(mirrored: MirroredLog, ids: Ids, until: int) -> None:
    """Mirrors until all live brokers allocate ids from there on."""
    made = advance(mirrored, ids)

    async def play() -> None:
        keeping = asyncio.create_task(made.keep())
        async with asyncio.timeout(60):
            while made.behind(until) & mirrored.brokers:
                await asyncio.sleep(0.01)
        keeping.cancel()

    asyncio.run(play())


def finished(mirrored: MirroredLog, ids: Ids) -> float:
    """The seconds that it adds to a failover."""
    began = time.monotonic()
    asyncio.run(advance(mirrored, ids).finish())
    return time.monotonic() - began


def test_a_broker_suspended_in_the_failover_was_drained_while_mirroring(
    mirrored: MirroredLog,
) -> None:
    """It had a block of its own, which includes the source's ids."""
    ids = Ids()
    assert ids.draw(3) == 0
    mirrored.journal.notes.top_producer = 7
    kept(mirrored, ids, 7 + MARGIN)
    ids.still.add("3")
    finished(mirrored, ids)
    assert mirrored.journal.notes.undrained == {}
    ids.still.clear()
    assert min(ids.draw(broker) for broker in BROKERS) >= 7 + MARGIN


def test_producer_ids_are_advanced_again_before_they_are_used_up(
    mirrored: MirroredLog,
) -> None:
    ids = Ids()
    kept(mirrored, ids, AHEAD)
    mirrored.journal.notes.top_producer = AHEAD - MARGIN
    kept(mirrored, ids, AHEAD + AHEAD // 2)
    assert min(ids.draw(broker) for broker in BROKERS) > AHEAD + AHEAD // 2


def test_a_failover_does_not_ask_drained_clients(mirrored: MirroredLog, tmp_path: Path) -> None:
    ids = Ids()
    mirrored.journal.notes.top_producer = 7
    kept(mirrored, ids, 7 + MARGIN)
    before = dict(ids.left), ids.next
    mirrored.journal.save()
    again = MirroredLog(mirrored.config, Journal(tmp_path))  # a process that was killed
    finished(again, ids)
    assert (ids.left, ids.next) == before


@pytest.mark.parametrize("how", ["still", "cut"])
def test_a_broker_that_cannot_be_drained_holds_no_failover_up_and_is_reported(
    mirrored: MirroredLog, how: str
) -> None:
    ids = Ids()
    for broker in BROKERS:
        ids.draw(broker)
    getattr(ids, how).update(("2", "3"))
    mirrored.journal.notes.top_producer = 5000
    assert finished(mirrored, ids) < 30, "side by side, each as long as one answer"
    assert mirrored.journal.notes.undrained == {2: 0, 3: 0}
    assert mirrored.journal.notes.stopped("A->B", drained=True).undrained == {"2": 0, "3": 0}
    assert ids.draw(1) >= 5000 + MARGIN


def test_a_broker_that_comes_back_before_the_failover_ends_is_drained(
    mirrored: MirroredLog,
) -> None:
    ids = Ids()
    ids.draw(3)
    ids.still.add("3")
    mirrored.journal.notes.top_producer = 7
    finished(mirrored, ids)
    assert mirrored.journal.notes.undrained == {3: 0}
    ids.still.clear()
    asyncio.run(advance(mirrored, ids).again())
    assert mirrored.journal.notes.undrained == {}
    assert ids.draw(3) >= 7 + MARGIN


def test_failover_without_any_answering_broker_is_unanswered(
    mirrored: MirroredLog,
) -> None:
    ids = Ids()
    ids.still.update(map(str, BROKERS))
    mirrored.journal.notes.top_producer = 7
    with pytest.raises(Unanswered, match="no broker of the destination returns producer ids"):
        finished(mirrored, ids)
    assert mirrored.journal.notes.undrained == {}


def test_a_log_without_producer_ids_asks_nothing(mirrored: MirroredLog) -> None:
    ids = Ids()
    finished(mirrored, ids)
    assert (ids.next, ids.left) == (0, {})


def test_producer_ids_are_advanced_only_with_the_option_jump(
    mirrored: MirroredLog, tmp_path: Path
) -> None:
    ids = Ids()
    mirrored.journal.notes.top_producer = 7
    keeping = replace(mirrored.config, options=ShadowOptions(producer_ids="keep"))
    finished(MirroredLog(keeping, Journal(tmp_path)), ids)
    assert ids.next == 0


TOPIC_PARTITION = ("A.t", 0)


@pytest.fixture
def settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailoverRun:
    monkeypatch.setattr(failover, "WAKE_SECONDS", 0.2)
    monkeypatch.setattr(failover, "LEAVE_SECONDS", 0.5)
    real = {"INTERNAL": {broker: "127.0.0.1:1" for broker in (1, 2, 3)}}
    mirrored = MirroredLog(config(real=real), Journal(tmp_path))
    mirrored.brokers = frozenset((1, 2, 3))
    mirrored.journal.notes.phase = "settling"
    mirrored.lead(mirrored.add(*TOPIC_PARTITION), 4)
    topics: Any = SimpleNamespace(
        placement=SimpleNamespace(replicas=lambda _number, _topic: [1, 2, 3])
    )
    parts: list[Any] = [SimpleNamespace() for _ in range(5)]
    return FailoverRun(mirrored, parts[0], parts[1], topics, *parts[2:])


def fetching(
    made: FailoverRun, offsets: dict[int, int], *, epoch_from: int = 0, most: int = 1000
) -> asyncio.Task[None]:
    """Followers that fetch, truncate and catch up, by at most `most` offsets at each look."""
    partition = made._log.partitions[TOPIC_PARTITION]

    async def fetch() -> None:
        while True:
            if partition.raise_to >= 0:
                made._log.lead(partition, partition.raise_to)
            for broker, offset in offsets.items():
                if partition.leader_epoch >= epoch_from:
                    partition.heard(broker, offset, partition.leader_epoch, 4)
                    offsets[broker] = (
                        offset if partition.end < 0 else min(partition.end, offset + most)
                    )
            await asyncio.sleep(0.01)

    return asyncio.create_task(fetch())


def settle(made: FailoverRun, *followers: tuple[dict[int, int], int], most: int = 1000) -> int:
    async def play() -> int:
        tasks = [
            fetching(made, offsets, epoch_from=epoch, most=most) for offsets, epoch in followers
        ]
        try:
            await asyncio.wait_for(made.settled(), 60)
        finally:
            for task in tasks:
                task.cancel()
        return made._log.partitions[TOPIC_PARTITION].end

    return asyncio.run(play())


def test_the_longest_live_replica_is_the_log(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 9, 3: 0}, 0)) == 9


@pytest.mark.parametrize(
    ("appended", "ends"),
    [
        pytest.param((7,), {1: 8, 2: 8, 3: 12}, id="a broker came back with more: truncated"),
        pytest.param((7, 8), {1: 8, 2: 7, 3: 7}, id="noted and absent everywhere: not appended"),
    ],
)
def test_records_appended_before_a_crash_are_those_that_a_replica_still_has(
    settling: FailoverRun, appended: tuple[int, ...], ends: dict[int, int]
) -> None:
    settling._log.journal.notes.phase = "ending"
    note = settling._log.partitions[TOPIC_PARTITION].note
    note.mirrored, note.appended = 7, [(offset, "ABORT") for offset in appended]
    assert settle(settling, (ends, 0)) == 8
    assert note.appended == [(7, "ABORT")]


def test_a_replica_that_failed_is_woken_by_a_new_epoch(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 7}, 0), ({3: 7}, 5)) == 7
    assert settling._log.partitions[TOPIC_PARTITION].leader_epoch == 5
    assert settling.live(settling._log.partitions[TOPIC_PARTITION]) == {1, 2, 3}


def test_a_replica_that_does_not_wake_is_left_behind(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 9}, 0)) == 9
    assert settling.live(settling._log.partitions[TOPIC_PARTITION]) == {1, 2}


def test_replicas_that_have_much_to_copy_are_waited_for(
    settling: FailoverRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "STEP_SECONDS", 2)
    assert settle(settling, ({1: 300, 2: 0, 3: 300}, 0), most=1) == 300


def test_replicas_that_stand_still_are_not(
    settling: FailoverRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "STEP_SECONDS", 0.5)
    with pytest.raises(
        DeadlineExceeded,
        match=r"the replicas of A\.t-0 have not caught up, and made no progress for 0\.5 s",
    ):
        settle(settling, ({1: 100, 2: 0, 3: 100}, 0), most=0)


# The clamp of group offsets (KIP-1279, VK12): never to an offset that the mirror does not have.


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


# Where a log is truncated when a mirror takes it over: both rules, on logs that diverged in
# every way.


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
