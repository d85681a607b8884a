"""The shadow mirror killed, stalled and cut off at each of its steps, on real brokers: it
continues, and no client wrote too early."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linkflap.harness.mirrors.shadow.failpoints import Step
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.topologies import parse
from tests.shadow_cells import BREAKS, FAILING_OVER, run_cell
from tests.shadow_sides import Sides, shadow

CONTINUOUS = {("appended", "kill"), ("handing-over", "disconnect")}
"""Cells that run every time; the others run nightly."""
MATRIX = [
    pytest.param(step, how, marks=() if (step, how) in CONTINUOUS else pytest.mark.nightly)
    for how in BREAKS
    for step in ("registered", "noted", "created", "narrowed", *FAILING_OVER)
    # who waits for the failover wakes a process that is done
    if (step, how) != ("handed-over", "stall")
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Sides]]:
    """A and three brokers of B, for one cell after the other, with a proxy in each path of a
    shadow."""
    folder = tmp_path_factory.mktemp("wide")
    events = EventLog(folder / "events.jsonl")
    try:
        with runtime("process")(parse("A->B:3"), folder=folder, recorder=events) as up:
            yield up, Sides(up, shadow(up).plain(), folder)
    finally:
        events.close()


@pytest.mark.parametrize(("step", "how"), MATRIX)
def test_a_failover_goes_on_from_every_step(
    wide: tuple[Deployment, Sides], step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cell(*wide, step, how, monkeypatch)
