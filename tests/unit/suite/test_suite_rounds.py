"""A soak: what it refuses, what it may use, and what it reports of clusters that keep running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from linkflap.chaos.generator import Coverage, GeneratorBounds, baseline, generate
from linkflap.cli.commands import linkflap as command
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import FaultSpec
from linkflap.recording import rounds as recorded_rounds
from linkflap.recording.rounds import LivingClusters, killed_by
from linkflap.recording.soak import Size
from linkflap.suite import rounds
from linkflap.suite.folder import SuiteFolder
from linkflap.suite.plan import Plan
from linkflap.suite.summary import summary

PLAN = Plan(
    name="soak",
    seed=7,
    seconds=3600,
    jobs=1,
    bounds=GeneratorBounds(faults=rounds.faults("process")),
)


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    folder = SuiteFolder.create(tmp_path / "suite", PLAN)
    (folder.root / rounds.ROUNDS).mkdir()
    return folder


def measured(folder: SuiteFolder, number: int, **values: int) -> None:
    given: dict[str, Any] = {
        "round": number + 1,
        "age": 60.0 * number,
        "disk": 100 << 20,
        "memory": 700 << 20,
        **values,
    }
    size = Size(**given)
    (folder.root / rounds.ROUNDS / f"{number:04d}.json").write_bytes(msgspec.json.encode(size))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            ("--topologies", "A->B", "--topologies", "A->B->C"),
            "it has one topology and one Kafka release",
        ),
        (("--kafka", "4.3.1,4.1.2"), "it has one topology and one Kafka release"),
        (("--mirrors", "mm2"), "a soak needs the mirror shadow"),
        (
            ("--faults", "rolling-upgrade"),
            "a soak cannot play rolling-upgrade",
        ),
        (("--shard", "1/2"), "a soak has no shards"),
    ],
)
def test_options_that_a_soak_cannot_play_are_refused(
    tmp_path: Path, given: tuple[str, ...], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        command.main(
            ["suite", "soak", "--out", str(tmp_path / "suite"), *given], standalone_mode=False
        )
    assert not (tmp_path / "suite").exists()


def test_no_round_ends_with_other_clusters_than_it_began_with() -> None:
    made = [
        generate(seed, number, Coverage(), PLAN.bounds)
        for seed in range(3)
        for number in range(1, 9)
    ]
    drawn = {fault.fault for scenario in made for fault in scenario.schedule}
    assert drawn
    assert not drawn & rounds.NOT_IN_ROUNDS
    assert drawn >= {"failover-planned", "failover-forced", "mirror-reverse"}
    assert all(
        scenario.topology == made[0].topology for scenario in (*made, baseline(7, PLAN.bounds))
    )


def test_the_summary_shows_how_clusters_have_grown(folder: SuiteFolder) -> None:
    for number in range(9):
        measured(folder, number, disk=(100 + number) << 20)
    text = summary(folder)
    assert "limits: 1500 MiB of disk and 1200 MiB of memory" in text
    assert "| 0 | 1 | 0 | 100 | 700 |" in text
    assert "| 8 | 9 | 480 | 108 | 700 |" in text


@pytest.mark.parametrize(
    ("values", "why"),
    [({"disk": 1501 << 20}, "1501 MiB of disk"), ({"memory": 2 << 30}, "2048 MiB of memory")],
)
def test_clusters_that_outgrow_their_bounds_end_the_soak(
    folder: SuiteFolder, values: dict[str, int], why: str
) -> None:
    measured(folder, 0)
    measured(folder, 1, **values)
    with pytest.raises(EnvironmentFailure, match=f"took {why} after 2 rounds"):
        rounds.Rounds(folder).start(
            2, folder.scenario_path(2), folder.run_path(2), runtime="process"
        )


def test_a_suite_that_is_no_soak_reports_no_clusters(tmp_path: Path) -> None:
    assert (
        rounds.table(SuiteFolder.create(tmp_path / "suite", Plan(name="smoke", seed=7, seconds=60)))
        == []
    )


class Brokers:
    """A cluster of one broker, without topics and groups."""

    def __init__(self, name: str, state: str) -> None:
        self.name, self.brokers = name, {1: self}
        self.cluster, self.id, self.state = name, 1, state

    def start(self) -> None:
        self.state = "running"


@pytest.mark.parametrize(("killed", "goes_on"), [({"A"}, True), (set(), False), ({"B"}, False)])
def test_what_a_forced_failover_killed_is_started_again_and_nothing_else(
    killed: set[str], goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = LivingClusters.__new__(LivingClusters)
    clusters = {"A": Brokers("A", "stopped"), "B": Brokers("B", "running")}
    living.folder, living._killed = tmp_path, frozenset(killed)
    living.deployment = cast(Deployment, SimpleNamespace(clusters=clusters))
    monkeypatch.setattr(living, "_remove_topics", lambda _cluster: None)
    monkeypatch.setattr(recorded_rounds, "_remove_groups", lambda _cluster: None)
    monkeypatch.setattr(recorded_rounds, "folder_at", lambda _cluster: tmp_path)
    if not goes_on:
        with pytest.raises(EnvironmentFailure, match="broker A/1 does not run after a round"):
            living._clear()
        return
    living._clear()
    assert clusters["A"].state == "running"


def test_forced_failovers_kill_their_sources() -> None:
    def fault(name: str, target: str) -> FaultSpec:
        return FaultSpec(id=name, fault=name, target=target, at=0, duration=0)

    made = baseline(7, PLAN.bounds)
    assert killed_by(made) == frozenset()
    steps = (fault("failover-planned", "A->B"), fault("failover-forced", "B->A"))
    assert killed_by(replace(made, schedule=steps)) == {"B"}
