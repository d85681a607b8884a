"""Keeps the destination's topics as the source's: made on the shadow alone, grown, never mixed with another topic of that name.

A mirrored partition is made with the shadow as its only replica and then reassigned to real brokers. That reassignment stays
pending, because nobody adds them to the ISR, until a failover does: so no real broker can ever be elected before.

A partition that is added to such a topic must have as many replicas as the others (ReplicationControlManager), so real brokers
are in its ISR until the shadow takes them out: should the shadow be away from these milliseconds on until its session ends, an
empty partition is writable. It is told, and not mirrored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from harness.mirrors.shadow import isr
from harness.mirrors.shadow.destination import Destination, Led, Picture
from harness.mirrors.shadow.journal import TopicNote
from harness.mirrors.shadow.log import MirroredLog
from harness.mirrors.shadow.membership import Membership
from harness.mirrors.shadow.partition import Partition
from harness.mirrors.shadow.settings import FIRST_BROKER_ID
from harness.model.errors import InputError
from harness.wire import messages
from harness.wire.connection import AnyOf
from harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
WHILE_MIRRORED: Final[Mapping[str, str]] = {
    # Followers delete and compact by themselves, whoever leads.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # The shadow alone is in the ISR (KIP-966: below the minimum its members would become eligible leaders).
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
_TOPIC: Final = 2
_DYNAMIC_TOPIC_CONFIG: Final = 1
_MOST_REPLICAS: Final = 3


class Topics:
    """The topics of one mirror, on both sides."""

    def __init__(self, mirrored: MirroredLog, destination: Destination, membership: Membership) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._me = mirrored.config.broker_id
        self._narrowing: set[Partition] = set()
        """Partitions whose real brokers were taken out of the ISR, and that are not reassigned to them yet."""

    def replicas(self, number: int, topic: str = "") -> list[int]:
        """The real brokers that a partition is meant for: those that had it when it was taken over, else spread over all."""
        note = self._log.journal.notes.partitions.get(topic, {}).get(number)
        if note is not None and note.home:
            return list(note.home)
        real = sorted(self._log.config.brokers)
        count = min(_MOST_REPLICAS, len(real))
        return [real[(number + i) % len(real)] for i in range(count)]

    async def follow(self, source: Picture, source_nodes: AnyOf) -> None:
        """Makes and grows topics as the source has them now. Raises InputError for a topic that is not ours to write."""
        here = await self._destination.picture()
        notes = self._log.journal.notes.topics
        for name, topic in source.topics.items():
            if not self._log.config.mirrors(name):
                continue
            note = notes.get(name)
            if note is not None and note.source_id != str(topic.id):
                self._seal(name, f"topic {name} was deleted and made again at the source")
                continue
            if name not in here.topics:
                await self._make(name, topic.id, len(topic.partitions), source_nodes)
            elif note is None:
                raise InputError(
                    f"topic {name} exists on the destination of {self._log.config.link} already; "
                    "remove it there, or mirror elsewhere"
                )
            elif len(topic.partitions) > (have := len(here.topics[name].partitions)):
                log.info("%s grows from %d to %d partitions", name, have, len(topic.partitions))
                added = [[self._me, *self.replicas(number)] for number in range(have, len(topic.partitions))]
                async with self._membership.placeable():
                    await self._destination.grow(name, have, added)
                await self.look()
        for name in notes.keys() - source.topics.keys():
            self._seal(name, f"topic {name} was deleted at the source")

    async def _make(self, name: str, source_id: Message, partitions: int, source_nodes: AnyOf) -> None:
        configs = await topic_configs(source_nodes, name)
        self._log.journal.notes.topics[name] = TopicNote(source_id=str(source_id), configs=configs)
        self._log.journal.save()
        async with self._membership.placeable():
            await self._destination.create(name, partitions, self._me, {**configs, **WHILE_MIRRORED})
        log.info("%s made with %d partitions", name, partitions)
        await self._log.steps.reach("created")

    def _seal(self, name: str, reason: str) -> None:
        for partition in self._log.partitions.values():
            if partition.topic == name and not partition.sealed:
                log.error("%s: what was mirrored stays, nothing is added", reason)
                partition.sealed = reason

    async def look(self) -> Picture:
        """Takes in the destination's metadata: who lives, what the shadow leads, and in which epoch."""
        here = await self._destination.picture()
        self._log.brokers = frozenset(here.brokers.keys() & self._log.config.brokers.keys())
        alone: list[Partition] = []
        spread: list[Partition] = []
        for name, note in self._log.journal.notes.topics.items():
            topic = here.topics.get(name)
            if topic is not None:
                self._log.names[topic.id] = name
                note.destination_id = str(topic.id)
                for number, led in sorted(topic.partitions.items()):
                    if self._is_lost(name, number, led):
                        continue
                    partition = self._log.add(name, number)
                    self._take(partition, led)
                    alone += [partition] if led.leader == self._me and led.in_sync != (self._me,) else []
                    spread += [partition] if self._to_be_spread(partition, led) else []
        phase = self._log.journal.notes.phase
        if phase in ("taking-over", "mirroring", "settling", "ending"):
            if alone:
                await self._log.steps.reach("elected" if phase == "taking-over" else "grown")
            await isr.change(self._membership, here, {partition: [self._me] for partition in alone})
            self._narrowing |= {partition for partition in alone if not partition.note.home}
            if spread:
                await self._destination.reassign({(p.topic, p.number): self.replicas(p.number) for p in spread})
                self._narrowing -= set(spread)
                await self._log.steps.reach("narrowed")
        self._log.ring()
        return here

    def _is_lost(self, name: str, number: int, led: Led) -> bool:
        """Whether a real broker leads what none may: the shadow stood still between the growth of a topic and its narrowing."""
        notes, note = self._log.journal.notes, self._log.journal.partition(name, number)
        if notes.phase not in ("mirroring", "settling", "ending") or note.home or not 0 <= led.leader < FIRST_BROKER_ID:
            return (name, number) in self._log.lost
        if (name, number) not in self._log.lost:
            log.error(
                "%s-%d is led by broker %d and is not mirrored: the shadow was away when it was made; remove the topic on the "
                "destination to mirror it again",
                name,
                number,
                led.leader,
            )
            self._log.lost.add((name, number))
            self._log.partitions.pop((name, number), None)
            note.mirrored = note.promoted = 0
            self._log.journal.save()
        return True

    def _to_be_spread(self, partition: Partition, led: Led) -> bool:
        """Whether a partition is to be reassigned to real brokers. Not while one of them is in its ISR: it would lead at once."""
        narrowed = partition in self._narrowing and (led.leader, led.in_sync) == (self._me, (self._me,))
        return not partition.note.home and (led.replicas == (self._me,) or narrowed)

    def _take(self, partition: Partition, led: Led) -> None:
        if led.leader != self._me:
            partition.leader_epoch = -1
        elif led.epoch > partition.leader_epoch:
            if partition.position < 0 and led.epoch == 0 and not partition.note.epochs and not partition.taking:
                partition.position = 0  # just made
            self._log.lead(partition, led.epoch)

    async def restore_configs(self) -> None:
        """Gives mirrored topics the configs that they had at the source."""
        for name, note in self._log.journal.notes.topics.items():
            await self._destination.configure(name, {key: note.configs.get(key) for key in WHILE_MIRRORED})


async def topic_configs(nodes: AnyOf, name: str) -> dict[str, str]:
    """The configs that were set on the topic itself."""
    m = messages.request("describe_configs", 4)
    resource = m.DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
    body = m.DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    answer = await nodes.call("describe_configs", 4, body)
    (told,) = answer.results
    if told.error_code != Error.none:
        return {}
    return {row.name: row.value for row in told.configs if row.config_source == _DYNAMIC_TOPIC_CONFIG and row.value is not None}
