"""What every runtime guarantees of deployments other than a pair: three brokers, two at once, mixed
releases, the user's jars."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.kraft import readiness
from tests.on_runtimes import Events, create, in_sync, produce, topology, values


def test_three_brokers_survive_kill_9_of_one(tmp_path: Path, on: str) -> None:
    asked = topology(ClusterSpec(name="A", brokers=3))
    with runtime(on)(asked, folder=tmp_path, recorder=Events()) as deployment:
        cluster = deployment.clusters["A"]
        assert readiness.seen_brokers(cluster.brokers[1].client_address) == {1, 2, 3}
        create(cluster, "replicated", replicas=3)
        produce(cluster.bootstrap, "replicated", b"before")
        victim = cluster.brokers[in_sync(cluster, "replicated").pop()]
        victim.kill()
        produce(cluster.bootstrap, "replicated", b"without")
        until(
            lambda: in_sync(cluster, "replicated") == {1, 2, 3} - {victim.id},
            within=60,
            what="the ISR to shrink",
        )
        victim.start()
        until(
            lambda: in_sync(cluster, "replicated") == {1, 2, 3},
            within=60,
            what="the ISR to be full again",
        )
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
