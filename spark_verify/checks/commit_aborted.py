"""commit-aborted: an acknowledged commit ends in COMMIT markers, an abort in ABORT markers, on the
cluster that acknowledged it (KIP-98).

The coordinator answers EndTxn once PREPARE_COMMIT is in its log, before the markers are in the
partitions. So a cluster that was failed over by force may lack the markers of its last moments: a
restart would write them. Only those may be missing. A producer id begins no transaction before all
markers of its last one are written, so an operation followed by another of the same producer in the
log must have its markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.generations import judged
from linkflap.spark_verify.checks.log_model.logs import (
    ABORTED,
    COMMITTED,
    OPEN,
    Log,
    distinct,
    followed,
    locate,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import Outcomes, never, outcomes
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

MARKER_GRACE = 5_000_000_000
"""Nanoseconds before a cluster's end within which a commit's markers may still be on their way."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every acknowledged ending to its marker in this partition."""
    return list(judged(view, _judge))


def _judge(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    what = outcomes(view, generation)
    if len(what):
        yield from _commits(view, generation, log, what)
        yield from _aborts(log, what, Taken(view, generation.cluster))


def _found(log: Log, what: Outcomes, chosen: Bools) -> tuple[Ints, Ints]:
    """Records of some operations: rows of `what`, and where each is in the log."""
    rows = np.flatnonzero(chosen[what.send] & ~what.refused)
    at = locate(log.records.uid, what.uid[rows])
    return rows[at >= 0], at[at >= 0]


def _aborts(log: Log, what: Outcomes, taken: Taken) -> Iterator[Finding]:
    rows, at = _found(log, what, never(what.sends) & ~what.sends.says("outcome", "info"))
    committed = log.record_state[at] == COMMITTED
    return _ended_otherwise(log, what, rows[committed], at[committed], "abort-committed", taken)


def _commits(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes
) -> Iterator[Finding]:
    cluster = generation.cluster
    rows, at = _found(
        log, what, what.sends.says("ending", "commit") & what.sends.says("outcome", "ok")
    )
    for era in generation.eras:
        start = era.start if generation.last else max(era.start, generation.truncated_to)
        inside = (log.records.offset[at] >= start) & (log.records.offset[at] < era.end)
        count = len(distinct(what.send[rows[inside]]))
        if count and era.origin == "native":
            yield Examined(
                cluster=cluster,
                origin="native",
                count=count,
                generation=generation.number,
                start=start,
            )
    state = log.record_state[at]
    taken = Taken(view, cluster)
    yield from _ended_otherwise(
        log, what, rows[state == ABORTED], at[state == ABORTED], "commit-aborted", taken
    )
    following = followed(log)[at]
    overrun = (state != ABORTED) & (following >= 0)
    waiting = (state == OPEN) & ~overrun
    if not (waiting | overrun).any():
        return
    if not log.whole:
        yield Unjudged(f"the log of {cluster} is torn, so its markers may be missing for that")
        return
    late = overrun | (waiting & ~_excused(view, generation, what)[what.send[rows]])
    unmarked = _ended_otherwise(log, what, rows[late], at[late], "commit-unmarked", taken)
    yield from unmarked


def _excused(view: PartitionView, generation: LogGeneration, what: Outcomes) -> Bools:
    """Per operation, whether its cluster was failed over before its markers had to be there: right
    after it, or after faults on brokers that lasted until then."""
    end = generation.lost
    if end is None:
        return np.zeros(len(what.sends), np.bool_)
    since = end - MARKER_GRACE
    broken = [w for w in on_cluster(view.windows, generation.cluster) if w.start <= end]
    for window in sorted(broken, key=lambda w: w.end, reverse=True):
        if window.end >= since:
            since = min(since, window.start - MARKER_GRACE)
    return np.asarray(what.sends.column("returned") >= since)


def _ended_otherwise(
    log: Log, what: Outcomes, rows: Ints, at: Ints, kind: str, taken: Taken
) -> Iterator[Finding]:
    records = log.records
    by = at
    if len(at):
        commit = kind != "abort-committed"
        by = taken.unended(records.offset[at], records.uid[at], commit=commit)
    for send in distinct(what.send[rows]).tolist():
        mine = at[what.send[rows] == send]
        first, why = int(mine[0]), by[what.send[rows] == send]
        marker = int(log.marker[records.batch[first]])
        operation = what.sends[send]
        evidence = {
            "records": len(mine),
            "first_offset": int(records.offset[first]),
            "uid": int(records.uid[first]),
            "operation": operation.number,
            "transactional_id": operation.transactional_id,
            "client": operation.client,
            **taken.evidence(int(why.min())),
        }
        offset = int(records.offset[first]) if kind == "commit-unmarked" else marker
        yield Found.at(kind, log.cluster, offset, **evidence)


CHECK = Check(
    name="commit-aborted",
    guarantee="""A transaction whose commit was acknowledged ends in a COMMIT marker in every
        partition that it wrote to. One whose abort was acknowledged has no COMMIT marker.""",
    source="KIP-98; KIP-890",
    wire="""What was asked is the EndTxn, and its first answer without an error counts. Refused for
        certain is a commit whose only EndTxn found its producer fenced or no such transaction.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="commit-aborted",
            meaning="""The commit returned ok and the log has an ABORT marker for it; the offset is
                the marker's.""",
            sentence="""{cluster} has an ABORT marker at {at} for {operation}, whose commit was
                acknowledged""",
            counted="committed transaction was aborted|committed transactions were aborted",
            one_per=("operation",),
            smallest="""commit_transaction of 1 returned ok, A has 1 and ABORT: at the offset of
                ABORT.""",
        ),
        AnomalyKind(
            name="abort-committed",
            meaning="""The abort returned ok, or the commit was certainly never requested, and the
                log has a COMMIT marker for it; the offset is the marker's.""",
            sentence="""{cluster} has a COMMIT marker at {at} for {operation}, whose abort was
                acknowledged""",
            counted="aborted transaction was committed|aborted transactions were committed",
            one_per=("operation",),
            smallest="""abort_transaction of 1 returned ok, A has 1 and COMMIT: at the offset of
                COMMIT.""",
        ),
        AnomalyKind(
            name="commit-unmarked",
            meaning="""The commit returned ok and the log has no marker for it before its producer's
                next transaction; the offset is the first record's.""",
            sentence="""{cluster} has no marker for {operation}, which wrote at {at} and whose
                commit was acknowledged""",
            counted="committed transaction never ended|committed transactions never ended",
            one_per=("operation",),
            smallest="""commit_transaction of 1 returned ok, A lives on and has only 1: at its
                offset.""",
        ),
    ),
    follows={"marker-pairing", "internal-topics"},
    kernel=kernel,
    unit="transactions",
    only_of="transactions",
    due={"native"},
)
