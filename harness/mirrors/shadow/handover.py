"""The last step of a failover: real brokers that have the whole log enter the ISR, and the controller elects among them.

The reassignment away from the shadow has been pending since the partition was made; the change of the ISR completes it, so that
there is no moment at which both could lead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from harness.mirrors.shadow import isr
from harness.mirrors.shadow.destination import Destination, Picture
from harness.mirrors.shadow.log import MirroredLog
from harness.mirrors.shadow.membership import Membership
from harness.mirrors.shadow.partition import Partition
from harness.mirrors.shadow.settings import FIRST_BROKER_ID
from harness.mirrors.shadow.topics import Topics
from harness.model.errors import DeadlineExceeded, EnvironmentFailure
from harness.wire.connection import Unanswered

log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
_LOOK: Final = 0.05
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
        wanted: dict[Partition, list[int]] = {}
        for partition in partitions:
            alive = [broker for broker in self._topics.replicas(partition.number) if broker in live(partition)]
            if alive and partition.live().keys() >= set(alive):
                wanted[partition] = alive
        # To those that live: with a dead broker among its targets a reassignment would never complete.
        await self._destination.reassign({(p.topic, p.number): alive for p, alive in wanted.items()})
        here = await self._destination.picture()
        me = self._log.config.broker_id
        await isr.change(self._membership, here, {partition: [me, *alive] for partition, alive in wanted.items()})

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
