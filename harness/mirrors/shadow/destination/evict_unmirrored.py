"""Takes the shadow off partitions that are not mirrored: the controller places topics on any
registered broker.

A topic that an admin or a client makes on the destination may get replicas on the shadow, which
never fetches and refuses writes: its partitions would hang. They are reassigned to real brokers at
once. Nothing can be lost by that: while the shadow is in an ISR no high watermark moves, and where
it leads nobody could write. Cordoning (KIP-1066, metadata.version 4.3) avoids it from the start
where the controller has it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from linkflap.harness.mirrors.shadow.destination import isr
from linkflap.harness.mirrors.shadow.destination.client import Destination
from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import Led, Picture, Topic
from linkflap.harness.mirrors.shadow.journal import PartitionNote
from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.topology import TopicPartition

log = logging.getLogger(__name__)


class Evictions:
    """Partitions of the destination that have a replica on this shadow and are none of its own."""

    def __init__(
        self, mirrored: MirroredLog, destination: Destination, membership: Membership
    ) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._me = mirrored.config.broker_id

    async def evict(self, here: Picture) -> None:
        """Safe to call again, and needs to be: a reassignment takes a moment. Raises Unanswered or
        EnvironmentFailure."""
        found = self._found(here)
        if not found:
            return
        wanted = {tp: self._homes(tp[1], led) for tp, led in found.items()}
        log.info(
            "not mirrored, and not the shadow's: %s",
            ", ".join(f"{topic}-{number}" for topic, number in found),
        )
        await self._destination.reassign(wanted)
        mine = {
            _stand_in(tp, led): [self._me, *wanted[tp]]
            for tp, led in found.items()
            if led.leader == self._me and set(wanted[tp]) <= self._log.brokers
        }
        await isr.change(self._membership, here, mine)

    def _found(self, here: Picture) -> dict[TopicPartition, Led]:
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
        """By somebody else, under the name of a topic that is mirrored no more."""
        note = self._log.journal.notes.topics.get(name)
        return note is not None and bool(note.given_up) and str(topic.id) != note.destination_id

    def _homes(self, number: int, led: Led) -> Sequence[int]:
        """As many real brokers as the partition has replicas, as far as there are; those that have
        it already first."""
        kept = [broker for broker in led.replicas if broker < FIRST_BROKER_ID]
        live = sorted(self._log.brokers - set(kept))
        turned = [live[(number + i) % len(live)] for i in range(len(live))]
        return [*kept, *turned][: len(led.replicas)]


def _stand_in(tp: TopicPartition, led: Led) -> Partition:
    """A partition that is not served, so that its ISR can be changed."""
    note = PartitionNote()
    return Partition(
        topic=tp[0],
        number=tp[1],
        note=note,
        epochs=Lineage(),
        source_epochs=Lineage(),
        leader_epoch=led.epoch,
    )
