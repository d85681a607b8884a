"""The anomalies of the verdict, each with the link that mirrored the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.checks.finding_rows import FindingRow
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.verdict.allowances import why_allowed


def came_from(planned: RunPlan) -> Callable[[Anomaly], str]:
    """The cluster from which the record at an anomaly's offset was mirrored; empty if native, or
    if mirrors move offsets."""
    kept = planned.facts.mirror.guarantee.offsets_kept

    def upstream(anomaly: Anomaly) -> str:
        past = history(planned.facts_of(anomaly.topic, anomaly.partition)) if kept else None
        mine = past.generations.get(anomaly.cluster) if past else None
        return mine[-1].era(anomaly.offset).source if mine and anomaly.offset >= 0 else ""

    return upstream


def anomaly_rows(check: Check, rows: Sequence[FindingRow], planned: RunPlan) -> list[Anomaly]:
    noted = {kind.name for kind in check.anomalies if kind.noted}
    return [
        replace(each, allowed=True) if each.kind in noted else each
        for each in (_anomaly_row(row, planned) for row in rows if row.finding == "found")
    ]


def _anomaly_row(row: FindingRow, planned: RunPlan) -> Anomaly:
    anomaly = Anomaly(
        check=row.check,
        kind=row.kind,
        cluster=row.cluster,
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        evidence=row.data,
    )
    why = why_allowed(
        anomaly, planned.facts.mirror.guarantee, _link_into(planned, anomaly), planned.facts.windows
    )
    if why is None:
        return anomaly
    return replace(anomaly, evidence={**anomaly.evidence, "why": why}, allowed=True)


def _link_into(planned: RunPlan, anomaly: Anomaly) -> str:
    """The link over which an anomaly's era came to its cluster, or else what was mirrored to it
    last; empty at its home."""
    past = history(planned.facts_of(anomaly.topic, anomaly.partition))
    mine = past.generations.get(anomaly.cluster)
    if mine and anomaly.offset >= 0 and (source := mine[-1].era(anomaly.offset).source):
        return f"{source}->{anomaly.cluster}"
    into = [c for c in past.mirrored_ranges if c.destination == anomaly.cluster]
    return f"{into[-1].source}->{anomaly.cluster}" if into else ""
