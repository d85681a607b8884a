"""Specific to the docker runtime: its errors, and an engine that dies."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, cast

import pytest

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import runtime
from tests.command_line import environment, ledger_of_its_own, linkflap
from tests.containers import HARNESS, of
from tests.on_runtimes import Events, skip_without, topology


def test_a_container_that_somebody_removed_is_a_dead_broker(engine: Any, tmp_path: Path) -> None:
    with runtime("docker")(
        topology(ClusterSpec(name="A")), folder=tmp_path, recorder=Events()
    ) as deployment:
        broker = deployment.clusters["A"].brokers[1]
        mine = {"label": "linkflap.deployment", "name": "a-1"}
        (container,) = [
            c
            for c in engine.containers.list(filters=mine)
            if c.name in of(engine, ledger.own().owner)
        ]
        container.remove(force=True)
        assert broker.state == "stopped"
        with pytest.raises(SetupError, match="could not start container a-1"):
            broker.start()


@pytest.mark.parametrize(
    ("host", "topology", "said"),
    [
        ("tcp://127.0.0.1:1", "A->B", "no Docker engine answers (Connection refused)"),
        (
            "tcp://engine.example:2375",
            "A->B",
            "the Docker engine at tcp://engine.example:2375 is another machine's",
        ),
        ("", 'A@"127.0.0.1:1/kafka:4.3.1"->B', "could not pull 127.0.0.1:1/kafka:4.3.1"),
    ],
)
def test_what_is_not_there_ends_a_run_with_one_sentence_and_255(
    tmp_path: Path, host: str, topology: str, said: str
) -> None:
    if not host:
        skip_without("docker")
    env = environment(tmp_path / "ledger", **({"DOCKER_HOST": host} if host else {}))
    done = linkflap(
        "run",
        "baseline",
        "--runtime",
        "docker",
        "--topology",
        topology,
        "--out",
        "run",
        env=env,
        cwd=tmp_path,
        within=300,
    )
    assert done.returncode == 255
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("linkflap: ")]
    assert said in sentence
    assert not (tmp_path / "run").exists(), "nothing ran, and the same command can be given again"


def test_a_full_disk_of_this_machine_is_one_sentence(tmp_path: Path, engine: Any) -> None:
    full = tmp_path / "full"
    full.mkdir()
    try:
        ledger.mount(full, size=1 << 17)
    except OSError as error:
        pytest.skip(f"no small disk can be made here: {error}")
    try:
        env = environment(tmp_path / "ledger")
        done = linkflap(
            "run",
            "baseline",
            "--runtime",
            "docker",
            "--out",
            str(full / "run"),
            env=env,
            cwd=tmp_path,
            within=300,
        )
    finally:
        ledger.unmount(full)
    assert done.returncode in (254, 255)
    assert "no space left for the run directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_of_the_engine_are_of_the_environment(engine: Any) -> None:
    from docker.errors import APIError

    from linkflap.harness.runtimes.docker.engine import asked

    with (
        pytest.raises(EnvironmentFailure, match="could not fill the glass"),
        asked("fill the glass"),
    ):
        raise APIError("no water")


class Relay:
    """A proxy to the engine that a test can end: the engine itself is shared."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server = socket.create_server(("127.0.0.1", port))
        self._ends: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect("/var/run/docker.sock")
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: Any, other: Any) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_an_engine_that_dies_is_one_sentence_and_what_is_left_is_removed_when_it_is_back(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.path.exists("/var/run/docker.sock") or os.environ.get("DOCKER_HOST"):
        pytest.skip("the engine is not at its usual place, where this test can stand between")
    for name, value in ledger_of_its_own(tmp_path / "runtime").items():
        monkeypatch.setenv(name, value)
    lease = Lease()
    (port,) = lease.ports(1)
    relay = Relay(port)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert json.loads(cast(IO[str], process.stdout).readline())
        owner = cast(Identity, process_identity.identify(process.pid))
        assert len(of(engine, owner)) == 3
        relay.close()
        _, said = process.communicate("go on\n", timeout=600)
        last = said.strip().splitlines()[-1]
        assert last.startswith(
            "linkflap.harness.model.errors.EnvironmentFailure: the Docker engine could not"
        )
        assert "Connection refused" in last
        assert (
            "containers may run on there: when it answers again, remove them with `linkflap clean`"
            in last
        )
        (entry,) = [entry for entry in ledger.entries() if entry.owner == owner]
        assert entry.ports, "its containers have them"
        assert len(of(engine, owner)) == 3, "the engine was away when they were to be removed"
        relay = Relay(port)

        def gone() -> bool:
            cleanup.clean()
            return not of(engine, owner)

        until(gone, within=60, what="its things to be gone", state=lambda: of(engine, owner))
    finally:
        process.kill()
        process.communicate()
        relay.close()
        lease.release()


@pytest.mark.nightly
def test_twenty_starts_in_a_row(engine: Any, tmp_path: Path) -> None:
    for number in range(20):
        with runtime("docker")(
            topology(ClusterSpec(name="A")), folder=tmp_path / str(number), recorder=Events()
        ) as deployment:
            deployment.clusters["A"].brokers[1].kill()
            deployment.clusters["A"].brokers[1].start()
    assert of(engine, ledger.own().owner) == []
