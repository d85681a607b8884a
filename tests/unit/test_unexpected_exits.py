"""Unexpected exits: a failover explains the processes that it ended, also when its mirror was
reversed; nothing explains a later death.

Of a broker it is reported how it ended and what it logged last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.scenario import FaultSpec
from linkflap.recording.unexpected_exits import UnexpectedExits, how
from tests.events import Rows

AWAY = FaultSpec(id="away", fault="failover-forced", target="A->B", at=0, duration=0)
REVERSE = FaultSpec(
    id="reverse", fault="mirror-reverse", target="A->B", at=0, duration=0, when="after:away"
)


class Scene:
    """A pair of clusters with one broker each, mirrors in both directions, and the active
    faults."""

    def __init__(self) -> None:
        self.faults: list[FaultSpec] = []
        self.brokers = {name: self.broker(name) for name in "AB"}
        self.mirrors = {"A->B": SimpleNamespace(alive=True)}
        clusters = {
            name: SimpleNamespace(brokers={1: broker}) for name, broker in self.brokers.items()
        }
        self.events = Rows()
        world = SimpleNamespace(
            deployment=SimpleNamespace(clusters=clusters),
            mirrors=self.mirrors,
            recorder=self.events,
        )
        self.deaths = UnexpectedExits(
            world, SimpleNamespace(under_way=lambda: list(self.faults)), []
        )
        self.deaths.all_started()

    @staticmethod
    def broker(name: str) -> SimpleNamespace:
        words = lambda *, lines: [f"line {n} {'and more ' * 50}" for n in range(4 - lines, 4)]  # noqa: E731
        return SimpleNamespace(
            cluster=name,
            id=1,
            state="running",
            log="its log",
            exit_status=None,
            last_words=words,
            confines=None,
        )

    def failed_over(self) -> None:
        self.faults = [AWAY]
        self.brokers["A"].state, self.mirrors["A->B"].alive = "stopped", False

    def reversed(self) -> None:
        self.brokers["A"].state = "running"
        self.mirrors["B->A"] = SimpleNamespace(alive=True)
        self.faults = []


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.failed_over()
    assert made.deaths.look() == []
    return made


def test_brokers_that_a_reversal_finds_dead_are_no_deaths(scene: Scene) -> None:
    scene.faults = [REVERSE]
    assert scene.deaths.look() == []


def test_processes_ended_by_a_failover_are_explained_after_the_reversal_too(scene: Scene) -> None:
    scene.reversed()
    assert scene.deaths.look() == []


def test_a_death_after_the_reversal_is_unexpected(scene: Scene) -> None:
    scene.reversed()
    assert scene.deaths.look() == []
    scene.brokers["A"].state, scene.mirrors["B->A"].alive = "stopped", False
    exits = scene.deaths.look()
    assert [said.split(";")[0] for said in exits] == [
        "broker A/1 died by itself (exit status unknown)",
        "the mirror of B->A died by itself",
    ]
    assert scene.deaths.clusters == {"A"}


def test_a_brokers_death_tells_its_status_and_its_last_words_shortened() -> None:
    scene = Scene()
    broker = scene.brokers["B"]
    broker.state, broker.exit_status = "stopped", -9
    broker.confines = SimpleNamespace(memory=lambda: SimpleNamespace(killed=True))
    (exits,) = scene.deaths.look()
    assert exits.startswith(
        "broker B/1 died by itself (exit status 137, SIGKILL, because its container was out of "
        "memory); "
    )
    assert "line 2" in exits
    assert "line 3" in exits
    assert exits.endswith("see its log")
    assert len(exits) < 500
    ((kind, subject, data),) = scene.events
    assert (kind, subject, data["by"], data["status"], data["out_of_memory"]) == (
        "broker-died",
        "B/1",
        "itself",
        -9,
        True,
    )
    assert [word[:6] for word in cast(list[str], data["last_words"])] == ["line 2", "line 3"]


def test_a_death_is_reported_without_an_engine_to_ask() -> None:
    def gone() -> None:
        raise EnvironmentFailure("no engine answers")

    scene = Scene()
    broker = scene.brokers["B"]
    broker.state, broker.exit_status, broker.confines = "stopped", -9, SimpleNamespace(memory=gone)
    (exits,) = scene.deaths.look()
    assert "SIGKILL" in exits


@pytest.mark.parametrize(
    ("status", "starved", "said"),
    [
        (1, None, "exit status 1"),
        (0, False, "exit status 0"),
        (-15, False, "exit status 143, SIGTERM"),
        (-9, None, "exit status 137, SIGKILL, which is also what a kernel out of memory sends"),
        (-9, False, "exit status 137, SIGKILL, not because its container was out of memory"),
        (-100, False, "exit status 228, signal 100"),
    ],
)
def test_how_a_broker_ended(status: int, starved: bool | None, said: str) -> None:
    assert how(status, starved=starved) == said


def test_the_failback_explains_what_it_ends(scene: Scene) -> None:
    scene.reversed()
    scene.deaths.look()
    scene.faults = [FaultSpec(id="home", fault="failover-planned", target="B->A", at=0, duration=0)]
    scene.mirrors["B->A"].alive = False
    assert scene.deaths.look() == []
