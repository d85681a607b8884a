"""Triage of the failures after the runs of a suite: replays each to measure its rate, shrinks it,
and reports it with a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import write_whole
from linkflap.suite.failures import UNKNOWN, alike, by_kind
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import observed, struck
from linkflap.suite.replays import Replays
from linkflap.suite.reports import (
    SMALLEST,
    FailureReport,
    era_in,
    explained,
    paths_of,
    read,
    write_report,
)
from linkflap.suite.shrink import OFTEN, Rate, Shrinker, Shrunk
from linkflap.suite.work import Workers

CHOSEN: Final = "chosen"
"""The number of the run that is shrunk: a session that resumes does not choose again."""
NOT_SHRUNK: Final = f"{UNKNOWN}environment"
_LONGEST_NUMBER: Final = 100
CANDIDATES: Final = 3
"""How many runs with the same failure are replayed, if the first ones rarely fail again."""


def triage(folder: SuiteFolder, works: Workers, say: Callable[[str], None]) -> list[FailureReport]:
    """Reports every failure, and reuses the reports of earlier sessions. All runs of the suite must
    have a verdict."""
    return [
        report
        for kind, runs in by_kind(folder.results).items()
        if kind != NOT_SHRUNK
        for report in _each(folder, works, kind, runs, say)
    ]


def _each(
    folder: SuiteFolder,
    works: Workers,
    kind: str,
    runs: Sequence[RunResult],
    say: Callable[[str], None],
) -> Iterator[FailureReport]:
    """The failures of one kind, until each run is explained; only one in a suite that does not
    shrink."""
    paths = paths_of(folder, kind)
    for number, own in enumerate(paths if folder.plan.shrink_seconds else paths[:1]):
        if not runs:
            return
        if number:
            say(f"{kind}: not explained by that: {', '.join(str(run.number) for run in runs)}")
        report = read(own, kind) or _one(folder, works, own, kind, runs, say)
        mine = [run.number for run in explained(folder, runs, report)]
        report = msgspec.structs.replace(report, found=tuple(mine))
        write_report(own, report)
        yield report
        runs = [run for run in runs if run.number not in mine]
        if not report.reproduced:
            return


def _one(
    folder: SuiteFolder,
    works: Workers,
    own: Path,
    kind: str,
    runs: Sequence[RunResult],
    say: Callable[[str], None],
) -> FailureReport:
    plan, era = folder.plan, era_in(folder, runs[0], kind)
    runs = [run for run in runs if alike(era, era_in(folder, run, kind))]
    replays = Replays(
        folder=own,
        kind=kind,
        works=works,
        seconds=plan.shrink_seconds,
        era=era,
        width=max(2, plan.jobs),
    )
    smallest = own / SMALLEST
    first, replayed = _chosen(folder, own, kind, runs, replays, say)
    scenario, rate = folder.scenario(first.number), replayed
    if smallest.exists():  # an earlier session had begun to shrink it
        scenario = scenario_file.read(smallest, seed=0)
        (rate,) = replays([scenario], times=plan.replays)
    shrunk = Shrunk(scenario=scenario, rate=rate, steps=0)
    replays.accept(scenario)
    replays.shrinks()
    if rate.failed and plan.shrink_seconds:
        shrinker = Shrinker(
            fails=replays,
            accepted=lambda made: _accept(replays, smallest, made, kind, say),
            measures=plan.replays,
        )
        shrunk = shrinker.shrink(scenario, rate)
    _accept(replays, smallest, shrunk.scenario, kind, lambda _: None)
    evidence = replays.settle(shrunk.scenario)
    report = FailureReport(
        kind=kind,
        found=(first.number,),
        cause=first.cause or first.reason,
        original=str(folder.scenario_path(first.number)),
        replayed=str(replayed),
        faults=tuple(f"{fault.fault} on {fault.target}" for fault in shrunk.scenario.schedule),
        rate=str(shrunk.rate),
        steps=shrunk.steps,
        command=f"linkflap run {shlex.quote(str(smallest))} --runtime {plan.bounds.runtime}",
        without_last=str(shrunk.without_last) if shrunk.without_last else "",
        reproduced=shrunk.rate.failed > 0,
        mirror=shrunk.scenario.mirror.kind,
        era=era,
        struck=tuple(struck(observed(evidence).cells)) if evidence else (),
    )
    say(f"{kind}: {len(shrunk.scenario.schedule)} faults, fails in {shrunk.rate}: {report.command}")
    return report


def _chosen(
    folder: SuiteFolder,
    own: Path,
    kind: str,
    runs: Sequence[RunResult],
    replays: Replays,
    say: Callable[[str], None],
) -> tuple[RunResult, Rate]:
    """The run that is shrunk, and its rate: that of an earlier session, or the one that fails
    often. Older versions, which did not write CHOSEN, shrunk the run with the fewest faults."""
    kept = own / CHOSEN
    if kept.exists():
        number = -1
        with suppress(OSError, ValueError):
            number = int(untrusted_files.content(kept, most=_LONGEST_NUMBER))
        run = next((run for run in runs if run.number == number), runs[0])
    elif (own / SMALLEST).exists():
        run = min(runs, key=lambda run: len(folder.scenario(run.number).schedule))
    else:
        run, rate = _fails_often(folder, kind, runs, replays, say)
        write_whole(kept, f"{run.number}\n".encode())
        return run, rate
    (rate,) = replays([folder.scenario(run.number)], times=folder.plan.replays)
    return run, rate


def _fails_often(
    folder: SuiteFolder,
    kind: str,
    runs: Sequence[RunResult],
    replays: Replays,
    say: Callable[[str], None],
) -> tuple[RunResult, Rate]:
    """Replays the runs with the fewest faults, one after another, until one of them fails again in
    half of its replays or more. Returns that run, or the one that failed most often. Other runs are
    only replayed within the time that shrinking may take."""
    scenarios = {run.number: folder.scenario(run.number) for run in runs}
    rates: list[tuple[RunResult, Rate]] = []
    for run in sorted(runs, key=lambda run: len(scenarios[run.number].schedule))[:CANDIDATES]:
        scenario, times = scenarios[run.number], folder.plan.replays
        say(f"{kind}: replaying run {run.number} ({len(scenario.schedule)} faults) {times} times")
        (rate,) = replays([scenario], times=times)
        say(f"{kind}: failed like that in {rate}")
        rates.append((run, rate))
        if rate.share >= OFTEN or replays.spent:
            break
    return max(rates, key=lambda replayed: replayed[1].share)


def _accept(
    replays: Replays, path: Path, scenario: Scenario, kind: str, say: Callable[[str], None]
) -> None:
    write_whole(path, scenario_file.render(scenario).encode())
    replays.accept(scenario)
    say(f"{kind}: still with {', '.join(fault.fault for fault in scenario.schedule)}")
