"""Containers of each harness and pytest worker, and their leftovers when it ends or dies."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from linkflap.harness.machine import cleanup, engine_leftovers, ledger, process_identity
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests import command_line
from tests.command_line import alive, kill_watchdog, linkflap, use_ledger
from tests.on_runtimes import (
    HARNESS,
    Events,
    existing,
    labelled,
    of,
    skip_without,
    topology,
    volumes_of,
)
from tests.waiting import eventually


@pytest.fixture
def bystanders(engine: Any) -> Iterator[None]:
    """A container, a network and a volume of somebody else, which must stay untouched."""
    from linkflap.harness.runtimes.docker.images import kafka_image

    name = f"not-linkflaps-{os.getpid()}"
    container = engine.containers.create(
        kafka_image.ready(kafka(DEFAULT_KAFKA)).id, ["java", "-version"], name=name
    )
    network = engine.networks.create(name)
    volume = engine.volumes.create(name)
    try:
        yield
        container.reload()
        network.reload()
        volume.reload()
    finally:
        container.remove(force=True)
        network.remove()
        volume.remove()


@pytest.fixture
def harness(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[subprocess.Popen[str], Identity]]:
    """A harness process with its own ledger and a paused broker; returns its identity and its
    children."""
    use_ledger(monkeypatch, tmp_path / "runtime")
    with command_line.harness(HARNESS) as (process, _):
        owner = cast(Identity, process_identity.identify(process.pid))
        assert len(of(engine, owner)) == 3, "a broker, a toxiproxy-server, a network"
        yield process, owner


def test_after_a_normal_end_nothing_is_left_and_nothing_else_was_touched(
    engine: Any, bystanders: None, tmp_path: Path
) -> None:
    me = ledger.own().owner
    with runtime("docker")(
        topology(ClusterSpec(name="A")), folder=tmp_path, recorder=Events()
    ) as deployment:
        assert len(of(engine, me)) == 3
        assert ledger.own().engines
        assert len(ledger.own().contained) == 2, "the memory of a broker and a toxiproxy-server"
    assert of(engine, me) == []
    assert not ledger.own().engines
    assert not ledger.own().contained
    assert not ledger.own().ports
    broker = deployment.clusters["A"].brokers[1]
    assert broker.log.read_text(), "what it logged outlives its container"
    deployment.close()


def test_kill_9_of_the_harness_leaves_no_container_no_network_no_volume(
    engine: Any, bystanders: None, harness: tuple[subprocess.Popen[str], Identity]
) -> None:
    from linkflap.harness.runtimes.docker.images import kafka_image

    process, owner = harness
    engine.containers.create(
        kafka_image.ready(kafka(DEFAULT_KAFKA)).id,
        ["java"],
        labels=labelled(owner),
        volumes=["/data"],
    )
    mounted = volumes_of(engine, owner)
    assert len(mounted) == 1
    process.kill()
    process.wait()
    eventually(
        "its things to be gone", lambda: not of(engine, owner), state=lambda: of(engine, owner)
    )
    eventually("its entry to be gone", lambda: not ledger.entries(), state=ledger.entries)
    assert not existing(engine, mounted)


@pytest.mark.xdist_group("leftovers")
def test_clean_does_what_a_dead_watchdog_cannot_once_the_engine_answers(
    engine: Any,
    bystanders: None,
    harness: tuple[subprocess.Popen[str], Identity],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, owner = harness
    kill_watchdog(process.pid)
    assert cleanup.clean().removed == [], "what a living harness holds is not touched"
    process.kill()
    process.wait()
    with monkeypatch.context() as without:
        without.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
        assert any("linkflap clean" in line for line in cleanup.clean().left)
    left = of(engine, owner)
    assert left
    removed = cleanup.clean().removed
    assert all(any(name in line for line in removed) for name in left)
    assert of(engine, owner) == []
    assert ledger.entries() == []


@pytest.mark.xdist_group("leftovers")
def test_a_foreign_container_on_the_network_is_named_and_holds_up_nothing_else(
    engine: Any, harness: tuple[subprocess.Popen[str], Identity]
) -> None:
    from linkflap.harness.runtimes.docker.images import proxy_image

    process, owner = harness
    kill_watchdog(process.pid)
    *containers, network = of(engine, owner)
    guest = engine.containers.run(
        proxy_image.ready(build=True),
        entrypoint=[proxy_image.SERVER],
        network=network,
        name=f"guest-{owner.pid}",
        detach=True,
    )
    try:
        process.kill()
        process.wait()
        done = linkflap("clean", env=dict(os.environ), cwd=cast(Path, "/"), within=300)
        assert done.returncode == 255
        assert (
            f"network {network} still has container {guest.name}, which is not linkflap's; "
            "disconnect it" in done.stderr
        )
        assert all(f"removed container {name} of" in done.stderr for name in containers)
        assert of(engine, owner) == [network]
        guest.reload()
        assert guest.status == "running"
    finally:
        guest.remove(force=True)
    assert cleanup.clean().left == []
    assert of(engine, owner) == []


def test_a_normal_end_names_a_foreign_container_and_can_be_tried_again(
    engine: Any,
) -> None:
    from linkflap.harness.runtimes.docker.engine import create_network
    from linkflap.harness.runtimes.docker.images import proxy_image

    network = create_network()
    guest = engine.containers.run(
        proxy_image.ready(build=True),
        entrypoint=[proxy_image.SERVER],
        network=network.name,
        name=f"guest-{os.getpid()}",
        detach=True,
    )
    try:
        with pytest.raises(
            EnvironmentFailure,
            match=f"network {network.name} still has container {guest.name}, which is not",
        ):
            network.close()
        assert ledger.own().engines, "the watchdog and `clean` know of it"
    finally:
        guest.remove(force=True)
        network.close()
    assert not ledger.own().engines
    assert of(engine, ledger.own().owner) == []


# Leftovers of dead owners in the engine, which no ledger lists, are removed by label, owner and
# age.


DAY = 24 * 3600


def identity() -> process_identity.Identity:
    mine = process_identity.identify(os.getpid())
    assert mine is not None
    return mine


def dead() -> process_identity.Identity:
    """This pid, with another start time."""
    mine = identity()
    return replace(mine, born=f"{mine.born.rpartition('/')[0]}/1")


def elsewhere() -> process_identity.Identity:
    boot, _, start = identity().born.split("/")
    return replace(identity(), born=f"{boot}/pid:[1]/{start}")


def earlier() -> process_identity.Identity:
    return replace(identity(), born=f"another-boot/{identity().born.partition('/')[2]}")


@pytest.mark.parametrize(
    ("owner", "age", "stale"),
    [
        (identity, DAY + 1, False),
        (dead, 0, True),
        (earlier, 0, True),
        (elsewhere, DAY - 1, False),
        (elsewhere, DAY + 1, True),
    ],
)
def test_containers_of_living_or_unknown_owners_are_left_alone(
    owner: Callable[[], Identity], age: int, stale: bool
) -> None:
    assert engine_leftovers._is_stale(engine_leftovers.owner_label(owner()), age) is stale


@pytest.mark.xdist_group("leftovers")  # of dead owners, which other processes remove too
def test_a_dead_owners_network_is_removed_without_a_ledger_and_a_living_ones_is_not(
    engine: Any,
) -> None:
    name = f"linkflap-unclaimed-{secrets.token_hex(4)}"
    for owner in (dead, identity):
        engine.networks.create(
            f"{name}-{owner.__name__}",
            labels={engine_leftovers.OWNER: engine_leftovers.owner_label(owner())},
        )
    try:
        engine_leftovers.unclaimed()
        assert [network.name for network in engine.networks.list(names=[name])] == [
            f"{name}-identity"
        ]
    finally:
        for network in engine.networks.list(names=[name]):
            network.remove()


def test_an_engine_that_dies_while_it_is_looked_through_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without("docker")

    def dies(_: object) -> set[str]:
        raise ConnectionResetError("gone")

    monkeypatch.setattr(engine_leftovers, "_stale", dies)
    swept = engine_leftovers.unclaimed()
    assert swept.removed == []
    assert swept.left == [
        f"the Docker engine does not answer any more (gone); {engine_leftovers.FIX}"
    ]


def test_leftovers_are_empty_if_no_engine_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert engine_leftovers.unclaimed() == engine_leftovers.Removed()


# `pytest -n 4` on containers: every worker has its own pair of clusters; nothing is left, also
# after kill -9.


WORKERS = 4
TESTS = """
import pytest

pytestmark = pytest.mark.linkflap(topology="A->B", runtime="docker")


@pytest.mark.parametrize("number", range(8))
def test_a_pair_of_its_own(number, linkflap_deployment, worker_id):
    addresses = [cluster.bootstrap for cluster in linkflap_deployment.clusters.values()]
    print("pair", worker_id, *addresses)
    assert linkflap_deployment.links["A->B"].round_trip(within=60) is not None
"""


@pytest.fixture
def workers(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    """pytest with four workers, in its own session and with its own ledger."""
    use_ledger(monkeypatch, tmp_path / "ledger")
    (tmp_path / "test_pairs.py").write_text(TESTS)
    options = f"-m pytest -q -rA -n {WORKERS} -p no:cacheprovider test_pairs.py"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [sys.executable, *options.split()],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def things(engine: Any) -> set[str]:
    """All containers and networks of linkflap's, and all volumes."""
    mine = {"label": "linkflap.owner"}
    made = [
        *engine.containers.list(all=True, filters=mine, ignore_removed=True),
        *engine.networks.list(filters=mine),
    ]
    return {thing.name for thing in (*made, *engine.volumes.list())}


@pytest.mark.nightly
def test_four_workers_have_pairs_of_their_own_and_leave_nothing(
    engine: Any, workers: subprocess.Popen[str]
) -> None:
    before = things(engine)
    said, _ = workers.communicate(timeout=900)
    assert workers.returncode == 0, said
    addresses = [line.split()[2:] for line in said.splitlines() if line.startswith("pair gw")]
    assert len(addresses) == 8
    assert (
        len({line.split()[1] for line in said.splitlines() if line.startswith("pair gw")})
        == WORKERS
    )
    assert things(engine) <= before
    assert ledger.entries() == [], "no lease, no port, no process"


@pytest.mark.nightly
def test_kill_9_of_all_workers_in_the_middle_leaves_nothing(
    engine: Any, workers: subprocess.Popen[str]
) -> None:
    before = things(engine)
    eventually(
        "containers of all workers to come up",
        lambda: len(things(engine) - before) >= 2 * WORKERS,
        within=300,
    )
    held = ledger.entries()
    assert held
    assert any(entry.ports for entry in held)
    below = psutil.Process(workers.pid).children(recursive=True)
    # Not the watchdogs, which outlive a harness by design; they lead their own sessions.
    os.killpg(workers.pid, signal.SIGKILL)
    workers.wait(60)

    def gone() -> bool:
        return (
            not (things(engine) - before)
            and not ledger.entries()
            and not any(alive(process) for process in below)
        )

    eventually(
        "everything to be gone",
        gone,
        state=lambda: (things(engine) - before, ledger.entries()),
        within=300,
    )
    assert cleanup.clean().removed == []
