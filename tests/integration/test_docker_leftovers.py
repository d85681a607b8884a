"""Which containers belong to which harness, and what is left of them when it ends or dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests.command_line import ledger_of_its_own, linkflap
from tests.containers import HARNESS, of, volumes
from tests.on_runtimes import Events, topology


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
    for name, value in ledger_of_its_own(tmp_path / "runtime").items():
        monkeypatch.setenv(name, value)
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert json.loads(cast(IO[str], process.stdout).readline())
        owner = cast(Identity, process_identity.identify(process.pid))
        assert len(of(engine, owner)) == 3, "a broker, a toxiproxy-server, a network"
        yield process, owner
    finally:
        process.kill()
        process.communicate()


def test_after_a_normal_end_nothing_is_left_and_nothing_else_was_touched(
    engine: Any, bystanders: None, tmp_path: Path
) -> None:
    before = volumes(engine)
    me = ledger.own().owner
    with runtime("docker")(
        topology(ClusterSpec(name="A")), folder=tmp_path, recorder=Events()
    ) as deployment:
        assert len(of(engine, me)) == 3
        assert ledger.own().engines
        assert len(ledger.own().contained) == 2, "the memory of a broker and a toxiproxy-server"
    assert of(engine, me) == []
    assert volumes(engine) == before
    assert not ledger.own().engines
    assert not ledger.own().contained
    assert not ledger.own().ports
    broker = deployment.clusters["A"].brokers[1]
    assert broker.log.read_text(), "what it logged outlives its container"
    deployment.close()


def test_kill_9_of_the_harness_leaves_no_container_no_network_no_volume(
    engine: Any, bystanders: None, harness: tuple[subprocess.Popen[str], Identity]
) -> None:
    process, owner = harness
    before = volumes(engine)
    process.kill()
    process.wait()
    until(
        lambda: not of(engine, owner),
        within=60,
        what="its things to be gone",
        every=0.2,
        state=lambda: of(engine, owner),
    )
    until(
        lambda: not ledger.entries(), within=60, what="its entry to be gone", state=ledger.entries
    )
    assert volumes(engine) <= before


@pytest.mark.xdist_group("leftovers")
def test_clean_does_what_a_dead_watchdog_cannot(
    engine: Any, bystanders: None, harness: tuple[subprocess.Popen[str], Identity]
) -> None:
    process, owner = harness
    for child in psutil.Process(process.pid).children(recursive=True):
        if "linkflap.harness.machine.cleanup" in child.cmdline():
            child.kill()
    assert cleanup.clean().removed == [], "what a living harness holds is not touched"
    process.kill()
    process.wait()
    left = of(engine, owner)
    assert left
    removed = cleanup.clean().removed
    assert all(any(name in line for line in removed) for name in left)
    assert of(engine, owner) == []
    assert ledger.entries() == []


@pytest.mark.xdist_group("leftovers")
def test_a_container_of_somebody_elses_on_the_network_is_named_and_holds_up_nothing_else(
    engine: Any, harness: tuple[subprocess.Popen[str], Identity]
) -> None:
    from linkflap.harness.runtimes.docker.images import proxy_image

    process, owner = harness
    for child in psutil.Process(process.pid).children(recursive=True):
        if "linkflap.harness.machine.cleanup" in child.cmdline():
            child.kill()
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


def test_a_normal_end_names_a_container_of_somebody_elses_and_can_be_tried_again(
    engine: Any,
) -> None:
    from linkflap.harness.runtimes.docker.images import proxy_image
    from linkflap.harness.runtimes.docker.network import create_network

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


def test_what_cannot_be_removed_now_is_not_forgotten(
    engine: Any, harness: tuple[subprocess.Popen[str], Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is down when the harness is cleaned up."""
    process, owner = harness
    for child in psutil.Process(process.pid).children(recursive=True):
        if "linkflap.harness.machine.cleanup" in child.cmdline():
            child.kill()
    process.kill()
    process.wait()
    with monkeypatch.context() as without:
        without.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
        assert any("linkflap clean" in line for line in cleanup.clean().left)
    assert of(engine, owner)
    cleanup.clean()
    assert of(engine, owner) == []
