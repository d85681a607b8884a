"""Training runs that write class archives: one broker through transactions, and one MirrorMaker from that broker to itself.

Done once per Kafka and Java, when a cluster of it is first asked for.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.model.errors import EnvironmentFailure, SetupError
from harness.model.wait import until
from harness.runtimes.leases import Lease
from harness.runtimes.process import jvm
from harness.runtimes.process.cluster import BROKER_MAIN, Installation, ProcessCluster
from harness.runtimes.process.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from harness.runtimes.process.service import ProcessService

MIRROR_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
_QUIET: Final = {"log_level": 0}  # librdkafka writes to stderr, which is the caller's
_TOPIC: Final = "training"
_MIRROR_WITHIN: Final = 120.0
_STOP_WITHIN: Final = 180.0  # writing an archive takes seconds, and many on a starved machine
_MIRROR: Final = """\
clusters=A,B
A.bootstrap.servers={bootstrap}
B.bootstrap.servers={bootstrap}
A->B.enabled=true
A->B.topics=training
B->A.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
refresh.topics.interval.seconds=1
sync.group.offsets.enabled=true
A.consumer.auto.offset.reset=earliest
plugin.discovery=service_load
"""


def train(plain: Installation, target: Path) -> None:
    """Fills `target` with archives named after main classes. SetupError when the broker cannot be run or writes none.

    MirrorMaker's is a bonus: without it workers start some seconds later, and what ails one shows when it is needed.
    """
    lease = Lease()
    archive = target / BROKER_MAIN
    try:
        internal, client, controller = lease.ports(3)
        ports = {1: BrokerPorts(listens={INTERNAL: internal, CLIENT: client, CONTROLLER: controller}, advertised={})}
        options = tuple(jvm.make(plain.java, archive))
        cluster = ProcessCluster("training", plain, ports, target / "run", jvm_options=options)
        try:
            cluster.launch()
            cluster.await_ready()
            _exercise(cluster.bootstrap)
            if any(jar.name.startswith("connect-mirror-") for jar in plain.kafka.jars):
                with contextlib.suppress(EnvironmentFailure, FileNotFoundError):
                    _train_mirror(plain, cluster.bootstrap, target)
            cluster.brokers[1].stop(within=_STOP_WITHIN)
        finally:
            cluster.kill()
    finally:
        lease.release()
    if not archive.is_file():
        raise SetupError(
            f"{plain.java.path} wrote no class archive for Kafka {plain.kafka.version}; use another Java (JAVA_HOME)"
        )


def _exercise(bootstrap: str) -> None:
    """What brokers do in every run: a topic, a transaction."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(_TOPIC, 1, 1)], request_timeout=60).values():
        created.result()
    producer = Producer({**_QUIET, "bootstrap.servers": bootstrap, "transactional.id": _TOPIC})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"record")
    producer.commit_transaction(60)


def _train_mirror(plain: Installation, bootstrap: str, target: Path) -> None:
    """Runs a worker until it has made the mirrored topic, and ends it in good order."""
    worker = ProcessService(
        "training mirror",
        plain,
        main=MIRROR_MAIN,
        folder=target / "run" / "mirror",
        files={"mm2.properties": _MIRROR.format(bootstrap=bootstrap)},
        arguments=["mm2.properties"],
        jvm_options=tuple(jvm.make(plain.java, target / "run" / MIRROR_MAIN)),
    )
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    try:
        worker.start()
        until(
            lambda: not worker.alive or f"A.{_TOPIC}" in admin.list_topics(timeout=10).topics,
            within=_MIRROR_WITHIN,
            what="the training mirror to mirror a topic",
            every=0.2,
        )
        worker.stop(within=_STOP_WITHIN)
        (target / "run" / MIRROR_MAIN).replace(target / MIRROR_MAIN)  # whole, since the worker ended by itself
    finally:
        worker.kill()
