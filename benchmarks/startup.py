"""The start of one and of two clusters, compared with the defaults of the release, as a ratio from
one run.

It measures the time from the first step (formatting included) to the first acknowledged produce on
every cluster, with one broker each. Baseline "released defaults": the same jars and Java,
`StorageTool format`, config/server.properties of the release, and the heap and collector of
bin/kafka-server-start.sh. Two clusters start in parallel in both variants. Rounds are interleaved,
so that other load affects both alike, and medians are compared. Caches (jars, template, class
archive) are warm.

    python benchmarks/startup.py [rounds]           target: at most 0.35
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine import children, cleanup
from linkflap.harness.machine.leases import Lease
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from linkflap.harness.runtimes.kraft.installation import Installation, fresh_id
from linkflap.harness.runtimes.process import ProcessCluster, install

TARGET = 0.35
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
# bin/kafka-server-start.sh and bin/kafka-run-class.sh; the tool has the latter's default heap.
SERVER_JVM = ["-Xmx1G", "-Xms1G"]
TOOL_JVM = ["-Xmx256M"]
ANY_JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
RELEASED = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def first_produce(bootstrap: str) -> None:
    """Waits until a record is acknowledged. Both sides of the comparison are measured up to this
    moment."""
    until(
        lambda: probe.seen_brokers(bootstrap),
        within=120,
        what="the broker to answer",
        every=0.01,
    )
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    until(lambda: created(admin), within=120, what="the topic")
    reports: list[object] = []
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce("first", b"x", on_delivery=lambda error, _: reports.append(error))
    producer.flush(60)
    assert reports == [None], reports


def created(admin: AdminClient) -> bool:
    try:
        admin.create_topics([NewTopic("first", 1, 1)], request_timeout=30)["first"].result()
    except KafkaException:
        return False
    return True


def linkflap(installation: Installation, folder: Path, lease: Lease) -> Callable[[], None]:
    """Starts one cluster as the process runtime does. Returns a function that ends it."""
    internal, client, controller = lease.ports(3)
    ports = {
        1: BrokerPorts(
            listens={INTERNAL: internal, CLIENT: client, CONTROLLER: controller}, advertised={}
        )
    }
    cluster = ProcessCluster("A", installation, ports, folder)
    cluster.launch()
    cluster.await_ready()
    first_produce(cluster.bootstrap)
    return cluster.kill


def released(installation: Installation, folder: Path, lease: Lease) -> Callable[[], None]:
    """Starts one cluster as the release's own scripts do. Returns a function that ends it."""
    client, controller = lease.ports(2)
    folder.mkdir(parents=True)
    properties = folder / "server.properties"
    properties.write_text(
        RELEASED.format(client=client, controller=controller, data=folder / "data")
    )
    java = [str(installation.java.path)]
    classes = ["-cp", installation.kafka.classpath]
    storage_tool = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        fresh_id(),
        "-c",
        str(properties),
    ]
    subprocess.run(
        [*java, *TOOL_JVM, *ANY_JVM, *classes, *storage_tool],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    command = [*java, *SERVER_JVM, *ANY_JVM, *classes, "kafka.Kafka", str(properties)]
    broker = children.spawn(command, name="baseline", folder=folder, output=folder / "output.log")
    first_produce(f"127.0.0.1:{client}")
    return broker.kill


def measure(
    start: Callable[[Installation, Path, Lease], Callable[[], None]], clusters: int
) -> float:
    """Seconds until `clusters` clusters, started in parallel, have acknowledged their first
    produce."""
    installation = install("4.3.1")
    lease = Lease()
    with cleanup.temporary_folder() as folder, ThreadPoolExecutor(clusters) as pool:
        begin = time.monotonic()
        started = [
            pool.submit(start, installation, folder / str(number), lease)
            for number in range(clusters)
        ]
        try:
            ends = [future.result() for future in started]
            seconds = time.monotonic() - begin
            for end in ends:
                end()
        finally:
            lease.release()
    return seconds


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    installation = install("4.3.1")
    print(
        f"Kafka {installation.kafka.version}, Java {installation.java.major}, {rounds} rounds, "
        "seconds (median)"
    )
    worst = 0.0
    for clusters in (1, 2):
        pairs = [(measure(linkflap, clusters), measure(released, clusters)) for _ in range(rounds)]
        ours, baseline = (statistics.median(column) for column in zip(*pairs, strict=True))
        worst = max(worst, ours / baseline)
        print(
            f"clusters {clusters}: linkflap {ours:.2f}, released defaults {baseline:.2f}, ratio "
            f"{ours / baseline:.2f}"
        )
    print(f"target {TARGET}: {'met' if worst <= TARGET else 'missed'}")
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
