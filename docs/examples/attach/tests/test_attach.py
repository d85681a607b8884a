"""A run on two clusters that plain scripts have started: what it finds, and that it leaves nothing
there."""

import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import linkflap
from linkflap.harness.machine.java import java_for
from linkflap.harness.runtimes.distribution.kafka import kafka

HERE = Path(__file__).resolve().parent.parent
RELEASE = "4.3.1"
OWN = {"__consumer_offsets", "__transaction_state"}
"""Kafka makes them when they are first used."""


def two_ports():
    """A free port with another behind it, for one cluster."""
    while True:
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            return first.getsockname()[1]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """The addresses of two running clusters. Any Kafka will do: this one has linkflap fetched."""
    folder = tmp_path_factory.mktemp("clusters")
    ports = {"EAST": two_ports(), "WEST": two_ports()}
    given = {
        "KAFKA_LIBS": str(kafka(RELEASE).jars[0].parent),
        "JAVA": str(java_for(RELEASE).path),
        **{name: str(port) for name, port in ports.items()},
        **os.environ,
    }
    script = ["sh", str(HERE / "clusters.sh")]
    try:
        subprocess.run([*script, "start", str(folder)], env=given, check=True, timeout=300)
        yield {"folder": str(folder)} | {n: f"127.0.0.1:{port}" for n, port in ports.items()}
    finally:
        subprocess.run([*script, "stop", str(folder)], env=given, check=True, timeout=60)


def run(clusters, folder, file="flap.toml"):
    """Plays a scenario on these clusters."""
    text = (HERE / file).read_text().replace("/tmp/two", clusters["folder"])
    shutil.copy(HERE / "clusters.sh", folder)
    scenario = folder / file
    scenario.write_text(
        text.replace("127.0.0.1:9092", clusters["EAST"]).replace("127.0.0.1:9192", clusters["WEST"])
    )
    return linkflap.run(scenario, folder=folder / "run", seed=11)


def topics(address):
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics) - OWN


def test_nothing_is_lost_and_nothing_is_left(clusters, tmp_path):
    addresses = [clusters["EAST"], clusters["WEST"]]
    for address in addresses:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("billing", 1, 1)])["billing"].result()
        producer = Producer({"bootstrap.servers": address})
        producer.produce("billing", b"an invoice")
        assert producer.flush(30) == 0
    judged = run(clusters, tmp_path)
    assert judged.valid, judged.why
    assert judged.checks["order-equality"].examined["lf-west/mirrored"] > 0
    assert judged.document["failovers"][0]["kind"] == "forced"
    for address in addresses:
        assert topics(address) == {"billing"}


@pytest.mark.long
def test_a_broker_is_killed_and_started_again_by_the_scripts_of_its_owner(clusters, tmp_path):
    judged = run(clusters, tmp_path, "broker.toml")
    assert judged.valid, judged.why
    assert judged.checks["fault-bite"].examined == {"run/faults": 2}
    assert not topics(clusters["EAST"]) & {"lf-east.orders"}


@pytest.mark.long
def test_what_somebody_deletes_is_found(clusters, tmp_path):
    """An operator takes the wrong topic: the first copies on the destination are gone."""
    admin, over = AdminClient({"bootstrap.servers": clusters["WEST"]}), threading.Event()
    wrong = TopicPartition("lf-east.orders", 0, 100)

    def operate():
        while not over.wait(0.2):
            with suppress(KafkaException):  # there are not so many records yet
                admin.delete_records([wrong])[wrong].result(30)
                return

    operator = threading.Thread(target=operate)
    operator.start()
    try:
        judged = run(clusters, tmp_path)
    finally:
        over.set()
        operator.join()
    assert judged.found("lost-beginning"), judged.why
    assert not topics(clusters["WEST"]) & {"lf-east.orders"}
