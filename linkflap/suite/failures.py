"""Failures of a suite: the signatures by which runs are compared (the kinds of anomalies that were
not allowed, or the reasons for an unknown verdict), the reports, and the runs that each of them
explains.

failures/<name>/       the first failure of a kind
failures/<name>-2/     another one of this kind: its runs have another mirror, or lack a fault of
                       the first one's smallest scenario, or failed in another era
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_document
from linkflap.spark_verify.checks import REGISTRY
from linkflap.suite.folder import RunResult, SuiteFolder

UNKNOWN: Final = "unknown:"
LONGEST: Final = 80
"""The most characters of a folder's name."""
_NAME: Final = re.compile(r"[^a-z0-9]+")
_FAILED: Final = "the run was failed: "
_NUMBER: Final = re.compile(r"\d[\d,.]*")


def _violated(checks: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The kinds of anomalies of the invalid checks, in the order of the registry of checks."""
    order = {name: number for number, name in enumerate(REGISTRY)}
    invalid = sorted(
        (c for c in checks if c["verdict"] == "invalid"),
        key=lambda c: order.get(c["name"], len(order)),
    )
    return [
        f"{c['name']}:{kind}" for c in invalid for kind in sorted(c["kinds"]) or ["not-explained"]
    ]


def kinds_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of failure of one verdict as `check:kind`, causes before consequences. A run
    without anomalies has the reasons for its unknown checks instead; one that failed has what
    failed, which is why they are unknown.

    A run with anomalies has no such reasons, because they may be consequences of the anomalies.
    """
    if found := _violated(document["checks"]):
        causes = [f"{cause['check']}:{cause['kind']}" for cause in document["causes"]]
        return tuple(dict.fromkeys(name for name in (*causes, *found) if name in found))
    if (reason := str(document["reason"])).startswith(_FAILED):
        return (f"{UNKNOWN}run:{_shape(reason.removeprefix(_FAILED))}",)
    unknown = [
        f"{UNKNOWN}{c['name']}:{_shape(c['reason'])}"
        for c in document["checks"]
        if c["verdict"] == "unknown"
    ]
    return tuple(unknown) or (
        (f"{UNKNOWN}run:{_shape(str(document['reason']))}",)
        if document["verdict"] == "unknown"
        else ()
    )


def _shape(reason: str) -> str:
    """The first part of a reason, with numbers replaced by N: so that the same reason in two runs
    is the same text."""
    return _NUMBER.sub("N", reason.split(";")[0])[:120]


def era_of(document: Mapping[str, Any], kind: str) -> str:
    """The era (native or mirrored) of the first anomaly of this kind that was not allowed. Empty if
    it belongs to no era of a log."""
    for anomaly in document.get("anomalies", ()):
        if f"{anomaly['check']}:{anomaly['kind']}" == kind and not anomaly["allowed"]:
            eras = document.get("eras", ())
            return next((str(era["origin"]) for era in eras if _in(anomaly, era)), "")
    return ""


def _in(anomaly: Mapping[str, Any], era: Mapping[str, Any]) -> bool:
    """An anomaly in a log that was truncated since has a capture (`spark_verify.verdict`)."""
    if era["truncated"] != ("capture" in anomaly["evidence"]):
        return False
    return all(anomaly[name] == era[name] for name in ("cluster", "topic", "partition")) and (
        era["start"] <= anomaly["offset"] and (era["end"] is None or anomaly["offset"] < era["end"])
    )


def alike(era: str, other: str) -> bool:
    """Whether two eras may be the same; an empty one is not known."""
    return not era or not other or era == other


def name_of(kind: str) -> str:
    """The name of the folder for a kind of failure. A long one ends with a digest."""
    name = _NAME.sub("-", kind.lower()).strip("-")
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"


def by_kind(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Groups failed runs by kind of failure, in the order of their numbers.

    A run joins the first group whose kind it has. If there is none, its first kind begins a new
    group. A run that joined the group of another kind is also listed under its own first kind,
    unless most runs of that group have this kind too: it may then be a consequence.
    """
    found: dict[str, list[RunResult]] = {}
    failed = [result for result in results if result.kinds]
    for result in sorted(failed, key=lambda result: result.number):
        known = next((kind for kind in result.kinds if kind in found), result.kinds[0])
        found.setdefault(known, []).append(result)
    for kind, runs in list(found.items()):
        for first in dict.fromkeys(run.kinds[0] for run in runs if run.kinds[0] != kind):
            if sum(first in run.kinds for run in runs) <= len(runs) / 2:
                own = [run for run in runs if run.kinds[0] == first]
                found[first] = sorted([*found.get(first, ()), *own], key=lambda run: run.number)
    return found


REPORT: Final = "report.json"
SMALLEST: Final = "smallest.toml"


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one failure.

    `found` are the runs of the suite that it explains. `reproduced`: the smallest scenario failed
    again. `replayed` is the rate of the original
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
    reproduced: bool = True
    mirror: str = ""
    era: str = ""
    struck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """One failure of a suite: its runs, and its report, if there is one yet. `unexplained` are runs
    with the same kind of failure that no report explains."""

    kind: str
    path: Path
    runs: Sequence[RunResult]
    report: FailureReport | None
    number: int = 1
    unexplained: Sequence[RunResult] = ()

    @property
    def title(self) -> str:
        """The kind, with a number if there are several failures of it."""
        return self.kind if self.number == 1 else f"{self.kind} ({self.number})"

    def scenario(self, folder: SuiteFolder) -> Path:
        """The smallest scenario so far; before a triage, that of the first run."""
        smallest = self.path / SMALLEST
        return smallest if smallest.exists() else folder.scenario_path(self.runs[0].number)


def paths_of(folder: SuiteFolder, kind: str) -> list[Path]:
    """The directories of the first, second, … failure of a kind."""
    first = folder.root / "failures" / name_of(kind)
    return [first, *(first.with_name(f"{first.name}-{n}") for n in range(2, folder.plan.alike + 1))]


def read(path: Path, kind: str) -> FailureReport | None:
    """The report in the directory of a failure, if it was written. Two kinds may have the same
    shortened name: a report of another kind is none."""
    report = _read(path)
    return report if report and report.kind == kind else None


def reports_in(folder: SuiteFolder) -> list[tuple[Path, FailureReport | None]]:
    """The directory of each failure with its report, if it was written."""
    return [(path, _read(path)) for path in sorted((folder.root / "failures").glob("*"))]


def _read(path: Path) -> FailureReport | None:
    try:
        content = untrusted_files.content(path / REPORT)
        return untrusted_files.decoded(with_current_kinds(content), FailureReport)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{path / REPORT} cannot be read ({error}); remove it: its failure is shrunk again"
        ) from None


def write_report(path: Path, report: FailureReport) -> None:
    """Writes the report of a failure into its directory."""
    write_document(path / REPORT, report)


def failures(folder: SuiteFolder) -> list[FailureGroup]:
    """Every failure of a suite; each failed run is in one of them or more. Unknown ones come last,
    those with the most runs first."""
    found = [
        failure
        for kind, runs in by_kind(folder.results).items()
        for failure in _of(folder, kind, runs)
        if failure.runs
    ]
    return sorted(found, key=lambda one: (one.kind.startswith(UNKNOWN), -len(one.runs)))


def _of(folder: SuiteFolder, kind: str, runs: Sequence[RunResult]) -> Iterator[FailureGroup]:
    first, *others = paths_of(folder, kind)
    further = [(path, report) for path in others if (report := read(path, kind))]
    elsewhere = {number for _, report in further for number in report.found}
    own = [run for run in runs if run.number not in elsewhere]
    yield _group(kind, first, own, read(first, kind))
    for number, (path, report) in enumerate(further, start=2):
        yield _group(kind, path, [r for r in runs if r.number in report.found], report, number)


def _group(
    kind: str, path: Path, runs: Sequence[RunResult], report: FailureReport | None, number: int = 1
) -> FailureGroup:
    return FailureGroup(
        kind=kind,
        path=path,
        runs=runs,
        report=report,
        number=number,
        unexplained=[run for run in runs if report and run.number not in report.found],
    )


def explained(
    folder: SuiteFolder, runs: Sequence[RunResult], report: FailureReport
) -> list[RunResult]:
    """The runs that a report explains: they have its mirror, its era, and all faults of its
    smallest scenario. One that never failed again explains only the run that was replayed."""
    return [
        run
        for run in runs
        if run.number in report.found
        or (report.reproduced and _explains(folder, report, run, folder.scenario(run.number)))
    ]


def _explains(
    folder: SuiteFolder, report: FailureReport, run: RunResult, scenario: Scenario
) -> bool:
    faults = Counter(fault.fault for fault in scenario.schedule)
    return (
        report.mirror in ("", scenario.mirror.kind)
        and faults_of(report) <= faults
        and alike(report.era, era_in(folder, run, report.kind))
    )


def faults_of(report: FailureReport) -> Counter[str]:
    """The names of the faults of its smallest scenario."""
    return Counter(fault.partition(" on ")[0] for fault in report.faults)


def era_in(folder: SuiteFolder, run: RunResult, kind: str) -> str:
    """The era of a run's first anomaly of this kind; empty where that is not known."""
    document = folder.verdict(run.number)
    return era_of(document, kind) if document else ""
