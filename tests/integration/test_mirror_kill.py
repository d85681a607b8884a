"""mirror-kill on a real MirrorMaker 2 worker: its process is seen to be gone, and records go through again after the heal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from chaos.faults import FAULTS
from harness.mirrors import MIRRORS
from harness.model.protocols import Mirror, World
from harness.model.scenario import FaultSpec, MirrorSpec
from harness.rundir import EventLog
from harness.runtimes import runtime
from topologies import parse

pytestmark = pytest.mark.integration
KILL = FaultSpec(id="crash", fault="mirror-kill", target="A->B", at=0, duration=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    events = EventLog(tmp_path / "events.jsonl")
    topology = parse("A->B")
    try:
        with runtime("process")(topology, folder=tmp_path, recorder=events) as up:
            mirror: Mirror = MIRRORS["mm2"](MirrorSpec(kind="mm2"), topology.links[0], up, events)
            mirror.start()
            yield cast(World, SimpleNamespace(deployment=up, mirrors={"A->B": mirror}, recorder=events, stopping=False))
            mirror.stop()
    finally:
        events.close()


def test_the_worker_dies_and_comes_back(world: World) -> None:
    mirror = world.mirrors["A->B"]
    fault = FAULTS["mirror-kill"](KILL, world)
    try:
        fault.inject()
        bite, alive = fault.bite(), mirror.alive
    finally:
        checked = fault.heal()
    assert (bite.bit, bite.measured, alive) == (True, {"before": "alive", "during": "gone"}, False)
    assert mirror.alive
    assert fault.heal() == checked
