"""A run on two clusters that plain scripts have started: what it finds, and that it leaves nothing
there."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import linkflap
from linkflap.harness.machine.java import java_for
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server

HERE = Path(__file__).resolve().parent.parent
RELEASE = "4.3.1"
USUAL = {"EAST": 9092, "WEST": 9192, "CONNECT": 8083, "CONNECT2": 8084}
OWN = {"__consumer_offsets", "__transaction_state"}
"""Kafka makes them when they are first used."""


def two_ports():
    """A free port with another behind it, for one cluster; neither is one that the system gives to
    connections."""
    while True:
        port = random.randrange(11_000, 17_000, 2)
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return port


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """The addresses of two running clusters. Any Kafka will do: this one has linkflap fetched."""
    folder = tmp_path_factory.mktemp("clusters")
    ports = {"EAST": two_ports(), "WEST": two_ports(), "CONNECT": two_ports()}
    given = {
        "KAFKA_LIBS": str(kafka(RELEASE).jars[0].parent),
        "JAVA": str(java_for(RELEASE).path),
        **{name: str(port) for name, port in ports.items()},
        **os.environ,
    }
    script = ["sh", str(HERE / "clusters.sh")]
    try:
        subprocess.run([*script, "start", str(folder)], env=given, check=True, timeout=300)
        ports["CONNECT2"] = ports["CONNECT"] + 1
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        yield {"folder": str(folder), "script": script, "given": given} | addresses
    finally:
        subprocess.run([*script, "stop", str(folder)], env=given, check=True, timeout=60)


def scenario_of(clusters, folder, file, more=""):
    """A scenario file for these clusters."""
    text = (HERE / file).read_text().replace("/tmp/two", clusters["folder"])
    shutil.copy(HERE / "clusters.sh", folder)
    for name, usual in USUAL.items():
        text = text.replace(f"127.0.0.1:{usual}", clusters[name])
    (folder / file).write_text(text + more)
    return folder / file


def run(clusters, folder, file="flap.toml", more=""):
    """Plays a scenario on these clusters."""
    scenario = scenario_of(clusters, folder, file, more)
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


def test_a_program_is_recorded_before_the_brokers(clusters, tmp_path):
    shutil.copy(HERE / "orders.py", tmp_path)
    judged = run(clusters, tmp_path, "program.toml")
    assert judged.valid, judged.why
    assert not judged.document["by_bytes"], "the verdict rests on what the program was promised"
    written = judged.checks["lost-write"].examined["lf-east/native"]
    assert judged.checks["order-equality"].examined["lf-west/mirrored"] >= written > 0
    for address in clusters["EAST"], clusters["WEST"]:
        assert not topics(address) & {"lf-east.orders"}


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


@pytest.fixture(scope="module")
def connect(clusters):
    """The REST API of the second worker of a Connect cluster beside the second cluster, with
    somebody's connector."""
    subprocess.run(
        [*clusters["script"], "connect", clusters["folder"]],
        env=clusters["given"],
        check=True,
        timeout=300,
    )
    theirs = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "source.cluster.alias": "theirs",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": clusters["WEST"],
        "target.cluster.bootstrap.servers": clusters["WEST"],
        "replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
    }
    address = f"http://{clusters['CONNECT2']}/connectors"
    body = json.dumps(theirs).encode()
    header = {"Content-Type": "application/json"}
    urlopen(Request(f"{address}/theirs/config", body, header, method="PUT"), timeout=60).close()
    return address


def connectors(address):
    """Those that Connect names; None while it rebalances."""
    try:
        with urlopen(address, timeout=60) as answer:
            return set(json.load(answer))
    except HTTPError as error:
        if error.code != 409:
            raise
        return None


@pytest.mark.long
def test_mirror_maker_runs_on_a_connect_cluster_of_which_a_worker_dies(clusters, connect, tmp_path):
    """The worker whose address comes first."""
    words = [*clusters["script"], "kill", clusters["folder"], "connect-1"]

    def operate():
        until("connectors of the run", lambda: len(connectors(connect) or ()) == 3)
        subprocess.run(words, check=True, timeout=60)

    operator = threading.Thread(target=operate)
    operator.start()
    try:
        judged = run(clusters, tmp_path, "connect.toml")
    finally:
        operator.join()
    assert judged.valid, judged.why
    assert judged.checks["order-equality"].examined["lf-west/mirrored"] > 0
    until("its connectors to be gone", lambda: connectors(connect) == {"theirs"})
    assert not [name for name in topics(clusters["WEST"]) if "lf-" in name]


@pytest.mark.long
def test_its_connectors_are_gone_after_a_kill(clusters, connect, tmp_path):
    scenario = scenario_of(clusters, tmp_path, "connect.toml")
    words = [sys.executable, "-m", "linkflap", "run", str(scenario), "--no-verify"]
    running = subprocess.Popen([*words, "--out", str(tmp_path / "run")])
    try:
        until("connectors of the run", lambda: len(connectors(connect) or ()) == 3)
        running.send_signal(signal.SIGKILL)
        until("them to be gone", lambda: connectors(connect) == {"theirs"})
        until("its topics to be gone", lambda: "lf-" not in " ".join(topics(clusters["WEST"])))
    finally:
        running.kill()
        running.wait()


@pytest.mark.long
def test_links_are_proxies_of_a_toxiproxy_that_is_there(clusters, tmp_path):
    port = two_ports()
    words = [str(toxiproxy_server()), "-port", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    more = f'\n[cluster."{{cluster}}"]\ntoxiproxy = "{address}"\n'
    theirs = {"name": "theirs", "listen": f"127.0.0.1:{port + 1}", "upstream": "127.0.0.1:9"}
    try:
        until("Toxiproxy to answer", lambda: answers(f"{address}/proxies"))
        urlopen(f"{address}/proxies", json.dumps(theirs).encode(), timeout=60).close()
        judged = run(clusters, tmp_path, more=more)
        assert judged.valid, judged.why
        assert judged.checks["fault-bite"].examined == {"run/faults": 2}
        with urlopen(f"{address}/proxies", timeout=60) as answer:
            assert set(json.load(answer)) == {"theirs"}
    finally:
        server.kill()
        server.wait()


def answers(address):
    with suppress(OSError), urlopen(address, timeout=60):
        return True
    return False


def until(what, condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.2)
