"""The shadow mirror killed, stalled and cut off at each of its steps, on real brokers: it goes on, and nobody wrote too early."""

from __future__ import annotations

import pytest

from harness.mirrors.shadow.steps import STEPS
from harness.rundir import EventLog
from harness.runtimes import runtime
from tests.shadow_cells import BREAKS, Sides, run_cell, shadow
from topologies import parse

pytestmark = pytest.mark.integration
GROWING = ("grown", "narrowed")
"""Steps of a topic that grows: they have a test of their own."""
MATRIX = [
    pytest.param(step, how, marks=() if (step, how) == ("appended", "kill") else pytest.mark.nightly)
    for how in BREAKS
    for step in STEPS
    if step not in GROWING
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A and three brokers of B, for one cell after the other, with a proxy in each of a shadow's paths."""
    folder = tmp_path_factory.mktemp("wide")
    events = EventLog(folder / "events.jsonl")
    try:
        with runtime("process")(parse("A->B:3"), folder=folder, recorder=events) as up:
            yield up, Sides(up, shadow(up).plain(), folder)
    finally:
        events.close()


@pytest.mark.parametrize(("step", "how"), MATRIX)
def test_a_failover_goes_on_from_every_step(wide, step, how, monkeypatch):
    run_cell(*wide, step, how, monkeypatch)
