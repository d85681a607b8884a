"""The page suite.html: failures first, a row for each run, and coverage tables that show what the
bounds allow and no run hit."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from linkflap.chaos.generator import GeneratorBounds
from linkflap.chaos.generator.coverage import shape
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.scenario import LIBRDKAFKA
from linkflap.harness.model.texts import counted, printable
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import ORDER, Verdict
from linkflap.harness.rundir import write_whole
from linkflap.report import html
from linkflap.report.html import CountTable, Failure, Page, Row
from linkflap.suite import regression
from linkflap.suite.failures import FailureGroup, failures
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import STATES
from linkflap.suite.summary import (
    came_to,
    cases_of,
    never_true,
    night,
    per_hour,
    strikes,
    unreached,
)
from linkflap.suite.triage import EVIDENCE
from linkflap.topologies import parse

_NOT_PLAYED: Final = "not played"
_CREW: Final = re.compile("clients/[^/]*/")


def write(folder: SuiteFolder) -> Path:
    """Writes suite.html into the suite directory, and returns its path."""
    path = folder.root / html.SUITE_PAGE
    made = _of_cases(folder) if folder.plan.name == regression.REGRESSION else _of_runs(folder)
    write_whole(path, printable(html.text(made)).encode())
    return path


def _of_runs(folder: SuiteFolder) -> Page:
    results, plan = folder.results, folder.plan
    counts = Counter(result.verdict for result in results)
    again, cases = sum(result.again for result in results), cases_of(folder)
    return Page(
        verdict=came_to(folder),
        title=f"suite {plan.name}",
        about=f"seed {plan.seed}, {plan.jobs} at once, linkflap {plan.linkflap}",
        lines=(
            (
                f"{counted(len(results), 'run')}: "
                f"{', '.join(f'{n} {verdict}' for verdict, n in sorted(counts.items())) or 'none'};"
                f" {counted(per_hour(results), 'run')} an hour."
            ),
            f"{again} recorded again because the environment had failed.",
            *_baseline(results, given=bool(plan.given)),
            *(f"Required, and never reached: {wanted}." for wanted in unreached(folder)),
        ),
        failures=(
            *(
                Failure(kind=f"case {one.name}", runs=[], cause=one.result, command=one.command)
                for one in cases
                if one.verdict is Verdict.INVALID
            ),
            *_failures(folder),
        ),
        columns=("verdict", "run", "mirror", "topology", "faults", "failed as", "why", "seconds"),
        rows=(
            *(
                Row(
                    verdict=one.said,
                    name=f"case {one.name}",
                    cells=("", "", "", "", one.result, ""),
                )
                for one in cases
            ),
            *(_row(folder, result) for result in sorted(results, key=_worst_first)),
        ),
        tables=() if plan.given else (*_trend(folder), *_tables(results, plan.bounds)),
    )


def _worst_first(result: RunResult) -> tuple[int, int]:
    return -ORDER.index(Verdict(result.verdict)), result.number


def _baseline(results: Sequence[RunResult], *, given: bool) -> Iterator[str]:
    if given:
        return
    found = next((result for result in results if result.number == 0), None)
    if found is not None:
        yield f"The baseline (the same clients without faults) is {found.verdict}."


def _row(folder: SuiteFolder, result: RunResult) -> Row:
    made, path = folder.scenario(result.number), folder.scenario_path(result.number)
    return Row(
        verdict=result.verdict,
        name=path.stem,
        path=os.path.relpath(path, folder.root),
        cells=(
            made.mirror.kind,
            shape(made.topology),
            ", ".join(fault.fault for fault in made.schedule) or "none",
            ", ".join(result.kinds[:3]),
            result.cause or result.reason,
            f"{result.seconds:.0f}",
        ),
    )


def _failures(folder: SuiteFolder) -> Iterator[Failure]:
    for found in failures(folder):
        first, smallest = found.runs[0], found.scenario(folder)
        paths = {
            "scenario": smallest,
            "evidence": found.path / EVIDENCE,
            "run": folder.run_path(first.number),
        }
        yield Failure(
            kind=found.title,
            runs=[f"{run.number:04d}" for run in found.runs],
            cause=first.cause or first.reason,
            command=f"linkflap run {shlex.quote(str(smallest))} --runtime "
            f"{folder.plan.bounds.runtime}",
            facts={name: value for name, value in _facts(found) if value},
            files={
                name: os.path.relpath(path, folder.root)
                for name, path in paths.items()
                if path.exists()
            },
        )


def _facts(found: FailureGroup) -> Iterator[tuple[str, str]]:
    if report := found.report:
        yield "failed again in", report.replayed
        yield "smallest scenario", ", ".join(report.faults)
        yield "smallest failed in", report.rate
        yield "without its last fault", report.without_last
        yield "struck", "; ".join(report.struck)
        yield "era", report.era
    unexplained = ", ".join(f"{run.number:04d}" for run in found.unexplained)
    yield "not explained by it", unexplained


def _trend(folder: SuiteFolder) -> Iterator[CountTable]:
    """A row for each suite whose coverage this one took over, oldest first, and one for this
    suite."""
    if not folder.plan.nights:
        return
    every = (*folder.plan.nights, night(folder))
    verdicts = ("valid", "invalid", "unknown")
    yield CountTable(
        title="This suite and those before it",
        about="Oldest first; the last two columns count cells of the coverage.",
        columns=("runs", *verdicts, "runs an hour", "hit", "hit for the first time"),
        rows={
            f"{n}. {one.name} (linkflap {one.linkflap})": [
                sum(one.verdicts.values()),
                *(one.verdicts.get(verdict, 0) for verdict in verdicts),
                round(one.per_hour),
                one.cells,
                one.new,
            ]
            for n, one in enumerate(every, start=1)
        },
    )


def _tables(results: Sequence[RunResult], bounds: GeneratorBounds) -> Iterator[CountTable]:
    """How many runs hit each cell that the bounds of the suite allow."""
    hits = Counter(cell for result in results for cell in result.cells)
    yield _by_state(results, bounds)
    yield _by_other_fault(
        hits, bounds, "after", title="Faults after faults", about="The column's fault ended first."
    )
    yield _by_other_fault(
        hits,
        bounds,
        "over",
        title="Faults while others lasted",
        about="The row's fault began while the column's lasted.",
    )
    yield _by_topology(hits, bounds)
    if len(bounds.kafka) > 1:
        yield _by_releases(hits, bounds)
    if len(bounds.clients) > 1:
        yield _by_clients(results, bounds)
    for kind in (kind for kind in bounds.mirrors if kind in bounds.kinds):
        yield _by_option(hits, kind)
    if missed := never_true(results):
        rows = {text: [n] for text, n in missed.most_common()}
        yield CountTable(title="Conditions that never came true", columns=["runs"], rows=rows)


def _by_state(results: Sequence[RunResult], bounds: GeneratorBounds) -> CountTable:
    struck = strikes(results)
    return CountTable(
        title="Faults by the log state in which they struck",
        about=(
            "Number of runs and positions in the topology in which the fault bit. The log state is "
            "that at the fault's injection."
        ),
        columns=STATES,
        rows={fault: [struck[fault, state] for state in STATES] for fault in bounds.allowed},
    )


def _by_other_fault(
    hits: Counter[str], bounds: GeneratorBounds, how: str, *, title: str, about: str
) -> CountTable:
    rows = {
        name: [hits[f"{how}/{name}/{other}"] for other in bounds.allowed] for name in bounds.allowed
    }
    return CountTable(title=title, about=about, columns=bounds.allowed, rows=rows)


def _by_topology(hits: Counter[str], bounds: GeneratorBounds) -> CountTable:
    shapes = [shape(_parsed(name)) for name in bounds.topologies]
    rows = {kind: [hits[f"on/{kind}/{drawn}"] for drawn in shapes] for kind in bounds.kinds}
    return CountTable(title="Mirrors on topologies", columns=shapes, rows=rows)


def _by_releases(hits: Counter[str], bounds: GeneratorBounds) -> CountTable:
    releases = [f"{a}->{b}" for a in bounds.kafka for b in bounds.kafka]
    rows = {kind: [hits[f"kafka/{kind}/{pair}"] for pair in releases] for kind in bounds.mirrors}
    return CountTable(title="Releases on both sides of a link", columns=releases, rows=rows)


def _by_clients(results: Sequence[RunResult], bounds: GeneratorBounds) -> CountTable:
    """Runs by mirror and by library of the clients. A run without a cell for its clients used
    librdkafka."""
    named: Counter[tuple[str, str]] = Counter()
    for result in results:
        mirrored = next((cell.split("/")[1] for cell in result.cells if cell.startswith("on/")), "")
        named[
            mirrored,
            next(
                (cell.split("/")[2] for cell in result.cells if _CREW.match(cell)),
                LIBRDKAFKA,
            ),
        ] += 1
    rows = {kind: [named[kind, crew] for crew in bounds.crews] for kind in bounds.kinds}
    return CountTable(title="Client libraries", columns=bounds.crews, rows=rows)


def _by_option(hits: Counter[str], kind: str) -> CountTable:
    """A row for each option of a mirror, and a column for each of its values."""
    sound = MIRRORS[kind].sound
    widest = max((len(values) for values in sound.values()), default=0)
    rows: dict[str, list[int | None]] = {}
    for name, values in sound.items():
        counts = [hits[f"with/{kind}/{name}={value}"] for value in values]
        rows[f"{name}={'|'.join(map(str, values))}"] = [*counts, *[None] * (widest - len(values))]
    return CountTable(
        title=f"Options of {kind}",
        about="The values are in the order of `linkflap list mirrors`.",
        columns=[str(n + 1) for n in range(widest)],
        rows=rows,
    )


def _parsed(name: str) -> Topology:
    from linkflap.chaos.generator.bounds import arrows_of

    return parse(arrows_of(name))


def _of_cases(folder: SuiteFolder) -> Page:
    known, every = {result.number: result for result in folder.results}, regression.entries(folder)
    again = sum(result.verdict == Verdict.VALID for result in folder.results)
    return Page(
        verdict=regression.verdict_of(folder),
        title="suite regression",
        about=f"every case that was reproduced before, linkflap {folder.plan.linkflap}",
        lines=(f"{len(known)} of {len(every)} cases were played; {again} reproduced again.",),
        failures=[
            Failure(
                kind=", ".join(known[one.number].kinds[:1]),
                runs=[one.title],
                cause=known[one.number].cause or known[one.number].reason,
                command=regression.command(one),
            )
            for one in every
            if one.number in known and known[one.number].failed
        ],
        columns=("verdict", "case", "result", "before", "seconds"),
        rows=[
            (
                Row(
                    verdict=known[one.number].verdict,
                    name=one.title,
                    cells=(
                        known[one.number].reason,
                        f"{one.shown} of {one.runs}",
                        f"{known[one.number].seconds:.0f}",
                    ),
                )
                if one.number in known
                else Row(
                    verdict=_NOT_PLAYED,
                    name=one.title,
                    cells=("", f"{one.shown} of {one.runs}", ""),
                )
            )
            for one in sorted(
                every,
                key=lambda one: (
                    _worst_first(known[one.number]) if one.number in known else (-2, one.number)
                ),
            )
        ],
    )
