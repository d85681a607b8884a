"""The verdict per era, for the document and the table: what was compared in every era of every log,
and what was found.

One row per topic-partition, cluster and era. The truncated tail of a log is a row too: the part of
an earlier generation behind the truncation. The rows are capped, the worst first, and the number of
rows left out is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from linkflap.harness.model.topology import INTERNAL_TOPICS
from linkflap.harness.model.verdict import ORDER, Anomaly, EraResult, Verdict
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.facts.eras import FOREVER, Era, LogGeneration
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.read.captures import Key
from linkflap.spark_verify.read.plan import RunPlan

if TYPE_CHECKING:
    from linkflap.spark_verify.spark.finding_rows import FindingRow

MOST: Final = 200
"""Eras in a document."""
EraKey = tuple[str, int, str, int, int]
"""Topic, partition, cluster, number of its generation, start of the era."""


def eras_of(
    planned: RunPlan,
    rows: Sequence[FindingRow],
    anomalies: Sequence[Anomaly],
    checks: Sequence[Check],
) -> tuple[Sequence[EraResult], int]:
    """The rows, and how many are left out."""
    # What readers got is counted once per reader: how long a log is it does not say.
    units = {
        check.name: check.unit
        for check in checks
        if check.unit != "records" or "reads" not in check.inputs
    }
    data = {(r.topic, r.partition) for r in rows if r.topic and r.topic not in INTERNAL_TOPICS}
    keys = sorted(data | planned.promotions.keys())
    compared = _compared(rows, units)
    by_key: dict[Key, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_key[anomaly.topic, anomaly.partition].append(anomaly)
    found = [row for key in keys for row in _partition(planned, key, compared, by_key[key])]
    shown = (
        sorted(found, key=lambda row: -ORDER.index(row.verdict))[:MOST]
        if len(found) > MOST
        else found
    )
    return shown, len(found) - len(shown)


def _key(row: FindingRow) -> EraKey:
    generation = row.data.get("generation")
    return (
        row.topic,
        row.partition,
        row.cluster,
        generation if isinstance(generation, int) else 0,
        row.offset,
    )


def _compared(
    rows: Sequence[FindingRow], units: Mapping[str, str]
) -> Mapping[EraKey, Mapping[str, int]]:
    """By era and unit, the count of the check that examined most of it."""
    compared: dict[EraKey, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.finding == "examined" and row.offset >= 0 and row.check in units:
            mine, unit = compared[_key(row)], units[row.check]
            mine[unit] = max(mine.get(unit, 0), row.count)
    return compared


def _partition(
    planned: RunPlan,
    key: Key,
    compared: Mapping[EraKey, Mapping[str, int]],
    anomalies: Sequence[Anomaly],
) -> Iterator[EraResult]:
    topic, partition = key
    for cluster, generations in sorted(
        history(planned.facts_of(topic, partition)).generations.items()
    ):
        for generation, era in _shown_eras(generations):
            looked = _looked_at(compared, (topic, partition, cluster, generation.number), era)
            mine = [a for a in anomalies if a.cluster == cluster and _in(generation, era, a)]
            broken = sum(1 for a in mine if not a.allowed)
            yield EraResult(
                topic=topic,
                partition=partition,
                cluster=cluster,
                generation=generation.number,
                origin=era.origin,
                owner=era.owner,
                source=era.source,
                start=era.start,
                end=None if era.end == FOREVER else era.end,
                truncated=not generation.last,
                compared=looked,
                anomalies=broken,
                allowed=len(mine) - broken,
                verdict=Verdict.INVALID if broken else Verdict.VALID if looked else Verdict.NOT_DUE,
            )


def _looked_at(
    compared: Mapping[EraKey, Mapping[str, int]], log: tuple[str, int, str, int], era: Era
) -> Mapping[str, int]:
    """By unit, how much of an era was compared. `log` is topic, partition, cluster and
    generation."""
    looked: dict[str, int] = {}
    for (*of, start), units in compared.items():
        if tuple(of) == log and era.start <= start < era.end:
            looked |= {unit: max(count, looked.get(unit, 0)) for unit, count in units.items()}
    return looked


def _shown_eras(generations: Iterable[LogGeneration]) -> Iterator[tuple[LogGeneration, Era]]:
    """The eras of a cluster's last log, and the truncated tails before it."""
    for generation in generations:
        for era in generation.eras:
            if generation.last:
                yield generation, era
            elif era.end > generation.truncated_to:
                yield generation, replace(era, start=max(era.start, generation.truncated_to))


def _in(generation: LogGeneration, era: Era, anomaly: Anomaly) -> bool:
    """Whether an anomaly is in this era: one that an earlier capture shows is in the generation of
    that capture."""
    earlier = "capture" in anomaly.evidence
    return (
        (earlier or generation.last)
        and earlier is not generation.last
        and era.start <= anomaly.offset < era.end
    )
