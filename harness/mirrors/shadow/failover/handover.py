"""The last step of a failover: real brokers that have the complete log enter the ISR, and the
controller elects leaders among them.

The reassignment away from the shadow has been pending since the partition was created. The ISR
change completes it, so the shadow and a real broker can never lead at the same time. Only brokers
enter whose log equals the mirrored one up to the promotion offset. A broker that restarted
meanwhile, or whose log diverges, stays out; the new leader lets it catch up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination import isr
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot, Topic
from linkflap.harness.mirrors.shadow.destination.topics import Topics
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.wire.connection import Unanswered

log = logging.getLogger(__name__)
WITHIN_SECONDS: Final = 60.0
LATE_SECONDS: Final = 10.0
"""How long the handover waits for a live broker that has not caught up yet."""
_LOOK: Final = 0.05
Live = Callable[[Partition], frozenset[int]]


class Handover:
    """The handover of all partitions of a mirror. A repeated run skips partitions that are already
    handed over."""

    def __init__(
        self,
        mirrored: MirroredLog,
        destination: Destination,
        topics: Topics,
        membership: Membership,
    ) -> None:
        self._log, self._destination, self._topics, self._membership = (
            mirrored,
            destination,
            topics,
            membership,
        )

    async def run(self, live: Live) -> None:
        """Returns when a real broker leads every partition. Raises DeadlineExceeded."""
        await self._log.steps.reach("handing-over")
        began, error, led = time.monotonic(), None, list(self._log.partitions.values())
        while True:
            try:
                here = await self._destination.picture()
                led = self._left(here)
                if not led:
                    await self._log.steps.reach("handed")
                    await self._bring_back()
                    await self._topics.restore_configs()
                    return
                # Missing topics: waits until they reappear or are known to be deleted
                # (`Topics.look`).
                there = [p for p in led if self._there(here, p.topic) is not None]
                await self._try(there, live, patient=time.monotonic() < began + LATE_SECONDS)
            except (Unanswered, EnvironmentFailure) as failure:
                log.warning("hand-over: %s", failure)
                error = failure
            if time.monotonic() > began + WITHIN_SECONDS:
                raise DeadlineExceeded(_late(led, error))
            await asyncio.sleep(_LOOK)

    def _left(self, here: MetadataSnapshot) -> list[Partition]:
        return [
            p for p in self._log.partitions.values() if not _handed(self._there(here, p.topic), p)
        ]

    def _there(self, here: MetadataSnapshot, name: str) -> Topic | None:
        """A topic that the mirror created. Another topic of its name must not be reassigned, and
        its leader says nothing about the handover."""
        topic = here.topics.get(name)
        return (
            topic
            if topic is not None
            and str(topic.id) == self._log.journal.notes.topics[name].destination_id
            else None
        )

    async def _try(self, partitions: Iterable[Partition], live: Live, *, patient: bool) -> None:
        wanted: dict[Partition, list[int]] = {}
        for partition in partitions:
            if partition.leader_epoch >= 0:
                self._stand(partition)
                wanted[partition] = self._whole(partition, live(partition), patient=patient)
        wanted = {partition: caught_up for partition, caught_up in wanted.items() if caught_up}
        if not wanted:
            return
        # Only to live brokers: with a dead one among its targets, the reassignment would never
        # complete.
        await self._destination.reassign(
            {(p.topic, p.number): caught_up for p, caught_up in wanted.items()}
        )
        await self._log.steps.reach("reassigned")
        here = await self._destination.picture()
        me = self._log.config.broker_id
        wanted = {
            partition: caught_up
            for partition, caught_up in wanted.items()
            if self._there(here, partition.topic) is not None
        }
        await isr.change(
            self._membership,
            here,
            {partition: [me, *caught_up] for partition, caught_up in wanted.items()},
        )
        await self._log.steps.reach("in-sync")

    def _stand(self, partition: Partition) -> None:
        """A process that was restarted for the handover serves exactly the promoted log."""
        promoted = partition.note.promoted
        if partition.end != promoted:
            partition.truncate(promoted)
            partition.position = partition.served = partition.limit = promoted
            self._log.lead(partition, partition.leader_epoch)
            self._log.ring()

    def _whole(self, partition: Partition, alive: frozenset[int], *, patient: bool) -> list[int]:
        """The live brokers that have the complete promoted log. While `patient`, none until all
        live ones do."""
        followers = partition.live()
        end = partition.note.promoted
        home = self._topics.placement.replicas(partition.number, partition.topic)
        caught_up = [
            broker
            for broker in home
            if broker in alive and partition.agreed(followers.get(broker)) == end
        ]
        return [] if patient and len(caught_up) < len(alive) else caught_up

    async def _bring_back(self) -> None:
        """Reassigns replicas to the brokers that were down. The new leaders add them to the ISR
        once they have caught up."""
        wanted = {}
        here = await self._destination.picture()
        for topic, number in (*self._log.partitions, *self._log.lost):
            if topic in self._topics.gone or (there := self._there(here, topic)) is None:
                continue
            if set(there.partitions[number].replicas) != set(
                self._topics.placement.replicas(number, topic)
            ):
                wanted[topic, number] = self._topics.placement.replicas(number, topic)
        if wanted:
            await self._destination.reassign(wanted)


def _late(led: Sequence[Partition], error: Exception | None) -> str:
    if led:
        return (
            f"{', '.join(p.name for p in led[:5])} could not be handed over in {WITHIN_SECONDS:g} "
            "s; see the brokers' logs"
        )
    return (
        f"all partitions are handed over, but their configs or replicas were not restored within"
        f" {WITHIN_SECONDS:g} s ({error}); see the brokers' logs"
    )


def _handed(topic: Topic | None, partition: Partition) -> bool:
    led = None if topic is None else topic.partitions.get(partition.number)
    return (
        led is not None
        and 0 <= led.leader < FIRST_BROKER_ID
        and max(led.in_sync, default=FIRST_BROKER_ID) < FIRST_BROKER_ID
    )
