"""failover: the cost of each failover, in records (RPO) and seconds (RTO), compared with the
scenario's budgets.

RPO counts records that the source acknowledged and the destination did not mirror, except those
that lost-write reports. The source's log is the capture next to the failover, because it may have
been truncated since. RTO runs from the fault that made the failover necessary to the first write
that the destination acknowledged as its own. The RTO of a failover without a later write is
unknown. Without budgets costs are measured, not judged. Programs that record no history leave no
acknowledgements, so the cost of their failovers is not known; that makes the check unknown only if
there is a budget. A failover that the mirror refused at every attempt never took place. It is a
violation without any budget, because no cluster serves the clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.model import events as events_
from linkflap.harness.model.events import Event, of_kind
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Failover, PromotedPartition
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Examined,
    Finding,
    Found,
    Measured,
    PartialFinding,
    Unjudged,
    grouped,
)
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop, compared_hops
from linkflap.spark_verify.checks.log_model.recovery_point import lost_by_failover
from linkflap.spark_verify.facts.eras import FOREVER, history
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.view import PartitionView


def by_failover(
    partials: Sequence[PartialFinding],
) -> Sequence[tuple[tuple[int, str, str], list[PartialFinding]]]:
    """The promotions of each failover (fault time, link, kind), by time."""
    found = grouped(
        (each for each in partials if "refused" not in each.data),
        lambda each: (each.data["fault_time"], each.data["link"], each.data["kind"]),
    )
    return sorted(found.items(), key=lambda item: item[0])


def recovery_seconds(fault_time: int, promotions: Sequence[PartialFinding]) -> float | None:
    """From the fault to the first write, whatever partition that was to."""
    writes = [w for c in promotions if (w := c.data["first_write"]) is not None]
    return round((min(writes) - fault_time) / 1e9, 3) if writes else None


def costs_of_failovers(partials: Sequence[PartialFinding], events: Sequence[Event]) -> Measured:
    """One `Failover` for each failover, summed over its partitions; as missing, those that promoted
    nothing or had no later write."""
    failovers = [
        Failover(
            link=link,
            kind=kind,
            promoted=len(mine),
            rpo_records=_lost(mine),
            rto_seconds=recovery_seconds(fault_time, mine),
            rpo_budget=mine[0].data["budgets"][0],
            rto_budget=mine[0].data["budgets"][1],
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
            if f.rto_seconds is None and f.rpo_records is not None
        ),
        *(
            f"the scenario has a budget for the failover over {mine[0].data['link']}, and its cost "
            "is not known: acknowledgements were not recorded"
            for _, mine in by_failover(partials)
            if _lost(mine) is None and mine[0].data["budgets"] != [None, None]
        ),
    ]
    return Measured(failovers=failovers, missing=missing)


def _lost(promotions: Sequence[PartialFinding]) -> int | None:
    """The acknowledged records that were lost, as far as acknowledgements were recorded."""
    known = [n for c in promotions if (n := c.data["rpo_records"]) is not None]
    return sum(known) if known else None


def _partition(fault_time: int, mine: PartialFinding) -> PromotedPartition:
    return PromotedPartition(
        topic=mine.topic,
        partition=mine.partition,
        promotion_offset=mine.offset,
        rpo_records=mine.data["rpo_records"],
        rto_seconds=recovery_seconds(fault_time, [mine]),
        producer_ids=mine.data.get("producer_ids", 0),
    )


REFUSED: Final = "failover-refused"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """One partial finding per promotion of this partition."""
    measured: set[tuple[str, int]] = set()
    for compared in compared_hops(view):
        if compared.mirrored_range.promotion is not None:
            promotion = compared.mirrored_range.promotion
            measured.add((promotion.link, promotion.time))
            yield from _cost(view, promotion, compared)
    for promotion in view.promotions:
        if (promotion.link, promotion.time) not in measured:
            yield Unjudged(f"no logs of both ends of {promotion.link} were captured")
    yield from _refused(view)


def _refused(view: PartitionView) -> Iterator[PartialFinding]:
    """Refused failovers that would have promoted this partition."""
    for nth, refusal in enumerate(view.refusals):
        link = LinkSpec.parse(refusal.link)
        ways = (link, link.reverse)
        # the second: a mirror that was reversed
        way = next((way for way in ways if way in view.topology.links), None)
        if way is not None and view.home in view.topology.homes_over(way) and not view.internal:
            data = {
                "refused": nth,
                "link": refusal.link,
                "refused_over": refusal.link,
                "failover": refusal.mode,
                "error": refusal.error,
                "code": refusal.code,
                "seconds": refusal.seconds,
            }
            yield PartialFinding(cluster=link.destination, offset=-1, data=data)


def _cost(view: PartitionView, promotion: LogPromotion, compared: Hop) -> Sequence[Finding]:
    # Whether a torn log's missing records were lost is unknown, so no budget is compared with them.
    torn = [log.cluster for log in (compared.source, compared.destination) if not log.whole]
    data = {
        "link": promotion.link,
        "kind": promotion.kind,
        "fault_time": promotion.fault_time,
        "rpo_records": _lost_here(view, promotion, compared),
        "first_write": _first_write(view, promotion),
        "budgets": [view.budgets.rpo_records, view.budgets.rto_seconds],
        "torn": bool(torn),
        "producer_ids": _carried_over(compared, promotion),
    }
    return [
        *(
            Unjudged(f"the log of {name} is torn, so what is missing may not have been lost")
            for name in torn
        ),
        PartialFinding(cluster=promotion.cluster, offset=promotion.offset, data=data),
        Examined(
            cluster=promotion.cluster,
            origin="native",
            count=1,
            generation=compared.generation.number,
            start=promotion.offset,
        ),
    ]


def _lost_here(view: PartitionView, promotion: LogPromotion, compared: Hop) -> int | None:
    """The number of acknowledged records that this failover lost; None if only programs without
    recorded acknowledgements wrote."""
    promised = any(bool((send.offsets >= 0).any()) for send in view.sends)
    if view.topic in view.partition_facts.facts.programs and not promised:
        return None
    return lost_by_failover(view, compared) if promotion.kind == "forced" else 0


def _carried_over(compared: Hop, promotion: LogPromotion) -> int:
    """The number of producer ids among the mirrored records, which the destination must not assign
    again."""
    batches = compared.destination.batches
    here = (batches.producer_id != -1) & (batches.base_offset < promotion.offset)
    return len(np.unique(batches.producer_id[here]))


def _first_write(view: PartitionView, promotion: LogPromotion) -> int | None:
    """When the destination first confirmed a write of its own: a commit, or a record sent without a
    transaction."""
    mine = history(view.partition_facts).generations[promotion.cluster]
    ended = next(
        (
            e.ended
            for generation in mine
            for e in generation.eras
            if e.began == promotion.time and not e.source
        ),
        FOREVER,
    )
    times = (
        send.returned
        for send in view.sends
        if send.cluster == promotion.cluster
        and promotion.fault_time < send.returned
        and send.invoked < ended
        and bool((send.offsets >= promotion.offset).any())
        and (send.kind == "send" or (send.ending == "commit" and send.outcome == "ok"))
    )
    return min(times, default=None)


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Failovers that cost more than their budgets over all partitions, located at the promotion of
    the first partition. Refused failovers have no offset, and are reported for the first partition
    that they would have promoted."""
    found = [
        _over(REFUSED, mine, {k: v for k, v in mine.data.items() if k != "refused"})
        for mine in _first_of_each(partials)
    ]
    for (fault_time, link, kind), mine in by_failover(partials):
        records, seconds = mine[0].data["budgets"]
        lost = _lost([c for c in mine if not c.data["torn"]]) or 0
        took = recovery_seconds(fault_time, mine)
        about = {"link": link, "failover": kind}
        if records is not None and lost > records:
            found.append(
                _over("rpo-over-budget", mine[0], about | {"records": lost, "budget": records})
            )
        if seconds is not None and took is not None and took > seconds:
            found.append(
                _over("rto-over-budget", mine[0], about | {"seconds": took, "budget": seconds})
            )
    return found


def _first_of_each(partials: Sequence[PartialFinding]) -> Sequence[PartialFinding]:
    """One partition for each failover that was refused."""
    refused = grouped((c for c in partials if "refused" in c.data), lambda c: c.data["refused"])
    return [min(mine, key=lambda c: (c.topic, c.partition)) for _, mine in sorted(refused.items())]


def _over(kind: str, partial: PartialFinding, evidence: dict[str, object]) -> Combined:
    found = Found.at(kind, partial.cluster, partial.offset, **evidence)
    return partial.combined(found)


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """The destination of every failover; one that is scheduled and promoted nothing leaves its
    destination without any."""
    planned = {f.on.destination for f in scenario.schedule if f.name.fails_over}
    return {(cluster, "native") for cluster in planned | {p.cluster for p in promotions}}


CHECK = Check(
    name="failover",
    guarantee="""The acknowledged records that each failover lost (RPO), and the time without writes
        (RTO), are known and within the scenario's budgets. A requested failover takes place.""",
    source="Kafka documentation, Geo-Replication; OpenChaos (RTO)",
    wire="""Lost records are those that were acknowledged as lost-write has it; the recovery time
        ends with the first such acknowledgement on the destination.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="rpo-over-budget",
            meaning="""A failover lost more acknowledged records, in all partitions together, than
                the scenario allows.""",
            sentence="""the {failover} failover over {link} lost {records} records, more than the
                budget of {budget}""",
            counted="failover lost more than its budget|failovers lost more than their budgets",
            smallest="""A acknowledged 1 2, B has 1 and was promoted, the budget is 0 records: at
                the promotion offset on B.""",
        ),
        AnomalyKind(
            name="rto-over-budget",
            meaning="""After a failover the first write was acknowledged later than the scenario
                allows.""",
            sentence="""the {failover} failover over {link} took {seconds} s, longer than the budget
                of {budget} s""",
            counted="failover took longer than its budget|failovers took longer than their budgets",
            smallest="""A died at second 500, B's first commit returned at 504, the budget is 3 s:
                at the promotion offset on B.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=REFUSED,
            meaning="""The mirror refused a failover at every attempt: it never took place, and its
                recovery time has no bound.""",
            sentence="""the {failover} failover over {link} was refused for {seconds} s with {error}
                ({code}) and never took place""",
            counted="failover never took place|failovers never took place",
            smallest="A died, B answered the stop with error 145 for 60 s: nowhere on B.",
            despite_torn=True,
        ),
    ),
    complete={"promotions", "sends"},
    follows={"lost-write", "order-equality"},
    kernel=kernel,
    combine=combine,
    measure=costs_of_failovers,
    unit="promotions",
    due_at=_due,
    when="those of every failover that is scheduled or took place",
    time_based=True,
)
