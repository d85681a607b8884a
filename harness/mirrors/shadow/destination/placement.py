"""The placement of mirrored partitions: on the shadow alone until a failover, and assigned to the
real brokers that take over then.

A mirrored partition is created with the shadow as its only replica and then reassigned to real
brokers. That reassignment stays pending until a failover, because only the shadow, as the leader,
could add them to the ISR. So no real broker can be elected before.

Partitions that are added to such a topic must have as many replicas as the existing ones
(ReplicationControlManager). So real brokers are in their ISRs until the shadow removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination import isr
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import Led, MetadataSnapshot
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition

_MOST_REPLICAS: Final = 3


class Placement:
    """Where partitions are, and where a failover will put them."""

    def __init__(
        self, mirrored: MirroredLog, destination: Destination, membership: Membership
    ) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._me = mirrored.config.broker_id
        self._narrowing: set[Partition] = set()
        """Partitions whose real brokers were removed from the ISR, and that are not reassigned to
        them yet."""

    def replicas(self, number: int, topic: str = "") -> list[int]:
        """The real brokers that a partition is assigned to: those that had it before a takeover,
        else three at most, spread over all."""
        note = self._log.journal.notes.partitions.get(topic, {}).get(number)
        if note is not None and note.home:
            return list(note.home)
        real = sorted(self._log.config.brokers)
        count = min(_MOST_REPLICAS, len(real))
        return [real[(number + i) % len(real)] for i in range(count)]

    async def follow(self, here: MetadataSnapshot, led: Sequence[tuple[Partition, Led]]) -> None:
        """Brings the mirrored partitions that the shadow leads to their placement until a failover.
        Raises Unanswered."""
        spread = [partition for partition, its in led if self._to_be_spread(partition, its)]
        await self._narrow(here, [partition for partition, its in led if self._is_wide(its)])
        await self._spread(spread)

    def _is_wide(self, led: Led) -> bool:
        """Whether brokers other than the shadow are in the ISR of a partition that it leads."""
        return led.leader == self._me and led.in_sync != (self._me,)

    async def _narrow(self, here: MetadataSnapshot, partitions: list[Partition]) -> None:
        """Removes real brokers from the ISRs of partitions."""
        if partitions:
            taking_over = self._log.journal.notes.phase == "taking-over"
            await self._log.steps.reach("elected" if taking_over else "grown")
        await isr.change(
            self._membership, here, {partition: [self._me] for partition in partitions}
        )
        self._narrowing |= {partition for partition in partitions if not partition.note.home}

    async def _spread(self, partitions: list[Partition]) -> None:
        """Reassigns partitions to real brokers."""
        if partitions:
            await self._destination.reassign(
                {(p.topic, p.number): self.replicas(p.number) for p in partitions}
            )
            self._narrowing -= set(partitions)
            await self._log.steps.reach("narrowed")

    def _to_be_spread(self, partition: Partition, led: Led) -> bool:
        """Whether to reassign a partition to real brokers. Not while one of them is in its ISR,
        because it would lead at once."""
        narrowed = partition in self._narrowing and (led.leader, led.in_sync) == (
            self._me,
            (self._me,),
        )
        return not partition.note.home and (led.replicas == (self._me,) or narrowed)
