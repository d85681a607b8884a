"""Shards of one suite merged: nothing lost, nothing counted twice, and shards of different suites
are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from linkflap.chaos.cases.results import reproduced
from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.cli.commands import linkflap as command
from linkflap.harness.model.errors import InputError
from linkflap.suite import regression
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.merge import merge, missing
from linkflap.suite.plan import Plan
from linkflap.suite.reports import REPORT, FailureReport, failures
from linkflap.suite.summary import summary

PLAN = Plan(name="nightly", seed=7, seconds=60, jobs=2)


def shard(
    root: Path, part: int, of: int = 2, plan: Plan = PLAN, bad: tuple[int, ...] = ()
) -> SuiteFolder:
    """A shard with three runs."""
    made = SuiteFolder.create(root / f"{part}-{of}", replace(plan, shard=(part, of)))
    for number in range(part, part + 3 * of, of):
        made.write_scenario(number, baseline(7, GeneratorBounds()))
        verdict = "invalid" if number in bad else "valid"
        kinds = ("lost-write:lost-write",) if number in bad else ()
        made.run_path(number).mkdir()
        made.append(
            RunResult(
                number=number,
                verdict=verdict,
                kinds=kinds,
                cells=(f"cell/{number % 2}",),
                ended=10.0 * (number + 1),
            )
        )
        if not kinds:
            made.prune(number)
    return made


def report(
    folder: SuiteFolder,
    faults: int | tuple[str, ...],
    found: tuple[int, ...] = (),
    *,
    reproduced: bool = True,
    name: str = "lost-write-lost-write",
) -> None:
    own = folder.root / "failures" / name
    own.mkdir()
    made = FailureReport(
        kind="lost-write:lost-write",
        found=found,
        reproduced=reproduced,
        original="",
        replayed="",
        faults=tuple("f" * faults) if isinstance(faults, int) else faults,
        rate="",
        steps=1,
        command="",
    )
    (own / REPORT).write_bytes(msgspec.json.encode(made))


def test_everything_of_every_shard_is_there_once(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0), shard(tmp_path, 1, bad=(3,))]
    before = [(part.root / "results.jsonl").read_bytes() for part in parts]
    made = merge(parts, tmp_path / "all")
    assert [result.number for result in made.results] == made.numbers() == [0, 1, 2, 3, 4, 5]
    assert made.kept == [3]
    assert made.coverage.hits == {"cell/0": 3, "cell/1": 3}
    assert SuiteFolder.open(made.root).results == made.results
    assert missing(made.plan) == []
    assert [(part.root / "results.jsonl").read_bytes() for part in parts] == before


def test_of_a_failure_that_several_shards_have_the_smallest_is_kept(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], 3)
    report(parts[1], 1)
    for order in (parts, parts[::-1]):
        made = merge(order, tmp_path / f"all-{order[0].plan.shard[0]}")
        kept = msgspec.json.decode(
            (made.root / "failures/lost-write-lost-write" / REPORT).read_bytes()
        )
        assert len(kept["faults"]) == 1
        assert len(list((made.root / "failures").iterdir())) == 1


def test_failures_of_one_kind_that_share_no_faults_are_both_kept(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], ("link-cut on A->B", "mirror-kill on A->B"), found=(2,))
    report(parts[1], ("broker-kill on A",), found=(3,))
    made = merge(parts, tmp_path / "all")
    first, second = failures(made)
    assert (first.path.name, [run.number for run in first.runs]) == ("lost-write-lost-write", [3])
    assert (second.path.name, [run.number for run in second.runs]) == (
        "lost-write-lost-write-2",
        [2],
    )


def test_the_smallest_of_a_failure_explains_the_runs_of_every_shard(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2, 4)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], ("link-cut on A->B", "mirror-kill on A->B"), found=(2,))
    report(parts[1], ("link-cut on B->A",), found=(3,))
    (one,) = failures(merge(parts, tmp_path / "all"))
    assert [run.number for run in one.runs] == [2, 3, 4]
    assert [run.number for run in one.unexplained] == [4]


def test_a_missing_shard_is_reported(tmp_path: Path) -> None:
    made = merge([shard(tmp_path, 0, 3), shard(tmp_path, 2, 3)], tmp_path / "all")
    assert missing(made.plan) == ["2/3"]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda root: shard(root / "x", 0), "shard 1/2 is given twice"),
        (lambda root: shard(root, 1, 3), "merge shards of one suite"),
        (lambda root: shard(root, 1, plan=replace(PLAN, seed=8)), "their seed differs"),
        (lambda root: shard(root, 1, plan=replace(PLAN, bounds=GeneratorBounds(mirrors=("mm2",)))),
            "their bounds differs"),
        (lambda root: shard(root, 1, plan=replace(PLAN, merged=(0, 1), shards=2)),
            "is merged already"),
    ],
)  # fmt: skip
def test_shards_of_different_suites_are_refused(
    tmp_path: Path, other: Callable[[Path], SuiteFolder], sentence: str
) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(InputError, match=sentence):
        merge([shard(tmp_path, 0), other(tmp_path)], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_regression_shards_have_their_cases(tmp_path: Path) -> None:
    parts = []
    for part in range(2):
        made = SuiteFolder.create(
            tmp_path / str(part), replace(PLAN, name="regression", shard=(part, 2))
        )
        regression.write_entries(made, reproduced()[:4])
        for entry in regression.entries(made):
            made.append(RunResult(number=entry.number, verdict="valid", reason="REPRODUCED 1 of 1"))
        parts.append(made)
    made = merge(parts, tmp_path / "all")
    assert [entry.number for entry in regression.entries(made)] == [0, 1, 2, 3]
    assert regression.verdict_of(made) == "valid"


def test_the_command_says_what_all_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [str(shard(tmp_path, 0).root), str(shard(tmp_path, 1, bad=(3,)).root)]
    out, junit = tmp_path / "all", tmp_path / "junit.xml"
    status = command.main(
        ["suite", "merge", *parts, "--out", str(out), "--junit", str(junit)], standalone_mode=False
    )
    said = capsys.readouterr().out
    assert status == 1
    assert "6 runs: 1 invalid, 5 valid" in said
    assert (out / "summary.md").read_text() in said
    assert "lost-write:lost-write" in (out / "suite.html").read_text()
    assert 'tests="6"' in junit.read_text()
    with pytest.raises(InputError, match="was merged from shards"):
        command.main(["suite", "--resume", str(out)], standalone_mode=False)


def test_the_command_knows_not_all_without_a_shard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [str(shard(tmp_path, part, 3).root) for part in (0, 2)]
    assert (
        command.main(
            ["suite", "merge", *parts, "--out", str(tmp_path / "all")], standalone_mode=False
        )
        == 2
    )
    assert "Incomplete: shard 2/3 was not merged." in capsys.readouterr().out


def test_a_failure_that_never_failed_again_does_not_replace_one_that_did(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], ("link-cut on A->B",), found=(2,), reproduced=False)
    report(parts[1], ("link-cut on A->B", "mirror-kill on A->B"), found=(3,))
    first, second = failures(merge(parts, tmp_path / "all"))
    assert (first.report and first.report.reproduced, [run.number for run in first.runs]) == (
        True,
        [3],
    )
    assert [run.number for run in second.runs] == [2]


def test_a_report_without_runs_of_its_kind_is_not_listed(tmp_path: Path) -> None:
    """In the merged suite, the runs of a report may belong to another kind."""
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], ("link-cut on A->B",), found=(2,))
    report(parts[1], ("broker-kill on A",), found=(77,))
    made = merge(parts, tmp_path / "all")
    assert [[run.number for run in one.runs] for one in failures(made)] == [[2, 3]]
    assert summary(made)


def test_a_second_failure_that_another_shard_explains_is_left_out(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3, 5))]
    report(parts[0], ("link-cut on A->B",), found=(2,))
    report(parts[1], ("link-cut on A->B", "mirror-kill on A->B"), found=(3,))
    second = ("link-cut on A->B", "client-kill on A")
    report(parts[1], second, found=(5,), name="lost-write-lost-write-2")
    made = merge(parts, tmp_path / "all")
    assert [path.name for path in (made.root / "failures").iterdir()] == ["lost-write-lost-write"]
    (one,) = failures(made)
    assert ([run.number for run in one.runs], one.unexplained) == ([2, 3, 5], [])
