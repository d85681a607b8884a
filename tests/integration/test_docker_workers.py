"""`pytest -n 4` on containers: every worker has its own pair of clusters; nothing is left, also
after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from linkflap.harness.machine import cleanup, ledger
from linkflap.harness.model.wait import until
from tests.command_line import environment
from tests.on_runtimes import skip_without

pytestmark = pytest.mark.nightly
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
def client() -> Any:
    skip_without("docker")
    from linkflap.harness.runtimes.docker import engine

    return engine.client()


@pytest.fixture
def workers(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    """pytest with four workers, in its own session and with its own ledger."""
    env = environment(tmp_path / "ledger")
    for name in ("LINKFLAP_RUNTIME_DIR", "LINKFLAP_PORTS"):
        monkeypatch.setenv(name, env[name])
    (tmp_path / "test_pairs.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-n",
        str(WORKERS),
        "-p",
        "no:cacheprovider",
        "test_pairs.py",
    ]
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        command,
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


def things(client: Any) -> set[str]:
    """All containers and networks of linkflap's, and all volumes."""
    mine = {"label": "linkflap.owner"}
    made = [
        *client.containers.list(all=True, filters=mine, ignore_removed=True),
        *client.networks.list(filters=mine),
    ]
    return {thing.name for thing in (*made, *client.volumes.list())}


def test_four_workers_have_pairs_of_their_own_and_leave_nothing(
    client: Any, workers: subprocess.Popen[str]
) -> None:
    before = things(client)
    said, _ = workers.communicate(timeout=900)
    assert workers.returncode == 0, said
    addresses = [line.split()[2:] for line in said.splitlines() if line.startswith("pair gw")]
    assert len(addresses) == 8
    assert (
        len({line.split()[1] for line in said.splitlines() if line.startswith("pair gw")})
        == WORKERS
    )
    assert things(client) <= before
    assert ledger.entries() == [], "no lease, no port, no process"


def test_kill_9_of_all_workers_in_the_middle_leaves_nothing(
    client: Any, workers: subprocess.Popen[str]
) -> None:
    before = things(client)
    until(
        lambda: len(things(client) - before) >= 2 * WORKERS,
        within=300,
        what="containers of all workers to come up",
        every=0.2,
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
            not (things(client) - before)
            and not ledger.entries()
            and not any(alive(process) for process in below)
        )

    until(
        gone,
        within=300,
        what="everything to be gone",
        every=0.5,
        state=lambda: (things(client) - before, ledger.entries()),
    )
    assert cleanup.clean().removed == []


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
