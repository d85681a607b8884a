"""Findings of a check in a partition as rows of a table, and back.

Partial findings cross Spark as JSON, their columns of numbers as text. Offsets and payload ids
mostly rise by one, so their differences, compressed, take a fraction of a byte each. The worst case
is 11 bytes per number: its own eight in base64.
"""

from __future__ import annotations

import base64
import traceback
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from linkflap.spark_verify.checks.base import (
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.facts.view import Ints, PartitionView

COLUMN: Final = "int64"
"""The only name in an object that stands for a column: little-endian differences, the first from 0;
zlib; base64."""
_QUICKLY: Final = 1
MOST_LISTED: Final = 10_000
"""Anomalies of one kind that one check lists in one partition; the rest is counted. Logs of others
can have millions: they would fill the memory."""


def packed(data: Mapping[str, object]) -> dict[str, object]:
    """The same values, with columns (arrays of int64) as objects that JSON can hold."""
    return {
        name: _packed(value) if isinstance(value, np.ndarray) else value
        for name, value in data.items()
    }


def unpacked(data: Mapping[str, object]) -> dict[str, object]:
    """Unpacks a value from JSON: columns are arrays again."""
    return {name: _unpacked(value) for name, value in data.items()}


def _packed(column: Ints) -> dict[str, str]:
    # Differences may wrap around, and so do then the sums.
    differences = np.diff(column.astype("<i8", casting="safe"), prepend=0)
    return {COLUMN: base64.b64encode(zlib.compress(differences.tobytes(), _QUICKLY)).decode()}


def _unpacked(value: object) -> object:
    if not isinstance(value, dict) or value.keys() != {COLUMN}:
        return value
    differences = np.frombuffer(zlib.decompress(base64.b64decode(value[COLUMN])), "<i8")
    return np.cumsum(differences, dtype=np.int64)


FindingName = Literal["found", "examined", "partial", "unjudged", "crashed", "damage"]


FINDINGS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("check", pa.string()),
        ("finding", pa.string()),
        ("cluster", pa.string()),
        ("origin", pa.string()),
        ("count", pa.int64()),
        ("kind", pa.string()),
        ("offset", pa.int64()),
        ("data", pa.string()),
        ("together", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One finding of one check in one partition; fields that its kind does not have are "", 0 or
    -1.

    found      cluster, kind, offset, data = evidence
    examined   cluster, origin, count; offset = start of the era, data = {"generation"}
    unjudged   data = {"reason"}
    crashed    data = {"reason", "traceback"}: the kernel (or combine) raised; topic "" when it was
               combine
    damage     data = {"path", "reason"}: a part of the run directory; check "", topic "", partition
               -1
    partial finding       cluster, offset, data (columns packed), together; where the check has a
                          combine, only if it measures
    failovers
    """

    run: str
    topic: str
    partition: int
    check: str
    finding: FindingName
    cluster: str = ""
    origin: str = ""
    count: int = 0
    kind: str = ""
    offset: int = -1
    data: Mapping[str, object]
    together: str = ""


def of_combined(run: str, check: str, each: Combined) -> FindingRow:
    return row_of(run, each.topic, each.partition, check, each.found)


def row_of(run: str, topic: str, partition: int, check: str, finding: Finding) -> FindingRow:
    def row(name: FindingName, values: Mapping[str, object], **rest: object) -> FindingRow:
        data = msgspec.to_builtins(values, enc_hook=_numpy, str_keys=True)
        at = {"run": run, "topic": topic, "partition": partition, "check": check}
        return FindingRow(**at, finding=name, data=data, **rest)  # type: ignore[arg-type]

    match finding:
        case Found():
            return row(
                "found",
                finding.evidence,
                cluster=finding.cluster,
                kind=finding.kind,
                offset=int(finding.offset),
            )
        case Examined():
            era = {"generation": finding.generation}
            return row(
                "examined",
                era,
                cluster=finding.cluster,
                origin=finding.origin,
                count=int(finding.count),
                offset=finding.start,
            )
        case PartialFinding():
            offset = int(finding.offset)
            return row(
                "partial",
                packed(finding.data),
                cluster=finding.cluster,
                offset=offset,
                together=finding.together,
            )
        case Unjudged():
            return row("unjudged", {"reason": finding.reason})


def partial_of(row: FindingRow) -> PartialFinding:
    """The partial finding that a row holds, its columns unpacked."""
    return PartialFinding(
        cluster=row.cluster,
        offset=row.offset,
        data=unpacked(row.data),
        topic=row.topic,
        partition=row.partition,
        together=row.together,
    )


def unjudged(run: str, check: str, reason: str) -> FindingRow:
    """The row that says that a check could not be made in a run at all."""
    return row_of(run, "", -1, check, Unjudged(reason=reason))


def damaged(run: str, path: str, reason: str) -> FindingRow:
    return FindingRow(
        run=run,
        topic="",
        partition=-1,
        check="",
        finding="damage",
        data={"path": path, "reason": reason},
    )


def crashed(run: str, topic: str, partition: int, check: str, error: Exception) -> FindingRow:
    data = {
        "reason": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }
    return FindingRow(
        run=run, topic=topic, partition=partition, check=check, finding="crashed", data=data
    )


def table(rows: Iterable[FindingRow]) -> pa.Table:
    return pa.Table.from_pylist([_fields(row) for row in rows], FINDINGS)


def _fields(row: FindingRow) -> dict[str, object]:
    values = {name: getattr(row, name) for name in FINDINGS.names}
    return values | {"data": msgspec.json.encode(row.data).decode()}


def _numpy(value: object) -> object:
    """Kernels count with numpy: its scalars and arrays are JSON values too."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"evidence holds a {type(value).__name__}, which is no JSON value")


def parsed(row: Mapping[str, object]) -> FindingRow:
    data = msgspec.json.decode(str(row["data"]))
    return FindingRow(**{**row, "data": data})


def examine(check: Check, seen: PartitionView) -> list[FindingRow]:
    """The findings of one kernel in one partition; a kernel that raises is a finding too, and no
    verdict can be valid over it."""
    if seen.internal and not check.internal:
        return []
    try:
        return [
            row_of(seen.run, seen.topic, seen.partition, check.name, finding)
            for finding in _listed(_proven(check, seen), seen)
        ]
    except Exception as error:  # noqa: BLE001 - a crashed check makes the verdict unknown, it must not hide the others
        return [crashed(seen.run, seen.topic, seen.partition, check.name, error)]


def _proven(check: Check, seen: PartitionView) -> Iterator[Finding]:
    """The findings; of a partition with a torn log only those anomalies that the rest of it
    proves."""
    torn = [
        replica.cluster for replica in (*seen.canonical().values(), *seen.earlier) if replica.damage
    ]
    if not torn:
        yield from check.kernel(seen)
        return
    sound = {kind.name for kind in check.anomalies if kind.despite_torn}
    where = f"{seen.topic}-{seen.partition} on {torn[0]}"
    unproven: Counter[str] = Counter()
    for finding in check.kernel(seen):
        if not isinstance(finding, Found) or finding.kind in sound:
            yield finding
            continue
        unproven[finding.kind] += 1
        if unproven[finding.kind] == 1:
            found = f"{finding.kind} at offset {finding.offset} of {finding.cluster}"
            reason = f"the log of {where} is torn, so {found} may be a false positive"
            yield Unjudged(reason=reason)
    yield from (
        Unjudged(
            reason=f"the log of {where} is torn, so {n - 1:,} more of {kind} may be false positives"
        )
        for kind, n in unproven.items()
        if n > 1
    )
    yield Unjudged(reason=f"the log of {where} is torn, so not all of it could be judged")


def _listed(findings: Iterable[Finding], seen: PartitionView) -> Iterator[Finding]:
    """The findings, with at most MOST_LISTED anomalies of a kind."""
    found: Counter[str] = Counter()
    for finding in findings:
        if isinstance(finding, Found):
            found[finding.kind] += 1
            if found[finding.kind] > MOST_LISTED:
                continue
        yield finding
    for kind, count in found.items():
        if count > MOST_LISTED:
            more = f"{count - MOST_LISTED:,} more of {kind} in {seen.topic}-{seen.partition}"
            yield Unjudged(reason=f"{more} are not listed")


def combined(check: Check, run: str, rows: Iterable[FindingRow]) -> list[FindingRow]:
    """The findings that a check's `combine` makes of its partial findings, whose columns are
    packed."""
    if check.combine is None:
        return list(rows)
    ordered = sorted(rows, key=lambda r: (r.topic, r.partition, r.cluster, r.offset))
    partials = [partial_of(row) for row in ordered]
    try:
        return [of_combined(run, check.name, each) for each in check.combine(partials)]
    except Exception as error:  # noqa: BLE001 - as in `examine`
        return [crashed(run, "", -1, check.name, error)]
