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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one failure.

    `found` are the runs of the suite that it explains. `replayed` is the rate of the original
    scenario, `rate` that of the smallest. `era` (native or mirrored) is where the first anomaly is,
    `struck` the faults of the smallest scenario with the log states in which they struck.
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


def paths_of(folder: SuiteFolder, kind: str) -> list[Path]:
    """The directories of the first, second, … failure of a kind."""
    first = folder.root / "failures" / name_of(kind)
    return [first, *(first.with_name(f"{first.name}-{n}") for n in range(2, folder.plan.alike + 1))]


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
    first, *others = paths_of(folder, kind)
    further = [(path, report) for path in others if (report := read(path))]
    elsewhere = {number for _, report in further for number in report.found}
    own = [run for run in runs if run.number not in elsewhere]
    report = read(first)
    explained = report.found if report else [run.number for run in own]
    yield FailureGroup(
        kind=kind,
        path=first,
        runs=own,
        report=report,
        unexplained=[run for run in own if run.number not in explained],
    )
    for path, another in further:
        mine = [run for run in runs if run.number in another.found]
        yield FailureGroup(kind=kind, path=path, runs=mine, report=another)


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
