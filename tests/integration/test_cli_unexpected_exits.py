"""A broker or a mirror dies by itself: the run continues to its end, names it, and is not valid. If
a client dies, it is."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.harness.rundir import RunReader
from tests.command_line import environment, linkflap, start


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
def test_what_dies_unasked_is_named_and_the_run_ends(
    tmp_path: Path, program: str, kind: str, subject: str, says: str
) -> None:
    env = environment(tmp_path / "ledger")
    running = start(
        ["run", "baseline", "--seed", "1", "--no-verify", "--out", "run"], env=env, cwd=tmp_path
    )
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
    judged = linkflap("verify", "run", env=env, cwd=tmp_path)
    assert judged.returncode in (1, 2), judged.stdout + judged.stderr
    assert "recording: the run was failed" in " ".join(judged.stdout.split())


@pytest.mark.parametrize(
    "number", [signal.SIGABRT, pytest.param(signal.SIGSEGV, marks=pytest.mark.nightly)]
)
def test_clients_that_die_are_named_and_the_run_ends_with_its_verdict(
    tmp_path: Path, number: signal.Signals
) -> None:
    env = environment(tmp_path / "ledger")
    running = start(["run", "baseline", "--seed", "1", "--out", "run"], env=env, cwd=tmp_path)
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
    assert "Clients that died" in page
    assert all(", ".join(event.clients) in page for event in died)
