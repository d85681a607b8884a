"""What each failover of a run cost, its partitions added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from linkflap.harness.model import events as events_
from linkflap.harness.model.events import Event, of_kind
from linkflap.harness.model.failover_cost import Failover, PromotedPartition
from linkflap.spark_verify.checks.base import Measured, PartialFinding


def by_failover(
    partials: Sequence[PartialFinding],
) -> Sequence[tuple[tuple[int, str, str], list[PartialFinding]]]:
    """The promotions of each failover (fault time, link, kind), by time."""
    found: dict[tuple[int, str, str], list[PartialFinding]] = defaultdict(list)
    for partial in (c for c in partials if "refused" not in c.data):
        found[
            int_of(partial.data["fault_time"]), str(partial.data["link"]), str(partial.data["kind"])
        ].append(partial)
    return sorted(found.items(), key=lambda item: item[0])


def recovery_seconds(fault_time: int, promotions: Sequence[PartialFinding]) -> float | None:
    """From the fault to the first write, whatever partition that was to."""
    writes = [w for c in promotions if isinstance(w := c.data["first_write"], int)]
    return round((min(writes) - fault_time) / 1e9, 3) if writes else None


def costs_of_failovers(partials: Sequence[PartialFinding], events: Sequence[Event]) -> Measured:
    """One `Failover` each, its partitions added up; missing are those that promoted nothing, or
    after which nobody wrote."""
    failovers = [
        Failover(
            link=link,
            kind=kind,
            promoted=len(mine),
            rpo_records=sum(int_of(c.data["rpo_records"]) for c in mine),
            rto_seconds=recovery_seconds(fault_time, mine),
            fault_time=fault_time,
            partitions=tuple(_partition(fault_time, each) for each in mine),
        )
        for (fault_time, link, kind), mine in by_failover(partials)
    ]
    failed_over = dict.fromkeys(e.link for e in of_kind(events, events_.Failover))
    missing = [
        *(
            f"the failover over {link} promoted no partition"
            for link in failed_over
            if link not in {f.link for f in failovers}
        ),
        *(
            f"after the failover over {f.link} no write was acknowledged, so it has no recovery "
            "time"
            for f in failovers
            if f.rto_seconds is None
        ),
    ]
    return Measured(failovers=failovers, missing=missing)


def _partition(fault_time: int, mine: PartialFinding) -> PromotedPartition:
    return PromotedPartition(
        topic=mine.topic,
        partition=mine.partition,
        promotion_offset=mine.offset,
        rpo_records=int_of(mine.data["rpo_records"]),
        rto_seconds=recovery_seconds(fault_time, [mine]),
        producer_ids=int_of(mine.data.get("producer_ids")),
    )


def int_of(value: object) -> int:
    return value if isinstance(value, int) else 0
