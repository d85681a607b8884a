"""Compares the findings of a check with those of its reference, offset by offset and record by
record."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from types import ModuleType

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.checks.finding_rows import FindingRow, combined, examine
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles import checks
from tests.oracles.plain import Anomaly, Plain, plain

REFERENCES = {
    found.name.replace("_", "-"): importlib.import_module(f"{checks.__name__}.{found.name}")
    for found in pkgutil.iter_modules(checks.__path__)
}
"""The checks that have a reference, and its module."""


def findings(check: Check, views: Sequence[PartitionView]) -> list[FindingRow]:
    """The findings of a check for one run: its kernel on every partition, and its combine. Some
    checks do not read only logs."""
    if not (check.from_bytes or all(view.recorded for view in views)):
        return []
    rows = [row for view in views for row in examine(check, view)]
    return [*rows, *combined(check, "run", [row for row in rows if row.finding == "partial"])]


def disagreement(check: str, rows: Iterable[FindingRow], views: Sequence[PartitionView]) -> str:
    """The differences in words; empty if there are none. For kinds in EACH, one anomaly stands for
    `records` offsets of the reference."""
    rows = list(rows)
    views = views if REGISTRY[check].internal else [view for view in views if not view.internal]
    crashed = [str(row.data["traceback"]) for row in rows if row.finding == "crashed"]
    if crashed:
        return crashed[0]
    module = REFERENCES[check]
    judged: frozenset[str] | None = getattr(module, "KINDS", None)
    found = [r for r in rows if r.finding == "found" and (judged is None or r.kind in judged)]
    if not (REGISTRY[check].from_bytes or all(view.recorded for view in views)):
        return ""
    plains = [plain(view) for view in views]
    reported = {_anomaly(row) for row in found}
    wanted: list[Anomaly] = [
        anomaly
        for anomaly in _wanted(module, plains, reported)
        if not _doubtful(module, anomaly, plains)
    ]
    parts, ambiguous = [], set[tuple[str, str, int]]()
    for where, may, must in [one for each in plains for one in _possible(module, each)]:
        ambiguous.add(where)
        there = {_anomaly(row) for row in found if _anomaly(row)[1:4] == where}
        if there - may:
            parts.append(f"only the check tells of {sorted(there - may)}")
        if must and not there & must:
            parts.append(f"the check tells of {sorted(there)} in {where}, and more is wrong")
    found = [row for row in found if _anomaly(row)[1:4] not in ambiguous]
    wanted = [anomaly for anomaly in wanted if anomaly[1:4] not in ambiguous]
    kinds = {row.kind for row in found} | {anomaly[0] for anomaly in wanted}
    each: frozenset[str] = getattr(module, "EACH", frozenset())
    parts += [_of_kind(kind, found, wanted, each=kind in each) for kind in sorted(kinds)]
    return "; ".join(part for part in parts if part)


def _wanted(
    module: ModuleType, views: Sequence[Plain], reported: Container[Anomaly]
) -> Iterable[Anomaly]:
    """The anomalies of the reference; where one of several would do, the one that is reported."""
    if not hasattr(module, "alternatives"):
        yield from module.reference(views)
        return
    for ways in module.alternatives(views):
        yield next((way for way in ways if way in reported), ways[0])


def _possible(
    module: ModuleType, plain: Plain
) -> Iterable[tuple[tuple[str, str, int], set[Anomaly], set[Anomaly]]]:
    possible = getattr(module, "possible", None)
    return possible(plain) if possible else ()


def _anomaly(row: FindingRow) -> Anomaly:
    return row.kind, row.cluster, row.topic, row.partition, row.offset


def _doubtful(module: ModuleType, anomaly: Anomaly, views: Sequence[Plain]) -> bool:
    """Whether the rest of a torn log does not prove this finding. For findings across several
    partitions, the references decide this themselves."""
    torn = any(view.torn for view in views if (view.topic, view.partition) == anomaly[2:4])
    proven: frozenset[str] = getattr(module, "DESPITE_TORN", frozenset())
    return torn and not getattr(module, "KNOWS_TORN", False) and anomaly[0] not in proven


def _of_kind(
    kind: str, found: Sequence[FindingRow], wanted: Sequence[Anomaly], *, each: bool
) -> str:
    reported = Counter(_anomaly(row) for row in found if row.kind == kind)
    right = Counter(anomaly for anomaly in wanted if anomaly[0] == kind)
    stranger = sorted(anomaly for anomaly in reported if anomaly not in right)
    if stranger:
        return f"only the check tells of {stranger}, the reference of {sorted(right.elements())}"
    if not each:
        return (
            ""
            if reported == right
            else (
                f"the check tells of {sorted(reported.elements())}, the reference of "
                f"{sorted(right.elements())}"
            )
        )
    ours: Counter[tuple[str, str, int]] = Counter()
    for row in found:
        if row.kind == kind:
            records = row.data.get("records", 1)
            ours[row.cluster, row.topic, row.partition] += (
                records if isinstance(records, int) else 1
            )
    theirs = Counter(anomaly[1:4] for anomaly in right.elements())
    return (
        ""
        if ours == theirs
        else (
            f"{kind}: the check tells of {dict(ours)} records, the reference of "
            f"{sorted(right.elements())}"
        )
    )
