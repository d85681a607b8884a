"""The guarantees of every runtime, on real clusters of the released Kafka: started, broken,
restarted, mixed, side by side."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from linkflap.harness.capture.logs import copy_segments
from linkflap.harness.machine import ledger
from linkflap.harness.machine.leases import Lease
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.runtimes import probe, runtime
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts
from linkflap.harness.runtimes.process import ProcessCluster, install
from tests.on_runtimes import Events, create, in_sync, produce, topology, values
from tests.waiting import eventually


@pytest.fixture(scope="module")
def pair(on: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Events]]:
    """Two single-broker clusters and a link."""
    events = Events()
    asked = topology(
        ClusterSpec(name="A", config={"message.max.bytes": "123456"}),
        ClusterSpec(name="B"),
        links=("A->B",),
    )
    with runtime(on)(asked, folder=tmp_path_factory.mktemp("pair"), recorder=events) as deployment:
        yield deployment, events


def test_a_pair_is_up_and_its_links_are_proven(pair: tuple[Deployment, Events]) -> None:
    deployment, events = pair
    assert set(deployment.links) == {"A->B", "B->A", "*->A", "*->B"}
    assert events.of("link-proven") == set(deployment.links)
    assert events.of("cluster-ready") == {"A", "B"}
    for cluster in deployment.clusters.values():
        assert cluster.kafka == "4.3.1"
        assert [broker.state for broker in cluster.brokers.values()] == ["running"]
    assert len({cluster.id for cluster in deployment.clusters.values()}) == 2


def test_the_release_runs_with_the_features_it_defaults_to(pair: tuple[Deployment, Events]) -> None:
    deployment, _ = pair
    features = probe.finalized_features(deployment.clusters["A"].bootstrap)
    assert features is not None
    assert features["transaction.version"] == 2
    assert features["group.version"] == 1
    assert features["eligible.leader.replicas.version"] == 1


def test_a_clusters_own_settings_are_its_brokers(pair: tuple[Deployment, Events]) -> None:
    deployment, _ = pair
    found = {}
    for name, cluster in deployment.clusters.items():
        broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (described,) = admin.describe_configs([broker]).values()
        found[name] = described.result(30)["message.max.bytes"].value
    assert found == {"A": "123456", "B": "1048588"}


@pytest.mark.parametrize("link", ["A->B", "*->A"])
def test_records_go_through_a_link_and_a_cut_link_refuses_only_its_own_path(
    pair: tuple[Deployment, Events], link: str
) -> None:
    deployment, _ = pair
    topic = f"through-{uuid.uuid4().hex}"
    create(deployment.clusters["A"], topic)
    produce(deployment.links[link].bootstrap, topic, b"proxied")
    deployment.links[link].cut()
    try:
        with pytest.raises(KafkaException):
            produce(deployment.links[link].bootstrap, topic, b"never", within=2)
        produce(deployment.clusters["A"].bootstrap, topic, b"direct")
    finally:
        deployment.links[link].restore()
    assert values(deployment.links[link].bootstrap, topic, 2) == [b"proxied", b"direct"]


def test_toxics_and_cuts_show_on_the_measured_path_and_heal(
    pair: tuple[Deployment, Events],
) -> None:
    link = pair[0].links["A->B"]
    assert link.round_trip(within=60) is not None
    link.add_toxic("latency", "responses", {"latency": 2000}, owner="one")
    slow = link.round_trip(within=120)
    assert slow is not None
    assert slow > 1.8
    link.cut(owner="two")
    assert link.round_trip(within=2) is None
    link.restore(owner="two")
    assert link.enabled
    link.clear(owner="one")
    assert not link.toxics()
    eventually("a round trip without the latency", lambda: (link.round_trip(within=60) or 60) < 1.8)
    assert link.transfer(size=1 << 16, within=120) is not None
    assert link.delivers_requests(within=120)


def test_kill_start_stop_start_keep_the_data(
    pair: tuple[Deployment, Events], tmp_path: Path
) -> None:
    deployment, _ = pair
    cluster = deployment.clusters["B"]
    broker = cluster.brokers[1]
    create(cluster, "kept")
    produce(cluster.bootstrap, "kept", b"1")
    pid, address = broker.pid, broker.client_address
    broker.kill()
    assert broker.state == "stopped"
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert list(broker.log_dir.glob("kept-0/*.log")), (
        "the log must be readable when the broker is dead"
    )
    copy_segments(broker.log_dir / "kept-0", tmp_path / "kept-0")
    assert sum(path.stat().st_size for path in (tmp_path / "kept-0").glob("*.log"))
    broker.start()
    assert broker.client_address == address
    produce(cluster.bootstrap, "kept", b"2")
    broker.stop()
    assert broker.state == "stopped"
    broker.start()
    produce(cluster.bootstrap, "kept", b"3")
    assert values(cluster.bootstrap, "kept", 3) == [b"1", b"2", b"3"]
    assert "shut down" in broker.log.read_text()


def test_a_paused_broker_answers_nothing_until_it_is_resumed(
    pair: tuple[Deployment, Events],
) -> None:
    deployment, _ = pair
    broker = deployment.clusters["B"].brokers[1]
    broker.pause()
    try:
        assert str(broker.state) == "paused"
        assert probe.seen_brokers(broker.client_address) == frozenset()
    finally:
        broker.resume()
    assert broker.state == "running"
    eventually("the broker to answer", lambda: probe.seen_brokers(broker.client_address))


def test_a_paused_broker_can_be_killed(pair: tuple[Deployment, Events]) -> None:
    broker = pair[0].clusters["B"].brokers[1]
    broker.pause()
    broker.kill()
    assert broker.state == "stopped"
    broker.start()


def test_a_service_runs_in_its_folder_and_leaves_a_log(pair: tuple[Deployment, Events]) -> None:
    deployment, _ = pair
    # Any main class will do; this one reads a file and stays until it is asked to end.
    service = deployment.service(
        "perf",
        main="org.apache.kafka.tools.ProducerPerformance",
        kafka="4.3.1",
        files={
            "producer.properties": f"bootstrap.servers={deployment.clusters['A'].inner_bootstrap}\n"
        },
        arguments=[
            "--topic",
            "none",
            "--num-records",
            "1",
            "--record-size",
            "1",
            "--throughput",
            "-1",
            "--producer.config",
            "producer.properties",
        ],
    )
    assert not service.alive
    service.start()
    eventually("the service to complain of its topic", lambda: "none" in service.log.read_text())
    service.pause()
    service.resume()
    assert service.alive
    service.stop()
    assert not service.alive
    service.start()
    service.kill()
    assert not service.alive


def test_leased_ports_differ_and_are_given_back(pair: tuple[Deployment, Events]) -> None:
    deployment, _ = pair
    ports = {deployment.free_port() for _ in range(5)}
    assert len(ports) == 5
    assert ports <= set(ledger.own().ports)


def test_a_broker_that_dies_at_start_says_its_last_words(tmp_path: Path, on: str) -> None:
    with runtime(on)(
        topology(ClusterSpec(name="A")), folder=tmp_path, recorder=Events()
    ) as deployment:
        broker = deployment.clusters["A"].brokers[1]
        broker.stop()
        properties = tmp_path / "A" / "1" / "server.properties"
        properties.write_text(properties.read_text() + "num.io.threads=none\n")
        with pytest.raises(
            SetupError, match=r"broker A/1 ended with status 1 while starting; .*num\.io\.threads"
        ) as raised:
            broker.start()
        assert str(tmp_path / "A" / "1") in str(raised.value)
        assert "\n" not in str(raised.value)
    assert broker.state == "stopped"
    with pytest.raises(SetupError, match="its deployment is closed"):
        broker.start()


# What every runtime guarantees of deployments other than a pair: three brokers, two at once,
# mixed releases, the user's jars.


def test_three_brokers_survive_kill_9_of_one(tmp_path: Path, on: str) -> None:
    asked = topology(ClusterSpec(name="A", brokers=3))
    with runtime(on)(asked, folder=tmp_path, recorder=Events()) as deployment:
        cluster = deployment.clusters["A"]
        assert probe.seen_brokers(cluster.brokers[1].client_address) == {1, 2, 3}
        create(cluster, "replicated", replicas=3)
        produce(cluster.bootstrap, "replicated", b"before")
        victim = cluster.brokers[in_sync(cluster).pop()]
        victim.kill()
        produce(cluster.bootstrap, "replicated", b"without")
        eventually("the ISR to shrink", lambda: in_sync(cluster) == {1, 2, 3} - {victim.id})
        victim.start()
        eventually("the ISR to be full again", lambda: in_sync(cluster) == {1, 2, 3})
        produce(cluster.bootstrap, "replicated", b"after")
        assert values(cluster.bootstrap, "replicated", 3) == [b"before", b"without", b"after"]
        pids = [broker.pid for broker in cluster.brokers.values()]
    assert all(pid is not None and not psutil.pid_exists(pid) for pid in pids)


def test_two_deployments_at_once_share_nothing(tmp_path: Path, on: str) -> None:
    met = threading.Barrier(2)

    def run(name: str) -> tuple[set[int], str]:
        with runtime(on)(
            topology(ClusterSpec(name="A")), folder=tmp_path / name, recorder=Events()
        ) as deployment:
            cluster = deployment.clusters["A"]
            met.wait(120)
            create(cluster, name)
            assert produce(deployment.links["*->A"].bootstrap, name, b"x") == 0
            met.wait(120)
            return {
                int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")
            }, cluster.id

    with ThreadPoolExecutor(2) as pool:
        (ports_1, id_1), (ports_2, id_2) = pool.map(run, ["one", "two"])
    assert not ports_1 & ports_2
    assert id_1 != id_2


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["4.1.2", "3.9.2"])
def test_versions_mix_in_one_topology(tmp_path: Path, version: str, on: str) -> None:
    asked = topology(ClusterSpec(name="A", kafka=version), ClusterSpec(name="B"), links=("A->B",))
    with runtime(on)(asked, folder=tmp_path, recorder=Events()) as deployment:
        assert {name: cluster.kafka for name, cluster in deployment.clusters.items()} == {
            "A": version,
            "B": "4.3.1",
        }
        for cluster in deployment.clusters.values():
            create(cluster, "mixed")
            assert produce(cluster.bootstrap, "mixed", b"x") == 0


@pytest.mark.nightly
def test_a_directory_of_jars_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    """A KIP author's own build: here the released jars, in a directory that is not pinned."""
    from linkflap.harness.runtimes.distribution.kafka import kafka

    mine = tmp_path / "mine" / "libs"
    mine.mkdir(parents=True)
    for jar in kafka("4.3.1").jars:
        (mine / jar.name).symlink_to(jar)
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    with runtime(on)(
        topology(ClusterSpec(name="A", kafka=str(mine.parent))),
        folder=tmp_path / "run",
        recorder=Events(),
    ) as deployment:
        create(deployment.clusters["A"], "own")
        assert produce(deployment.clusters["A"].bootstrap, "own", b"x") == 0


# Clusters of child processes: specific to this runtime.


def test_a_cluster_without_its_releases_features_is_refused(tmp_path: Path) -> None:
    """The trap of formatting by copy: such a broker starts silently without transactions v2."""
    lease = Lease()
    try:
        internal, client, controller = lease.ports(3)
        ports = {
            1: BrokerPorts(
                listens={"INTERNAL": internal, "CLIENT": client, "CONTROLLER": controller},
                advertised={},
            )
        }
        cluster = ProcessCluster("A", install("4.3.1"), ports, tmp_path)
        (cluster.brokers[1].log_dir / "bootstrap.checkpoint").unlink()
        cluster.launch()
        try:
            with pytest.raises(SetupError, match=r"transaction\.version.*remove"):
                cluster.await_ready()
        finally:
            cluster.kill()
    finally:
        lease.release()
