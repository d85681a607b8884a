"""Ctrl-C, SIGTERM and kill -9 at any moment of a run: nothing is left, and the run directory can be
read.

Through the real command line, in a process of its own with a ledger of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader
from tests.command_line import Running, environment, linkflap, start

INTERRUPTED = "linkflap: interrupted; everything that was started is stopped"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A run that has just begun."""
    env = environment(tmp_path / "ledger")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", env["LINKFLAP_RUNTIME_DIR"])
    running = start(["run", "link-flap", "--seed", "1", "--out", "run"], env=env, cwd=tmp_path)
    yield running
    running.close()


def assert_nothing_left(run: Running, *, within: int) -> None:
    until(
        lambda: not run.alive(),
        within=within,
        what="every process below the run to be gone",
        state=run.alive,
    )
    until(
        lambda: not ledger.entries(),
        within=within,
        what="its ports and children to be given back",
        state=ledger.entries,
    )


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
    pytest.param("phase starting clusters", signal.SIGINT, True, marks=pytest.mark.nightly),
    pytest.param("phase starting mirrors", signal.SIGINT, True),
    pytest.param("phase starting mirrors", signal.SIGTERM, False, marks=pytest.mark.nightly),
    pytest.param("fault flap", signal.SIGTERM, False, marks=pytest.mark.nightly),
    pytest.param("fault failover", signal.SIGINT, False),
    pytest.param("phase settling", signal.SIGHUP, False, marks=pytest.mark.nightly),
    pytest.param("phase capturing", signal.SIGINT, True, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("moment", "number", "to_group"), MOMENTS)
def test_a_signal_at_any_moment_ends_the_run_in_order(
    run: Running, tmp_path: Path, moment: str, number: signal.Signals, to_group: bool
) -> None:
    run.says(moment)
    run.look()
    run.send(number, to_group=to_group)
    assert run.ends() == 130
    assert_nothing_left(run, within=120)
    assert_interrupted(run, tmp_path)


def test_a_second_ctrl_c_while_it_stops_changes_nothing_and_the_run_is_unknown(
    run: Running, tmp_path: Path
) -> None:
    run.says("fault flap")
    run.look()
    run.send(signal.SIGINT)
    run.says("phase stopping")
    run.send(signal.SIGINT)
    run.says("stopping already")
    assert run.ends() == 130
    assert_nothing_left(run, within=120)
    assert_interrupted(run, tmp_path)
    judged = linkflap("verify", "run", env=environment(tmp_path / "ledger"), cwd=tmp_path)
    assert judged.returncode == 2, judged.stderr
    assert "the run was interrupted" in " ".join(judged.stdout.split())


@pytest.mark.nightly
def test_a_third_ends_it_at_once(run: Running, tmp_path: Path) -> None:
    run.says("fault flap")
    run.look()
    run.send(signal.SIGINT)
    run.says("phase stopping")
    run.send(signal.SIGINT)
    run.says("stopping already")
    run.send(signal.SIGINT)
    assert run.ends(within=2) == 130
    assert_nothing_left(run, within=120)


@pytest.mark.nightly
def test_a_signal_while_spark_judges(run: Running, tmp_path: Path) -> None:
    run.says("done  stopping")
    run.look()
    run.send(signal.SIGINT, to_group=True)
    assert run.ends() == 130
    assert_nothing_left(run, within=120)
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
    assert_nothing_left(run, within=120)
    env = environment(tmp_path / "ledger")
    cleaned = linkflap("clean", env=env, cwd=tmp_path)
    assert cleaned.returncode == 0
    assert "nothing was left behind" in cleaned.stderr
    judged = linkflap("verify", "run", env=env, cwd=tmp_path)
    assert judged.returncode == 2, judged.stderr
    assert "the run never ended" in " ".join(judged.stdout.split())
