"""Every scenario with clients that run a tenth of the time: it waits for what it needs, and
slowness alone never makes it unknown."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from linkflap.chaos.scenarios import SCENARIOS
from tests.command_line import environment, start

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
]

CLIENTS = "linkflap.harness.workloads.process"
RUNS, STANDS = 0.1, 0.9
"""Seconds for which all clients run, and for which they are stopped, alternately."""


def clients_of(pid: int) -> Iterator[psutil.Process]:
    """The processes below `pid` in which clients of workloads run."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if (
                CLIENTS in process.cmdline()
                and (parent := process.parent()) is not None
                and CLIENTS in parent.cmdline()
            ):  # not the one that they are forked from
                yield process


@contextmanager
def slowed_tenfold(pid: int) -> Iterator[list[psutil.Process]]:
    """Stops all clients of the run `pid` most of the time. Yields how often they were stopped."""
    over, stops = threading.Event(), []

    def slow() -> None:
        while not over.wait(RUNS) and psutil.pid_exists(pid):
            with suppress(psutil.Error):
                stopped = list(clients_of(pid))
                for process in stopped:
                    with suppress(psutil.Error):
                        process.suspend()
                over.wait(STANDS)
                for process in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGCONT)
                stops.extend(stopped)

    thread = threading.Thread(target=slow, name="slows clients")
    thread.start()
    try:
        yield stops
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_valid_with_clients_that_are_ten_times_slower(
    scenario: str, tmp_path: Path
) -> None:
    arguments = ["run", scenario, "--runtime", "process", "--out", "run"]
    running = start(arguments, env=environment(tmp_path / "ledger"), cwd=tmp_path)
    try:
        with slowed_tenfold(running.process.pid) as stops:
            status = running.ends(within=900)
    finally:
        running.close()
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert stops, "no client was slowed"
    assert (status, verdict["verdict"]) == (0, "valid"), verdict.get("reason")
