"""failover: what each failover cost, in records (RPO) and seconds (RTO). Measured, not judged.

RPO counts records that were acknowledged on the source and are not in the destination's mirrored era, without those that
lost-write reports. RTO runs from the fault that made the failover necessary to the first write that the destination
acknowledged as its own. Costs become `Failover` values in `spark_verify.judge`; a failover after which nothing was
written is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.scenario import Scenario
from spark_verify.checks.base import Check, Clue, Examined, Finding, Unjudged
from spark_verify.checks.logs import canonical
from spark_verify.checks.lost_write import left_behind
from spark_verify.checks.mirroring import hop
from spark_verify.checks.outcomes import told
from spark_verify.view import Origin, PartitionView, Promotion


def kernel(view: PartitionView) -> Sequence[Finding]:
    """One clue per promotion of this partition."""
    logs = canonical(view)
    findings: list[Finding] = []
    for promotion in view.promotions:
        if promotion.source not in logs or promotion.cluster not in logs:
            findings.append(Unjudged(reason=f"no logs of both ends of {promotion.link} were captured"))
            continue
        compared = hop(view, logs[promotion.source], logs[promotion.cluster])
        lost = left_behind(view, compared, told(view, promotion.source)) if promotion.kind == "forced" else 0
        data = {
            "link": promotion.link,
            "kind": promotion.kind,
            "fault_time": promotion.fault_time,
            "rpo_records": lost,
            "first_write": _first_write(view, promotion),
        }
        torn = [name for name in (promotion.source, promotion.cluster) if not logs[name].whole]
        findings += [Unjudged(reason=f"the log of {name} is torn, so what is missing may not have been lost") for name in torn]
        findings.append(Clue(cluster=promotion.cluster, offset=promotion.offset, data=data))
        findings.append(Examined(cluster=promotion.cluster, origin="native", count=1))
    return findings


def _first_write(view: PartitionView, promotion: Promotion) -> int | None:
    """When the destination first confirmed a write of its own: a commit, or a record sent without a transaction."""
    times = (
        send.returned
        for send in view.sends
        if send.cluster == promotion.cluster
        and send.returned > promotion.fault_time
        and bool((send.offsets >= promotion.offset).any())
        and (send.kind == "send" or (send.ending == "commit" and send.outcome == "ok"))
    )
    return min(times, default=None)


def _due(scenario: Scenario, promotions: Sequence[Promotion]) -> set[tuple[str, Origin]]:
    """The destination of every failover; one that is scheduled and promoted nothing leaves its destination without any."""
    planned = {f.target.partition("->")[2] for f in scenario.schedule if f.fault.startswith("failover")}
    return {(cluster, "native") for cluster in planned | {p.cluster for p in promotions}}


CHECK = Check(
    name="failover",
    guarantee="Of every failover it is known how many acknowledged records it lost (RPO) and how long writes stood still (RTO).",
    source="Kafka documentation, Geo-Replication; OpenChaos (RTO)",
    inputs=frozenset({"batches", "records", "sends", "reads", "watermarks", "promotions"}),
    anomalies=(),
    kernel=kernel,
    unit="promotions",
    due_at=_due,
    when="those of every failover that is scheduled or took place",
)
