"""Runs that fail with the same kind, and for different reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.chaos import scenario_file
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.harness.model.scenario import MirrorSpec, Scenario
from linkflap.suite import triage as triages
from linkflap.suite.failures import era_of, name_of
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import struck
from linkflap.suite.plan import Plan
from linkflap.suite.reports import era_in, failures, paths_of, read
from linkflap.suite.triage import triage
from linkflap.suite.work import Task, Workers
from tests.unit.suite.scripted import Scripted

KIND = "lost-write:lost-write"


class TwoBugs(Scripted):
    """A run fails if it has a link-cut or a mirror-kill."""

    def fails(self, task: Task) -> bool:
        return bool(faults(scenario_file.read(task.scenario, seed=0)) & {"link-cut", "mirror-kill"})


class NoBug(Scripted):
    """No run fails again."""

    def fails(self, task: Task) -> bool:
        return False


def faults(scenario: Scenario) -> set[str]:
    return {fault.fault for fault in scenario.schedule}


def with_fault(wanted: str, other: str) -> Scenario:
    for number in range(3000):
        made = generate(1, number, Coverage(), GeneratorBounds(most=4), guided=False)
        if wanted in faults(made) and other not in faults(made):
            return made
    raise AssertionError(wanted)


def suite(root: Path, *, shrink: float) -> SuiteFolder:
    """A suite whose runs 1 and 2 failed."""
    plan = Plan(name="nightly", seed=7, seconds=60, jobs=2, shrink_seconds=shrink, replays=2)
    folder = SuiteFolder.create(root, plan)
    for number, wanted in enumerate((("link-cut", "mirror-kill"), ("mirror-kill", "link-cut")), 1):
        folder.write_scenario(number, with_fault(*wanted))
        folder.append(RunResult(number=number, verdict="invalid", kinds=(KIND,)))
    return folder


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted runs have no history to read."""
    monkeypatch.setattr(triages, "observed", lambda path: SimpleNamespace(cells=()))


def test_a_run_without_the_faults_of_the_smallest_scenario_is_shrunk_too(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    assert len(failures(folder)) == 1
    reports = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    assert sorted(
        (report.found, [fault.partition(" ")[0] for fault in report.faults]) for report in reports
    ) == [((1,), ["link-cut"]), ((2,), ["mirror-kill"])]
    found = failures(folder)
    assert sorted([run.number for run in one.runs] for one in found) == [[1], [2]]
    assert not any(one.unexplained for one in found)

    again = TwoBugs()
    assert triage(folder, cast(Workers, again), lambda _: None) == reports
    assert again.started == []


def test_runs_that_no_report_explains_stay_listed(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    _, other = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    second = next(found for found in failures(folder) if found.path.name.endswith("-2"))
    (second.path / "report.json").unlink()
    (left,) = failures(folder)
    assert [run.number for run in left.runs] == [1, 2]
    assert [run.number for run in left.unexplained] == list(other.found)


def test_a_failure_that_never_failed_again_explains_one_run(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    (report,) = triage(folder, cast(Workers, NoBug()), lambda _: None)
    assert (report.reproduced, len(report.found)) == (False, 1)
    (one,) = failures(folder)
    assert ([run.number for run in one.runs], len(one.unexplained)) == ([1, 2], 1)


def test_a_run_on_another_mirror_is_another_failure(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    first = folder.scenario(1)
    folder.write_scenario(2, replace(first, mirror=MirrorSpec(kind="mm2")))
    reports = triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    assert [report.mirror for report in reports] == ["shadow", "mm2"]


def test_a_report_of_another_kind_with_the_same_directory_is_none(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    triage(folder, cast(Workers, TwoBugs()), lambda _: None)
    (own, _) = paths_of(folder, KIND)[:2]
    assert read(own, KIND) is not None
    assert read(own, "lost-write:another") is None


def test_a_verdict_that_cannot_be_read_has_no_era(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=600)
    folder.run_path(1).mkdir()
    (folder.run_path(1) / "verdict.json").write_text('{"anomal')
    assert era_in(folder, folder.results[0], KIND) == ""


def test_long_names_of_different_kinds_differ() -> None:
    one, other = (f"unknown:check:{'reason ' * 20}{end}" for end in ("A", "B"))
    assert name_of(one) != name_of(other)
    assert len(name_of(one)) == 80


def test_without_time_for_shrinking_one_failure_of_a_kind_is_replayed(tmp_path: Path) -> None:
    folder = suite(tmp_path / "s", shrink=0)
    assert len(triage(folder, cast(Workers, TwoBugs()), lambda _: None)) == 1


def anomaly(**changed: object) -> dict[str, object]:
    made = {
        "check": "lost-write",
        "kind": "lost-write",
        "cluster": "B",
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "allowed": False,
        "evidence": {},
    }
    return made | changed


def era(origin: str, start: int, end: int | None, *, truncated: bool = False) -> dict[str, object]:
    where = {"cluster": "B", "topic": "t", "partition": 0}
    return {**where, "origin": origin, "start": start, "end": end, "truncated": truncated}


ERAS = [
    era("native", 0, None, truncated=True),
    era("mirrored", 0, 7),
    era("native", 7, None),
]


@pytest.mark.parametrize(
    ("anomalies", "expected"),
    [
        ([anomaly()], "native"),
        ([anomaly(offset=6)], "mirrored"),
        ([anomaly(allowed=True), anomaly(offset=6)], "mirrored"),
        ([anomaly(kind="another")], ""),
        ([anomaly(topic=None)], ""),
        ([anomaly(offset=6, evidence={"capture": "1-failover"})], "native"),
    ],
)
def test_the_era_is_that_of_the_first_anomaly(
    anomalies: list[Mapping[str, Any]], expected: str
) -> None:
    assert era_of({"anomalies": anomalies, "eras": ERAS}, KIND) == expected
    assert era_of({"anomalies": anomalies}, KIND) == ""


def test_what_struck_names_the_log_states() -> None:
    cells = (
        "on/shadow/A->B",
        "strike/link-cut/mirror-behind/link-1/shadow",
        "strike/link-cut/open-transactions/link-1/shadow",
        "strike/mirror-kill/plain/link-1/shadow",
    )
    assert list(struck(cells)) == [
        "link-cut on link-1 during mirror-behind, open-transactions",
        "mirror-kill on link-1",
    ]
