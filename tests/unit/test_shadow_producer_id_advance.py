"""Producer ids that are kept above the mirrored ones, with brokers and a controller that allocate
ids as in KIP-730."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.mirrors.shadow import producer_id_advance
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.mirrors.shadow.producer_id_advance import AHEAD, ProducerIdAdvance
from linkflap.harness.mirrors.shadow.producer_ids import MARGIN
from linkflap.harness.mirrors.shadow.settings import ShadowOptions
from linkflap.harness.wire.connection import Unanswered
from tests.shadows import config

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
    mirrored.journal.notes.top_producer = AHEAD - 2 * MARGIN
    kept(mirrored, ids, AHEAD + MARGIN)
    assert min(ids.draw(broker) for broker in BROKERS) > 2 * AHEAD - 2 * MARGIN


def test_a_failover_asks_nobody_who_was_drained(mirrored: MirroredLog, tmp_path: Path) -> None:
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


def test_when_no_broker_answers_at_all_it_is_the_shadow_that_is_disconnected(
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


def test_only_a_jump_jumps(mirrored: MirroredLog, tmp_path: Path) -> None:
    ids = Ids()
    mirrored.journal.notes.top_producer = 7
    keeping = replace(mirrored.config, options=ShadowOptions(producer_ids="keep"))
    finished(MirroredLog(keeping, Journal(tmp_path)), ids)
    assert ids.next == 0
