"""Who died unasked: a failover explains what it ended, also when its mirror was reversed; nothing explains a death after that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.deaths import Deaths
from harness.model.scenario import FaultSpec

AWAY = FaultSpec(id="away", fault="failover-forced", target="A->B", at=0, duration=0)
REVERSE = FaultSpec(id="reverse", fault="mirror-reverse", target="A->B", at=0, duration=0, when="after:away")


class Scene:
    """A pair of clusters with one broker each, a mirror both ways, and the faults that are under way."""

    def __init__(self) -> None:
        self.faults: list[FaultSpec] = []
        self.brokers = {name: SimpleNamespace(cluster=name, id=1, state="running", log="its log") for name in "AB"}
        self.mirrors = {"A->B": SimpleNamespace(alive=True)}
        clusters = {name: SimpleNamespace(brokers={1: broker}) for name, broker in self.brokers.items()}
        recorder = SimpleNamespace(event=lambda *_, **__: None)
        world = SimpleNamespace(deployment=SimpleNamespace(clusters=clusters), mirrors=self.mirrors, recorder=recorder)
        self.deaths = Deaths(world, SimpleNamespace(under_way=lambda: list(self.faults)), [])
        self.deaths.all_started()

    def failed_over(self) -> None:
        self.faults = [AWAY]
        self.brokers["A"].state, self.mirrors["A->B"].alive = "stopped", False

    def reversed(self) -> None:
        self.brokers["A"].state = "running"
        self.mirrors["B->A"] = SimpleNamespace(alive=True)
        self.faults = []


@pytest.fixture
def scene():
    made = Scene()
    made.failed_over()
    assert made.deaths.look() == []
    return made


def test_brokers_that_a_reversal_finds_dead_are_no_deaths(scene):
    scene.faults = [REVERSE]
    assert scene.deaths.look() == []


def test_what_a_failover_ended_is_no_death_after_its_mirror_was_reversed(scene):
    scene.reversed()
    assert scene.deaths.look() == []


def test_who_dies_after_the_reversal_has_died_by_itself(scene):
    scene.reversed()
    assert scene.deaths.look() == []
    scene.brokers["A"].state, scene.mirrors["B->A"].alive = "stopped", False
    told = scene.deaths.look()
    assert [said.split(";")[0] for said in told] == ["broker A/1 died by itself", "the mirror of B->A died by itself"]


def test_the_way_back_ends_what_it_ends(scene):
    scene.reversed()
    scene.deaths.look()
    scene.faults = [FaultSpec(id="home", fault="failover-planned", target="B->A", at=0, duration=0)]
    scene.mirrors["B->A"].alive = False
    assert scene.deaths.look() == []
