"""The last step of a failover: real brokers enter the ISR in one request per try, and the controller elects among them.

A partition's epoch is in no API that a shadow may ask (KIP-497): it is guessed. Too low is INVALID_UPDATE_VERSION, too high
NOT_CONTROLLER of that partition; the request that fits is the hand-over itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from harness.mirrors.shadow.destination import Destination, Picture
from harness.mirrors.shadow.log import MirroredLog
from harness.mirrors.shadow.membership import Membership
from harness.mirrors.shadow.partition import Partition
from harness.mirrors.shadow.settings import FIRST_BROKER_ID
from harness.mirrors.shadow.topics import Topics
from harness.model.errors import DeadlineExceeded, EnvironmentFailure
from harness.wire.connection import Unanswered
from harness.wire.messages import Error

log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
_LOOK: Final = 0.05
_MOST_GUESSES: Final = 64
Live = Callable[[Partition], frozenset[int]]


class Handover:
    """Of all partitions of a mirror; what is handed over already stays so."""

    def __init__(self, mirrored: MirroredLog, destination: Destination, topics: Topics, membership: Membership) -> None:
        self._log, self._destination, self._topics, self._membership = mirrored, destination, topics, membership

    async def run(self, live: Live) -> None:
        """Returns when a real broker leads every partition. Raises DeadlineExceeded."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while led := [p for p in self._log.partitions.values() if not _handed(await self._destination.picture(), p)]:
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"{', '.join(p.name for p in led[:5])} could not be handed over; see the brokers' logs")
            try:
                await self._try([p for p in led if p.leader_epoch >= 0], live)
            except (Unanswered, EnvironmentFailure) as error:
                log.warning("hand-over: %s", error)
            await asyncio.sleep(_LOOK)
        await self._bring_back()
        await self._topics.restore_configs()

    async def _try(self, partitions: list[Partition], live: Live) -> None:
        wanted = {}
        here = await self._destination.picture()
        narrowed = {}
        for partition in partitions:
            alive = [broker for broker in self._topics.replicas(partition.number) if broker in live(partition)]
            if alive and partition.live().keys() >= set(alive):
                wanted[partition] = alive
                if set(alive) != set(self._topics.replicas(partition.number)):
                    narrowed[partition.topic, partition.number] = alive
        if narrowed:
            await self._destination.reassign(narrowed)
        await self._alter(wanted, here)

    async def _alter(self, wanted: dict[Partition, list[int]], here: Picture) -> None:
        """One round of guesses for all partitions at once, until each was taken or refused."""
        bounds = {partition: (0, -1) for partition in wanted}
        guesses = {partition: partition.partition_epoch for partition in wanted}
        for _ in range(_MOST_GUESSES):
            if not guesses:
                return
            places = {(p.topic, p.number): p for p in guesses}
            known = {place: (here.topics[place[0]].id, p.leader_epoch, guesses[p]) for place, p in places.items()}
            isr = {place: [self._log.config.broker_id, *wanted[p]] for place, p in places.items()}
            for place, answer in (await self._membership.alter(isr, known)).items():
                partition = places[place]
                low, high = bounds[partition]
                guess = guesses[partition]
                if answer.error_code == Error.invalid_update_version:
                    low = guess + 1
                elif answer.error_code == Error.not_controller:
                    high = guess
                else:
                    if answer.error_code not in (Error.none, Error.new_leader_elected):
                        log.info("%s: %s", partition.name, answer.error_code.name)
                    partition.partition_epoch = guess
                    del guesses[partition]
                    continue
                bounds[partition] = low, high
                guesses[partition] = max(2 * guess, guess + 1) if high < 0 else (low + high) // 2

    async def _bring_back(self) -> None:
        """Replicas that were down come back: the new leaders add them when they have caught up."""
        wanted = {}
        here = await self._destination.picture()
        for (topic, number), _ in self._log.partitions.items():
            if set(here.topics[topic].partitions[number].replicas) != set(self._topics.replicas(number)):
                wanted[topic, number] = self._topics.replicas(number)
        if wanted:
            await self._destination.reassign(wanted)


def _handed(here: Picture, partition: Partition) -> bool:
    led = here.topics[partition.topic].partitions[partition.number]
    return 0 <= led.leader < FIRST_BROKER_ID and max(led.in_sync, default=FIRST_BROKER_ID) < FIRST_BROKER_ID
