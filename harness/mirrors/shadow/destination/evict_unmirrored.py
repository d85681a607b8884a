"""Moves replicas of unmirrored partitions off the shadow: the controller places new topics on any
registered broker.

A topic that an admin or a client creates on the destination may get replicas on the shadow. The
shadow never fetches and refuses writes, so these partitions would hang. They are reassigned to real
brokers at once. Nothing can be lost by that: while the shadow is in an ISR no high watermark
advances, and where it leads nobody could write. Cordoning (KIP-1066, metadata.version 4.3) avoids
such placements where the controller supports it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from linkflap.harness.mirrors.shadow.destination import isr
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import Led, MetadataSnapshot, Topic
from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.topology import TopicPartition

log = logging.getLogger(__name__)


class Evictions:
    """Partitions of the destination that have a replica on this shadow but are not mirrored."""

    def __init__(
        self, mirrored: MirroredLog, destination: Destination, membership: Membership
    ) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._me = mirrored.config.broker_id

    async def evict(self, here: MetadataSnapshot) -> None:
        """Requests the reassignments. Has to be called repeatedly, because they take a moment; that
        is safe. Raises Unanswered or EnvironmentFailure."""
        found = self._found(here)
        if not found:
            return
        wanted = {tp: self._homes(tp[1], led) for tp, led in found.items()}
        log.info(
            "moved off the shadow, because they are not mirrored: %s",
            ", ".join(f"{topic}-{number}" for topic, number in found),
        )
        await self._destination.reassign(wanted)
        mine = {
            _stand_in(tp, led): [self._me, *wanted[tp]]
            for tp, led in found.items()
            if led.leader == self._me and set(wanted[tp]) <= self._log.brokers
        }
        await isr.change(self._membership, here, mine)

    def _found(self, here: MetadataSnapshot) -> dict[TopicPartition, Led]:
        ours = self._log.journal.notes.topics
        return {
            (name, number): led
            for name, topic in here.topics.items()
            if not (name in ours or self._log.config.mirrors(name))
            or self._was_made_again(name, topic)
            for number, led in topic.partitions.items()
            if self._me in led.replicas
        }

    def _was_made_again(self, name: str, topic: Topic) -> bool:
        """Whether another client created the topic again under the name of a topic that is no
        longer mirrored."""
        note = self._log.journal.notes.topics.get(name)
        return note is not None and bool(note.given_up) and str(topic.id) != note.destination_id

    def _homes(self, number: int, led: Led) -> Sequence[int]:
        """As many real brokers as the partition has replicas, as far as they suffice. Its existing
        real replicas come first."""
        kept = [broker for broker in led.replicas if broker < FIRST_BROKER_ID]
        live = sorted(self._log.brokers - set(kept))
        turned = [live[(number + i) % len(live)] for i in range(len(live))]
        return [*kept, *turned][: len(led.replicas)]


def _stand_in(tp: TopicPartition, led: Led) -> Partition:
    """A partition object that only serves to change the ISR."""
    note = PartitionNote()
    return Partition(
        topic=tp[0],
        number=tp[1],
        note=note,
        epochs=Lineage(),
        source_epochs=Lineage(),
        leader_epoch=led.epoch,
    )
