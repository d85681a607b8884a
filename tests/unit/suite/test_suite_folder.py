"""The suite directory after every kind of end, and how a suite resumes from it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.cli.suite import LASTS
from linkflap.harness.model.errors import InputError
from linkflap.suite import explore
from linkflap.suite.explore import Suite
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import Observed
from linkflap.suite.plan import FORMAT, Plan, seconds, shard
from linkflap.suite.summary import came_to, junit, summary, unreached, verdict_of
from linkflap.suite.work import Workers
from tests.unit.suite.scripted import Killed, Scripted

PLAN = Plan(name="smoke", seed=7, seconds=3600, runs=6, jobs=2)


@pytest.fixture(autouse=True)
def _nothing_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        explore, "observed", lambda folder: Observed(cells=("x",), missed=(), outcomes={})
    )


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    return SuiteFolder.create(tmp_path / "suite", PLAN)


def test_what_is_written_is_read_back(folder: SuiteFolder) -> None:
    one = RunResult(
        number=3,
        verdict="invalid",
        kinds=("lost-write:lost",),
        cells=("on/shadow/A->B",),
        outcomes={"x: y": 2},
    )
    folder.append(one)
    folder.append(replace(one, number=4, verdict="valid", kinds=()))
    again = SuiteFolder.open(folder.root)
    assert again.plan == PLAN
    assert again.results == folder.results
    assert again.coverage.hits == {"on/shadow/A->B": 2}


@pytest.mark.parametrize("length", [1, 20, -1])
def test_a_line_that_was_being_written_when_the_suite_was_killed_is_taken_away(
    folder: SuiteFolder, length: int
) -> None:
    folder.append(RunResult(number=0, verdict="valid"))
    size = (folder.root / "results.jsonl").stat().st_size
    folder.append(RunResult(number=1, verdict="invalid"))
    os.truncate(folder.root / "results.jsonl", size + length if length > 0 else 2 * size - 1)
    again = SuiteFolder.open(folder.root)
    assert [r.number for r in again.results] == [0]
    again.append(RunResult(number=1, verdict="valid"))
    assert [(r.number, r.verdict) for r in SuiteFolder.open(folder.root).results] == [
        (0, "valid"),
        (1, "valid"),
    ]


def test_two_suites_do_not_work_on_one_directory(folder: SuiteFolder) -> None:
    with (
        folder.held(),
        pytest.raises(InputError, match="another linkflap suite is working on"),
        SuiteFolder.open(folder.root).held(),
    ):
        pass
    with SuiteFolder.open(folder.root).held():
        pass


def of_format(root: Path, number: int) -> None:
    plan = json.loads((root / "suite.json").read_text())
    (root / "suite.json").write_text(json.dumps({**plan, "format": number}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda root: (root / "suite.json").unlink(), "is not a suite directory"),
        (lambda root: (root / "suite.json").write_text("{}"), "cannot be read"),
        (lambda root: of_format(root, 99),
            f"has format 99, but this linkflap .* resumes format {FORMAT}"),
        (lambda root: (root / "results.jsonl").write_text('{"number": 1}\n'),
            "has a line that cannot be read"),
    ],
)  # fmt: skip
def test_directories_that_cannot_be_gone_on_with(
    folder: SuiteFolder, change: Callable[[Path], object], sentence: str
) -> None:
    change(folder.root)
    with pytest.raises(InputError, match=sentence):
        SuiteFolder.open(folder.root)


def test_a_directory_that_exists_is_not_taken(folder: SuiteFolder) -> None:
    with pytest.raises(InputError, match="exists already"):
        SuiteFolder.create(folder.root, PLAN)


def test_a_suite_begins_with_the_baseline_and_keeps_what_failed(folder: SuiteFolder) -> None:
    said: list[str] = []
    Suite(folder=folder, works=cast(Workers, Scripted()), say=said.append).run()
    assert sorted(r.number for r in folder.results) == [0, 1, 2, 3, 4, 5]
    assert folder.scenario(0).schedule == baseline(7, GeneratorBounds()).schedule == ()
    assert all(folder.scenario(n).schedule for n in range(1, 6))
    assert folder.kept == [2, 5]
    assert verdict_of(folder.results) == "invalid"
    assert "| lost-write:lost-write | 2 |  | 2 |" in summary(folder)
    assert len(said) == 6


@pytest.mark.parametrize("dies", range(0, 14, 2))
def test_a_killed_suite_resumes_without_losing_or_inventing_runs(
    folder: SuiteFolder, dies: int
) -> None:
    died, killed = False, Scripted(dies=dies)
    try:
        Suite(folder=folder, works=cast(Workers, killed), say=lambda text: None).run()
    except Killed:
        died = True
    before = {r.number: r for r in folder.results}
    texts = {n: folder.scenario_path(n).read_text() for n in folder.numbers()}
    again, works = SuiteFolder.open(folder.root), Scripted()
    Suite(folder=again, works=cast(Workers, works), say=lambda text: None).run()
    assert died or not works.started
    assert sorted(r.number for r in again.results) == [0, 1, 2, 3, 4, 5]  # each once
    assert {n: r for n in before for r in again.results if r.number == n} == before
    assert not set(works.started) & set(before)
    # a run that was planned stays as it was
    assert {n: again.scenario_path(n).read_text() for n in texts} == texts


def test_a_recording_that_had_ended_is_judged_and_not_made_again(
    folder: SuiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Killed):
        Suite(folder=folder, works=cast(Workers, Scripted(dies=1)), say=lambda text: None).run()
    monkeypatch.setattr(explore, "_recorded", lambda path: path.name == "0000")
    works = Scripted()
    Suite(
        folder=SuiteFolder.open(folder.root), works=cast(Workers, works), say=lambda text: None
    ).run()
    assert works.judged_only == [0]
    assert 0 not in works.started


OWN = """schema = 1
name = "mine"
topology = "A->B"
[[workload]]
kind = "transactional"
home = "A"
[[fault]]
id = "cut"
fault = "link-cut"
target = "A->B"
"""


def test_one_scenario_is_run_again_and_again_with_a_seed_of_its_own_each(tmp_path: Path) -> None:
    own = SuiteFolder.create(tmp_path / "own", replace(PLAN, name="own", given=OWN, seed=2**32 - 2))
    Suite(folder=own, works=cast(Workers, Scripted()), say=lambda text: None).run()
    made = [own.scenario(number) for number in own.numbers()]
    assert [(one.name, len(one.schedule)) for one in made] == [("mine", 1)] * 6
    assert [one.seed for one in made] == [2**32 - 2, 2**32 - 1, 0, 1, 2, 3]
    assert "invalid in 2 of 6 (10 to 70 %)" in summary(own)
    assert "valid in 4 of 6" in summary(own)


def test_junit_has_a_case_for_each_run_failures_first(folder: SuiteFolder) -> None:
    Suite(folder=folder, works=cast(Workers, Scripted()), say=lambda text: None).run()
    found = ElementTree.fromstring(junit(folder))
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("6", "2", "0")
    assert [case.get("name") for case in found] == ["0002", "0005", "0000", "0001", "0003", "0004"]
    assert found[0][0].get("message") == "lost-write:lost-write"


def test_shards_share_out_the_numbers(tmp_path: Path) -> None:
    made = []
    for part in range(3):
        own = SuiteFolder.create(tmp_path / str(part), replace(PLAN, shard=(part, 3)))
        Suite(folder=own, works=cast(Workers, Scripted()), say=lambda text: None).run()
        made += [r.number for r in own.results]
    assert sorted(made) == list(range(18))


def test_failed_runs_are_kept_in_full_only_so_many(tmp_path: Path) -> None:
    own = SuiteFolder.create(tmp_path / "few", replace(PLAN, runs=20, keep=2))
    Suite(folder=own, works=cast(Workers, Scripted()), say=lambda text: None).run()
    assert len(own.kept) == 2
    assert sum(r.failed for r in own.results) == 6


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("30s", 30), ("20m", 1200), ("8h", 28800), ("1.5h", 5400)]
)
def test_times(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "h", "8d", "-3m", "nan", "0", "400h", "3 m s"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(InputError, match="--for"):
        seconds(text)
    with pytest.raises(InputError, match="--shrink"):
        seconds(text, "--shrink")


def test_shards() -> None:
    assert shard("2/4") == (1, 4)
    for text in ("0/4", "5/4", "2", "a/b", "2/"):
        with pytest.raises(InputError, match="--shard"):
            shard(text)


def test_the_disk_bound_grows_with_the_stored_runs() -> None:
    assert replace(PLAN, jobs=4).disk > PLAN.disk
    assert replace(PLAN, keep=100).disk > PLAN.disk


def test_every_kind_of_suite_has_a_time() -> None:
    assert all(seconds(lasts) > 0 for lasts in LASTS.values())


@pytest.mark.parametrize(
    ("reach", "missing"),
    [
        ((), []),
        (("x", "strike/*/rebalancing/*"), ["strike/*/rebalancing/*"]),
        (("commit-in-flight", "strike/link-cut/*", "after-*"), ["after-*"]),
        (("commit", "strike/link-cut"), ["commit", "strike/link-cut"]),
    ],
    ids=["nothing is asked for", "a cell", "a state", "not a part of a name"],
)
def test_a_suite_that_missed_a_required_state_is_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: tuple[str, ...], missing: list[str]
) -> None:
    cells = ("x", "strike/link-cut/commit-in-flight/link-1/shadow")
    monkeypatch.setattr(
        explore, "observed", lambda folder: Observed(cells=cells, missed=(), outcomes={})
    )
    folder = SuiteFolder.create(tmp_path / "suite", replace(PLAN, runs=2, reach=reach))
    Suite(folder=folder, works=cast(Workers, Scripted()), say=lambda text: None).run()
    assert verdict_of(folder.results) == "valid"
    assert unreached(SuiteFolder.open(folder.root)) == missing
    assert came_to(folder) == ("unknown" if missing else "valid")
    assert ("never reached" in summary(folder)) is bool(missing)
    found = ElementTree.fromstring(junit(folder))
    assert (found.get("tests"), found.get("errors")) == (str(2 + len(reach)), str(len(missing)))
    assert [
        case.get("name") for case in found.iter("testcase") if case.find("error") is not None
    ] == missing


def test_a_suite_without_any_scenario_is_refused_before_its_baseline() -> None:
    PLAN.check()
    with pytest.raises(InputError, match="no fault of broker-restart can be played on A->B"):
        replace(PLAN, bounds=GeneratorBounds(faults=("broker-restart",))).check()
