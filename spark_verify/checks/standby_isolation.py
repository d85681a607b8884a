"""standby-isolation: while a partition is mirrored to a cluster, only the mirror writes there (KIP-1279: read-only topics).

Two witnesses: a client that was told so, by the time at which it asked, and the bytes, where a mirrored era holds a record that a
client handed to that very cluster. The time between the end of an era and the next promotion is the mirror's; from a failover
until its log is cut the cluster that was given up is nobody's, and what it takes then is counted as lost by
truncation-accounting. A write to where nothing was promoted, though a failover led there: a promotion was not written down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from spark_verify.checks.lives import examined, judged, lives, native, number_at
from spark_verify.checks.logs import Log, runs
from spark_verify.checks.provenance import planned
from spark_verify.eras import FOREVER, Life
from spark_verify.view import PartitionView, Send

KIND = "standby-write"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Asks every acknowledgement when it was asked for, and every mirrored record who sent it."""
    findings: list[Finding] = list(judged(view, lambda life, log: _in_bytes(view, life, log)))
    told = {(f.cluster, f.evidence["operation"]) for f in findings if isinstance(f, Found)}
    every = lives(view)
    for send in view.sends:
        acked = send.offsets[send.offsets >= 0]
        if len(acked) and (send.cluster, send.number) not in told and _mirrored_then(every[send.cluster], send):
            findings.append(_standby(view, send, int(acked[0]), len(acked), "acknowledged while it was mirrored"))
    return findings


def _mirrored_then(mine: Sequence[Life], send: Send) -> bool:
    """Whether the cluster followed another from when the operation was asked for until it was acknowledged."""
    life = mine[number_at(mine, send.invoked)]
    if life.number == 0 and life.eras[0].origin == "native":
        return False
    promoted = min((e.began for e in life.eras if e.origin == "native" and e.began >= life.began), default=FOREVER)
    return life.began <= send.invoked and 0 <= send.returned < promoted


def _in_bytes(view: PartitionView, life: Life, log: Log) -> Sequence[Finding]:
    records, mine = log.replica.records, [s for s in view.sends if s.cluster == life.cluster]
    rows = np.flatnonzero(~native(life, records.offset) & (records.uid >= 0))
    findings: list[Finding] = list(examined(life, records.offset[rows]))
    strange = rows[planned(records.uid[rows], mine)]
    for start, end in runs(strange, records.uid[strange]):
        first = int(strange[start])
        send = next(s for s in mine if planned(records.uid[[first]], [s])[0])
        findings.append(_standby(view, send, int(records.offset[first]), end - start, "in an era that is mirrored"))
    return findings


def _standby(view: PartitionView, send: Send, offset: int, records: int, how: str) -> Finding:
    promoted = any(p.cluster == send.cluster for p in view.promotions)
    led_there = any(w.fault.startswith("failover") and w.target.endswith(f">{send.cluster}") for w in view.windows)
    if not promoted and led_there:
        return Unjudged(reason=f"{send.cluster} acknowledged writes to {view.topic} but no promotion was recorded")
    evidence = {"records": records, "how": how, "operation": send.number, "client": send.client, "invoked": send.invoked}
    return Found(kind=KIND, cluster=send.cluster, offset=offset, evidence=evidence)


CHECK = Check(
    name="standby-isolation",
    guarantee="While a partition is mirrored to a cluster, no client can write to it there.",
    source="KIP-1279 (mirror topics are read-only)",
    inputs=frozenset({"batches", "records", "sends", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="A cluster that mirrored the partition acknowledged a client's write to it, or has one in a mirrored era.",
            smallest="nothing was promoted, B acknowledged 9 at offset 0: at offset 0 on B.",
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
    due=frozenset({"mirrored"}),
)
