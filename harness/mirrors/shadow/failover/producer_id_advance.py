"""Keeps the destination's producer ids past those that were mirrored (`producer_ids=jump`), ahead
of the failover.

Any broker hands out ids to idempotent producers (InitProducerId), of a block that it was given by
the controller (KIP-730) and perhaps of one more that it has fetched ahead. So the controller's
allocation is moved first, and then each broker is asked for ids until it is past: what it hands out
afterwards is higher for ever, also when it is started anew. That is done while mirroring, with room
to spare, and done again before the room is used up: a failover has nothing left to ask, unless a
broker did not answer all the while. Such a broker does not delay the failover. It is reported
(`Notes.undrained`), because it is a danger as soon as it answers clients again; if it is restarted
instead, it loses its block, and is none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.producer_ids import MARGIN
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.connection import Unanswered

log = logging.getLogger(__name__)
AHEAD: Final = 10 * MARGIN
"""How far past what a failover would need the ids go while mirroring."""
ANSWER_SECONDS: Final = 3.0
BLOCK_SECONDS: Final = 5.0
"""How long a broker may wait for its next block: its channel to a controller that stands still
takes 30 s to give that up."""
LOOK_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 0.01


class ProducerIdAdvance:
    """The ids of one destination. What was reached is in the journal: brokers are not asked again
    for that."""

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
        """The lowest id that the destination may hand out when it is promoted; 0 while no id was
        mirrored."""
        return self._notes.top_producer + MARGIN if self._notes.top_producer >= 0 else 0

    async def keep(self) -> None:
        """Keeps live brokers ahead until it is cancelled. A broker that starts is one that was not
        asked yet."""
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
        """What is left to do when the destination is to be promoted: nothing, as a rule. Can be
        repeated after a kill.

        Raises Unanswered while no controller or no broker at all answers. A broker that does not is
        taken down as not drained.
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
                "broker %d may hand out producer ids below %d, which were mirrored: it gave none "
                "while it was asked; start it anew before clients reach it, and it gets others",
                broker,
                self.needed,
            )

    async def again(self) -> None:
        """Asks brokers again that did not answer before and are alive by now."""
        if self._notes.undrained.keys() & self._log.brokers:
            await self.finish()

    def behind(self, goal: int) -> frozenset[int]:
        """Brokers, alive or not, that may hand out ids below it."""
        return frozenset(
            broker
            for broker in self._log.config.brokers
            if self._notes.drained.get(broker, 0) < goal
        )

    async def _move(self, brokers: frozenset[int], goal: int) -> None:
        """The allocation first: a broker that uses its block up meanwhile is given one that is
        past. Brokers side by side."""
        while self._notes.allocated < goal:
            start, length = await self._membership.producer_block()
            self._notes.allocated = start + length
        answered = await asyncio.gather(*(self._drain(broker, goal) for broker in sorted(brokers)))
        self._log.journal.save()
        if brokers >= self._log.config.brokers.keys() and not any(answered):
            raise Unanswered("no broker of the destination gives producer ids")

    async def _drain(self, broker: int, goal: int) -> bool:
        """Whether it said anything."""
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
