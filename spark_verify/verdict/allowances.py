"""The anomalies of the verdict, and whether the mirror's guarantee allows them
(`harness.model.guarantee.Allowance`): one rule here for each way to decide it.

A fault that is declared lossy allows its losses on any mirror (`harness.guarantees.allowed`). An
allowed anomaly is still an anomaly: reported, counted, with the reason in its evidence. Outside its
window or beyond its bound it is a violation. Nothing is allowed unless the mirror's guarantee or
such a fault lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from linkflap.harness.guarantees.allowed import BROKERS, LOSSES
from linkflap.harness.model.guarantee import Allowance, Guarantee, Rule
from linkflap.harness.model.texts import counted
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks.base import Check, grouped
from linkflap.spark_verify.checks.finding_rows import FindingRow
from linkflap.spark_verify.checks.log_model.lost_records import EVIDENCE
from linkflap.spark_verify.facts.eras import history, on_cluster, touches
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.verdict.sentences import BUDGET, IN_ALL, number_of

_SECOND: Final = 1_000_000_000
Decide = Callable[[Allowance, Anomaly, str, Sequence[Window]], str | None]
"""(allowance, anomaly, link into its cluster, all fault windows) -> why it is allowed, or None."""


def _once_per_fault(
    line: Allowance, anomaly: Anomaly, link: str, windows: Sequence[Window]
) -> str | None:
    """A repeat is allowed once per fault that can have caused it."""
    first, again = _interval(anomaly, "first_written"), _interval(anomaly, "written")
    if first is None or again is None:
        return None
    before, after = int(line.reach_before * _SECOND), int(line.reach_after * _SECOND)
    causes = [
        w
        for w in windows
        if _causes(w, anomaly, link)
        and w.start <= again[1]
        and again[0] <= w.end + after
        and w.start - before <= first[1]
    ]
    copy = anomaly.evidence.get("copy")
    if not causes or not isinstance(copy, int) or copy > len(causes):
        return None
    return f"{line.because} {', '.join(f'{w.fault} ({w.id})' for w in causes)}"


def _causes(window: Window, anomaly: Anomaly, link: str) -> bool:
    """Whether a fault touched the link, its mirror, or a broker of either end. A repeat that stands
    alone is of a request that a broker of the destination answered late."""
    if anomaly.evidence.get("alone"):
        return window in on_cluster([window], anomaly.cluster)
    return touches(window, link)


def _within_bound(
    line: Allowance, anomaly: Anomaly, _link: str, _windows: Sequence[Window]
) -> str | None:
    """Allowed up to the bound that the check computed."""
    records, bound = anomaly.evidence.get("records"), anomaly.evidence.get("bound")
    if not isinstance(records, int) or not isinstance(bound, int) or records > bound:
        return None
    return f"{line.because}: {counted(records, 'record')}; the limit is {bound:,}"


def _forced_failover(
    line: Allowance, anomaly: Anomaly, _link: str, _windows: Sequence[Window]
) -> str | None:
    """Allowed where mirroring of each partition ended independently: in a forced failover, or at
    the end of a run in which the mirror was behind. Not allowed if later records of the same
    partition were mirrored.
    """
    if anomaly.evidence.get("failover") not in ("forced", "run-end"):
        return None
    if anomaly.evidence.get("overtaken"):
        return None
    records = anomaly.evidence.get("records")
    what = (
        anomaly.evidence.get("not_arrived")
        or f"{records} {'record' if records == 1 else 'records'}"
    )
    return f"{line.because}: {what} had not arrived"


def _below_truncation(
    line: Allowance, anomaly: Anomaly, _link: str, _windows: Sequence[Window]
) -> str | None:
    """A reader may skip the offsets between the truncation and its position, and no others."""
    truncated_to, stood, last = (
        anomaly.evidence.get(name) for name in ("truncated_to", "stood_at", "last_skipped")
    )
    if not (
        isinstance(truncated_to, int)
        and isinstance(stood, int)
        and isinstance(last, int)
        and truncated_to <= last < stood
    ):
        return None
    return f"{line.because}: the log was truncated to {truncated_to}, it stood at {stood}"


def _refused_before(
    line: Allowance, anomaly: Anomaly, _link: str, _windows: Sequence[Window]
) -> str | None:
    """Allowed if exactly the missing records were sent directly before and not acknowledged."""
    missing, refused = (anomaly.evidence.get(n) for n in ("sequence", "not_acknowledged"))
    if not isinstance(refused, int) or refused != missing:
        return None
    client, number = anomaly.evidence.get("client"), anomaly.evidence.get("operation")
    records = "1 record" if refused == 1 else f"{refused} records"
    return f"{line.because}; {records} of {client} from #{number} on had not been acknowledged"


def _lost(line: Allowance, anomaly: Anomaly, _link: str, windows: Sequence[Window]) -> str | None:
    """Allowed if the fault lost all of these records: the check compared each record with the list
    in the fault's bite (`log_model.lost_records`).
    """
    fault = anomaly.evidence.get(EVIDENCE)
    for window in windows:
        for loss in window.lost:
            if (window.id, loss.topic, loss.partition) == (fault, anomaly.topic, anomaly.partition):
                return (
                    f"{line.because}: {window.fault} ({window.id}) lost offsets {loss.start} to "
                    f"{loss.end - 1} of {loss.topic}-{loss.partition} on {loss.cluster}"
                )
    return None


_RULES: Final[Mapping[Rule, Decide]] = {
    "once-per-fault": _once_per_fault,
    "within-bound": _within_bound,
    "forced-failover": _forced_failover,
    "below-truncation": _below_truncation,
    "lost": _lost,
    "refused-before": _refused_before,
}


def why_allowed(
    anomaly: Anomaly, guarantee: Guarantee, link: str, windows: Sequence[Window]
) -> str | None:
    """Why the mirror's guarantee or a lossy fault allows this anomaly, or None. `link` led into the
    anomaly's cluster."""
    lossy = (
        line
        for fault in dict.fromkeys(w.fault for w in windows if w.lost)
        for line in LOSSES.get(fault, ())
    )
    found = (
        _RULES[line.rule](line, anomaly, link, windows)
        for line in (*guarantee.allowed, *lossy, *BROKERS)
        if line.kind == anomaly.kind
    )
    return next((why for why in found if why is not None), None)


def _interval(anomaly: Anomaly, name: str) -> tuple[int, int] | None:
    value = anomaly.evidence.get(name)
    if (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(v, int) for v in value)
    ):
        return value[0], value[1]
    return None


def came_from(planned: RunPlan) -> Callable[[Anomaly], str]:
    """The cluster that the record at an anomaly's offset was mirrored from; empty if native, or if
    mirrors move offsets."""
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


def within_budgets(
    check: Check, found: Sequence[Anomaly], most: Mapping[str, int]
) -> list[Anomaly]:
    """The anomalies, with those no longer allowed whose kind exceeds its budget (`most`, by kind)
    on their cluster."""
    kinds = {kind.name: kind for kind in check.anomalies if kind.name in most}
    kept = [each for each in found if not (each.allowed and each.kind in kinds)]
    allowed = [each for each in found if each.allowed and each.kind in kinds]
    for (kind, _), several in grouped(allowed, lambda a: (a.kind, a.cluster)).items():
        number = number_of(check, kinds[kind], several)
        over = {BUDGET: most[kind], IN_ALL: number} if number > most[kind] else {}
        kept += [
            replace(each, evidence={**each.evidence, **over}, allowed=not over) for each in several
        ]
    return kept


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
    """The link over which an anomaly's era came to its cluster, else the link of the cluster's last
    mirrored range; empty at its home."""
    past = history(planned.facts_of(anomaly.topic, anomaly.partition))
    mine = past.generations.get(anomaly.cluster)
    if mine and anomaly.offset >= 0 and (source := mine[-1].era(anomaly.offset).source):
        return f"{source}->{anomaly.cluster}"
    into = [c for c in past.mirrored_ranges if c.destination == anomaly.cluster]
    return f"{into[-1].source}->{anomaly.cluster}" if into else ""
