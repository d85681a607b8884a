"""Makes what a cluster is made from, once per Kafka and Java: jars, Java, a formatted directory, a class archive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.model.errors import SetupError
from harness.runtimes.distribution import cache
from harness.runtimes.distribution.java import Java, java_for
from harness.runtimes.distribution.kafka import Kafka, kafka
from harness.runtimes.leases import Lease
from harness.runtimes.process import jvm, storage
from harness.runtimes.process.cluster import BROKER_MAIN, Installation, ProcessCluster
from harness.runtimes.process.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts

_QUIET: Final = {"log_level": 0}  # librdkafka writes to stderr, which is the caller's


def install(asked: str) -> Installation:
    """What a `ClusterSpec.kafka` needs on this machine; quick when it was made before. Raises InputError or SetupError."""
    found = kafka(asked)
    java = java_for(found.version)
    template = storage.template(found, java)
    name = jvm.archive_name(found, java, BROKER_MAIN)
    folder = cache.once(name, lambda target: _train(found, java, template, target))
    return Installation(kafka=found, java=java, template=template, archive=folder / "classes")


def _train(found: Kafka, java: Java, template: Path, target: Path) -> None:
    """Runs one broker through a transaction and stops it in good order, so that it writes its archive."""
    archive = target / "classes"
    plain = Installation(kafka=found, java=java, template=template, archive=None)
    lease = Lease()
    try:
        first, second, third = lease.ports(3)
        ports = {1: BrokerPorts(listens={INTERNAL: first, CLIENT: second, CONTROLLER: third}, advertised={})}
        cluster = ProcessCluster("training", plain, ports, target / "run", jvm_options=tuple(jvm.make(java, archive)))
        try:
            cluster.launch()
            cluster.await_ready()
            _exercise(cluster.bootstrap)
            cluster.brokers[1].stop()
        finally:
            cluster.kill()
    finally:
        lease.release()
    if not archive.is_file():
        raise SetupError(f"{java.path} wrote no class archive for Kafka {found.version}; use another Java (JAVA_HOME)")


def _exercise(bootstrap: str) -> None:
    """What brokers do in every run: a topic, a transaction."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("training", 1, 1)], request_timeout=60).values():
        created.result()
    producer = Producer({**_QUIET, "bootstrap.servers": bootstrap, "transactional.id": "training"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("training", b"record")
    producer.commit_transaction(60)
