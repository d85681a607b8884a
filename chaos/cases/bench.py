"""The bench that the steps of a case receive: running clusters, their own names, clients, and
access to logs and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from confluent_kafka import Consumer, Producer, TopicPartition

from linkflap.chaos.cases.bench_clusters import WITHIN, BenchClusters
from linkflap.chaos.cases.tools.clients import LibrdkafkaProducer, Transactional
from linkflap.chaos.cases.tools.logs import batches
from linkflap.harness.log.reference import ReferenceBatch
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.protocols import Cluster, Mirror
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft import readiness
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.wire.offsets import Bound, answered_bounds, quiet

if TYPE_CHECKING:
    from linkflap.chaos.cases.tools.members import CaseMember
    from linkflap.harness.jvm.bridge import Bridge

Isolation = Literal["read_committed", "read_uncommitted"]


class Bench(BenchClusters):
    """A deployment for the steps of one case. Its names are unique to one run, and it closes
    everything that it opens."""

    def transactional(
        self, base: str = "producer", *, cluster: str = "A", **settings: str | int | bool
    ) -> Transactional:
        """A transactional producer of the variant's client; settings by librdkafka's or Java's own
        names, `_` for `.`."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        made: Transactional
        if self.variant.client == "java":
            from linkflap.chaos.cases.tools.java import JavaTransactional

            made = JavaTransactional(
                self.java(cluster), self.bootstrap(cluster), self.name(base), given
            )
        else:
            made = LibrdkafkaProducer(self.bootstrap(cluster), self.name(base), given)
        self.closing(made)
        return made

    def member(self, group: str, cluster: str = "A", **settings: str) -> CaseMember:
        """A consumer of the variant's client; settings as for `transactional`."""
        from linkflap.chaos.cases.tools import members

        given = {name.replace("_", "."): value for name, value in settings.items()}
        made: CaseMember
        if self.variant.client == "java":
            made = members.JavaMember(self.java(cluster), self.bootstrap(cluster), group, given)
        else:
            made = members.LibrdkafkaMember(self.bootstrap(cluster), group, given)
        self.closing(made)
        return made

    def java(self, cluster: str = "A") -> Bridge:
        """The bridge to a JVM with the clients of the cluster's own Kafka; one for all runs of a
        deployment."""
        from linkflap.chaos.cases.tools.java import bridge

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
        until(
            lambda: mirror.lag() == 0,
            within=2 * WITHIN,
            what=f"{mirror.link.name} to drain",
            every=0.1,
            state=mirror.lag,
        )

    def producer(self, cluster: str = "A", **settings: str | int | bool) -> Producer:
        """librdkafka's producer without transactions."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(quiet(self.bootstrap(cluster)) | {"linger.ms": 0} | given)

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

        return until(
            asked, within=2 * WITHIN, what=f"the leader of {topic}-{partition} to answer", every=0.1
        )[topic, partition]

    def log(
        self, topic: str, partition: int = 0, *, broker: int = 1, cluster: str = "A"
    ) -> list[ReferenceBatch]:
        """The batches of one replica, from its files."""
        return batches(self.broker(broker, cluster).log_dir, (topic, partition))

    def read(
        self,
        topic: str,
        isolation: Isolation = "read_committed",
        *,
        partition: int = 0,
        cluster: str = "A",
    ) -> list[tuple[int, bytes]]:
        """What a consumer gets from the log start to where its isolation lets it: (offset,
        value)."""
        end = self.bound(
            "stable" if isolation == "read_committed" else "high", topic, partition, cluster
        )
        start = self.bound("start", topic, partition, cluster)
        settings = {
            "group.id": self.name("reader"),
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
        consumer = Consumer(
            quiet(self.bootstrap(cluster)) | settings | {"enable.partition.eof": True}
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

            until(read_up, within=WITHIN, what=f"a reader of {topic}-{partition} to get to {end}")
        finally:
            consumer.close()
        return found

    def settle(self) -> None:
        """Puts the deployment back as it was: all brokers run, and every cluster is healthy. Raises
        EnvironmentFailure."""
        for cluster in self.deployment.clusters.values():
            for broker in cluster.brokers.values():
                if broker.state == "paused":
                    broker.resume()
                if broker.state == "stopped":
                    broker.start()
        for cluster in self.deployment.clusters.values():
            until(
                partial(_healthy, cluster),
                within=2 * WITHIN,
                what=f"cluster {cluster.name} to be healthy",
            )


def _healthy(cluster: Cluster) -> bool:
    """Every broker knows every broker, and there is an active controller. Features may have been
    lowered on purpose."""
    everyone = frozenset(cluster.brokers)
    addresses = [broker.client_address for broker in cluster.brokers.values()]
    if any(readiness.seen_brokers(address) != everyone for address in addresses):
        return False
    found = readiness.quorum(addresses[0])
    return found is not None and found.leader in everyone
