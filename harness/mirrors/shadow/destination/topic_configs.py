"""Configs of mirrored topics: the source's, except those with which the destination's brokers would
change logs themselves.

A failover gives the topics the configs that they have at their home cluster. In a chain, the
source's own topics are mirrors, and have the values of `WHILE_MIRRORED`. The journal of the shadow
that leads them there has their configs at home, which this shadow uses instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from linkflap.harness.mirrors.shadow.destination.client import Destination, Refused
from linkflap.harness.mirrors.shadow.journal import JournalNotes, TopicNote, read_notes
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.mirrors.shadow.settings import JOURNAL
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf
from linkflap.harness.wire.messages import Error, Message

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
_OF_BROKERS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
"""These name brokers and partitions of one cluster, and are not copied."""
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
            and row.name not in _OF_BROKERS
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
