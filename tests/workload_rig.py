"""Two clusters that workloads write to, and what plain consumers read from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.payload import uid_in
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.runtimes.process import ProcessDeployment, deploy
from linkflap.harness.workloads import topics
from linkflap.harness.workloads.clients import WorkloadClients, make
from linkflap.harness.workloads.crew import ClientNames, Crew
from linkflap.harness.workloads.prefork import Prefork
from tests.scenarios import scenario_of
from tests.waiting import eventually

TOPIC = "A.orders"
PARTITIONS = 3
Log = dict[tuple[str, int], dict[int, int]]


def clients_of(
    specs: Iterable[WorkloadSpec],
    deployment: Deployment,
    writer: RunWriter,
    topics: Mapping[str, int],
) -> WorkloadClients:
    """The clients of some workloads, which are not started."""
    names, forks = ClientNames(), Prefork()
    return WorkloadClients(
        [
            make(
                spec,
                deployment=deployment,
                topics=topics,
                writer=writer,
                seed=7,
                names=names,
                forks=forks,
            )
            for spec in specs
        ],
        writer,
    )


def topics_made(cluster: Cluster, specs: Sequence[WorkloadSpec]) -> dict[str, int]:
    """Makes the topics of some workloads; by name, how many partitions each has."""
    there = dict.fromkeys(topics(specs), 2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(topic, partitions, 1) for topic, partitions in there.items()]
    for made in admin.create_topics(new).values():
        made.result(60)
    return there


class Rig:
    """Two clusters with the same empty topic, a run directory, and a function that makes
    workloads."""

    def __init__(self, folder: Path) -> None:
        topology = Topology(
            clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")),
            links=(LinkSpec(source="A", destination="B"),),
        )
        scenario = scenario_of(topology, seed=7)
        run = Run.begun(scenario, "process")
        self.writer = RunWriter(folder / "run", run)
        self.deployment: ProcessDeployment = deploy(
            topology, folder=folder / "clusters", recorder=self.writer
        )
        self.names, self.forks = ClientNames(), Prefork()
        self.clients = WorkloadClients([], self.writer)
        for cluster in self.deployment.clusters.values():
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=60)

    def workload(self, kind: str, clients: int = 1, **options: str | float | bool) -> Crew:
        return make(
            WorkloadSpec(kind=kind, home="A", clients=clients, options=options),
            deployment=self.deployment,
            topics={TOPIC: PARTITIONS, "B.other": 1},
            writer=self.writer,
            seed=7,
            names=self.names,
            forks=self.forks,
        )

    def start(self, *workloads: Crew) -> WorkloadClients:
        self.clients = WorkloadClients(workloads, self.writer)
        self.clients.start()
        return self.clients

    def log(self, cluster: str, isolation: str = "read_uncommitted") -> Log:
        return read_log(self.deployment.clusters[cluster].bootstrap, isolation)

    def ends(self, cluster: str) -> dict[tuple[str, int], int]:
        """The high watermark of each partition, after the last marker too."""
        consumer = Consumer(
            {"bootstrap.servers": self.deployment.clusters[cluster].bootstrap, "group.id": "plain"}
        )
        ends = {
            (TOPIC, p): consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1]
            for p in range(PARTITIONS)
        }
        consumer.close()
        return ends

    def finish(self, deaths: int = 0) -> RunReader:
        self.clients.stop()
        assert self.clients.crashes == []
        assert len(self.clients.deaths()) == deaths, self.clients.deaths()
        assert not [
            worker.name for w in self.clients.workloads for worker in w.workers if worker.alive
        ]
        self.writer.close("finished")
        reader = RunReader(self.writer.root)
        assert reader.damage() == []
        return reader


def read_log(bootstrap: str, isolation: str) -> Log:
    """The records that a plain consumer reads: partition -> offset -> uid."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    log: Log = {(TOPIC, p): {} for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    ended: set[int] = set()

    def read() -> bool:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                at = cast(tuple[str, int], (message.topic(), message.partition()))
                headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
                log[at][cast(int, message.offset())] = uid_in(headers)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(cast(int, message.partition()))
        return len(ended) == PARTITIONS

    eventually(f"a plain consumer to read {TOPIC}", read, state=lambda: ended)
    consumer.close()
    return log
