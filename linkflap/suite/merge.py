"""`linkflap suite merge`: joins the shards of one suite, recorded on several machines, into one
suite directory. A merged suite cannot be resumed.

Nothing is judged again. Shards of different suites are refused, and so is a shard that is given
twice. If a shard is missing, the merged suite names it, and its verdict is unknown at best.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.rundir import write_document
from linkflap.suite import regression
from linkflap.suite.failures import (
    FailureReport,
    alike,
    faults_of,
    paths_of,
    reports_in,
    write_report,
)
from linkflap.suite.folder import CASES, Plan, SuiteFolder

_ALIKE: Final = (
    *("name", "seed", "bounds", "guided", "given", "cases", "before", "linkflap", "format"),
)
"""The fields of `Plan` that are equal in all shards of one suite."""
_AT_ONCE: Final = 1 << 20
Named = TypeVar("Named", bound=Hashable)
_FOLDERS: Final = ("scenarios", "passed", "runs", CASES)


def merge(parts: Sequence[SuiteFolder], root: Path) -> SuiteFolder:
    """Copies all shards into a new suite directory, and changes none of them. Raises InputError if
    they are not shards of one suite, one of them has more than files and folders, or `root`
    exists."""
    _check(parts)
    first = parts[0].plan
    _, of = first.shard
    shards = tuple(sorted(part.plan.shard[0] for part in parts))
    plan = replace(
        first,
        shard=(0, 1),
        jobs=sum(part.plan.jobs for part in parts),
        alike=sum(part.plan.alike for part in parts),
        merged=shards,
        shards=of,
    )
    folder = SuiteFolder.create(root, plan)
    try:
        _fill(folder, parts)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)  # half of it looks like a suite that was stopped
        raise
    return folder


def _fill(folder: SuiteFolder, parts: Sequence[SuiteFolder]) -> None:
    root = folder.root
    for part in parts:
        for name in _FOLDERS:
            if (part.root / name).is_dir():
                _copy(part.root / name, root / name)
    if folder.plan.name == regression.REGRESSION:
        entries = sorted(
            (one for part in parts for one in regression.entries(part)), key=lambda one: one.number
        )
        write_document(root / regression.ENTRIES, entries)
    _failures(parts, folder)
    for result in sorted(
        (result for part in parts for result in part.results), key=lambda result: result.number
    ):
        folder.append(result)


def missing(plan: Plan) -> list[str]:
    """The shards that a merged suite lacks, as `2/4`; none if the suite is not merged."""
    return (
        [f"{n + 1}/{plan.shards}" for n in range(plan.shards) if n not in plan.merged]
        if plan.merged
        else []
    )


def _check(parts: Sequence[SuiteFolder]) -> None:
    if len(parts) < 2:
        raise InputError(
            "merge needs at least two suite directories; name the directory of each shard"
        )
    for root in _twice(part.root.resolve() for part in parts):
        raise InputError(f"{root} is named twice; name the directory of each shard once")
    first = parts[0]
    for part in parts:
        if part.plan.merged:
            raise InputError(
                f"{part.root} is merged already; name the directories of its shards instead"
            )
        if part.plan.shard[1] != first.plan.shard[1]:
            raise InputError(
                f"{part.root} is one of {part.plan.shard[1]} shards and {first.root} one of "
                f"{first.plan.shard[1]}; merge shards of one suite"
            )
        for name in _ALIKE:
            if getattr(part.plan, name) != getattr(first.plan, name):
                raise InputError(
                    f"{part.root} and {first.root} are not shards of one suite: their {name} "
                    "differs; start all shards with the same options, --seed included"
                )
        for path, what in untrusted_files.special_entries(part.root):
            raise InputError(f"{part.root / path} {what}; remove it, and merge again")
    for number in _twice(part.plan.shard[0] for part in parts):
        raise InputError(
            f"two of the directories are shard {number + 1}/{first.plan.shard[1]}; name the "
            "directory of each shard once"
        )


def _twice(of: Iterable[Named]) -> Iterator[Named]:
    return (each for each, count in Counter(of).items() if count > 1)


def _failures(parts: Sequence[SuiteFolder], merged: SuiteFolder) -> None:
    """Copies the directory of each failure: first those that failed again, with the fewest faults.
    One that has no report yet is copied if no shard has a report of it."""
    found = [pair for part in parts for pair in reports_in(part)]
    written = [(path, report) for path, report in found if report]
    written.sort(key=lambda pair: (not pair[1].reproduced, len(pair[1].faults)))
    kept: dict[Path, FailureReport] = {}
    for path, one in written:
        _add(kept, merged, path, one)
    for own, one in kept.items():
        write_report(own, one)
    for path, report in found:
        if not report and not (merged.root / "failures" / path.name).exists():
            _copy(path, merged.root / "failures" / path.name)


def _copy(folder: Path, copy: Path) -> None:
    """Copies a folder: of each file only its blocks on the disk, and not its holes, which may be of
    any length."""
    shutil.copytree(
        folder, copy, symlinks=True, dirs_exist_ok=True, copy_function=_copy_without_holes
    )


def _copy_without_holes(source: str, copy: str) -> None:
    with untrusted_files.opened(Path(source)) as file, open(copy, "xb") as out:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # a hole is the rest
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            out.seek(at)
            while at < hole:
                at += out.write(os.pread(file.fileno(), min(hole - at, _AT_ONCE), at))
        out.truncate(size)


def _add(
    kept: dict[Path, FailureReport], merged: SuiteFolder, path: Path, report: FailureReport
) -> None:
    """Copies one failure, unless one that is there explains its runs too."""
    for own, other in kept.items():
        if _explains(other, report):
            numbers = sorted({*other.found, *report.found})
            kept[own] = msgspec.structs.replace(other, found=tuple(numbers))
            return
    for free in (own for own in paths_of(merged, report.kind) if own not in kept):
        _copy(path, free)
        kept[free] = report
        return


def _explains(report: FailureReport, other: FailureReport) -> bool:
    return (
        report.reproduced
        and (report.kind, report.mirror) == (other.kind, other.mirror)
        and alike(report.era, other.era)
        and faults_of(report) <= faults_of(other)
    )
