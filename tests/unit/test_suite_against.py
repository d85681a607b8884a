"""A suite against an earlier one: what is new, gone, more or less frequent, how sure it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from linkflap.chaos.generator import GeneratorBounds
from linkflap.cli.commands import linkflap
from linkflap.cli.suite_work import work
from linkflap.harness.model.errors import InputError
from linkflap.suite.folder import Plan, RunResult, SuiteFolder
from linkflap.suite.observed import Observed
from linkflap.suite.summary import AGAINST, SuiteComparison, compare, comparison
from linkflap.suite.work import Suite, Workers
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


def test_folder_that_is_no_suite_is_refused_before_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["suite", "smoke", "--against", str(tmp_path), "--out", str(out)]
    with pytest.raises(InputError, match="is not a suite directory"):
        CliRunner().invoke(linkflap, asked, catch_exceptions=False)
    assert not out.exists()
