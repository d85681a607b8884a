"""Reports in failures/, and the runs that each of them explains.

failures/<name>/       the first failure of a kind
failures/<name>-2/     another one of this kind: its runs lack a fault of the first one's smallest
                       scenario, or have their first anomaly in another era
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_whole
from linkflap.harness.suite.failures import UNKNOWN, by_kind, era_of, name_of
from linkflap.harness.suite.folder import Result, SuiteFolder

REPORT: Final = "report.json"
SMALLEST: Final = "smallest.toml"
MOST: Final = 3
"""The highest number of failures of one kind."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one failure.

    `found` are the runs of the suite that it explains. `replayed` is the rate of the original
    scenario, `rate` that of the smallest. `era` (native or mirrored) is where the first anomaly is,
    `struck` the faults of the smallest scenario with the log states in which they struck. All took
    `seconds`.
    """

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
    era: str = ""
    struck: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """One failure of a suite: its runs, and its report, if there is one yet. `unexplained` are runs
    with the same kind of failure that no report explains."""

    kind: str
    path: Path
    runs: Sequence[Result]
    report: Report | None
    unexplained: Sequence[Result] = ()

    def scenario(self, folder: SuiteFolder) -> Path:
        """The smallest scenario so far; before a triage, that of the first run."""
        smallest = self.path / SMALLEST
        return smallest if smallest.exists() else folder.scenario_path(self.runs[0].number)


def path_of(folder: SuiteFolder, kind: str, number: int = 1) -> Path:
    """The directory of the first, second, … failure of a kind."""
    return folder.root / "failures" / (name_of(kind) + (f"-{number}" if number > 1 else ""))


def read(path: Path) -> Report | None:
    """The report in the directory of a failure, if it was written."""
    report = path / REPORT
    if not report.exists():
        return None
    return msgspec.json.decode(with_current_kinds(report.read_bytes()), type=Report)


def write_report(path: Path, report: Report) -> None:
    """Writes the report of a failure into its directory."""
    write_whole(path / REPORT, msgspec.json.format(msgspec.json.encode(report), indent=1))


def failures(folder: SuiteFolder) -> list[FailureGroup]:
    """Every failure of a suite; each failed run is in one of them or more. Unknown ones come last,
    those with the most runs first."""
    found = [
        failure
        for kind, runs in by_kind(folder.results).items()
        for failure in _of(folder, kind, runs)
    ]
    return sorted(found, key=lambda one: (one.kind.startswith(UNKNOWN), -len(one.runs)))


def _of(folder: SuiteFolder, kind: str, runs: Sequence[Result]) -> Iterator[FailureGroup]:
    paths = [path_of(folder, kind, number) for number in range(1, MOST + 1)]
    reports = {path: report for path in paths if (report := read(path))}
    known = {number for report in reports.values() for number in report.found}
    others = {number for path in paths[1:] if path in reports for number in reports[path].found}
    for path in paths:
        report = reports.get(path)
        if path == paths[0]:
            yield FailureGroup(
                kind=kind,
                path=path,
                runs=[run for run in runs if run.number not in others],
                report=report,
                unexplained=[run for run in runs if report and run.number not in known],
            )
        elif report:
            mine = [run for run in runs if run.number in report.found]
            yield FailureGroup(kind=kind, path=path, runs=mine, report=report)


def explained(
    folder: SuiteFolder, runs: Sequence[Result], first: Result, smallest: Scenario
) -> list[Result]:
    """The runs whose failure may be that of `first`: they have all faults of its smallest
    scenario."""
    needed = _faults(smallest)
    return [run for run in runs if run is first or needed <= _faults(folder.scenario(run.number))]


def era_in(folder: SuiteFolder, run: Result, kind: str) -> str:
    """The era of a run's first anomaly of this kind; empty where that is not known."""
    document = folder.verdict(run.number)
    return era_of(document, kind) if document else ""


def _faults(scenario: Scenario) -> Counter[str]:
    return Counter(fault.fault for fault in scenario.schedule)
