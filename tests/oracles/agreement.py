"""Whether what a check tells is what its reference tells, place by place and record by record."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.tables import FindingRow, combined, examine
from linkflap.spark_verify.view import PartitionView
from tests.oracles.plain import Place, Plain, plain

_PROVEN = """
    byte-divergence byte-hole byte-stranger record-divergence record-hole record-stranger
    ghost-ack inconsistent-offset stranger uncommitted-read poll-regression internal-regression lso-above-high-watermark
    lso-regression high-watermark-regression sequence-repeat epoch-regression marker-epoch stale-data replica-disagreement
    replica-missing corrupt-batch log-disorder leader-epoch-regression epoch-reuse epoch-behind standby-write circular-mirror
    refused-write refused-read
    no-sequence truncation-too-deep tail-not-cut marker-unannounced promotion-mismatch promotion-unaccounted epoch-mismatch
    epoch-not-kept coordinator-epoch-regression outcome-disagreement internal-topics/marker-missing marker-unexplained
    commit-missing sampled-epoch-regression
"""
DESPITE_TORN = frozenset(_PROVEN.split())
"""What is there proves it, whatever is missing; a kind that two checks have, of which only one can prove it, with its check."""
TORN_THEMSELVES = frozenset(
    {"torn-transaction", "write-cycles", "exactly-once", "failover", "producer-id-uniqueness", "internal-topics"}
)


def reference_of(check: str) -> ModuleType:
    """The module of a check's reference."""
    return importlib.import_module(f"tests.oracles.checks.{check.replace('-', '_')}")


def told(check: Check, views: Sequence[PartitionView]) -> list[FindingRow]:
    """What a check says of one run: its kernel of every partition, and its combine. Not all are made of logs alone."""
    if not (check.from_bytes or all(view.recorded for view in views)):
        return []
    rows = [row for view in views for row in examine(check, view)]
    return [*rows, *combined(check, "run", [row for row in rows if row.finding == "clue"])]


def disagreement(check: str, rows: Iterable[FindingRow], views: Sequence[PartitionView]) -> str:
    """In words, and empty where there is none. Of kinds in EACH an anomaly stands for `records` of the reference's places, of
    kinds in SOME for any number of them.
    """
    rows = list(rows)
    views = views if REGISTRY[check].internal else [view for view in views if not view.internal]
    crashed = [str(row.data["traceback"]) for row in rows if row.finding == "crashed"]
    if crashed:
        return crashed[0]
    module = reference_of(check)
    some: frozenset[str] = getattr(module, "SOME", frozenset())
    found = [row for row in rows if row.finding == "found"]
    if not (REGISTRY[check].from_bytes or all(view.recorded for view in views)):
        return ""
    plains = [plain(view) for view in views]
    wanted: list[Place] = [place for place in module.reference(plains) if not _doubtful(check, place, plains)]
    kinds = {row.kind for row in found} | {place[0] for place in wanted}
    parts = [_of_kind(kind, found, wanted, each=kind in module.EACH, some=kind in some) for kind in sorted(kinds)]
    return "; ".join(part for part in parts if part)


def _doubtful(check: str, place: Place, views: Sequence[Plain]) -> bool:
    """Whether the rest of a torn log does not prove this; what several partitions tell of the references know themselves."""
    torn = any(view.torn for view in views if (view.topic, view.partition) == place[2:4])
    return torn and check not in TORN_THEMSELVES and not DESPITE_TORN & {place[0], f"{check}/{place[0]}"}


def _of_kind(kind: str, found: Sequence[FindingRow], wanted: Sequence[Place], *, each: bool, some: bool) -> str:
    told = Counter((row.kind, row.cluster, row.topic, row.partition, row.offset) for row in found if row.kind == kind)
    right = Counter(place for place in wanted if place[0] == kind)
    stranger = sorted(place for place in told if place not in right)
    if stranger:
        return f"only the check tells of {stranger}, the reference of {sorted(right.elements())}"
    if not each and not some:
        return (
            "" if told == right else f"the check tells of {sorted(told.elements())}, the reference of {sorted(right.elements())}"
        )
    ours: Counter[tuple[str, str, int]] = Counter()
    for row in found:
        if row.kind == kind:
            records = row.data.get("records", 1)
            ours[row.cluster, row.topic, row.partition] += records if isinstance(records, int) else 1
    theirs = Counter(place[1:4] for place in right.elements())
    same = ours == theirs if each else ours.keys() == theirs.keys()
    return "" if same else f"{kind}: the check tells of {dict(ours)} records, the reference of {sorted(right.elements())}"
