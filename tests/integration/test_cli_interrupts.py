"""Runs that are ended, or whose processes or disk end: Ctrl-C, SIGTERM and kill -9 at any moment;
brokers, mirrors and clients that die by themselves; a full disk. Nothing is left, and the run
directory can be read."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest

from linkflap.harness.machine import cleanup, ledger
from linkflap.harness.rundir import RunReader
from tests import command_line
from tests.command_line import (
    Running,
    alive,
    environment,
    kill_watchdog,
    linkflap,
    start,
    use_ledger,
)
from tests.on_runtimes import mounted
from tests.waiting import eventually

INTERRUPTED = "linkflap: interrupted; everything that was started is stopped"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A run that has just begun."""
    use_ledger(monkeypatch, tmp_path / "ledger")
    running = start("run link-flap --seed 1 --out run", env=os.environ, cwd=tmp_path)
    yield running
    running.close()


def assert_interrupted(run: Running, tmp_path: Path) -> None:
    # Blank lines come from rich or from the shell's ^C.
    said = [
        line.rstrip()
        for line in run.said
        if line.startswith("linkflap:") and "stopping already" not in line
    ]
    assert said == [INTERRUPTED]
    assert not [line for line in run.said if "Traceback" in line], run.said
    assert RunReader(tmp_path / "run").run.status == "interrupted"
    assert not list((tmp_path / "run").glob("logs/*/*/data")), "brokers' data are not kept"


MOMENTS = [
    ("phase starting clusters", signal.SIGINT, True),
    ("phase starting mirrors", signal.SIGINT, True),
    ("phase starting mirrors", signal.SIGTERM, False),
    ("fault flap", signal.SIGTERM, False),
    ("fault failover", signal.SIGINT, False),
    ("phase settling", signal.SIGHUP, False),
    ("phase capturing", signal.SIGINT, True),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("moment", "number", "to_group"), MOMENTS)
def test_a_signal_at_any_moment_ends_the_run_in_order(
    run: Running, tmp_path: Path, moment: str, number: signal.Signals, to_group: bool
) -> None:
    run.says(moment)
    run.look()
    run.send(number, to_group=to_group)
    assert run.ends() == 130
    run.leaves_nothing()
    assert_interrupted(run, tmp_path)


def test_a_second_ctrl_c_while_it_stops_changes_nothing(run: Running, tmp_path: Path) -> None:
    run.says("fault flap")
    run.look()
    run.send(signal.SIGINT, to_group=True)  # as a terminal does
    run.says("phase stopping")
    run.send(signal.SIGINT)
    run.says("stopping already")
    assert run.ends() == 130
    run.leaves_nothing()
    assert_interrupted(run, tmp_path)


@pytest.mark.nightly
def test_third_ctrl_c_ends_the_run_at_once(run: Running, tmp_path: Path) -> None:
    run.says("fault flap")
    run.look()
    run.send(signal.SIGINT)
    run.says("phase stopping")
    run.send(signal.SIGINT)
    run.says("stopping already")
    run.send(signal.SIGINT)
    assert run.ends(within=30) == 130
    run.leaves_nothing()


@pytest.mark.nightly
def test_a_signal_while_spark_judges(run: Running, tmp_path: Path) -> None:
    run.says("done  stopping")
    run.look()
    run.send(signal.SIGINT, to_group=True)
    assert run.ends() == 130
    run.leaves_nothing()
    assert not [line for line in run.said if "Traceback" in line], run.said
    assert RunReader(tmp_path / "run").run.status == "finished"


def test_kill_9_in_the_middle_leaves_nothing_but_a_readable_run_directory(
    run: Running, tmp_path: Path
) -> None:
    run.says("end   flap")
    run.look()
    assert len(run.alive()) >= 2 + 4 + 1, "two brokers, four proxies' servers, a mirror"
    run.send(signal.SIGKILL)
    run.ends()
    run.leaves_nothing()
    cleaned = linkflap("clean", env=os.environ, cwd=tmp_path)
    assert cleaned.returncode == 0
    assert "nothing was left behind" in cleaned.stderr
    judged = linkflap("verify run", env=os.environ, cwd=tmp_path)
    assert judged.returncode == 2, judged.stderr
    assert "the run never ended" in " ".join(judged.stdout.split())


# A broker or a mirror dies by itself: the run continues to its end, names it, and is not valid.
# If a client dies, it is.


@pytest.mark.parametrize(
    ("program", "kind", "subject", "says"),
    [
        (
            "linkflap.harness.mirrors.shadow",
            "mirror-crashed",
            "A->B",
            "the mirror of A->B died by itself",
        ),
        pytest.param(
            "/B/1/server.properties",
            "broker-died",
            "B/1",
            "broker B/1 died by itself",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "/A/1/server.properties",
            "broker-died",
            "A/1",
            "broker A/1 died by itself",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_process_that_dies_unasked_is_named_and_the_run_ends(
    tmp_path: Path, program: str, kind: str, subject: str, says: str
) -> None:
    env = environment(tmp_path / "ledger")
    running = start("run baseline --seed 1 --no-verify --out run", env=env, cwd=tmp_path)
    try:
        running.says("phase breaking things")
        running.look()
        (victim,) = [
            process
            for process in running.alive()
            if any(program in word for word in process.cmdline())
        ]
        victim.kill()
        running.says(says, within=60)
        assert running.ends(within=300) == 255, "recorded, and failed before there was a verdict"
    finally:
        running.close()
    reader = RunReader(tmp_path / "run")
    assert reader.run.status == "failed"
    assert says in reader.run.error
    events, _ = reader.events()
    assert [(e.subject, e.by) for e in cast(list[Any], events) if e.kind == kind] == [
        (subject, "itself")
    ]
    bounds, _ = reader.bounds("2-end")
    died = subject.partition("/")[0] if kind == "broker-died" else ""
    assert {(b.cluster, b.alive) for b in bounds} == {(name, name != died) for name in "AB"}, (
        "the dead are captured from disk"
    )


@pytest.mark.parametrize(
    "number", [signal.SIGABRT, pytest.param(signal.SIGSEGV, marks=pytest.mark.nightly)]
)
def test_clients_that_die_are_named_and_the_run_ends_with_its_verdict(
    tmp_path: Path, number: signal.Signals
) -> None:
    env = environment(tmp_path / "ledger")
    running = start("run baseline --seed 1 --out run", env=env, cwd=tmp_path)
    try:
        running.says("phase breaking things")
        running.says("count acknowledged")
        running.look()
        ours = {
            p.pid: p
            for p in running.alive()
            if any("harness.workloads.process" in word for word in p.cmdline())
        }
        # not the one that they are forked from
        clients = [process for process in ours.values() if process.ppid() in ours]
        assert len(clients) >= 5, "a process for each workload"
        for client in clients[:2]:
            client.send_signal(number)
        running.says(f"killed by {number.name}", within=60)
        assert running.ends(within=400) == 0, running.said
    finally:
        running.close()
    reader = RunReader(tmp_path / "run")
    assert reader.run.status == "finished"
    died: list[Any] = [e for e in reader.events()[0] if e.kind == "client-died"]
    assert {e.pid for e in died} == {client.pid for client in clients[:2]}
    assert {(e.by, e.signal, e.again) for e in died} == {("itself", number.name, True)}
    document = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert document["verdict"] == "valid"
    assert [(d["process"], d["clients"]) for d in document["clients_died"]] == [
        (e.subject, list(e.clients)) for e in died
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Client processes that ended" in page
    assert all(", ".join(event.clients) in page for event in died)


# The run directory's disk becomes full during a run: the run ends there with one sentence, and
# nothing is left.


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of one megabyte."""
    with mounted(tmp_path / "small", size=1 << 20) as folder:
        yield folder


@pytest.mark.nightly
def test_a_full_disk_ends_the_run_and_is_named(tmp_path: Path, small: Path) -> None:
    env = environment(tmp_path / "ledger")
    command = f"run baseline --runtime process --no-verify --out {small / 'r'} --duration 600"
    ended = linkflap(command, env=env, cwd=tmp_path)
    assert ended.returncode == 255, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith(f"linkflap: no space left for the run directory {small / 'r'}; "), (
        ended.stderr
    )
    assert "Traceback" not in ended.stderr
    assert "report it" not in ended.stderr
    reader = RunReader(small / "r")
    assert (reader.run.status, reader.run.error) == ("failed", last.removeprefix("linkflap: "))
    nothing_left = list((tmp_path / "ledger").glob("[0-9]*.json"))
    eventually(
        "the watchdog to have seen its harness end",
        lambda: not any(path.exists() for path in nothing_left),
    )


# Nothing survives the harness: a real one, with brokers, proxies, a service and a paused
# broker, is ended in every way.


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
    use_ledger(monkeypatch, tmp_path / "runtime")
    with command_line.harness(HARNESS) as (process, said):
        yield process, said, psutil.Process(process.pid).children(recursive=True)


def bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def assert_nothing_survives(said: dict[str, Any], started: list[psutil.Process]) -> None:
    eventually(
        "every process that the harness started to be gone",
        lambda: not any(map(alive, started)),
        state=lambda: [process for process in started if alive(process)],
    )
    eventually("its folder to be gone", lambda: not Path(said["folder"]).exists())
    eventually("its entry to be gone", lambda: not ledger.entries(), state=ledger.entries)
    # A JVM's first thread may be a zombie while its other threads still hold the sockets.
    eventually("its ports to be free", lambda: all(bindable(port) for port in said["ports"]))


def of_brokers(started: list[psutil.Process], said: dict[str, Any]) -> list[psutil.Process]:
    found = [process for process in started if process.pid in said["brokers"]]
    assert len(found) == len(said["brokers"]) == 2
    return found


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
    # No wait: the harness stays a zombie, which has a pid and a start time like a living process.
    assert_nothing_survives(said, started)


def test_clean_does_what_a_dead_watchdog_cannot(
    harness: tuple[subprocess.Popen[str], dict[str, Any], list[psutil.Process]],
) -> None:
    process, said, started = harness
    kill_watchdog(process.pid)
    assert cleanup.clean().removed == [], "what a living harness holds is not touched"
    assert all(broker.is_running() for broker in of_brokers(started, said))
    process.kill()
    process.wait()
    eventually(
        "the brokers to die",
        lambda: not any(broker.is_running() for broker in of_brokers(started, said)),
    )
    assert Path(said["folder"]).exists()
    removed = cleanup.clean().removed
    assert any(said["folder"] in line for line in removed)
    assert any("lease" in line for line in removed)
    assert_nothing_survives(said, started)


def test_the_watchdog_ends_a_child_that_its_parents_death_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child without the parent-death signal, as a set-user-id program or a grandchild would
    be."""
    use_ledger(monkeypatch, tmp_path / "runtime")
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
    with command_line.harness(owner) as (_, pid):
        child = psutil.Process(pid)
        eventually("the child to be deaf", lambda: "deaf" in (tmp_path / "out").read_text())
    eventually("the watchdog to end it", lambda: not child.is_running())
    eventually("the entry to be gone", lambda: not ledger.entries())


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
    assert_nothing_survives(said, started)
