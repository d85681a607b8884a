"""The bench that the steps of a case receive.

A bench has running clusters, clients, access to logs and bounds, and the variant: the Kafka, the
clients and the transaction protocol. Names, topics, leaders and settings are the case's own. Logs
are read as bytes: the batches of one replica on disk, with their markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, cast

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.clients import (
    CaseMember,
    JavaMember,
    JavaTransactional,
    LibrdkafkaMember,
    LibrdkafkaProducer,
    Transactional,
    bridge,
)
from linkflap.chaos.cases.wire import Wire, WireTransactional
from linkflap.chaos.faults.leaders import reordered
from linkflap.harness.log import layout, reference
from linkflap.harness.log.reference import Record, ReferenceBatch, control_type
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.protocols import Broker, Cluster, Deployment, Mirror, Recorder
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.wire.librdkafka import Bound, answered_bounds, quiet
from linkflap.topologies import parse

if TYPE_CHECKING:
    from linkflap.harness.jvm import Bridge

_NAMES: Final = {layout.ABORT: "ABORT", layout.COMMIT: "COMMIT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A control record: its offset, type, producer id and epoch."""

    offset: int
    kind: str
    producer_id: int
    producer_epoch: int

    @property
    def words(self) -> str:
        return (
            f"{self.kind} @ {self.offset} (producer {self.producer_id}, epoch "
            f"{self.producer_epoch})"
        )


def batches(log_dir: Path, tp: tuple[str, int]) -> list[ReferenceBatch]:
    """Every complete batch that a replica has on disk; a batch that the broker is still writing is
    left out."""
    found: list[ReferenceBatch] = []
    for path in sorted((log_dir / f"{tp[0]}-{tp[1]}").glob("*.log")):
        data = path.read_bytes()
        end = max((batch.stop for batch in layout.walk(data)), default=0)
        found += reference.batches(data[:end])
    return found


def markers(log: Iterable[ReferenceBatch]) -> list[Marker]:
    """The control records of a log, in order."""
    return [
        Marker(
            offset=batch.base_offset,
            kind=_NAMES.get(control_type(batch.codec, batch.body)[0], "other"),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
        )
        for batch in log
        if batch.is_control
    ]


def records(log: Iterable[ReferenceBatch]) -> list[Record]:
    """The data records of a log, in order."""
    return [record for batch in log if not batch.is_control for record in reference.records(batch)]


def table(log: Sequence[ReferenceBatch]) -> list[str]:
    """One line per batch, for evidence: offsets, type, producer id, epoch, first sequence, leader
    epoch."""
    kinds = {marker.offset: marker.kind for marker in markers(log)}
    lines = []
    for batch in log:
        kind = kinds.get(batch.base_offset) or ("transactional" if batch.transactional else "plain")
        lines.append(
            f"{batch.base_offset}-{batch.last_offset} {kind} producer {batch.producer_id} epoch "
            f"{batch.producer_epoch} sequence {batch.base_sequence} leader epoch "
            f"{batch.leader_epoch}"
        )
    return lines


Client = Literal["librdkafka", "java", "wire"]
"""The writing client: confluent-kafka, the Java client of the release under test, or requests that
the case itself sends (kio)."""
TransactionProtocol = Literal["", "V1", "V2"]
"""The transaction protocol of the cluster (KIP-890); empty: the release's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The subject of one result: a Kafka (version or directory), the writing client, and the
    transaction protocol."""

    kafka: str = DEFAULT_KAFKA
    client: Client = "librdkafka"
    transactions: TransactionProtocol = ""

    @property
    def title(self) -> str:
        return " ".join(
            filter(
                None,
                (
                    f"Kafka {self.kafka}",
                    self.client,
                    f"transactions {self.transactions}" * bool(self.transactions),
                ),
            )
        )


def one(config: dict[str, str] | None = None) -> Topology:
    """One broker, with these settings."""
    return Topology(clusters=(ClusterSpec(name="A", config=config or {}),), links=())


def nodes(count: int, config: dict[str, str] | None = None) -> Topology:
    """One cluster of so many nodes, each broker and controller."""
    return Topology(clusters=(ClusterSpec(name="A", brokers=count, config=config or {}),), links=())


ONE: Final = one()
DISKLESS: Final = one({"diskless.storage.system.enable": "true"})
"""One broker that may have topics without a log on disk (KIP-1150), with the default control plane
and store of its build."""
THREE_DISKLESS: Final = nodes(3, {"diskless.storage.system.enable": "true"})
"""Three such brokers; their control plane and store are services of the user."""
ON_DISKLESS: Final = {"diskless.enable": "true"}
"""Settings of a topic without a log on disk."""
THREE: Final = nodes(3)
PAIR: Final = parse("A->B")


WITHIN: Final = 60.0
"""Seconds that a step may take on a slow machine."""


class Closes(Protocol):
    def close(self) -> None: ...


T = TypeVar("T")


def wait_for(
    what: str,
    condition: Callable[[], T | None],
    *,
    within: float = WITHIN,
    every: float = 0.02,
    state: Callable[[], object] | None = None,
) -> T:
    """Polls a condition of a step until it is true (`harness.model.wait.until`)."""
    return until(condition, within=within, what=what, every=every, state=state)


def happens(
    what: str, condition: Callable[[], object], *, within: float = WITHIN, every: float = 0.02
) -> bool:
    """As `wait_for`, for a condition that may never come true: returns whether it did in time."""
    try:
        return bool(wait_for(what, condition, within=within, every=every))
    except DeadlineExceeded:
        return False


def _named(settings: Mapping[str, T]) -> dict[str, T]:
    """Settings by their real names; keyword arguments have `_` for `.`."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def transaction(writer: Transactional, topic: str, *values: bytes, commit: bool = True) -> None:
    """One transaction with these records, committed or aborted."""
    writer.begin()
    for value in values:
        writer.send(topic, value)
    writer.flush()
    writer.commit() if commit else writer.abort()


def quietly(client: Closes) -> None:
    with suppress(KafkaException, EnvironmentFailure):
        client.close()


class Bench:
    """A deployment for the steps of one case. Its names are unique to one run, and it closes
    everything that it opens."""

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
        self.topic_settings: Mapping[str, str] = {}
        self._open = ExitStack()

    def begin(self, stamp: str) -> None:
        """Begins a run: `name` returns names of this run from now on."""
        self.stamp = stamp

    def end(self) -> None:
        """Closes the clients of a run."""
        self._open.close()
        self._open = ExitStack()

    def closing(self, client: Closes) -> None:
        """Closes a client at the end of the run."""
        self._open.callback(quietly, client)

    def at_end(self, end: Callable[[], None]) -> None:
        """Calls `end` at the end of the run."""
        self._open.callback(end)

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
        """A new client each time, because librdkafka's admin client first asks the leaders that it
        knew, even dead ones."""
        return AdminClient(quiet(self.bootstrap(cluster)))

    def topic(
        self,
        base: str = "records",
        *,
        cluster: str = "A",
        partitions: int = 1,
        copies: int = 3,
        replicas: Sequence[int] | None = None,
        assigned: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Makes a topic that no other run has, and waits for its leaders; `copies`: the replicas of
        a partition, where there are so many brokers; `replicas`: the brokers of every partition,
        `assigned`: those of each, `config`: beside the settings of the case."""
        name = f"{cluster}.{self.name(base)}"
        config = {**self.topic_settings, **(config or {})}
        brokers = self.cluster(cluster).brokers
        if assigned is None and replicas is not None:
            assigned = [replicas] * partitions
        if assigned is None:
            new = NewTopic(name, partitions, min(copies, len(brokers)), config=config)
        else:
            assignment = [list(each) for each in assigned]
            new = NewTopic(name, partitions, replica_assignment=assignment, config=config)
        admin = self.admin(cluster)  # its answers end with it
        admin.create_topics([new])[name].result(WITHIN)
        for broker in brokers.values():
            if broker.state == "running":
                self.led(name, partitions=partitions, by=broker)
        return name

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic of A, and waits until it is gone."""
        admin = self.admin()  # its answers end with it
        admin.delete_topics([topic])[topic].result(WITHIN)

        def gone() -> bool:
            with suppress(KafkaException):
                return topic not in admin.list_topics(timeout=10).topics
            return False

        wait_for(f"{topic} to be gone", gone, every=0.05)

    def led(
        self, topic: str, *, partitions: int = 1, by: Broker | None = None, cluster: str = "A"
    ) -> None:
        """Waits until a broker knows a leader of every partition."""
        asked = by or self.up(cluster)

        def all_led() -> bool:
            seen = wire.answered(asked.client_address, topic)
            return len(seen) >= partitions and all(one.leader >= 0 for one in seen.values())

        wait_for(f"leaders of {topic}", all_led, every=0.05)

    def unled(self, topic: str, *, by: Broker) -> None:
        """Waits until a broker knows no leader of a topic with one partition."""
        wait_for(f"{topic} to have no leader", lambda: wire.leader(by.client_address, topic) == -1)

    def in_sync(self, topic: str, *brokers: Broker, by: Wire) -> None:
        """Waits until a broker calls these, and no others, the in-sync replicas of partition 0."""
        ids = {broker.id for broker in brokers}
        wait_for(
            f"replicas {sorted(ids)} of {topic} to be in sync",
            lambda: {*by.leadership(topic)[0].in_sync} == ids,
        )

    def other(self, than: Broker, cluster: str = "A") -> Broker:
        """A broker besides this one."""
        brokers = self.cluster(cluster).brokers.values()
        return next(broker for broker in brokers if broker.id != than.id)

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

        wait_for(f"broker {broker.id} to lead {topic}-{partition}", leads, every=0.3)

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

            wait_for(f"{name}={value} to be in force", in_force, every=0.1)

    def topic_setting(self, topic: str, name: str, value: str, cluster: str = "A") -> None:
        """Sets a setting of a topic. Raises KafkaException when it is refused."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin(cluster)  # its answers end with it
        admin.incremental_alter_configs([resource])[resource].result(WITHIN)

    def transactional(
        self, base: str = "producer", *, cluster: str = "A", **settings: str | int | bool
    ) -> Transactional:
        """A transactional producer of the variant's client; settings by librdkafka's or Java's own
        names, `_` for `.`."""
        given = _named(settings)
        made: Transactional
        if self.variant.client == "java":
            made = JavaTransactional(
                self.java(cluster), self.bootstrap(cluster), self.name(base), given
            )
        else:
            made = LibrdkafkaProducer(self.bootstrap(cluster), self.name(base), given)
        self.closing(made)
        return made

    def wire_transactional(
        self, base: str = "writer", *, cluster: str = "A", timeout: float = 60.0
    ) -> WireTransactional:
        """A transactional producer of single requests, whose transactions time out after so many
        seconds."""
        id = self.name(base)
        coordinator = self.coordinator(id, cluster=cluster)
        return WireTransactional(id, coordinator, self.ask(coordinator), timeout=timeout)

    def member(self, group: str, cluster: str = "A", **settings: str) -> CaseMember:
        """A consumer of the variant's client; settings as for `transactional`."""
        given = _named(settings)
        made: CaseMember
        if self.variant.client == "java":
            made = JavaMember(self.java(cluster), self.bootstrap(cluster), group, given)
        else:
            made = LibrdkafkaMember(self.bootstrap(cluster), group, given)
        self.closing(made)
        return made

    def java(self, cluster: str = "A") -> Bridge:
        """The bridge to a JVM with the clients of the cluster's own Kafka; one for all runs of a
        deployment."""
        return bridge(
            self.deployment, cast(KraftCluster, self.cluster(cluster)).installation, self.folder
        )

    def mirror(self, kind: str, link: str = "A->B", **options: Option) -> Mirror:
        """A mirror on a link, not started; it ends with the deployment."""
        spec = MirrorSpec(kind=kind, options=options)
        return make_mirror(
            spec, self.deployment.topology.link(link), self.deployment, self.recorder
        )

    def drained(self, mirror: Mirror) -> None:
        """Waits until a mirror has read all that its source has."""
        wait_for(
            f"{mirror.link.name} to drain",
            lambda: mirror.lag() == 0,
            within=2 * WITHIN,
            every=0.1,
            state=mirror.lag,
        )

    def producer(self, cluster: str = "A", **settings: str | int | bool) -> Producer:
        """librdkafka's producer without transactions."""
        return Producer(quiet(self.bootstrap(cluster)) | {"linger.ms": 0} | _named(settings))

    def consumer(self, group: str, cluster: str = "A", **settings: str | int | bool) -> Consumer:
        """librdkafka's consumer, which commits nothing by itself."""
        given = {"group.id": group, "enable.auto.commit": False} | _named(settings)
        made = Consumer(quiet(self.bootstrap(cluster)) | given)
        self.closing(made)
        return made

    def write(
        self, topic: str, values: Sequence[bytes], partition: int = 0, cluster: str = "A"
    ) -> None:
        """Writes plain records and waits until all are acknowledged."""
        failed: list[str] = []
        producer = self.producer(cluster)
        for value in values:
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda e, _: failed.append(e.name()) if e else None,
            )
        if producer.flush(WITHIN) or failed:
            raise EnvironmentFailure(f"{topic} could not be written: {failed or 'no answer'}")

    def bound(self, which: Bound, topic: str, partition: int = 0, cluster: str = "A") -> int:
        """Log start offset, last stable offset or high watermark, as soon as the leader answers."""

        def asked() -> dict[tuple[str, int], int] | None:
            return (
                answered_bounds(self.admin(cluster), [(topic, partition)], which, within=5) or None
            )

        return wait_for(
            f"the leader of {topic}-{partition} to answer", asked, within=2 * WITHIN, every=0.1
        )[topic, partition]

    def ends_at(self, end: int, topic: str, partition: int = 0, cluster: str = "B") -> None:
        """Waits until a partition's high watermark is `end`: until records were mirrored, or a tail
        that the source lacks was truncated."""
        wait_for(
            f"{topic}-{partition} to end at {end} on {cluster}",
            lambda: self.bound("high", topic, partition, cluster) == end,
            within=2 * WITHIN,
            every=0.2,
        )

    def log(
        self, topic: str, partition: int = 0, *, broker: int = 1, cluster: str = "A"
    ) -> list[ReferenceBatch]:
        """The batches of one replica, from its files; of a topic without any, from Fetch."""
        where = self.broker(broker, cluster)
        if (where.log_dir / f"{topic}-{partition}").exists():
            return batches(where.log_dir, (topic, partition))
        start, end = (self.bound(which, topic, partition, cluster) for which in ("start", "high"))
        return list(reference.batches(self.ask(where).fetched((topic, partition), start, end)))

    def log_end(
        self, topic: str, partition: int = 0, *, broker: int = 1, cluster: str = "A"
    ) -> int:
        """Where the log of one replica ends, from its files."""
        log = self.log(topic, partition, broker=broker, cluster=cluster)
        return max((batch.last_offset + 1 for batch in log), default=0)

    def logged(
        self, topic: str, partition: int = 0, *, broker: int = 1, cluster: str = "A"
    ) -> list[str]:
        """The values of the data records of one replica as texts, from its files."""
        log = self.log(topic, partition, broker=broker, cluster=cluster)
        return [(record.value or b"").decode(errors="replace") for record in records(log)]

    def markers(self, topic: str, *, broker: int = 1, cluster: str = "A") -> list[str]:
        """The markers of one replica of partition 0 in words, from its files."""
        return [one.words for one in markers(self.log(topic, broker=broker, cluster=cluster))]

    def read(
        self,
        topic: str,
        isolation: Isolation = "read_committed",
        *,
        partition: int = 0,
        cluster: str = "A",
    ) -> list[tuple[int, bytes]]:
        """(offset, value) of every record from the log start that a consumer at this isolation
        level gets."""
        end = self.bound(
            "stable" if isolation == "read_committed" else "high", topic, partition, cluster
        )
        start = self.bound("start", topic, partition, cluster)
        settings = {"group.id": self.name("reader"), "isolation.level": isolation}
        consumer = Consumer(
            quiet(self.bootstrap(cluster)) | settings | {"enable.auto.commit": False}
        )
        found: list[tuple[int, bytes]] = []
        try:
            consumer.assign([TopicPartition(topic, partition, start)])

            def read_up() -> bool:
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        found.append((message.offset() or 0, message.value() or b""))
                (at,) = consumer.position([TopicPartition(topic, partition)])
                return end <= start or at.offset >= end

            wait_for(f"a reader of {topic}-{partition} to get to {end}", read_up)
        finally:
            consumer.close()
        return found

    def texts(
        self, topic: str, isolation: Isolation = "read_committed", *, cluster: str = "A"
    ) -> list[str]:
        """The values of `read`, as texts."""
        return [value.decode() for _, value in self.read(topic, isolation, cluster=cluster)]

    def settle(self) -> None:
        """Restores the deployment: starts every broker and waits until every cluster is healthy.
        Raises EnvironmentFailure."""
        for cluster in self.deployment.clusters.values():
            for broker in cluster.brokers.values():
                if broker.state == "paused":
                    broker.resume()
                if broker.state == "stopped":
                    broker.start()
        for cluster in self.deployment.clusters.values():
            wait_for(
                f"cluster {cluster.name} to be healthy",
                partial(_healthy, cluster),
                within=2 * WITHIN,
            )


def _healthy(cluster: Cluster) -> bool:
    """Every broker knows every broker, and there is an active controller. Features may have been
    lowered on purpose."""
    everyone = frozenset(cluster.brokers)
    addresses = [broker.client_address for broker in cluster.brokers.values()]
    if any(probe.seen_brokers(address) != everyone for address in addresses):
        return False
    found = probe.quorum(addresses[0])
    return found is not None and found.leader in everyone
