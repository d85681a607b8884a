"""Every fault of a broker on a real cluster of three, with replicated topics: it bites measurably,
and the ISR is full again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults import FAULTS
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.runtimes.disks import SlowDisk
from linkflap.recording import cleanliness
from tests.idle_world import real_world as world
from tests.on_runtimes import deployed, skip_without_slow_disks


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed("A:3->B", tmp_path_factory.mktemp("brokers")) as up:
        up.clusters["A"].create_topic("A.replicated", partitions=4, replicas=3)
        yield up


def spec(fault: str, target: str) -> FaultSpec:
    return FaultSpec(id="f", fault=fault, target=target, at=0, duration=1)


def out_of_sync(deployment: Deployment, broker: int) -> list[int]:
    """Partitions of the replicated topic without the broker in their ISR, by the cluster's
    metadata."""
    admin = AdminClient({"bootstrap.servers": deployment.clusters["A"].bootstrap, "log_level": 0})
    partitions = admin.list_topics("A.replicated", timeout=60).topics["A.replicated"].partitions
    return [number for number, partition in partitions.items() if broker not in partition.isrs]


@pytest.mark.xdist_group("broker-faults")
@pytest.mark.parametrize(
    ("name", "broker", "state"),
    [
        ("broker-kill", 1, "stopped"),
        ("broker-restart", 2, "stopped"),
        ("broker-pause", 3, "paused"),
    ],
)
def test_a_fault_bites_and_heals(
    deployment: Deployment, name: str, broker: int, state: str
) -> None:
    hurt: Broker = deployment.clusters["A"].brokers[broker]
    fault = FAULTS[name](spec(name, f"A/{broker}"), world(deployment))
    settings = cleanliness.settings_of(deployment.clusters["A"])
    try:
        fault.inject()
        bite, meanwhile = fault.bite(), hurt.state
    finally:
        checked = fault.heal()
    assert bite.bit, bite.measured
    assert (meanwhile, hurt.state) == (state, "running")
    assert not out_of_sync(deployment, broker)
    assert any("in the ISR of all" in line for line in checked)
    assert fault.heal() == checked, "a second heal finds the same and changes nothing"
    assert cleanliness.settings_of(deployment.clusters["A"]) == settings
    assert not cleanliness.broken(deployment), "another run may use the clusters"


@pytest.mark.xdist_group("broker-faults")
@pytest.mark.parametrize("name", ["broker-kill", "broker-restart", "broker-pause"])
def test_a_broker_that_was_not_touched_is_no_bite(
    deployment: Deployment, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurt = deployment.clusters["A"].brokers[1]
    for verb in ("kill", "stop", "pause"):
        monkeypatch.setattr(type(hurt), verb, lambda self: None)
    fault = FAULTS[name](spec(name, "A/1"), world(deployment, stopping=True))
    fault.inject()
    assert not fault.bite().bit
    fault.heal()


@pytest.mark.xdist_group("broker-faults")
def test_a_broker_that_was_dead_before_is_no_bite_and_is_healed(deployment: Deployment) -> None:
    hurt = deployment.clusters["A"].brokers[2]
    hurt.kill()
    fault = FAULTS["broker-kill"](spec("broker-kill", "A/2"), world(deployment))
    fault.inject()
    assert not fault.bite().bit
    fault.heal()
    assert hurt.state == "running"
    assert not out_of_sync(deployment, 2)


# The slow disk of one process: the rate limit applies to that process only, and ends.


@pytest.mark.nightly
def test_a_limit_is_that_of_one_process_and_ends(tmp_path: Path) -> None:
    skip_without_slow_disks(tmp_path / "try")
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "kept").write_text("content")
    disk = SlowDisk(folder, "test")
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        disk.put(spare=8 << 20)
        assert sorted(path.name for path in folder.iterdir()) == ["kept"], (
            "no folder that a broker would take for a partition"
        )
        disk.slow(sleeper.pid, rate=64 << 10)
        assert disk.seconds(256 << 10) >= 2.0
        assert sleeper.poll() is None
    finally:
        disk.fast()
        sleeper.kill()
        sleeper.wait()
        disk.take_back()
    assert (folder / "kept").read_text() == "content"
    assert not disk.mounted
    disk.fast()
