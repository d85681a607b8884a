"""A suite against an earlier one: what is new, gone, more or less frequent, how sure it is; and the
suite kip, whose cases are compared too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from linkflap.chaos.cases import results, runner
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Case, Outcome
from linkflap.chaos.cases.runner import CaseResult
from linkflap.chaos.generator import GeneratorBounds
from linkflap.cli.commands import linkflap
from linkflap.cli.suite_work import work
from linkflap.harness.model.errors import InputError
from linkflap.suite.folder import CASES, Plan, RunResult, SuiteFolder
from linkflap.suite.observed import Observed
from linkflap.suite.summary import (
    AGAINST,
    SuiteComparison,
    came_to,
    compare,
    comparison,
    junit,
    summary,
)
from linkflap.suite.work import Suite, Workers
from tests.unit.case_results import a_result
from tests.unit.scripted_suite import Scripted

PLAN = Plan(name="smoke", seed=7, seconds=3600, runs=6, jobs=2)


def suite(root: Path, kinds: Mapping[str, int], runs: int, plan: Plan = PLAN) -> SuiteFolder:
    """A suite in whose first runs each kind failed so often."""
    folder = SuiteFolder.create(root, plan)
    for number in range(runs):
        failed = tuple(kind for kind, times in kinds.items() if number < times)
        verdict = "invalid" if failed else "valid"
        folder.append(RunResult(number=number, verdict=verdict, kinds=failed))
    return folder


def changes(found: SuiteComparison) -> list[tuple[str, str, bool]]:
    return [(each.kind, each.change, each.shown) for each in found.kinds]


def test_comparison_names_new_gone_and_changed_failures(tmp_path: Path) -> None:
    before = suite(
        tmp_path / "before", {"a:rises": 2, "b:falls": 38, "c:gone": 20, "d:same": 9}, 40
    )
    now = suite(tmp_path / "now", {"a:rises": 30, "b:falls": 3, "d:same": 12, "e:new": 1}, 40)
    found = compare(now, before)
    assert changes(found) == [
        ("e:new", "new", False),
        ("a:rises", "more frequent", True),
        ("c:gone", "gone", True),
        ("b:falls", "less frequent", True),
        ("d:same", "as frequent", False),
    ]
    (new, *_) = found.kinds
    # Wilson's interval of 1 of 40
    assert (new.now.failed, new.now.runs) == (1, 40)
    assert (round(new.now.low, 3), round(new.now.high, 3)) == (0.004, 0.129)
    assert (new.before.low, round(new.before.high, 3)) == (0, 0.088)
    said = comparison(found)
    assert "- new: e:new, 1 of 40 (0 to 13 %), before 0 of 40 (0 to 9 %); may be chance\n" in said
    assert "- gone: c:gone, 0 of 40 (0 to 9 %), before 20 of 40 (35 to 65 %)\n" in said
    assert "- 1 failure as frequent as before, as far as the runs can tell\n" in said


def test_suites_that_played_other_things_say_so(tmp_path: Path) -> None:
    bounds = GeneratorBounds(mirrors=("mm2",), kafka=("3.9.2",))
    before = suite(tmp_path / "before", {}, 0, replace(PLAN, bounds=bounds, guided=False, seed=9))
    found = compare(suite(tmp_path / "now", {}, 3), before)
    assert found.differs == ("--uniform", "--mirrors")
    assert "The suites differ in --uniform, --mirrors, so rates may too." in comparison(found)
    assert "- neither suite has a failure\n" in comparison(found)


def test_a_kind_of_one_run_is_counted_once(tmp_path: Path) -> None:
    folder = SuiteFolder.create(tmp_path / "now", PLAN)
    folder.append(RunResult(number=0, verdict="invalid", kinds=("a:b", "a:b")))
    (found,) = compare(folder, suite(tmp_path / "before", {}, 1)).kinds
    assert (found.now.failed, found.now.runs) == (1, 1)


def test_names_are_no_markdown(tmp_path: Path) -> None:
    now = suite(tmp_path / "now", {"unknown:run:`x` | <b>\n# y": 1}, 1)
    assert "\n# y" not in comparison(compare(now, suite(tmp_path / "before", {}, 1)))


def test_comparison_is_written_and_printed_when_a_suite_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explore(folder: SuiteFolder) -> None:
        Suite(folder=folder, works=cast(Workers, Scripted()), say=lambda text: None).run()

    monkeypatch.setattr("linkflap.cli.suite_work._explore", explore)
    monkeypatch.setattr(
        "linkflap.suite.work.observed", lambda folder: Observed(cells=(), missed=(), outcomes={})
    )
    before = suite(tmp_path / "before", {}, 30)
    now = SuiteFolder.create(tmp_path / "now", PLAN)
    assert work(now, None, before) == 1
    said = f"## Against {tmp_path}/before"
    assert said in capsys.readouterr().out.replace("\\", "")
    assert said in (now.root / "summary.md").read_text().replace("\\", "")
    (row,) = json.loads((now.root / AGAINST).read_bytes())["kinds"]
    failed = sum(result.failed for result in now.results)
    assert (row["kind"], row["change"]) == ("lost-write:lost-write", "new")
    assert 0 < row["now"]["failed"] == failed < row["now"]["runs"] == PLAN.runs
    assert not (before.root / AGAINST).exists()


def test_an_interrupted_suite_compares_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explore(folder: SuiteFolder) -> None:
        Suite(folder=folder, works=cast(Workers, Scripted()), say=lambda text: None).run()
        raise KeyboardInterrupt

    monkeypatch.setattr("linkflap.cli.suite_work._explore", explore)
    monkeypatch.setattr(
        "linkflap.suite.work.observed", lambda folder: Observed(cells=(), missed=(), outcomes={})
    )
    now = SuiteFolder.create(tmp_path / "now", PLAN)
    with pytest.raises(KeyboardInterrupt):
        work(now, tmp_path / "junit.xml", suite(tmp_path / "before", {}, 30))
    said = (now.root / "summary.md").read_text()
    assert "\n- new: lost-write:lost-write, " in said
    assert said.endswith(f"interrupted; resume it: linkflap suite --resume {now.root}.\n")
    (row,) = json.loads((now.root / AGAINST).read_bytes())["kinds"]
    assert (row["kind"], row["change"]) == ("lost-write:lost-write", "new")
    assert not (tmp_path / "junit.xml").exists()


def test_folder_that_is_no_suite_is_refused_before_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["suite", "smoke", "--against", str(tmp_path), "--out", str(out)]
    with pytest.raises(InputError, match="is not a suite directory"):
        CliRunner().invoke(linkflap, asked, catch_exceptions=False)
    assert not out.exists()


# suite kip: cases and generated runs of one Kafka, in one table.


NAMES = ("KIP-98-atomic", "KIP-98-zombie", "KIP-1279-verbs")
KIP = replace(PLAN, name="kip", cases=NAMES)
"""Nobody expects the first two to show on a release; the third one needs a build."""


def planted(folder: SuiteFolder, shown: Mapping[str, int], runs: int = 3) -> SuiteFolder:
    """The folder with results of cases: in how many of their runs each of them showed."""
    for each, variant in folder.plan.played_cases:
        if each.name in shown:
            values: dict[str, Any] = {"case": each.name, "variant": variant}
            result = a_result(variant.kafka, shown[each.name], runs, **values)
            results.store(folder.root / CASES, results.row(each, result))
    return folder


def test_cases_are_compared_as_failures_are(tmp_path: Path) -> None:
    two = {NAMES[0]: 0, NAMES[1]: 3}
    before = planted(suite(tmp_path / "before", {"a:b": 5}, 40, KIP), two)
    now = planted(suite(tmp_path / "now", {}, 40, KIP), {NAMES[0]: 3, NAMES[1]: 0, NAMES[2]: 1})
    found = compare(now, before)
    assert [(each.kind, each.change, each.shown) for each in found.cases] == [
        (NAMES[0], "new", False),
        (NAMES[1], "gone", False),
    ]
    said = comparison(found)
    assert "- gone: a:b, 0 of 40 (0 to 9 %), before 5 of 40" in said
    assert (
        "- new: case KIP-98-atomic, shown in 3 of 3 (44 to 100 %), before 0 of 3 (0 to 56 %); may "
        "be chance\n"
    ) in said
    assert "- gone: case KIP-98-zombie, shown in 0 of 3" in said
    assert "- played by one of the suites: case KIP-1279-verbs: REPRODUCED 1 of 3" in said
    assert "before: not played" in said
    alike = comparison(compare(before, before))
    assert "- 2 cases as before" in alike
    assert "new" not in alike


def test_a_case_that_showed_in_neither_suite_is_not_new(tmp_path: Path) -> None:
    now = planted(suite(tmp_path / "now", {}, 1, KIP), {NAMES[0]: 0})
    (found,) = compare(now, now).cases
    assert (found.change, found.shown) == ("as frequent", False)


def test_nothing_is_gone_or_new_where_one_suite_has_no_runs(tmp_path: Path) -> None:
    before, now = suite(tmp_path / "before", {"a:b": 1}, 2), suite(tmp_path / "now", {}, 0)
    for one, other, runs in (
        (now, before, "0 runs; before: 2"),
        (before, now, "2 runs; before: 0"),
    ):
        found = compare(one, other)
        assert found.kinds == ()
        assert found.once == (f"generated runs: {runs} runs",)
        assert f"- played by one of the suites: generated runs: {runs}" in comparison(found)


def test_suites_with_other_cases_differ(tmp_path: Path) -> None:
    before = suite(tmp_path / "before", {}, 1, replace(KIP, cases=NAMES[:1]))
    assert compare(suite(tmp_path / "now", {}, 1, KIP), before).differs == ("--cases",)


def rows(text: str) -> list[list[str]]:
    """The rows of the table of verdicts."""
    table = text.partition("| played |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_cases_and_runs_are_one_table_the_worst_first(tmp_path: Path) -> None:
    folder = planted(suite(tmp_path / "kip", {"a:b": 1}, 40, KIP), {NAMES[0]: 0, NAMES[1]: 2})
    each, variant = folder.plan.played_cases[2]
    result = a_result(
        variant.kafka, case=each.name, variant=variant, runs=0, outcome=Outcome.NEEDS, why="a build"
    )
    results.store(folder.root / CASES, results.row(each, result))
    found = rows(summary(folder))
    assert [(row[0], row[1]) for row in found] == [
        ("case KIP-98-zombie", "invalid"),
        ("case KIP-98-atomic", "valid"),
        ("case KIP-1279-verbs", "not played"),
        ("generated runs", "invalid"),
        ("generated runs: a:b", "invalid"),
    ]
    assert found[0][2].startswith("REPRODUCED 2 of 3 (21 to 94 %); ")
    assert found[1][2].startswith("NOT REPRODUCED 0 of 3 (0 to 56 %); ")
    assert found[2][2] == "NEEDS a build"
    assert found[3][2] == "valid in 39 of 40 (87 to 100 %)"
    assert found[4][2] == "in 1 of 40 (0 to 13 %)"
    assert found[0][3] == f"`linkflap case run KIP-98-zombie --kafka {variant.kafka}`"
    written = junit(folder).decode()
    assert 'tests="43" failures="2" errors="0" skipped="1"' in written
    assert '<skipped message="NEEDS a build"' in written


def test_what_a_build_lacks_is_no_failure_of_it(tmp_path: Path) -> None:
    folder = planted(suite(tmp_path / "kip", {}, 2, KIP), {NAMES[0]: 0, NAMES[1]: 0})
    assert came_to(folder) == "unknown", "the third case was not played"
    each, variant = folder.plan.played_cases[2]
    lacking = a_result(
        variant.kafka, case=each.name, variant=variant, runs=0, outcome=Outcome.NEEDS, why="a build"
    )
    results.store(folder.root / CASES, results.row(each, lacking))
    assert came_to(folder) == "valid"


def test_what_is_known_to_show_is_no_violation_of_a_build_nor_is_its_absence(
    tmp_path: Path,
) -> None:
    known = "KAFKA-17754"
    plan = replace(KIP, cases=(known,))
    shows = planted(suite(tmp_path / "shows", {}, 2, plan), {known: 3})
    corrected = planted(suite(tmp_path / "corrected", {}, 2, plan), {known: 0})
    (row, *_), (gone, *_) = rows(summary(shows)), rows(summary(corrected))
    assert row[1] == "known"
    assert row[2].startswith("REPRODUCED 3 of 3 ")
    assert gone[1] == "valid"
    assert gone[2].startswith("NOT REPRODUCED 0 of 3 ")
    assert came_to(shows) == came_to(corrected) == "valid"
    assert [each.change for each in compare(corrected, shows).cases] == ["gone"]


def test_too_few_runs_of_a_case_prove_nothing(tmp_path: Path) -> None:
    plan = replace(KIP, cases=NAMES[:1])
    folder = planted(suite(tmp_path / "kip", {}, 2, plan), {NAMES[0]: 0}, runs=2)
    (row, *_) = rows(summary(folder))
    assert row[1:3] == ["unknown", "not shown in 0 of 2 (0 to 66 %); a NOT REPRODUCED takes 3 runs"]


def test_suite_kip_plays_its_cases_once_and_then_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = []

    def explore(folder: SuiteFolder) -> None:
        played.append("runs")
        Suite(folder=folder, works=cast(Workers, Scripted()), say=lambda text: None).run()

    def run_case(case: Case, variant: Variant, **_: object) -> CaseResult:
        played.append(case.name)
        if case.name == NAMES[1]:
            raise KeyboardInterrupt
        return a_result(variant.kafka, 0, 3, case=case.name, variant=variant)

    monkeypatch.setattr("linkflap.cli.suite_work._explore", explore)
    monkeypatch.setattr(
        "linkflap.suite.work.observed", lambda folder: Observed(cells=(), missed=(), outcomes={})
    )
    monkeypatch.setattr(runner, "run_case", run_case)
    plan = replace(KIP, cases=NAMES[:2], runs=2)
    folder = SuiteFolder.create(tmp_path / "kip", plan)
    with pytest.raises(KeyboardInterrupt):
        work(folder, None)
    assert played == [*NAMES[:2]]
    assert [cells[:2] for cells in rows(summary(folder))] == [
        ["case KIP-98-zombie", "unknown"],
        ["case KIP-98-atomic", "valid"],
        ["generated runs", "unknown"],
    ]
    monkeypatch.setattr(
        runner,
        "run_case",
        lambda case, variant, **_: a_result(variant.kafka, 0, 3, case=case.name, variant=variant),
    )
    assert work(SuiteFolder.open(folder.root), None) == 0
    assert played == [*NAMES[:2], "runs"], "what is stored is not played again"
    assert "| case KIP-98-zombie | valid |" in capsys.readouterr().out


def test_dry_run_of_suite_kip_says_what_the_kafka_lacks() -> None:
    asked = ["suite", "kip", "--cases", "KIP-98-a*", "--cases", "kip-1279-verbs", "--dry-run"]
    said = CliRunner().invoke(linkflap, [*asked, "--topologies", "A->B"], catch_exceptions=False)
    first, second, third, *scenarios = said.output.splitlines()
    assert (first, second) == (
        "KIP-98-aborted-read on Kafka 4.3.1 librdkafka",
        "KIP-98-atomic on Kafka 4.3.1 librdkafka",
    )
    assert third.startswith("KIP-1279-verbs on Kafka 4.3.1 ")
    assert third.endswith(": NEEDS a build of the KIP-1279 branch (--kafka DIRECTORY)")
    assert scenarios[0].startswith("generated-0001: ")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("smoke", "--cases", "KIP-*"), "--cases is for suite kip, and suite smoke plays no cases"),
        (("kip", "--kafka", "4.3.1,4.1.2"), "suite kip is about one Kafka, and --kafka names 2"),
        (("kip", "--cases", "KIP-98-atomik"), "there is no case 'KIP-98-atomik'; the nearest are"),
    ],
)
def test_options_that_suite_kip_cannot_play_are_refused(
    tmp_path: Path, given: tuple[str, ...], why: str
) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match=why):
        CliRunner().invoke(linkflap, ["suite", *given, "--out", str(out)], catch_exceptions=False)
    assert not out.exists()
