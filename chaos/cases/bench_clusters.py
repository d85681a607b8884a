"""The clusters of a case: brokers, topics of its own, their leaders, coordinators and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.chaos.cases.variant import Variant
from linkflap.chaos.faults.leaders import reordered
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.protocols import Broker, Cluster, Deployment, Recorder
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

if TYPE_CHECKING:
    pass


WITHIN: Final = 60.0
"""Seconds that a step may take on a slow machine."""


class Closes(Protocol):
    def close(self) -> None: ...


def quietly(client: Closes) -> None:
    with suppress(KafkaException, EnvironmentFailure):
        client.close()


class BenchClusters:
    """A deployment, with names that one run alone uses. What is opened is closed at its end."""

    def __init__(
        self, deployment: Deployment, variant: Variant, recorder: Recorder, folder: Path
    ) -> None:
        self.deployment, self.variant, self.recorder, self.folder = (
            deployment,
            variant,
            recorder,
            folder,
        )
        self.stamp = "0"
        self._open = ExitStack()

    def begin(self, stamp: str) -> None:
        """Names from now on are of this run."""
        self.stamp = stamp

    def end(self) -> None:
        """Closes the clients of a run."""
        self._open.close()
        self._open = ExitStack()

    def closing(self, client: Closes) -> None:
        """Has a client closed at the end of the run."""
        self._open.callback(quietly, client)

    def name(self, base: str) -> str:
        """A name that no other run has."""
        return f"{base}-{self.stamp}"

    def cluster(self, name: str = "A") -> Cluster:
        return self.deployment.clusters[name]

    def broker(self, number: int = 1, cluster: str = "A") -> Broker:
        return self.cluster(cluster).brokers[number]

    def bootstrap(self, cluster: str = "A") -> str:
        return self.cluster(cluster).bootstrap

    def admin(self, cluster: str = "A") -> AdminClient:
        """A new one each time: librdkafka's asks leaders that it knew first, also those that are
        gone."""
        return AdminClient(quiet(self.bootstrap(cluster)))

    def topic(
        self,
        base: str = "records",
        *,
        cluster: str = "A",
        partitions: int = 1,
        replicas: Sequence[int] | None = None,
        assigned: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Makes a topic that no other run has, and waits for its leaders; `replicas`: the brokers
        of every partition, `assigned`: those of each."""
        name = f"{cluster}.{self.name(base)}"
        brokers = self.cluster(cluster).brokers
        if assigned is None and replicas is not None:
            assigned = [replicas] * partitions
        if assigned is None:
            new = NewTopic(name, partitions, min(3, len(brokers)), config=dict(config or {}))
        else:
            assignment = [list(each) for each in assigned]
            new = NewTopic(
                name, partitions, replica_assignment=assignment, config=dict(config or {})
            )
        admin = self.admin(cluster)  # its answers end with it
        admin.create_topics([new])[name].result(WITHIN)
        for broker in brokers.values():
            if broker.state == "running":
                self.led(name, partitions=partitions, by=broker)
        return name

    def led(
        self, topic: str, *, partitions: int = 1, by: Broker | None = None, cluster: str = "A"
    ) -> None:
        """Waits until a broker knows a leader of every partition."""
        asked = by or self.up(cluster)

        def all_led() -> bool:
            seen = wire.answered(asked.client_address, topic)
            return len(seen) >= partitions and all(one.leader >= 0 for one in seen.values())

        until(all_led, within=WITHIN, what=f"leaders of {topic}", every=0.05)

    def up(self, cluster: str = "A") -> Broker:
        """A broker that runs."""
        return next(
            broker for broker in self.cluster(cluster).brokers.values() if broker.state == "running"
        )

    def ask(self, broker: Broker) -> Wire:
        """Requests to one broker."""
        made = Wire(broker.client_address)
        self.closing(made)
        return made

    def coordinator(self, key: str, kind: int = wire.TRANSACTION, cluster: str = "A") -> Broker:
        """The broker that coordinates a transactional id, or a group."""
        return self.broker(self.ask(self.up(cluster)).coordinator(key, kind), cluster)

    def lead(self, topic: str, partition: int, broker: Broker, cluster: str = "A") -> None:
        """Makes an in-sync replica the leader of a partition without killing a broker, and waits
        for it."""
        asked = self.ask(self.up(cluster))
        addresses = [
            one.client_address
            for one in self.cluster(cluster).brokers.values()
            if one.state == "running"
        ]

        def leads() -> bool:
            now = asked.leadership(topic)[partition]
            if now.leader != broker.id:
                order = (broker.id, *(replica for replica in now.replicas if replica != broker.id))
                asyncio.run(reordered(addresses, {(topic, partition): order}))
            return now.leader == broker.id

        until(
            leads, within=WITHIN, what=f"broker {broker.id} to lead {topic}-{partition}", every=0.3
        )

    def setting(self, name: str, value: str, cluster: str = "A") -> None:
        """Sets a dynamic setting of every broker (KIP-226) until the end of this run, and waits
        until it is in force."""
        self._alter(cluster, name, value)
        self._open.callback(self._alter, cluster, name, None)

    def _alter(self, cluster: str, name: str, value: str | None) -> None:
        admin = self.admin(cluster)
        for number in self.cluster(cluster).brokers:
            how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            entry = ConfigEntry(name, value or "", incremental_operation=how)
            resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(WITHIN)
            plain = ConfigResource(ResourceType.BROKER, str(number))

            def in_force(plain: ConfigResource = plain) -> bool:
                return (
                    value is None
                    or admin.describe_configs([plain])[plain].result(WITHIN)[name].value == value
                )

            until(in_force, within=WITHIN, what=f"{name}={value} to be in force", every=0.1)
