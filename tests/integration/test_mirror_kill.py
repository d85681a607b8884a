"""mirror-kill on real mirrors: the process is gone, and records are mirrored again after the
heal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment, Mirror, World
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.topologies import parse
from tests.shadows import TOPIC, drained, ends, make_topic, own_write, shadow

KILL = FaultSpec(id="crash", fault="mirror-kill", target="A->B", at=0, duration=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    events = EventLog(tmp_path / "events.jsonl")
    topology = parse("A->B")
    try:
        with runtime("process")(topology, folder=tmp_path, recorder=events) as up:
            mirror: Mirror = make_mirror(MirrorSpec(kind="mm2"), topology.links[0], up, events)
            mirror.start()
            yield cast(
                World,
                SimpleNamespace(
                    deployment=up, mirrors={"A->B": mirror}, recorder=events, stopping=False
                ),
            )
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


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B")
def test_the_shadow_of_a_reversed_link_dies_and_comes_back(linkflap_deployment: Deployment) -> None:
    up = linkflap_deployment
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    mirror.start()
    assert [own_write(up.clusters["A"].bootstrap) for _ in range(3)] == [0, 1, 2]
    drained(mirror)
    mirror.stop()
    mirrors: dict[str, Mirror] = {"A->B": mirror}
    here = SimpleNamespace(
        deployment=up,
        mirrors=mirrors,
        recorder=mirror._recorder,
        stopping=False,
        take_up=lambda one: mirrors.update({one.link.name: one}),
        capture=lambda moment, cluster: None,
    )
    reverse = FAULTS["mirror-reverse"](
        FaultSpec(id="back", fault="mirror-reverse", target="A->B", at=0, duration=0), here
    )
    reverse.inject()
    assert reverse.bite().bit
    fault = FAULTS["mirror-kill"](replace(KILL, target="B->A"), here)
    fault.inject()
    try:
        assert fault.bite().bit
        assert own_write(up.clusters["B"].bootstrap) == 3
    finally:
        assert fault.heal() == ["mirror B->A alive, records go through"]
    back = mirrors["B->A"]
    assert isinstance(back, ShadowMirror)
    drained(back)
    assert reverse.heal()
    mirrors["B->A"].stop()
    assert (
        ends(up.clusters["A"], partitions=[(TOPIC, 0)])
        == {(TOPIC, 0): 4}
        == ends(up.clusters["B"], partitions=[(TOPIC, 0)])
    )
