"""`linkflap suite regression` with cases that a function plays: what is decided, stored, and
resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.results import load, reproduced
from linkflap.chaos.cases.runner import Benches
from linkflap.chaos.cases.runner import CaseResult as Played
from linkflap.harness.model.verdict import Verdict
from linkflap.suite import regression
from linkflap.suite.folder import SuiteFolder
from linkflap.suite.plan import Plan
from linkflap.suite.regression import Entry
from linkflap.suite.summary import junit

PLAN = Plan(name="regression", seed=1, seconds=3600, jobs=1)
KNOWN = reproduced()[:5]


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    made = SuiteFolder.create(tmp_path / "suite", PLAN)
    regression.write_entries(made, KNOWN)
    return made


def played(
    entry: Entry, outcome: Outcome = Outcome.REPRODUCED, *, runs: int = 1, why: str = ""
) -> Played:
    shown = runs if outcome is Outcome.REPRODUCED else 0
    version = entry.variant.kafka
    return Played(
        case=entry.case, variant=entry.variant, version=version, outcome=outcome, why=why,
        seconds=2.0,
        shown=shown, runs=runs, needed=3, controls=runs,
    )  # fmt: skip


def say(text: str) -> None:
    pass


def test_a_reproduced_case_is_valid(folder: SuiteFolder) -> None:
    regression.run(folder, say, lambda entry, benches: played(entry))
    assert regression.verdict_of(folder) is Verdict.VALID
    assert sorted(result.number for result in folder.results) == [0, 1, 2, 3, 4]
    assert len(load(folder.root / "cases")) == 5
    assert "5 of 5 cases were played; 5 reproduced again" in regression.summary(folder)


def test_a_case_that_no_longer_shows_is_invalid_and_comes_first(folder: SuiteFolder) -> None:
    gone = KNOWN[3].case.name

    def play(entry: Entry, benches: Benches) -> Played:
        return (
            played(entry, Outcome.NOT_REPRODUCED, runs=3) if entry.case == gone else played(entry)
        )

    regression.run(folder, say, play)
    assert regression.verdict_of(folder) is Verdict.INVALID
    (failed,) = [result for result in folder.results if result.failed]
    assert failed.kinds == (f"regression:{gone}",)
    assert failed.cause.startswith("it was reproduced in ")
    first = next(
        line
        for line in regression.summary(folder).splitlines()
        if line.startswith(f"| {KNOWN[3].case.name}")
    )
    assert regression.summary(folder).splitlines()[6] == first
    assert f"linkflap case run {gone} --kafka {KNOWN[3].variant.kafka}" in first
    names = {entry.number: entry.title for entry in regression.entries(folder)}
    found = ElementTree.fromstring(junit(folder, names))
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("5", "1", "0")
    assert found[0].get("name") == names[3]


@pytest.mark.parametrize(
    ("shown", "runs", "verdict"),
    [(1, 13, Verdict.UNKNOWN), (1, 3, Verdict.INVALID), (10, 10, Verdict.INVALID)],
)
def test_a_case_that_seldom_shows_is_not_gone_after_a_few_runs(
    shown: int, runs: int, verdict: Verdict
) -> None:
    entry = Entry(
        number=0, case=KNOWN[0].case.name, variant=KNOWN[0].variant, shown=shown, runs=runs
    )
    result = regression.result_of(entry, played(entry, Outcome.NOT_REPRODUCED, runs=10), ended=1.0)
    assert result.verdict == verdict
    assert ("at the rate before (1 of 13), 45 % of regressions do not" in result.reason) is (
        verdict is Verdict.UNKNOWN
    )


@pytest.mark.parametrize(
    ("outcome", "runs"), [(Outcome.NOT_REPRODUCED, 2), (Outcome.UNKNOWN, 0), (Outcome.NEEDS, 0)]
)  # fmt: skip
def test_too_few_runs_and_cases_that_could_not_be_played_are_unknown(
    folder: SuiteFolder, outcome: Outcome, runs: int
) -> None:
    regression.run(folder, say, lambda entry, benches: played(entry, outcome, runs=runs, why="why"))
    assert regression.verdict_of(folder) is Verdict.UNKNOWN
    assert all(result.kinds[0].startswith("unknown:") for result in folder.results)


def test_a_suite_that_ended_early_goes_on_with_what_it_began_with(
    folder: SuiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def play(entry: Entry, benches: Benches) -> Played:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(entry.number)
        return played(entry)

    with pytest.raises(KeyboardInterrupt):
        regression.run(folder, say, play)
    assert regression.verdict_of(folder) is Verdict.UNKNOWN  # three were never played
    again = SuiteFolder.open(folder.root)
    # what is stored meanwhile changes nothing
    monkeypatch.setattr(regression, "reproduced", lambda: [])
    rest: list[int] = []

    def noted(entry: Entry, benches: Benches) -> Played:
        rest.append(entry.number)
        return played(entry)

    regression.run(again, say, noted)
    assert sorted(asked + rest) == [0, 1, 2, 3, 4]
    assert regression.verdict_of(again) is Verdict.VALID


def test_no_more_is_played_than_there_is_time_for(tmp_path: Path) -> None:
    made = SuiteFolder.create(tmp_path / "suite", replace(PLAN, seconds=1e-9))
    regression.write_entries(made, KNOWN)
    regression.run(made, say, lambda entry, benches: pytest.fail("it has no time"))
    assert regression.verdict_of(made) is Verdict.UNKNOWN


def test_shards_share_out_the_cases(tmp_path: Path) -> None:
    numbers = []
    for part in range(3):
        made = SuiteFolder.create(tmp_path / str(part), replace(PLAN, shard=(part, 3)))
        regression.write_entries(made, KNOWN)
        numbers += [entry.number for entry in regression.entries(made)]
    assert sorted(numbers) == [0, 1, 2, 3, 4]


def test_a_case_is_played_until_it_shows(
    folder: SuiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = regression.entries(folder)[0]
    outcomes = iter([Outcome.NOT_REPRODUCED, Outcome.REPRODUCED])
    monkeypatch.setattr(
        regression,
        "run_case",
        lambda case, variant, *, count, benches: played(entry, next(outcomes)),
    )
    found = regression.until_shown(entry, cast(Benches, None))
    assert (found.outcome, found.shown, found.runs, found.controls) == (Outcome.REPRODUCED, 1, 2, 2)
    monkeypatch.setattr(
        regression,
        "run_case",
        lambda case, variant, *, count, benches: played(entry, Outcome.NOT_REPRODUCED),
    )
    found = regression.until_shown(entry, cast(Benches, None))
    assert (found.outcome, found.shown, found.runs) == (
        Outcome.NOT_REPRODUCED,
        0,
        KNOWN[0].case.runs,
    )
