"""Nothing survives the harness: a real one, with brokers, proxies, a service and a paused broker,
is ended in every way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest

from linkflap.harness.machine import cleanup, ledger
from linkflap.harness.model.wait import until
from tests.command_line import ledger_of_its_own

HARNESS = """
import json, os, pathlib, sys
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.machine import cleanup, ledger
from linkflap.harness.runtimes import runtime

class Silent:
    def write(self, event):
        return event

topology = Topology(
    clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")),
    links=(LinkSpec(source="A", destination="B"),),
)
with cleanup.temporary_folder() as folder:
    try:
        with runtime("process")(topology, folder=folder, recorder=Silent()) as deployment:
            clusters = deployment.clusters.values()
            brokers = [broker for cluster in clusters for broker in cluster.brokers.values()]
            brokers[1].pause()
            said = {"folder": str(folder), "ports": ledger.own().ports}
            said["brokers"] = [broker.pid for broker in brokers]
            try:
                print(json.dumps(said), flush=True)
                sys.stdin.read()
            except KeyboardInterrupt:
                print(json.dumps([broker.state for broker in brokers]), flush=True)
                raise
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]]]:
    """A harness process with its own ledger, what it reported as held, and every process that it
    started."""
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
        said = json.loads(cast(IO[str], process.stdout).readline())
        started = psutil.Process(process.pid).children(recursive=True)
        yield process, said, started
    finally:
        process.kill()
        process.communicate()


def bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def assert_nothing_left(
    said: dict[str, Any], started: list[psutil.Process], *, within: float = 120
) -> None:
    until(
        lambda: (
            not any(
                process.is_running() and process.status() != psutil.STATUS_ZOMBIE
                for process in started
            )
        ),
        within=within,
        what="every process that the harness started to be gone",
        state=lambda: [process for process in started if process.is_running()],
    )
    until(lambda: not Path(said["folder"]).exists(), within=within, what="its folder to be gone")
    until(
        lambda: not ledger.entries(),
        within=within,
        what="its entry to be gone",
        state=ledger.entries,
    )
    # A JVM's first thread may be a zombie while its other threads still hold the sockets.
    until(
        lambda: all(bindable(port) for port in said["ports"]),
        within=within,
        what="its ports to be free",
    )


def of_brokers(started: list[psutil.Process], said: dict[str, Any]) -> list[psutil.Process]:
    found = [process for process in started if process.pid in said["brokers"]]
    assert len(found) == len(said["brokers"]) == 2
    return found


def watchdog_of(started: list[psutil.Process]) -> psutil.Process:
    return next(
        process for process in started if "linkflap.harness.machine.cleanup" in process.cmdline()
    )


def test_kill_9_of_the_harness_leaves_no_process_no_port_no_lease_no_folder(
    harness: tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]],
) -> None:
    process, said, started = harness
    assert len(started) >= 2 + 4 + 1, "two brokers, four proxies' servers, one watchdog"
    paused = [
        broker for broker in of_brokers(started, said) if broker.status() == psutil.STATUS_STOPPED
    ]
    assert len(paused) == 1
    process.kill()
    process.wait()
    assert_nothing_left(said, started)


def test_the_end_is_as_clean_when_the_parent_never_reaps_the_harness(
    harness: tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]],
) -> None:
    process, said, started = harness
    process.kill()
    # No wait: the harness stays a zombie, which has a pid and a start time like a living process.
    assert_nothing_left(said, started)


def test_clean_does_what_a_dead_watchdog_cannot(
    harness: tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]],
) -> None:
    process, said, started = harness
    watchdog_of(started).kill()
    assert cleanup.clean().removed == [], "what a living harness holds is not touched"
    assert all(broker.is_running() for broker in of_brokers(started, said))
    process.kill()
    process.wait()
    until(
        lambda: not any(broker.is_running() for broker in of_brokers(started, said)),
        within=120,
        what="the brokers to die",
    )
    assert Path(said["folder"]).exists()
    removed = cleanup.clean().removed
    assert any(said["folder"] in line for line in removed)
    assert any("lease" in line for line in removed)
    assert_nothing_left(said, started)


def test_the_watchdog_ends_a_child_that_its_parents_death_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child without the parent-death signal, as a set-user-id program or a grandchild would
    be."""
    for name, value in ledger_of_its_own(tmp_path / "runtime").items():
        monkeypatch.setenv(name, value)
    keep = (
        "import ctypes, signal; ctypes.CDLL(None).prctl(1, 0); print('deaf', flush=True); "
        "signal.pause()"
    )
    owner = f"""
import pathlib, sys
from linkflap.harness.machine import children
output = pathlib.Path({str(tmp_path / "out")!r})
deaf = [sys.executable, "-c", {keep!r}]
child = children.spawn(deaf, name="deaf", folder=output.parent, output=output)
print(child.pid, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        child = psutil.Process(int(cast(IO[str], process.stdout).readline()))
        until(
            lambda: "deaf" in (tmp_path / "out").read_text(), within=60, what="the child to be deaf"
        )
    finally:
        process.kill()
        process.communicate()
    until(lambda: not child.is_running(), within=120, what="the watchdog to end it")
    until(lambda: not ledger.entries(), within=120, what="the entry to be gone")


def test_ctrl_c_reaches_the_harness_alone_and_it_ends_everything_in_order(
    harness: tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]],
) -> None:
    process, said, started = harness
    # what a terminal does: to every process of the foreground group
    os.killpg(process.pid, signal.SIGINT)
    states = json.loads(cast(IO[str], process.stdout).readline())
    assert states == ["running", "paused"]
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert_nothing_left(said, started)
