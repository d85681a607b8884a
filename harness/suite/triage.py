"""Triage of each kind of failure after the runs of a suite: replays it to measure its rate, shrinks
it, and reports it with a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_whole
from linkflap.harness.suite.failures import UNKNOWN, by_kind, name_of
from linkflap.harness.suite.folder import Result, SuiteFolder
from linkflap.harness.suite.replays import Replays
from linkflap.harness.suite.shrink import Rate, Shrinker, Shrunk
from linkflap.harness.suite.work import Workers

REPORT: Final = "report.json"
SMALLEST: Final = "smallest.toml"
NOT_SHRUNK: Final = f"{UNKNOWN}environment"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one kind of failure. `found` are the runs of the suite that had it. `replayed`
    is the rate of the original scenario, `rate` that of the smallest."""

    kind: str
    found: tuple[int, ...]
    original: str
    replayed: str
    faults: tuple[str, ...]
    rate: str
    steps: int
    command: str
    cause: str = ""
    without_last: str = ""


def triage(folder: SuiteFolder, works: Workers, say: Callable[[str], None]) -> list[Report]:
    """Reports every kind of failure, and reuses the reports of earlier sessions. All runs of the
    suite must have a verdict."""
    return [
        (
            _known(path)
            if (path := _path(folder, kind) / REPORT).exists()
            else _one(folder, works, kind, runs, say)
        )
        for kind, runs in by_kind(folder.results).items()
        if kind != NOT_SHRUNK
    ]


def _path(folder: SuiteFolder, kind: str) -> Path:
    return folder.root / "failures" / name_of(kind)


def _known(path: Path) -> Report:
    return msgspec.json.decode(with_current_kinds(path.read_bytes()), type=Report)


def _one(
    folder: SuiteFolder,
    works: Workers,
    kind: str,
    runs: Sequence[Result],
    say: Callable[[str], None],
) -> Report:
    plan, own = folder.plan, _path(folder, kind)
    first = min(runs, key=lambda run: len(folder.scenario(run.number).schedule))
    replays = Replays(
        folder=own, kind=kind, works=works, seconds=plan.shrink_seconds, width=max(2, plan.jobs)
    )
    smallest = own / SMALLEST
    scenario = (
        scenario_file.read(smallest, seed=0) if smallest.exists() else folder.scenario(first.number)
    )
    say(
        f"{kind}: replaying run {first.number} ({len(scenario.schedule)} faults) {plan.replays} "
        "times"
    )
    (rate,) = replays([scenario], times=plan.replays)
    say(f"{kind}: failed like that in {rate}")
    shrunk = Shrunk(scenario=scenario, rate=rate, steps=0)
    replays.shrinks()
    if rate.failed and plan.shrink_seconds:
        shrinker = Shrinker(
            fails=replays,
            accepted=lambda made: _accept(smallest, made, kind, say),
            measures=plan.replays,
        )
        shrunk = shrinker.shrink(scenario, rate)
    _accept(smallest, shrunk.scenario, kind, lambda _: None)
    report = _report(folder, kind, runs, first, rate, shrunk)
    write_whole(own / REPORT, msgspec.json.format(msgspec.json.encode(report), indent=1))
    say(f"{kind}: {len(shrunk.scenario.schedule)} faults, fails in {shrunk.rate}: {report.command}")
    return report


def _accept(path: Path, scenario: Scenario, kind: str, say: Callable[[str], None]) -> None:
    write_whole(path, scenario_file.render(scenario).encode())
    say(f"{kind}: still with {', '.join(fault.fault for fault in scenario.schedule)}")


def _report(
    folder: SuiteFolder,
    kind: str,
    runs: Sequence[Result],
    first: Result,
    rate: Rate,
    shrunk: Shrunk,
) -> Report:
    smallest = _path(folder, kind) / SMALLEST
    return Report(
        kind=kind,
        found=tuple(run.number for run in runs),
        cause=first.cause or first.reason,
        original=str(folder.scenario_path(first.number)),
        replayed=str(rate),
        faults=tuple(f"{fault.fault} on {fault.target}" for fault in shrunk.scenario.schedule),
        rate=str(shrunk.rate),
        steps=shrunk.steps,
        command=f"linkflap run {shlex.quote(str(smallest))} --runtime {folder.plan.bounds.runtime}",
        without_last=str(shrunk.without_last) if shrunk.without_last else "",
    )
