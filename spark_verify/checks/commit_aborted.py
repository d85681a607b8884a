"""commit-aborted: an acknowledged commit ends in COMMIT markers on the cluster that acknowledged it (KIP-98).

The coordinator answers EndTxn once PREPARE_COMMIT is in its log, before the markers are in the partitions. So a cluster that
was given up by force may lack the markers of its last moments: a restart would write them. Only those may be missing: a producer
id begins no transaction before all markers of its last are written, so one whose next operation is in the log
has none to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found, Unjudged
from spark_verify.checks.logs import ABORTED, OPEN, Log, canonical, distinct, followed, locate
from spark_verify.checks.outcomes import Told, told
from spark_verify.eras import lost_at, on_cluster
from spark_verify.view import Bools, Ints, PartitionView

MARKER_GRACE = 5_000_000_000
"""Nanoseconds before a cluster's end within which a commit's markers may still be on their way."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every acknowledged commit to its marker in this partition."""
    findings: list[Finding] = []
    for cluster, log in canonical(view).items():
        what = told(view, cluster)
        if len(what):
            findings += _judge(view, log, what)
    return findings


def _judge(view: PartitionView, log: Log, what: Told) -> Sequence[Finding]:
    cluster, records = log.replica.cluster, log.replica.records
    acknowledged = np.array([s.ending == "commit" and s.outcome == "ok" for s in what.sends], np.bool_)
    rows = np.flatnonzero(acknowledged[what.send] & ~what.refused)
    at = locate(records.uid, what.uid[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    transactions = distinct(what.send[rows])
    findings: list[Finding] = [Examined(cluster=cluster, origin="native", count=len(transactions))] if len(rows) else []
    state = log.record_state[at]
    findings += _ended_otherwise(log, what, rows[state == ABORTED], at[state == ABORTED], "commit-aborted")
    following = followed(log)[at]
    overrun = (state != ABORTED) & (following >= 0)
    waiting = (state == OPEN) & ~overrun
    if not (waiting | overrun).any():
        return findings
    if not log.whole:
        return [*findings, Unjudged(reason=f"the log of {cluster} is torn, so its markers may be missing for that")]
    late = overrun | (waiting & ~_excused(view, cluster, what)[what.send[rows]])
    return [*findings, *_ended_otherwise(log, what, rows[late], at[late], "commit-unmarked")]


def _excused(view: PartitionView, cluster: str, what: Told) -> Bools:
    """Per operation, whether its cluster was given up before its markers had to be there."""
    end = lost_at(view, cluster)
    if end is None:
        return np.zeros(len(what.sends), np.bool_)
    broken = [w for w in on_cluster(view.windows, cluster) if w.start <= end]
    return np.array(
        [s.returned >= end - MARKER_GRACE or any(w.end >= s.returned for w in broken) for s in what.sends],
        np.bool_,
    )


def _ended_otherwise(log: Log, what: Told, rows: Ints, at: Ints, kind: str) -> Sequence[Finding]:
    records = log.replica.records
    found = []
    for send in distinct(what.send[rows]).tolist():
        mine = at[what.send[rows] == send]
        first = int(mine[0])
        marker = int(log.marker[records.batch[first]])
        operation = what.sends[send]
        evidence = {
            "records": len(mine),
            "first_offset": int(records.offset[first]),
            "uid": int(records.uid[first]),
            "operation": operation.number,
            "transactional_id": operation.transactional_id,
            "client": operation.client,
        }
        offset = marker if kind == "commit-aborted" else int(records.offset[first])
        found.append(Found(kind=kind, cluster=log.replica.cluster, offset=offset, evidence=evidence))
    return found


CHECK = Check(
    name="commit-aborted",
    guarantee="A transaction whose commit was acknowledged ends in a COMMIT marker in every partition it wrote to.",
    source="KIP-98; KIP-890",
    inputs=frozenset({"batches", "records", "sends", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="commit-aborted",
            meaning="The commit returned ok and the log has an ABORT marker for it; the offset is the marker's.",
            smallest="commit_transaction of 1 returned ok, A has 1 and ABORT: at the offset of ABORT.",
        ),
        AnomalyKind(
            name="commit-unmarked",
            meaning="The commit returned ok and the log has no marker for it, none before its producer's next transaction; "
            "the offset is the first record's.",
            smallest="commit_transaction of 1 returned ok, A lives on and has only 1: at its offset.",
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
    unit="transactions",
    due=frozenset({"native"}),
)
