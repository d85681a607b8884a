"""The failover certificate: the cost of each failover and the state that it carried over, per
partition.

RPO, RTO and promotion offsets are measured from bytes and operations
(`spark_verify.checks.failover`). A mirror's truncations and aborts are its own record, which
another check compares with the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from linkflap.harness.model import events as events_
from linkflap.harness.model.events import (
    Event,
    JournalPartition,
    MirrorStopped,
    VerbAnswer,
    of_kind,
)
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.model.verdict import Anomaly, Failover, PromotedPartition
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import FailoverCost

Journal = Mapping[TopicPartition, JournalPartition]
_COSTS: Final[Mapping[str, FailoverCost]] = {
    kind.name: kind.failover_cost
    for check in REGISTRY.values()
    for kind in check.anomalies
    if kind.failover_cost
}
"""Kinds of anomalies that a certificate counts, and in which of its figures."""


def certificate(
    failovers: Sequence[Failover], anomalies: Sequence[Anomaly], events: Sequence[Event]
) -> tuple[Failover, ...]:
    """The failovers that were measured, with what else is known of each."""
    return tuple(_completed(failover, anomalies, events) for failover in failovers)


def _completed(
    failover: Failover, anomalies: Sequence[Anomaly], events: Sequence[Event]
) -> Failover:
    destination = LinkSpec.parse(failover.link).destination
    known = (failover.link, failover.fault_time)
    happened = next(
        (e for e in of_kind(events, events_.Failover) if (e.link, e.fault_time) == known), None
    )
    end = _end(failover, events, happened.time if happened else None)
    journal = _journal(end)
    # empty where the attempts to end the mirror were not recorded
    stop = (end.stopped if end else None) or VerbAnswer()
    ordered = sorted(failover.partitions, key=lambda each: (each.topic, each.partition))
    partitions = tuple(
        _partition(each, journal, _groups(anomalies, destination, each)) for each in ordered
    )
    written = [each.aborted for each in partitions if each.aborted is not None]
    return replace(
        failover,
        open_transactions=happened.open_transactions if happened else None,
        torn_transactions=len(_torn(failover, anomalies, destination)),
        aborted_transactions=sum(written) if written else None,
        refused=dict(stop.refused or {}),
        accepted_after=stop.seconds,
        partitions=partitions,
    )


def _torn(failover: Failover, anomalies: Sequence[Anomaly], destination: str) -> set[object]:
    """The transactions that it tore."""
    return {
        a.evidence.get("operation")
        for a in anomalies
        if (a.cluster, _COSTS.get(a.kind)) == (destination, "torn")
        and a.evidence.get("link", failover.link) == failover.link
    }


def _journal(end: MirrorStopped | None) -> Journal:
    return {(row.topic, row.partition): row for row in (end.partitions or () if end else ())}


def _end(failover: Failover, events: Sequence[Event], time: int | None) -> MirrorStopped | None:
    """The mirror's record of its end."""
    ends = [
        e
        for e in of_kind(events, MirrorStopped)
        if e.link == failover.link and (time is None or e.time <= time)
    ]
    return ends[-1] if ends else None


def _groups(
    anomalies: Sequence[Anomaly], destination: str, at: PromotedPartition
) -> Counter[FailoverCost | None]:
    """Records that groups skipped and read again where they went on."""
    found: Counter[FailoverCost | None] = Counter()
    for anomaly in anomalies:
        records = anomaly.evidence.get("records")
        where = (anomaly.cluster, anomaly.topic, anomaly.partition)
        if isinstance(records, int) and where == (destination, at.topic, at.partition):
            found[_COSTS.get(anomaly.kind)] += records
    return found


def _partition(
    each: PromotedPartition, journal: Journal, groups: Counter[FailoverCost | None]
) -> PromotedPartition:
    entry = journal.get((each.topic, each.partition))
    return replace(
        each,
        aborted=None if entry is None else sum("ABORT" in what for _, what in entry.appended or ()),
        truncated=None
        if entry is None
        else sum(ended - offset for ended, offset in entry.truncated or ()),
        group_skip=groups["skipped"],
        group_replay=groups["replayed"],
    )
