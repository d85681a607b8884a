"""The suite directory: resumed, merged, continued, on a full disk, made by somebody else; and its
page."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import msgspec
import pytest

from linkflap.chaos.cases.results import reproduced
from linkflap.chaos.generator import Coverage, GeneratorBounds, baseline, cells_of, generate
from linkflap.cli.commands import linkflap as command
from linkflap.cli.suite import LASTS
from linkflap.cli.suite import suite as suite_command
from linkflap.cli.suite_work import full_disk_named
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.suite import page, regression, work
from linkflap.suite.failures import REPORT, FailureReport, failures
from linkflap.suite.folder import FORMAT, Plan, RunResult, SuiteFolder, seconds
from linkflap.suite.folder import shard as shard_of
from linkflap.suite.merge import merge, missing
from linkflap.suite.observed import Observed
from linkflap.suite.summary import came_to, following, junit, night, summary, unreached, verdict_of
from linkflap.suite.work import Suite, Workers
from tests.unit.scripted_suite import Killed, Scripted

# The suite directory after every kind of end, and how a suite resumes from it.


PLAN = Plan(name="smoke", seed=7, seconds=3600, runs=6, jobs=2)


@pytest.fixture(autouse=True)
def _nothing_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        work, "observed", lambda folder: Observed(cells=("x",), missed=(), outcomes={})
    )


@pytest.fixture
def folder(tmp_path: Path) -> SuiteFolder:
    return SuiteFolder.create(tmp_path / "suite", PLAN)


def result(number: int, verdict: str = "valid", **more: Any) -> RunResult:
    """A run of twenty seconds that ended half a minute after the one before."""
    timed: dict[str, Any] = {"seconds": 20.0, "ended": 30.0 * (number + 1)}
    return RunResult(number=number, verdict=verdict, **timed | more)


def play(folder: SuiteFolder, works: Scripted | None = None) -> None:
    Suite(folder=folder, works=cast(Workers, works or Scripted()), say=lambda text: None).run()


def test_results_are_read_back(folder: SuiteFolder) -> None:
    of_it = {"cells": ("on/shadow/A->B",), "outcomes": {"x: y": 2}}
    one = result(3, "invalid", kinds=("lost-write:lost",), **of_it)
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
    there = (folder.root / "results.jsonl").read_bytes()
    again = SuiteFolder.open(folder.root)
    assert [r.number for r in again.results] == [0]
    # a suite that is compared or merged may run, and is writing that line
    assert (folder.root / "results.jsonl").read_bytes() == there
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


def test_runs_whose_clusters_are_there_go_first(tmp_path: Path) -> None:
    bounds = GeneratorBounds(topologies=("A->B", "A->B->C"))
    plan = replace(PLAN, runs=24, jobs=1, bounds=bounds)
    changes = {}
    for name, kept in (("fresh", False), ("kept", True)):
        folder, works = SuiteFolder.create(tmp_path / name, plan), Scripted(jobs=1)

        def fits(made: Scenario, folder: SuiteFolder = folder, works: Scripted = works) -> bool:
            last = works.started[-1:]
            return any(folder.scenario(n).topology == made.topology for n in last)

        suite = Suite(folder=folder, works=cast(Workers, works), say=lambda text: None)
        suite.fits = fits if kept else None
        suite.run()
        assert sorted(works.started) == [*range(24)]
        assert sorted(works.started[:12]) == [*range(12)]  # a draw is played before the next one
        shapes = [len(folder.scenario(n).topology.clusters) for n in works.started]
        changes[name] = sum(one != other for one, other in pairwise(shapes))
    assert changes["kept"] <= 3 < changes["fresh"]


@pytest.mark.parametrize("dies", range(0, 14, 2))
def test_a_killed_suite_resumes_without_losing_or_inventing_runs(
    folder: SuiteFolder, dies: int
) -> None:
    died, killed = False, Scripted(dies=dies)
    try:
        play(folder, killed)
    except Killed:
        died = True
    before = {r.number: r for r in folder.results}
    texts = {n: folder.scenario_path(n).read_text() for n in folder.numbers()}
    again, works = SuiteFolder.open(folder.root), Scripted()
    play(again, works)
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
        play(folder, Scripted(dies=1))
    monkeypatch.setattr(work, "_recorded", lambda path: path.name == "0000")
    works = Scripted()
    play(SuiteFolder.open(folder.root), works)
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
    play(own)
    made = [own.scenario(number) for number in own.numbers()]
    assert [(one.name, len(one.schedule)) for one in made] == [("mine", 1)] * 6
    assert [one.seed for one in made] == [2**32 - 2, 2**32 - 1, 0, 1, 2, 3]
    assert "invalid in 2 of 6 (10 to 70 %)" in summary(own)
    assert "valid in 4 of 6" in summary(own)


def test_junit_has_a_case_for_each_run_failures_first(folder: SuiteFolder) -> None:
    play(folder)
    found = ElementTree.fromstring(junit(folder))
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("6", "2", "0")
    assert [case.get("name") for case in found] == ["0002", "0005", "0000", "0001", "0003", "0004"]
    assert found[0][0].get("message") == "lost-write:lost-write"


def test_junit_names_a_run_by_its_mirror_and_faults(folder: SuiteFolder) -> None:
    strikes = ("strike/link-cut/plain/link-1/shadow", "strike/client-kill/plain/clients/shadow")
    cells = (*strikes, "on/shadow/A->B")
    folder.append(RunResult(number=7, verdict="valid", cells=cells))
    (case,) = ElementTree.fromstring(junit(folder))
    assert case.get("name") == "0007 shadow: client-kill, link-cut"


def test_shards_share_out_the_numbers(tmp_path: Path) -> None:
    made = []
    for part in range(3):
        own = SuiteFolder.create(tmp_path / str(part), replace(PLAN, shard=(part, 3)))
        play(own)
        made += [r.number for r in own.results]
    assert sorted(made) == list(range(18))


def test_failed_runs_are_kept_in_full_only_so_many(tmp_path: Path) -> None:
    own = SuiteFolder.create(tmp_path / "few", replace(PLAN, runs=20, keep=2))
    play(own)
    assert len(own.kept) == 2
    assert sum(r.failed for r in own.results) == 6


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("30s", 30), ("20m", 1200), ("8h", 28800), ("1.5h", 5400)]
)
def test_durations_are_read_as_seconds(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "h", "8d", "-3m", "nan", "0", "400h", "3 m s"])
def test_a_duration_that_is_none_or_too_long_is_refused_by_the_name_of_its_option(
    text: str,
) -> None:
    with pytest.raises(InputError, match="--for"):
        seconds(text)
    with pytest.raises(InputError, match="--shrink"):
        seconds(text, "--shrink")


def test_a_shard_is_a_part_of_a_whole() -> None:
    assert shard_of("2/4") == (1, 4)
    for text in ("0/4", "5/4", "2", "a/b", "2/"):
        with pytest.raises(InputError, match="--shard"):
            shard_of(text)


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
        work, "observed", lambda folder: Observed(cells=cells, missed=(), outcomes={})
    )
    folder = SuiteFolder.create(tmp_path / "suite", replace(PLAN, runs=2, reach=reach))
    play(folder)
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


# A suite on a full disk reports it in one sentence, whichever write failed.


FOLDER = cast(Any, SimpleNamespace(root=Path("/suites/one")))


def test_no_room_is_the_environments_failure() -> None:
    with (
        pytest.raises(EnvironmentFailure, match="the disk of /suites/one is full; make room"),
        full_disk_named(FOLDER),
    ):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")


def test_error_other_than_a_full_disk_is_unchanged() -> None:
    with pytest.raises(PermissionError), full_disk_named(FOLDER):
        raise PermissionError(errno.EACCES, "Permission denied")


# Shards of one suite merged: nothing lost, nothing counted twice, and shards of different
# suites are refused.


SHARDED = Plan(name="nightly", seed=7, seconds=60, jobs=2)


def shard(
    root: Path, part: int, of: int = 2, plan: Plan = SHARDED, bad: tuple[int, ...] = ()
) -> SuiteFolder:
    """A shard with three runs."""
    made = SuiteFolder.create(root / f"{part}-{of}", replace(plan, shard=(part, of)))
    for number in range(part, part + 3 * of, of):
        made.write_scenario(number, baseline(7, GeneratorBounds()))
        verdict = "invalid" if number in bad else "valid"
        kinds = ("lost-write:lost-write",) if number in bad else ()
        made.run_path(number).mkdir()
        made.append(result(number, verdict, kinds=kinds, cells=(f"cell/{number % 2}",)))
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
        kind="lost-write:lost-write", found=found, reproduced=reproduced, original="", replayed="",
        faults=tuple("f" * faults) if isinstance(faults, int) else faults, rate="", steps=1,
        command="",
    )  # fmt: skip
    (own / REPORT).write_bytes(msgspec.json.encode(made))


def test_merged_suite_has_every_run_of_every_shard_once(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0), shard(tmp_path, 1, bad=(3,))]
    before = [(part.root / "results.jsonl").read_bytes() for part in parts]
    made = merge(parts, tmp_path / "all")
    assert [result.number for result in made.results] == made.numbers() == [0, 1, 2, 3, 4, 5]
    assert made.kept == [3]
    assert made.coverage.hits == {"cell/0": 3, "cell/1": 3}
    assert SuiteFolder.open(made.root).results == made.results
    assert missing(made.plan) == []
    assert [(part.root / "results.jsonl").read_bytes() for part in parts] == before


def test_merge_keeps_the_smallest_report_of_a_failure(tmp_path: Path) -> None:
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
        (lambda root: shard(root / "x", 0), "two of the directories are shard 1/2; name"),
        (lambda root: shard(root, 1, 3), "merge shards of one suite"),
        (lambda root: shard(root, 1, plan=replace(SHARDED, seed=8)), "their seed differs"),
        (
            lambda root: shard(
                root, 1, plan=replace(SHARDED, bounds=GeneratorBounds(mirrors=("mm2",)))
            ),
            "their bounds differs",
        ),
        (
            lambda root: shard(root, 1, plan=replace(SHARDED, merged=(0, 1), shards=2)),
            "is merged already",
        ),
    ],
)
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
            tmp_path / str(part), replace(SHARDED, name="regression", shard=(part, 2))
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
    words = ["suite", "merge", *parts, "--out", str(out), "--junit", str(junit)]
    status = command.main(words, standalone_mode=False)
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
    words = ["suite", "merge", *parts, "--out", str(tmp_path / "all")]
    assert command.main(words, standalone_mode=False) == 2
    assert "Incomplete: shard 2/3 was not merged." in capsys.readouterr().out


def test_a_failure_that_never_failed_again_does_not_replace_one_that_did(tmp_path: Path) -> None:
    parts = [shard(tmp_path, 0, bad=(2,)), shard(tmp_path, 1, bad=(3,))]
    report(parts[0], ("link-cut on A->B",), found=(2,), reproduced=False)
    report(parts[1], ("link-cut on A->B", "mirror-kill on A->B"), found=(3,))
    first, second = failures(merge(parts, tmp_path / "all"))
    assert first.report is not None
    assert first.report.reproduced
    assert [run.number for run in first.runs] == [3]
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


# A suite that continues another: what earlier nights hit is not new, and the trend is on the
# page.


NIGHT = Plan(name="nightly", seed=7, seconds=60, jobs=2, bounds=GeneratorBounds(), linkflap="1.0")


def worked(root: Path, plan: Plan, results: list[tuple[str, tuple[str, ...]]]) -> SuiteFolder:
    """A suite whose runs had these verdicts and hit these cells."""
    made = SuiteFolder.create(root, plan)
    for number, (verdict, cells) in enumerate(results, start=1):
        made.write_scenario(number, generate(7, number, Coverage(), plan.bounds, guided=False))
        made.append(result(number, verdict, cells=cells))
    return made


def test_the_coverage_of_all_nights_is_what_the_next_begins_with(tmp_path: Path) -> None:
    first = worked(tmp_path / "first", NIGHT, [("valid", ("a", "b")), ("valid", ("a",))])
    second = worked(tmp_path / "second", following(NIGHT, first), [("invalid", ("b", "c"))])
    third = SuiteFolder.create(tmp_path / "third", following(NIGHT, second))
    assert third.coverage.hits == {"a": 2, "b": 2, "c": 1}
    assert SuiteFolder.open(third.root).plan == third.plan
    assert [(one.name, one.cells, one.new) for one in third.plan.nights] == [
        ("first", 2, 2),
        ("second", 2, 1),
    ]
    assert (night(third).cells, night(third).verdicts) == (0, {})


def test_earlier_hits_are_not_preferred_again(tmp_path: Path) -> None:
    drawn = generate(7, 1, Coverage(), NIGHT.bounds)
    first = worked(
        tmp_path / "first", NIGHT, [("valid", tuple(sorted(cells_of(drawn)))) for _ in range(20)]
    )
    coverage = SuiteFolder.create(tmp_path / "second", following(NIGHT, first)).coverage
    again = generate(7, 1, coverage, NIGHT.bounds)
    assert coverage.novelty(cells_of(drawn)) < 1 < coverage.novelty(cells_of(again))
    assert not cells_of(again) <= cells_of(drawn)


def test_the_page_has_a_row_for_each_night(tmp_path: Path) -> None:
    first = worked(tmp_path / "first", NIGHT, [("valid", ("a",)), ("unknown", ("b",))])
    alone = page.write(first).read_text()
    second = worked(tmp_path / "second", following(NIGHT, first), [("invalid", ("b", "c"))])
    text = page.write(second).read_text()
    assert "This suite and those before it" not in alone
    rows = text[text.index("This suite and those before it") :].partition("</table>")[0]
    assert rows.index("1. first (linkflap 1.0)") < rows.index("2. second (linkflap 1.0)")


@pytest.mark.parametrize(
    "last", [replace(NIGHT, name="regression"), replace(NIGHT, name="own", given="name = 'x'")]
)
def test_a_suite_that_generated_nothing_is_not_gone_on_from(tmp_path: Path, last: Plan) -> None:
    with pytest.raises(InputError, match="has no coverage to continue from"):
        following(NIGHT, SuiteFolder.create(tmp_path / "last", last))


def test_a_suite_that_generates_nothing_goes_on_from_none(tmp_path: Path) -> None:
    first = SuiteFolder.create(tmp_path / "first", NIGHT)
    with pytest.raises(InputError, match="regression does not"):
        following(replace(NIGHT, name="regression"), first)


def test_the_command_draws_other_scenarios_after_a_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = generate(7, 1, Coverage(), GeneratorBounds())
    worked(tmp_path / "last", NIGHT, [("valid", tuple(sorted(cells_of(drawn)))) for _ in range(20)])
    outputs = []
    for more in ([], ["--after", str(tmp_path / "last")]):
        assert (
            suite_command.main(["smoke", "--dry-run", "--seed", "7", *more], standalone_mode=False)
            == 0
        )
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]
    with pytest.raises(InputError, match="is not a suite directory"):
        suite_command.main(["smoke", "--dry-run", "--after", str(tmp_path)], standalone_mode=False)


# suite.html: self-contained, failures first, and it names what was never hit.


PAGE = Plan(
    name="smoke",
    seed=7,
    seconds=60,
    jobs=2,
    bounds=GeneratorBounds(faults=("link-cut", "broker-pause")),
)
CELLS = (
    "strike/link-cut/mirror-behind/link-1/shadow",
    "after/broker-pause/link-cut",
    "on/shadow/A->B",
)


def suite(root: Path) -> SuiteFolder:
    made = SuiteFolder.create(root / "suite", PAGE)
    for number in range(3):
        made.write_scenario(
            number,
            generate(7, number, Coverage(), PAGE.bounds) if number else baseline(7, PAGE.bounds),
        )
    made.append(result(0, cells=("on/shadow/A->B",)))
    made.append(result(1, cells=CELLS, missed=("1-link-cut: open-partitions:2",)))
    cause = "<script>alert(1)</script> is lost"
    made.append(result(2, "invalid", kinds=("lost-write:lost-write",), cause=cause))
    return made


def test_failures_come_first_with_their_command(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    assert text.index("lost-write:lost-write") < text.index('<h2 id="runs">')
    assert re.search(r"linkflap run \S*scenarios/0002.toml --runtime process", text)
    rows = re.findall(r'<span class="word (\w+)">', text)
    assert rows == ["invalid", "valid", "valid"]
    assert "The baseline (the same clients without faults) is valid." in text


def test_suite_page_is_self_contained_and_escapes_texts_of_runs(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    links = re.findall(r'href="([^#"][^"]*)"', text)
    assert all(link == "data:," or (tmp_path / "suite" / link).exists() for link in links)


def test_suite_of_one_cluster_has_a_page_and_a_summary_without_a_mirror(tmp_path: Path) -> None:
    bounds = GeneratorBounds(topologies=("A:3",))
    made = SuiteFolder.create(tmp_path / "suite", replace(PAGE, bounds=bounds))
    scenario = generate(7, 1, Coverage(), bounds)
    made.write_scenario(1, scenario)
    made.append(result(1, cells=tuple(cells_of(scenario))))
    text = page.write(made).read_text()
    table = text[text.index("Mirrors on topologies") :].partition("</table>")[0]
    assert re.findall(r"<td[^>]*>(none|shadow|\d+|never)</td>", table) == ["none", "1"]
    assert "Options of shadow" not in text
    assert "1 run: 1 valid" in summary(made)


def test_hit_and_never_hit_cells(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    row = re.search(r'<td class="code nowrap">link-cut</td>(.*?)</tr>', text)
    assert row
    assert row[1].count(">1<") == 1
    assert row[1].count(">never<") == row[1].count("<td") - 1
    assert "open-partitions:2" in text
    assert "Options of shadow" in text


def test_page_of_a_repeated_scenario_has_no_coverage(tmp_path: Path) -> None:
    made = suite(tmp_path)
    made.plan = replace(made.plan, given="x")
    assert '<h2 id="coverage">' not in page.write(made).read_text()


def test_a_regression_suite_has_a_page(tmp_path: Path) -> None:
    made = SuiteFolder.create(tmp_path / "suite", replace(PAGE, name="regression"))
    regression.write_entries(made, reproduced()[:3])
    gone = ("regression:x",)
    said = {"reason": "NOT REPRODUCED 0 of 3", "cause": "it was before"}
    made.append(result(1, "invalid", kinds=gone, **said))
    made.append(result(0, reason="REPRODUCED 1 of 1"))
    text = page.write(made).read_text()
    assert re.findall(r'<span class="word ([\w-]+)">', text) == ["invalid", "not-played", "valid"]
    assert f"linkflap case run {reproduced()[1].case.name} " in text


def test_whose_clients_runs_had_is_counted_where_there_was_a_choice(tmp_path: Path) -> None:
    own = GeneratorBounds(clients=("librdkafka", "java"))
    folder = SuiteFolder.create(tmp_path / "suite", replace(PAGE, bounds=own))
    java = ("clients/shadow/java",)
    hit = [(), java, java, ("clients/shadow/librdkafka,java",)]
    for number, cells in enumerate(hit):
        folder.write_scenario(
            number, generate(7, number, Coverage(), own) if number else baseline(7, own)
        )
        folder.append(result(number, cells=("on/shadow/A->B", *cells)))
    text = page.write(folder).read_text()
    table = text[text.index("Client libraries") :].partition("</table>")[0]
    assert re.findall(r"<td[^>]*>(\d+|never)</td>", table) == ["1", "2", "1"]
    assert "Client libraries" not in page.write(suite(tmp_path / "usual")).read_text()
