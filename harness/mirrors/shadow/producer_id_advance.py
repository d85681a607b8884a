"""Moves the destination's producer ids past the mirrored ones (`producer_ids=jump`), ahead of the
failover.

A broker hands out ids to idempotent producers (InitProducerId) from a block that the controller
allocated to it (KIP-730), and may have prefetched a second block. So the shadow first moves the
controller's allocation. Then it draws ids from each broker until they are past the goal. From then
on that broker only hands out higher ids, also after a restart.

This happens while mirroring, with a margin, and again before the margin is used up. So a failover
usually has nothing left to do. A broker that never answered does not delay the failover. It is
reported (`Notes.undrained`), because it may hand out mirrored ids once clients reach it again. A
restart fixes that, because the broker then loses its blocks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from linkflap.harness.mirrors.shadow.batches import MARGIN
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.access import Unanswered

log = logging.getLogger(__name__)
AHEAD: Final = 4 * MARGIN
"""How far the ids are moved past the goal of a failover while mirroring."""
ANSWER_SECONDS: Final = 3.0
BLOCK_SECONDS: Final = 5.0
"""How long a broker may wait for its next block. A broker's request to a controller that hangs only
times out after 30 s."""
LOOK_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 0.01


class ProducerIdAdvance:
    """The producer ids of one destination. The journal keeps each broker's last drawn id, so that a
    restarted shadow need not draw again."""

    def __init__(
        self, mirrored: MirroredLog, destination: Destination, membership: Membership
    ) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._notes = mirrored.journal.notes

    @property
    def chosen(self) -> bool:
        return self._log.config.options.producer_ids == "jump"

    @property
    def needed(self) -> int:
        """The lowest id that the destination may hand out after its promotion; 0 while no producer
        id was mirrored."""
        return self._notes.top_producer + MARGIN if self._notes.top_producer >= 0 else 0

    async def keep(self) -> None:
        """Keeps live brokers ahead until it is cancelled. Includes brokers that start later."""
        while True:
            if self.chosen and (
                behind := self.behind(self.needed + AHEAD // 2) & self._log.brokers
            ):
                try:
                    await self._move(behind, self.needed + AHEAD)
                except (Unanswered, EnvironmentFailure) as error:
                    log.warning("producer ids: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def finish(self) -> None:
        """Completes the move for a failover, which usually has nothing left to do. Can be repeated
        after a kill.

        Raises Unanswered while no controller, or no broker at all, answers. Records a broker that
        does not answer in `Notes.undrained`.
        """
        if not self.chosen:
            return
        if behind := self.behind(self.needed):
            await self._move(behind, self.needed)
        self._notes.undrained = {
            broker: self._notes.drained.get(broker, 0)
            for broker in sorted(self.behind(self.needed))
        }
        self._log.journal.save()
        for broker in self._notes.undrained:
            log.error(
                "broker %d may hand out producer ids below %d, which were mirrored: it returned no "
                "higher id in time; restart it before clients reach it, so that it gets new ids",
                broker,
                self.needed,
            )

    async def again(self) -> None:
        """Tries brokers again that did not answer before and that are alive now."""
        if self._notes.undrained.keys() & self._log.brokers:
            await self.finish()

    def behind(self, goal: int) -> frozenset[int]:
        """Brokers, alive or not, that may still hand out ids below `goal`."""
        return frozenset(
            broker
            for broker in self._log.config.brokers
            if self._notes.drained.get(broker, 0) < goal
        )

    async def _move(self, brokers: frozenset[int], goal: int) -> None:
        """Moves the controller's allocation first: a broker that uses up its block meanwhile then
        gets one past the goal. Draws from all brokers concurrently."""
        while self._notes.allocated < goal:
            start, length = await self._membership.producer_block()
            self._notes.allocated = start + length
        answered = await asyncio.gather(*(self._drain(broker, goal) for broker in sorted(brokers)))
        self._log.journal.save()
        if brokers >= self._log.config.brokers.keys() and not any(answered):
            raise Unanswered("no broker of the destination returns producer ids")

    async def _drain(self, broker: int, goal: int) -> bool:
        """Draws ids until they are past the goal. Returns whether the broker answered at all."""
        address, waited_since, answered = self._log.config.brokers[broker], time.monotonic(), False
        try:
            while (
                drawn := await self._destination.draw_producer_id(address, within=ANSWER_SECONDS)
            ) < goal:
                answered = True
                if drawn >= 0:
                    waited_since = time.monotonic()
                elif time.monotonic() > waited_since + BLOCK_SECONDS:
                    raise Unanswered(
                        f"{address} got no block of producer ids in {BLOCK_SECONDS:g} s"
                    )
                else:
                    await asyncio.sleep(_AGAIN_SECONDS)
        except (Unanswered, EnvironmentFailure) as error:
            log.warning("broker %d was not moved past producer id %d: %s", broker, goal, error)
            return answered
        self._notes.drained[broker] = drawn
        log.info("broker %d hands out producer ids from %d on", broker, drawn + 1)
        return True
