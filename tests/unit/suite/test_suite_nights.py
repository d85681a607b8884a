"""A suite that continues another: what earlier nights hit is not new, and the trend is on the
page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.chaos.generator import Coverage, GeneratorBounds, cells_of, generate
from linkflap.cli.suite import suite as command
from linkflap.harness.model.errors import InputError
from linkflap.suite import page
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.nights import following, night
from linkflap.suite.plan import Plan

PLAN = Plan(name="nightly", seed=7, seconds=60, jobs=2, bounds=GeneratorBounds(), linkflap="1.0")


def worked(root: Path, plan: Plan, results: list[tuple[str, tuple[str, ...]]]) -> SuiteFolder:
    """A suite whose runs had these verdicts and hit these cells."""
    made = SuiteFolder.create(root, plan)
    for number, (verdict, cells) in enumerate(results, start=1):
        made.write_scenario(number, generate(7, number, Coverage(), plan.bounds, guided=False))
        made.append(
            RunResult(
                number=number, verdict=verdict, cells=cells, seconds=20.0, ended=30.0 * number
            )
        )
    return made


def test_the_coverage_of_all_nights_is_what_the_next_begins_with(tmp_path: Path) -> None:
    first = worked(tmp_path / "first", PLAN, [("valid", ("a", "b")), ("valid", ("a",))])
    second = worked(tmp_path / "second", following(PLAN, first), [("invalid", ("b", "c"))])
    third = SuiteFolder.create(tmp_path / "third", following(PLAN, second))
    assert third.coverage.hits == {"a": 2, "b": 2, "c": 1}
    assert SuiteFolder.open(third.root).plan == third.plan
    assert [(one.name, one.cells, one.new) for one in third.plan.nights] == [
        ("first", 2, 2),
        ("second", 2, 1),
    ]
    assert (night(third).cells, night(third).verdicts) == (0, {})


def test_earlier_hits_are_not_preferred_again(tmp_path: Path) -> None:
    drawn = generate(7, 1, Coverage(), PLAN.bounds)
    first = worked(
        tmp_path / "first", PLAN, [("valid", tuple(sorted(cells_of(drawn)))) for _ in range(20)]
    )
    coverage = SuiteFolder.create(tmp_path / "second", following(PLAN, first)).coverage
    again = generate(7, 1, coverage, PLAN.bounds)
    assert coverage.novelty(cells_of(drawn)) < 1 < coverage.novelty(cells_of(again))
    assert not cells_of(again) <= cells_of(drawn)


def test_the_page_has_a_row_for_each_night(tmp_path: Path) -> None:
    first = worked(tmp_path / "first", PLAN, [("valid", ("a",)), ("unknown", ("b",))])
    alone = page.write(first).read_text()
    second = worked(tmp_path / "second", following(PLAN, first), [("invalid", ("b", "c"))])
    text = page.write(second).read_text()
    assert "This suite and those before it" not in alone
    rows = text[text.index("This suite and those before it") :].partition("</table>")[0]
    assert rows.index("1. first (linkflap 1.0)") < rows.index("2. second (linkflap 1.0)")


@pytest.mark.parametrize(
    "last", [replace(PLAN, name="regression"), replace(PLAN, name="own", given="name = 'x'")]
)
def test_a_suite_that_generated_nothing_is_not_gone_on_from(tmp_path: Path, last: Plan) -> None:
    with pytest.raises(InputError, match="has no coverage to continue from"):
        following(PLAN, SuiteFolder.create(tmp_path / "last", last))


def test_a_suite_that_generates_nothing_goes_on_from_none(tmp_path: Path) -> None:
    first = SuiteFolder.create(tmp_path / "first", PLAN)
    with pytest.raises(InputError, match="regression does not"):
        following(replace(PLAN, name="regression"), first)


def test_the_command_draws_other_scenarios_after_a_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = generate(7, 1, Coverage(), GeneratorBounds())
    worked(tmp_path / "last", PLAN, [("valid", tuple(sorted(cells_of(drawn)))) for _ in range(20)])
    outputs = []
    for more in ([], ["--after", str(tmp_path / "last")]):
        assert (
            command.main(["smoke", "--dry-run", "--seed", "7", *more], standalone_mode=False) == 0
        )
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]
    with pytest.raises(InputError, match="is not a suite directory"):
        command.main(["smoke", "--dry-run", "--after", str(tmp_path)], standalone_mode=False)
