"""Runs on clusters that linkflap did not start: of a deployment whose addresses are all that a run
is given. What goes wrong there is found; whatever a run has made is gone at its end, and nothing
else was touched."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

import linkflap
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.rest_leftovers import RestServer
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import FaultBite, LinkProven, WireRecorded, of_kind
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.security import Principal, entered_by, security_of
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import RunReader
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyProcess
from linkflap.harness.wire.librdkafka import bounds, quiet
from tests.command_line import environment, start
from tests.command_line import linkflap as command
from tests.integration.test_secured import leaks
from tests.on_runtimes import create
from tests.waiting import eventually

THEIRS = "theirs"
DENIED: Mapping[Principal, str] = {
    "reader": r"WRITE on transactional ids that begin with linkflap\.",
    "client": r"CREATE on topic linkflap\.in-use\.internal",
}
"""Principals that may not run linkflap, each with the first thing that the cluster denies."""
KAFKAS = ("__consumer_offsets", "__transaction_state")


def arrows(deployment: Deployment, *, who: Principal = "harness", variables: bool = False) -> str:
    """The topology of somebody who knows one address of each cluster, and has a file of client
    properties for it if it is secured; with `variables` the environment has them (`entries`)."""

    def written(name: str) -> str:
        bootstrap = entered_by(deployment.clusters[name].bootstrap, who)
        if source := security_of(bootstrap).librdkafka_file:
            source = f"{{{f'env:ENTRY_{name}' if variables else source}}}"
        return f"{name}@bootstrap:{bootstrap.split(',')[-1]}{source}"

    return f"{written('A')}->{written('B')}"


def entries(deployment: Deployment) -> dict[str, str]:
    """The environment with the client properties of secured clusters."""
    files = {
        name: security_of(cluster.bootstrap).librdkafka_file
        for name, cluster in deployment.clusters.items()
    }
    return {f"ENTRY_{name}": Path(file).read_text() for name, file in files.items() if file}


def admin(deployment: Deployment, cluster: str) -> AdminClient:
    return AdminClient(quiet(deployment.clusters[cluster].bootstrap))


def used_by_others(deployment: Deployment) -> None:
    """A topic with records, and a group that has read some of them, on both clusters."""
    for cluster in deployment.clusters.values():
        create(cluster, THEIRS)
        producer = Producer(quiet(cluster.bootstrap))
        for number in range(10):
            producer.produce(THEIRS, b"%d" % number)
        assert producer.flush(60) == 0
        consumer = Consumer(quiet(cluster.bootstrap) | {"group.id": THEIRS})
        consumer.commit(offsets=[KafkaPartition(THEIRS, 0, 4)], asynchronous=False)
        consumer.close()


Contents = Mapping[
    str, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], frozenset[str]]
]


def contents(deployment: Deployment) -> Contents:
    """Per cluster: where each partition begins and ends, and the groups; without Kafka's own
    topics."""
    found = {}
    for name in deployment.clusters:
        client = admin(deployment, name)
        partitions = [
            (topic, number)
            for topic, each in client.list_topics(timeout=60).topics.items()
            if topic not in KAFKAS
            for number in each.partitions
        ]
        groups = client.list_consumer_groups().result(60).valid
        found[name] = (
            bounds(client, partitions, "start", within=60),
            bounds(client, partitions, "high", within=60),
            frozenset(group.group_id for group in groups),
        )
    return found


@contextmanager
def first_copies_deleted(deployment: Deployment) -> Iterator[None]:
    """Deletes the first copies on B, once there are some."""
    client, over = admin(deployment, "B"), threading.Event()

    beginning = KafkaPartition("A.orders", 0, 100)

    def delete() -> None:
        while not over.wait(0.2):
            with suppress(KafkaException):  # there are not so many yet
                client.delete_records([beginning])[beginning].result(60)
                return

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.spark
@pytest.mark.linkflap(topology="A:3{tls+scram}->B{mtls}")
def test_deleted_topics_of_the_run_are_found_and_other_topics_untouched(
    linkflap_deployment: Deployment, tmp_path: Path
) -> None:
    used_by_others(linkflap_deployment)
    before = contents(linkflap_deployment)
    for who, denied in DENIED.items():
        with pytest.raises(InputError, match=f"denies this client {denied}, which a run needs"):
            linkflap.run(
                "link-flap", topology=arrows(linkflap_deployment, who=who), folder=tmp_path / "no"
            )
    assert contents(linkflap_deployment) == before
    with first_copies_deleted(linkflap_deployment):
        judged = linkflap.run(
            "link-flap", topology=arrows(linkflap_deployment), folder=tmp_path / "run", seed=7
        )
    assert {found.kind for found in judged.anomalies if not found.allowed} == {"lost-beginning"}
    assert judged.checks["lost-write"].verdict == "valid", judged.why
    assert judged.checks["order-equality"].examined["B/mirrored"] > 0
    events, _ = RunReader(tmp_path / "run").events()
    ports = {each.link: len(each.proxied) for each in of_kind(events, LinkProven)}
    assert ports == {"A->B": 3, "*->A": 3, "B->A": 1, "*->B": 1}
    assert {each.id: each.bit for each in of_kind(events, FaultBite)} == dict.fromkeys(
        ("flap", "slow", "failover"), True
    )
    assert contents(linkflap_deployment) == before
    assert (
        leaks(tmp_path / "run", {security_of(linkflap_deployment.clusters["A"].bootstrap).password})
        == []
    )


@contextmanager
def all_gone_afterwards(deployment: Deployment) -> Iterator[None]:
    """The clusters have the same content at the end as before."""
    used_by_others(deployment)
    before = contents(deployment)
    yield

    def all_gone() -> bool:
        with suppress(KafkaException):  # a topic was deleted after it had been listed
            return contents(deployment) == before
        return False

    eventually("what the run has made to be gone", all_gone)


@pytest.mark.linkflap(topology="A->B")
def test_a_run_that_is_interrupted_leaves_nothing_on_the_clusters(
    linkflap_deployment: Deployment, tmp_path: Path
) -> None:
    topology = arrows(linkflap_deployment)
    words = ["run", "baseline", "--topology", topology, "--out", "run", "--no-verify"]
    with all_gone_afterwards(linkflap_deployment):
        running = start(words, env=environment(tmp_path / "ledger"), cwd=tmp_path)
        try:
            running.says("phase breaking things")
            for second in (topology, topology.replace("A@", "C@").replace("B@", "D@")):
                with pytest.raises(InputError, match="another run of linkflap uses"):
                    linkflap.run("baseline", topology=second, folder=tmp_path / "second")
            running.send(signal.SIGINT)
            running.ends()
        finally:
            running.close()


@pytest.fixture
def toxiproxy(tmp_path: Path) -> Iterator[RestServer]:
    """A Toxiproxy with somebody's proxy."""
    lease = Lease()
    port, listens = lease.ports(2)
    server = ToxiproxyProcess(toxiproxy_server(), port=port, folder=tmp_path / "toxiproxy")
    server.start()
    there = RestServer(url=f"http://127.0.0.1:{port}")
    body = {"name": THEIRS, "listen": f"127.0.0.1:{listens}", "upstream": "127.0.0.1:9"}
    try:
        assert there.ask("POST", "/proxies", body).ok
        yield there
    finally:
        server.kill()
        lease.release()


def proxies(server: RestServer) -> set[str]:
    return set(server.ask("GET", "/proxies").json())


PAUSED = """schema = 1
name = "paused"
topology = "{topology}"
duration = 60
[cluster."{{cluster}}"]
toxiproxy = "{toxiproxy}"
[cluster.B.commands]
pause = ["sh", "-c", "kill -STOP {pid} && touch paused"]
resume = ["sh", "-c", "kill -CONT {pid}"]
[mirror]
kind = "mm2"
[[workload]]
kind = "default"
home = "A"
[[fault]]
id = "pause"
fault = "broker-pause"
target = "B/1"
at = 0
duration = 60
"""


@pytest.mark.linkflap(topology="A{tls}->B{plain}")
def test_after_a_kill_the_watchdog_resumes_what_was_paused_and_removes_what_was_made(
    linkflap_deployment: Deployment, toxiproxy: RestServer, tmp_path: Path
) -> None:
    (tmp_path / "paused.toml").write_text(
        PAUSED.format(
            topology=arrows(linkflap_deployment, variables=True),
            pid=linkflap_deployment.clusters["B"].brokers[1].pid,
            toxiproxy=toxiproxy.url,
        )
    )
    known = environment(tmp_path / "ledger", **entries(linkflap_deployment))
    words = ["run", "paused.toml", "--out", "run", "--no-verify"]
    with all_gone_afterwards(linkflap_deployment):
        running = start(words, env=known, cwd=tmp_path)
        try:
            running.says("phase breaking things")
            eventually("the broker to be paused", (tmp_path / "paused").exists)
            assert len(proxies(toxiproxy)) == 1 + len(("A->B", "*->A", "B->A", "*->B"))
            running.send(signal.SIGKILL)
        finally:
            running.close()
    eventually("its proxies to be gone", lambda: proxies(toxiproxy) == {THEIRS})


ORDERS = """
import os
from confluent_kafka import Producer

settings = dict(
    line.split("=", 1)
    for line in open(os.environ["LINKFLAP_CONFIG_A"]).read().splitlines()
    if "=" in line
)
producer = Producer({
    **settings, "bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"], "acks": "all"
})
for number in range(300):
    producer.produce(os.environ["LINKFLAP_WRITES"], b"%d" % number)
assert producer.flush(60) == 0
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.linkflap(topology="A{tls+scram}->B{mtls}")
def test_a_command_is_recorded_behind_the_proxies_of_clusters_with_tls(
    linkflap_deployment: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    words = ["exec", "--topology", arrows(linkflap_deployment), "--topic", "orders"]
    words += ["--out", str(tmp_path / "run"), "--", sys.executable, "orders.py"]
    done = command(words, env=environment(tmp_path / "ledger"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events, _ = RunReader(tmp_path / "run").events()
    recorded = {each.cluster: each for each in of_kind(events, WireRecorded)}
    assert recorded["A"].acknowledged
    assert not recorded["A"].unread
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_bytes())
    examined = {check["name"]: check["examined"] for check in verdict["checks"]}
    assert examined["lost-write"] == {"A/native": 300}
    assert examined["order-equality"] == {"B/mirrored": 300}
    for name in "AB":
        topics = admin(linkflap_deployment, name).list_topics(timeout=60).topics
        assert "A.orders" not in topics
