"""Faults inside a cluster: roles taken away, brokers cut off from their peers, full disks, little
memory.

On every runtime what every runtime gives; on docker what only containers give; elsewhere that is
refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.chaos.faults import FAULTS, IN_CONTAINERS
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.runtimes import faketime, probe, runtime
from linkflap.harness.runtimes.disks import SlowDisk, SmallDisk
from linkflap.recording.run import check
from tests.idle_world import real_world as world
from tests.on_runtimes import (
    EVERY,
    QUIET,
    Events,
    skip_without,
    skip_without_slow_disks,
    skip_without_small_disks,
    topology,
)

TOPIC = "replicated"


@pytest.fixture(scope="module", params=EVERY)
def cluster_of_three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    skip_without(request.param)
    folder = tmp_path_factory.mktemp("three")
    with runtime(request.param)(
        topology(ClusterSpec(name="A", brokers=3)), folder=folder, recorder=Events()
    ) as up:
        bootstrap = up.clusters["A"].bootstrap
        admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(timeout=60)
        producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "transactional.id": "role"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(TOPIC, b"record")
        producer.commit_transaction(60)
        yield up


def spec(fault: str, target: str, **options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault=fault, target=target, at=0, duration=1, options=options)


def bites_and_heals(
    deployment: Deployment, wanted: FaultSpec, meanwhile: Callable[[], None] = lambda: None
) -> Any:
    """The measurement of the bite; the fault is healed."""
    fault = FAULTS[wanted.fault](wanted, world(deployment))
    try:
        fault.inject()
        meanwhile()
        bite = fault.bite()
    finally:
        checked = fault.heal()
    assert bite.bit, bite.measured
    assert any("in the ISR of all" in line for line in checked)
    assert [broker.state for broker in deployment.clusters["A"].brokers.values()] == ["running"] * 3
    return bite.measured


def contained(deployment: Deployment) -> Deployment:
    if any(broker.confines is None for broker in deployment.clusters["A"].brokers.values()):
        pytest.skip("brokers are in no containers")
    return deployment


def write(deployment: Deployment) -> None:
    """Eight megabytes, acknowledged or not."""
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": deployment.clusters["A"].bootstrap,
            "message.timeout.ms": 10000,
        }
    )
    for number in range(800):
        producer.produce(TOPIC, bytes(10000), partition=number % 3)
    producer.flush(15)


def test_the_active_controller_is_lost_and_another_elected(cluster_of_three: Deployment) -> None:
    leader = cast(
        Any, probe.quorum(cluster_of_three.clusters["A"].brokers[1].client_address)
    ).leader
    seen = bites_and_heals(cluster_of_three, spec("controller-loss", "A"))
    assert seen["lost"] == leader
    assert seen["successor"] not in (leader, None)


@pytest.mark.parametrize("of", ["transactions", pytest.param("groups", marks=pytest.mark.nightly)])
def test_the_coordinator_is_lost_and_another_elected(cluster_of_three: Deployment, of: str) -> None:
    topic = {"transactions": "__transaction_state", "groups": "__consumer_offsets"}[of]
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster_of_three.clusters["A"].bootstrap})
    # no client has needed the log of one of the two, and the fault finds its coordinator too
    known = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    seen = bites_and_heals(cluster_of_three, spec("coordinator-loss", "A", of=of))
    assert seen["lost"] in ({partition.leader for partition in known} or {1, 2, 3})
    assert seen["successor"] not in (seen["lost"], None)


@pytest.mark.parametrize("of", ["data", pytest.param("coordinators", marks=pytest.mark.nightly)])
def test_leaders_move_and_come_back(cluster_of_three: Deployment, of: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster_of_three.clusters["A"].bootstrap})
    seen = bites_and_heals(cluster_of_three, spec("leadership-move", "A", of=of))
    mine = [
        name
        for name, t in admin.list_topics(timeout=60).topics.items()
        if name.startswith("__") == (of == "coordinators")
    ]
    assert seen["moved"] == seen["of"] >= len(mine) > 0


@pytest.mark.nightly
def test_every_broker_is_restarted_in_its_turn(cluster_of_three: Deployment) -> None:
    seen = bites_and_heals(cluster_of_three, spec("rolling-restart", "A"))
    assert [each["during_ms"] for each in seen] == [None, None, None]
    assert all(each["before_ms"] > 0 for each in seen)


def test_a_full_disk_ends_the_broker_at_every_start_until_there_is_room(
    cluster_of_three: Deployment, tmp_path: Path
) -> None:
    skip_without_small_disks(tmp_path / "disk")
    broker = cluster_of_three.clusters["A"].brokers[2]
    seen = bites_and_heals(cluster_of_three, spec("broker-disk-full", "A/2"))
    assert seen == {"free_bytes": 0, "ended": True, "ended_again": True}
    assert not SmallDisk(broker.log_dir).mounted
    assert list(broker.log_dir.glob(f"{TOPIC}-*")), "its logs are where they were"


@pytest.mark.nightly
def test_a_slow_disk_takes_as_long_as_its_rate_says(
    cluster_of_three: Deployment, tmp_path: Path
) -> None:
    skip_without_slow_disks(tmp_path / "disk")
    broker = cluster_of_three.clusters["A"].brokers[3]
    seen = bites_and_heals(cluster_of_three, spec("broker-disk-slow", "A/3", rate=128.0))
    assert seen["bytes"] == 128 << 10
    assert seen["seconds_limited"] >= 2 * seen["seconds_without"]
    assert not SlowDisk(broker.log_dir, "A-3").mounted
    assert not list(broker.log_dir.parent.glob("*.image")), "the disk is gone"
    assert list(broker.log_dir.glob(f"{TOPIC}-*")), "its logs are where they were"


def test_a_disconnected_broker_is_silent_and_comes_back(cluster_of_three: Deployment) -> None:
    up = contained(cluster_of_three)
    assert not bites_and_heals(up, spec("broker-disconnect", "A/3"))["on_network"]


@pytest.mark.parametrize(
    ("direction", "out", "back"),
    [
        ("both", "silence", "silence"),
        ("out", "silence", "an answer"),
        pytest.param("in", "an answer", "silence", marks=pytest.mark.nightly),
    ],
)
def test_a_partition_cuts_the_directions_that_it_says_and_no_client(
    cluster_of_three: Deployment, direction: str, out: str, back: str
) -> None:
    up = contained(cluster_of_three)

    def a_client_is_answered() -> None:
        assert probe.seen_brokers(up.clusters["A"].brokers[1].client_address)

    seen = bites_and_heals(up, spec("partition", "A/1", direction=direction), a_client_is_answered)
    assert seen == {"before": True, "out": out, "in": back}


def test_partitions_that_overlap_add_up_and_each_heal_ends_its_own(
    cluster_of_three: Deployment,
) -> None:
    up = contained(cluster_of_three)
    wanted = [("A/1", 2), ("A/1", 3), ("A/3", 1)]
    specs = [
        replace(spec("partition", target, peer=peer), id=f"p{n}")
        for n, (target, peer) in enumerate(wanted)
    ]
    first, second, hidden = (cast(Any, FAULTS["partition"](one, world(up))) for one in specs)
    one, three = (cast(Any, up.clusters["A"].brokers[number]) for number in (1, 3))
    try:
        for fault in (first, second):
            fault.inject()
            assert fault.bite().bit
        hidden.inject()
        assert not cast(Any, FAULTS["partition"]).measure(hidden)[0], (
            "what another cuts already shows nothing of its own"
        )
        second.heal()
        assert first.measure()[0], "the heal of another took nothing of it"
        assert one.confines.round_trip(three.inner_addresses[0], within=1.0) is None, (
            "wanted by two, and one of them lasts"
        )
        assert any("p0 still cuts" in line for line in hidden.heal())
        assert one.confines.round_trip(three.inner_addresses[0], within=60.0) is not None
        one.confines.disconnect()
        one.confines.reconnect()
        assert first.measure()[0], "it is the broker's own, and outlives its cable"
    finally:
        one.confines.reconnect()
        checked = [fault.heal() for fault in (second, hidden, first)][-1]
    assert any("in the ISR of all" in line for line in checked)


def test_little_memory_is_felt_and_given_back(cluster_of_three: Deployment) -> None:
    up = contained(cluster_of_three)
    seen = bites_and_heals(up, spec("broker-memory-limit", "A/2"), lambda: write(up))
    assert seen["met"] or seen["killed"]
    assert cast(Any, up.clusters["A"].brokers[2].confines).memory().limit is None


def test_a_fault_that_was_not_carried_out_has_no_bite(
    cluster_of_three: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = contained(cluster_of_three)
    confines = type(up.clusters["A"].brokers[1].confines)
    for verb in ("disconnect", "block", "limit_memory"):
        monkeypatch.setattr(confines, verb, lambda self, *_: None)
    for name in sorted(IN_CONTAINERS):
        fault = FAULTS[name](spec(name, "A/1"), world(up, stopping=True))
        fault.inject()
        assert not fault.bite().bit, name
        fault.heal()


@pytest.mark.parametrize("name", sorted(IN_CONTAINERS))
def test_a_runtime_without_containers_refuses_before_anything_starts(name: str) -> None:
    chosen = scenario("broker-loss", ScenarioRequest(seed=1))
    broken = replace(chosen, schedule=(spec(name, "A/1"),))
    check(broken, "docker")
    with pytest.raises(
        InputError,
        match=("needs containers, and the runtime process has none; run it with --runtime docker"),
    ):
        check(broken, "process")


@pytest.mark.nightly
def test_a_broker_has_another_time_of_day_until_the_heal(cluster_of_three: Deployment) -> None:
    if any(
        broker.confines is not None for broker in cluster_of_three.clusters["A"].brokers.values()
    ):
        pytest.skip("containers have the clock of their machine")
    try:
        faketime.library()
    except InputError as missing:
        pytest.skip(str(missing))
    before = set(Path("/dev/shm").glob("*faketime*"))
    measured = bites_and_heals(
        cluster_of_three, spec("clock-skew", "A/2", clock="ahead", seconds=600.0)
    )
    assert isinstance(measured, dict)
    off = measured["seconds_off"]
    assert isinstance(off, float)
    assert 300 < off < 900
    assert set(Path("/dev/shm").glob("*faketime*")) <= before
