"""Keeps the destination's topics equal to the source's: creates them on the shadow alone, adds
partitions, and never writes to another topic of the same name.

A mirrored partition is created with the shadow as its only replica and then reassigned to real
brokers. That reassignment stays pending until a failover, because only the shadow, as the leader,
could add them to the ISR. So no real broker can be elected before.

Partitions that are added to such a topic must have as many replicas as the existing ones
(ReplicationControlManager). So real brokers are in their ISRs until the shadow removes them some
milliseconds later. If the shadow stops then until its session ends, a real broker leads the
partition and it becomes writable. It is reported, and not mirrored.

A topic that is deleted on the destination, or deleted and created again, is given up: its mirrored
records are gone, and the new topic is not the mirror's. A topic is also given up when the
destination refuses to create it, or, until that one is deleted, when another topic has its name.
The mirror continues with the other topics. Before anything is mirrored, such a name is an error
instead (`refuse_taken`).

The controller places topics that an admin or a client creates on any registered broker, the shadow
too (`Evictions`). The shadow never fetches and refuses writes, so these partitions would hang. They
are reassigned to real brokers at once. Nothing can be lost by that: while the shadow is in an ISR
no high watermark advances, and where it leads nobody could write. Cordoning (KIP-1066,
metadata.version 4.3) avoids such placements where the controller supports it.

Mirrored topics have the source's configs, except those with which the destination's brokers would
change logs themselves. A failover gives the topics the configs that they have at their home
cluster. In a chain, the source's own topics are mirrors, and have the values of `WHILE_MIRRORED`.
The journal of the shadow that leads them there has their configs at home, which this shadow uses
instead.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from linkflap.harness.mirrors.shadow.destination.client import (
    Destination,
    MetadataSnapshot,
    Refused,
)
from linkflap.harness.mirrors.shadow.destination.membership import Membership, change_isrs
from linkflap.harness.mirrors.shadow.journal import (
    JournalNotes,
    PartitionNote,
    TopicNote,
    read_notes,
)
from linkflap.harness.mirrors.shadow.partition import Lineage, MirroredLog, Partition
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, JOURNAL, Config
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.topology import DISKLESS, TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.requests import Led, Topic

log = logging.getLogger(__name__)
WHILE_MIRRORED: Final[Mapping[str, str]] = {
    # Followers delete and compact on their own, whoever leads.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # The shadow alone is in the ISR. Below the minimum, the removed replicas would become eligible
    # leaders (KIP-966).
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
IN_SYNC: Final = "min.insync.replicas"
"""Copied when a topic is created, but later changes at the source are not followed: the number of
brokers that may fail is a choice of each cluster."""
FOLLOW_SECONDS: Final = 5.0
_NOT_COPIED: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    DISKLESS,
)
"""The first two name brokers and partitions of one cluster. A topic without a log on disk has one
on the destination, which the shadow leads."""
_TOPIC: Final = 2
_DYNAMIC_TOPIC_CONFIG: Final = 1
Configs = dict[str, str]
V = TypeVar("V")
T = TypeVar("T")


class TopicConfigs:
    """The configs of all topics of one mirror."""

    def __init__(self, mirrored: MirroredLog, destination: Destination) -> None:
        self._log, self._destination = mirrored, destination
        self._asked = 0.0

    async def at_home(self, nodes: AnyOf, names: Collection[str]) -> dict[str, Configs]:
        """Topic -> its configs at its home cluster, for topics whose configs can be read. Raises
        Unanswered."""
        leading = (
            list(shadows_into(Path(self._log.config.source_notes)))
            if self._log.config.source_notes
            else []
        )
        found = await topic_configs(nodes, names)
        return {name: handed_on(name, configs, leading) for name, configs in found.items()}

    async def follow(self, nodes: AnyOf) -> None:
        """Applies changes at the source, every few seconds. Retries later when the source does not
        answer."""
        notes = {
            name: note
            for name, note in self._log.journal.notes.topics.items()
            if note.destination_id and not note.given_up
        }
        if not notes or time.monotonic() < self._asked + FOLLOW_SECONDS:
            return
        self._asked = time.monotonic()
        try:
            found = await self.at_home(nodes, list(notes))
        except Unanswered as error:
            log.info("configs of topics: %s", error)
            return
        for name, configs in found.items():
            there = {key: value for key, value in configs.items() if key != IN_SYNC}
            there |= {key: value for key, value in notes[name].configs.items() if key == IN_SYNC}
            if there != notes[name].configs:
                await self._take(name, notes[name], there)

    async def _take(self, name: str, note: TopicNote, configs: Configs) -> None:
        gone = dict.fromkeys(note.configs.keys() - configs.keys())
        changed: dict[str, str | None] = {
            **gone,
            **{k: v for k, v in configs.items() if note.configs.get(k) != v},
        }
        log.info("%s: configs changed at home: %s", name, changed)
        now = {key: value for key, value in changed.items() if key not in WHILE_MIRRORED}
        if now:
            try:
                await self.without_unknown(
                    name, now, lambda known: self._destination.configure(name, known)
                )
            except EnvironmentFailure as error:
                log.warning("%s", error)
        note.configs = configs
        self._log.journal.save()

    async def without_unknown(
        self, name: str, configs: Mapping[str, V], give: Callable[[Mapping[str, V]], Awaitable[T]]
    ) -> T:
        """Sets configs of a topic with `give`. Leaves out those that the destination's Kafka
        version does not know, and journals them.

        Raises Unanswered, EnvironmentFailure.
        """
        try:
            return await give(configs)
        except Refused as refusal:
            known = await self._known() if refusal.code == Error.invalid_config else frozenset()
            if not known or not (unknown := sorted(configs.keys() - known)):
                raise
            log.warning(
                "%s: the destination does not know the config %s; left out",
                name,
                ", ".join(unknown),
            )
            note = self._log.journal.notes.topics[name]
            note.unknown = sorted({*note.unknown, *unknown})
            self._log.journal.save()
            return await give({key: value for key, value in configs.items() if key in known})

    async def _known(self) -> frozenset[str]:
        """The names of all topic configs that the destination knows; empty while it has no topic
        that could be described."""
        here = await self._destination.picture()
        described = await _described(self._destination.nodes, list(here.topics)[:1])
        return frozenset(row.name for topic in described for row in topic.configs)

    async def restore(self, replicas: Mapping[str, int]) -> None:
        """Gives topics (name -> number of replicas) the configs that they have at home. Raises
        Unanswered, EnvironmentFailure."""
        refused: list[EnvironmentFailure] = []
        for name, most in replicas.items():
            configs = self._log.journal.notes.topics[name].configs
            wanted: dict[str, str | None] = {key: configs.get(key) for key in WHILE_MIRRORED}
            if IN_SYNC in configs:  # capped, or clients of a smaller cluster could not write
                wanted[IN_SYNC] = str(min(int(configs[IN_SYNC]), most))
            try:
                await self._destination.configure(name, wanted)
            except EnvironmentFailure as error:  # concerns this topic only
                refused.append(error)
        if refused:
            raise refused[0]


def shadows_into(folder: Path) -> Iterable[JournalNotes]:
    """The journals of the shadows with folders in this folder that have not handed over yet."""
    for journal in sorted(folder.glob(f"shadow-*/{JOURNAL}")):
        notes = read_notes(journal)
        if notes is not None and notes.phase != "handed-over":
            yield notes


def handed_on(name: str, configs: Configs, leading: Iterable[JournalNotes]) -> Configs:
    """The configs of a topic at its home cluster, computed from its configs at the source, where
    one of these shadows may lead it."""
    for notes in leading:
        if (note := notes.topics.get(name)) is not None:
            own = {key: value for key, value in configs.items() if key not in WHILE_MIRRORED}
            return own | {
                key: value for key, value in note.configs.items() if key in WHILE_MIRRORED
            }
    return configs


async def topic_configs(nodes: AnyOf, names: Collection[str]) -> dict[str, Configs]:
    """The configs that are set on the topics themselves. Raises Unanswered."""
    return {
        str(described.resource_name): {
            row.name: row.value
            for row in described.configs
            if row.config_source == _DYNAMIC_TOPIC_CONFIG
            and row.value is not None
            and row.name not in _NOT_COPIED
        }
        for described in await _described(nodes, names)
    }


async def _described(nodes: AnyOf, names: Collection[str]) -> list[Message]:
    """The described configs of those topics that exist. Raises Unanswered."""
    if not names:
        return []
    m = messages.request("describe_configs", 4)
    asked = tuple(
        m.DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    )
    body = m.DescribeConfigsRequest(
        resources=asked, include_synonyms=False, include_documentation=False
    )
    return [
        described
        for described in (await nodes.call("describe_configs", 4, body)).results
        if described.error_code == Error.none
    ]


def is_lost(mirrored: MirroredLog, name: str, number: int, led: Led) -> bool:
    """Whether a real broker leads the partition before the failover. That happens when the shadow's
    session ends after it added partitions to a topic, and before it narrowed their ISRs."""
    notes, note = mirrored.journal.notes, mirrored.journal.partition(name, number)
    if (
        notes.phase not in ("mirroring", "settling", "ending")
        or note.home
        or not 0 <= led.leader < FIRST_BROKER_ID
    ):
        return (name, number) in mirrored.lost
    if (name, number) not in mirrored.lost:
        log.error(
            "%s-%d is led by broker %d and is not mirrored: the shadow was away when it was "
            "created; delete the topic on the destination to mirror it again",
            name,
            number,
            led.leader,
        )
        mirrored.lost.add((name, number))
        mirrored.partitions.pop((name, number), None)
        note.mirrored = note.promoted = 0
        mirrored.journal.save()
    return True


def refuse_taken(
    source: MetadataSnapshot, here: MetadataSnapshot, config: Config, *, known: Collection[str] = ()
) -> None:
    """Raises InputError when a topic to mirror has the name of another topic on the destination;
    `known` names are allowed."""
    wanted = {name for name in source.topics if config.mirrors(name)}
    if taken := sorted((wanted & here.topics.keys()) - set(known)):
        raise InputError(
            f"{already_there(taken[0], config.link)}; remove it there, or mirror elsewhere"
        )


def already_there(name: str, link: str) -> str:
    return f"topic {name} exists on the destination of {link} already"


def is_elsewhere(note: TopicNote, there: Topic | None) -> bool:
    """Whether a topic that the mirror created is missing, or another topic has its name."""
    return bool(note.destination_id) and (there is None or str(there.id) != note.destination_id)


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
        await change_isrs(
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


_LASTING: Final = frozenset(
    {
        Error.invalid_config,
        Error.invalid_topic_exception,
        Error.invalid_partitions,
        Error.policy_violation,
        Error.topic_authorization_failed,
        Error.cluster_authorization_failed,
    }
)
"""Errors of a topic creation that a retry does not resolve."""


class Topics:
    """The topics of one mirror, on both sides."""

    def __init__(
        self, mirrored: MirroredLog, destination: Destination, membership: Membership
    ) -> None:
        self._log, self._destination, self._membership = mirrored, destination, membership
        self._me = mirrored.config.broker_id
        self._configs = TopicConfigs(mirrored, destination)
        self.placement = Placement(mirrored, destination, membership)
        self.gone: set[str] = set()
        """Topics that no longer exist on the destination, or whose names belong to other topics
        there."""
        self._waiting: dict[str, str] = {}
        """Topic -> the error of the last attempt, for topics that are retried."""

    async def follow(self, source: MetadataSnapshot, source_nodes: AnyOf) -> None:
        """Creates topics and adds partitions as the source has them now.

        Raises Unanswered, and InputError for a topic name that is taken while nothing is mirrored
        yet.
        """
        here = await self._destination.picture()
        notes = self._log.journal.notes.topics
        if not notes:
            refuse_taken(source, here, self._log.config)
        for name, topic in source.topics.items():
            if not self._log.config.mirrors(name):
                continue
            try:
                await self._follow(name, topic, here.topics.get(name), source_nodes)
            except EnvironmentFailure as error:  # concerns this topic only; retried
                if self._waiting.get(name) != str(error):
                    log.warning("%s", error)
                self._waiting[name] = str(error)
        for name in notes.keys() - source.topics.keys():
            if self._is_ours(name, here.topics.get(name)):
                self._seal(name, _deleted(name))
            else:
                del notes[name]  # it was never created
        await self._configs.follow(source_nodes)

    async def _follow(
        self, name: str, topic: Topic, there: Topic | None, source_nodes: AnyOf
    ) -> None:
        note = self._log.journal.notes.topics.get(name)
        if note is None or not self._is_ours(name, there):
            await self._begin(name, topic, there, source_nodes)
        elif note.source_id != str(topic.id):
            self._seal(name, f"topic {name} was deleted and made again at the source")
        elif there is not None and not is_elsewhere(note, there):
            # otherwise `look` finds out what happened to it
            self._go_on(name, note)
            if len(topic.partitions) > (have := len(there.partitions)):
                await self._grow(name, have, len(topic.partitions))

    async def _begin(
        self, name: str, topic: Topic, there: Topic | None, source_nodes: AnyOf
    ) -> None:
        """Creates a topic that was never created, unless another topic has its name or its creation
        was refused before."""
        notes = self._log.journal.notes.topics
        taken = f"{already_there(name, self._log.config.link)}; remove it there, and it is copied"
        note = notes.get(name)
        if note is None or note.source_id != str(topic.id):
            note = notes[name] = TopicNote(source_id=str(topic.id))
        if there is not None:
            if not note.given_up:
                log.error("%s", taken)
            self._give_up(name, taken)
        elif note.given_up in ("", taken):
            await self._make(name, topic, note, source_nodes)

    def _is_ours(self, name: str, there: Topic | None) -> bool:
        """Whether this mirror created a topic. If the shadow was killed between the creation and
        its journal entry, the topic is on the shadow alone."""
        note = self._log.journal.notes.topics.get(name)
        alone = there is not None and all(
            led.replicas == (self._me,) for led in there.partitions.values()
        )
        return note is not None and (bool(note.destination_id) or alone)

    async def _grow(self, name: str, have: int, wanted: int) -> None:
        log.info("%s grows from %d to %d partitions", name, have, wanted)
        added = [[self._me, *self.placement.replicas(number)] for number in range(have, wanted)]
        async with self._membership.placeable():
            await self._destination.grow(name, have, added)
        await self.look()

    async def _make(self, name: str, topic: Topic, note: TopicNote, source_nodes: AnyOf) -> None:
        configs = note.configs = (await self._configs.at_home(source_nodes, [name])).get(name, {})
        note.given_up = ""
        self._log.journal.save()
        await self._log.steps.reach("noted")
        count = len(topic.partitions)
        try:
            async with self._membership.placeable():
                made = await self._configs.without_unknown(
                    name,
                    {**configs, **WHILE_MIRRORED},
                    lambda known: self._destination.create(name, count, self._me, known),
                )
        except Refused as refusal:
            if refusal.code not in _LASTING:
                raise
            log.error("%s", refusal)
            self._give_up(name, f"{refusal}; fix that, and start another mirror to have it copied")
            return
        note.destination_id = made
        for number in range(count):  # a failover before the next `look` waits for them
            self._log.journal.partition(name, number)
        self._log.journal.save()
        log.info("%s created with %d partitions", name, count)
        await self._log.steps.reach("created")

    def _seal(self, name: str, reason: str) -> None:
        """Ends the mirroring of a topic. A topic that was seen to be deleted may be made again
        later: then that is the reason."""
        before, note = ("", _deleted(name)), self._log.journal.notes.topics[name]
        if reason != note.given_up and note.given_up in before:
            log.error("%s: its mirrored records stay, and no more are mirrored", reason)
            note.given_up = reason
            self._log.journal.save()
        for partition in self._log.partitions.values():
            if partition.topic == name and partition.sealed in before:
                partition.sealed = reason

    def _go_on(self, name: str, note: TopicNote) -> None:
        """Resumes a topic that reappears with its id. It was never deleted: a broker that had hung
        returned old metadata."""
        if note.given_up == _deleted(name):
            for partition in self._log.partitions.values():
                if partition.sealed == note.given_up:
                    partition.sealed = ""
            note.given_up = ""
            self._log.journal.save()

    def _give_up(self, name: str, reason: str) -> None:
        note = self._log.journal.notes.topics[name]
        if not note.given_up:
            note.given_up = reason
            self._log.journal.save()

    async def look(self) -> MetadataSnapshot:
        """Reads the destination's metadata: which brokers are alive, what the shadow leads, and in
        which leader epoch."""
        here = await self._destination.picture()
        self._log.brokers = frozenset(here.brokers.keys() & self._log.config.brokers.keys())
        led: list[tuple[Partition, Led]] = []
        unsure: list[str] = []
        for name, note in self._log.journal.notes.topics.items():
            topic = here.topics.get(name)
            if is_elsewhere(note, topic):
                unsure.append(name)
            elif topic is not None and self._is_ours(name, topic):
                led += self._take_in(name, topic, note)
        if self._log.journal.notes.phase in ("taking-over", "mirroring", "settling", "ending"):
            await self.placement.follow(here, led)
        await self._make_sure([name for name in unsure if name not in self.gone], here)
        self._log.ring()
        return here

    def _take_in(self, name: str, topic: Topic, note: TopicNote) -> list[tuple[Partition, Led]]:
        """Records the leaders of a mirrored topic's partitions. Returns the partitions that are
        mirrored."""
        self._log.names[topic.id] = name
        # Before its reassignment, because until then it is recognized by being on the shadow alone.
        if not note.destination_id:
            note.destination_id = str(topic.id)
            self._log.journal.save()
        taken: list[tuple[Partition, Led]] = []
        for number, led in sorted(topic.partitions.items()):
            if not is_lost(self._log, name, number, led):
                partition = self._log.add(name, number)
                self._take(partition, led)
                taken.append((partition, led))
        return taken

    async def _make_sure(self, names: list[str], here: MetadataSnapshot) -> None:
        """Asks the controller about topics that a broker no longer shows, or shows with another id:
        a broker's metadata may be old.

        The request is for an ISR in a leader epoch that cannot exist, so it changes nothing where
        the topic still exists.
        """
        notes = self._log.journal.notes.topics
        wanted = {(name, 0): [self._me] for name in names}
        known = {(name, 0): (uuid.UUID(notes[name].destination_id), -1, -1) for name in names}
        try:
            answers = await self._membership.alter(wanted, known) if wanted else {}
        except Unanswered as error:
            log.warning("it is unknown whether %s still exist: %s", ", ".join(names), error)
            return
        for (name, _), answer in answers.items():
            if answer.error_code == Error.unknown_topic_id:
                self._forget(name, here.topics.get(name))

    def _forget(self, name: str, there: Topic | None) -> None:
        """Removes a topic from the mirror: a failover neither hands its partitions over nor waits
        for them."""
        notes = self._log.journal.notes
        what = "was deleted on the destination of"
        if there is not None:
            what = f"was deleted and made again (its id is {there.id} now) on the destination of"
        reason = (
            f"topic {name} {what} {self._log.config.link}: what was mirrored of it is gone, and "
            "nothing more is mirrored; remove it there and start another mirror to have it copied "
            "again"
        )
        log.error("%s", reason)
        self.gone.add(name)
        for number, note in notes.partitions.get(name, {}).items():
            self._log.lost.add((name, number))
            self._log.partitions.pop((name, number), None)
            if notes.phase in ("taking-over", "mirroring", "settling", "ending"):
                note.mirrored = note.promoted = 0
                note.appended, note.open = [], []
        self._log.names = {
            topic_id: other for topic_id, other in self._log.names.items() if other != name
        }
        self._give_up(name, reason)

    def _take(self, partition: Partition, led: Led) -> None:
        if led.leader != self._me:
            partition.leader_epoch = -1
        elif led.epoch > partition.leader_epoch:
            just_made = led.epoch == 0 and not partition.note.epochs and not partition.taking
            if partition.position < 0 and just_made:
                partition.position = 0
            self._log.lead(partition, led.epoch)

    async def restore_configs(self) -> None:
        """Gives mirrored topics the configs that they have at home."""
        made = (
            name for name, note in self._log.journal.notes.topics.items() if note.destination_id
        )
        names = [name for name in made if name not in self.gone]
        await self._configs.restore({name: len(self.placement.replicas(0, name)) for name in names})


def _deleted(name: str) -> str:
    return f"topic {name} was deleted at the source"


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
        await change_isrs(self._membership, here, mine)

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
