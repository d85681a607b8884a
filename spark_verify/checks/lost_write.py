"""lost-write: what was acknowledged is there (Jepsen's Kafka workload, lost-write; KIP-98 for what a commit promises).

On the cluster that acknowledged it: in the bytes, and visible. Over a mirror: a record that later ones have overtaken is lost;
a missing tail is lost after a planned failover, which drains first. After a forced one it is RPO, unless a reader on the
destination had got it, or a sampled high watermark or a reader's position had covered offsets that the destination's mirrored
era no longer has: asynchronous mirroring may leave the tail behind, but what the destination has shown it must keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from spark_verify.checks.counting import examined
from spark_verify.checks.logs import OPEN, Log, among, canonical, locate, runs
from spark_verify.checks.mirroring import Hop, hop
from spark_verify.checks.outcomes import Told, read_uids, told
from spark_verify.eras import FOREVER, lost_at, promoted_at
from spark_verify.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks for every record that must be there, first where it was acknowledged, then over each hop."""
    logs = canonical(view)
    findings: list[Finding] = []
    heard = {cluster: told(view, cluster) for cluster in sorted({s.cluster for s in view.sends})}
    for cluster, what in heard.items():
        findings += _native(view, logs.get(cluster), cluster, what)
    for source, destination in view.hops():
        if source in logs and destination in logs:
            findings += _mirrored(view, hop(view, logs[source], logs[destination]), heard)
        elif heard:
            missing = source if source not in logs else destination
            findings.append(Unjudged(reason=f"no log of {missing} was captured for {view.topic}-{view.partition}"))
    return findings


def _native(view: PartitionView, log: Log | None, cluster: str, what: Told) -> Sequence[Finding]:
    must = np.flatnonzero(what.must)
    if log is None:
        return [Unjudged(reason=f"no log of {cluster} was captured for {view.topic}-{view.partition}")] if len(must) else []
    at = locate(log.replica.records.uid, what.uid[must])
    deleted = (what.acked[must] >= 0) & (what.acked[must] < log.replica.log_start)
    must, at = must[~deleted], at[~deleted]
    shown = np.where(at >= 0, log.replica.records.offset[at] if len(log.replica.records) else -1, what.acked[must])
    findings: list[Finding] = list(examined(view, cluster, np.maximum(shown, promoted_at(view, cluster) or 0)))
    absent, hidden = must[at < 0], must[(at >= 0) & ~_kept(view, log, at)]
    if reason := incomplete(view, log):
        return [*findings, Unjudged(reason=reason)] if len(absent) else findings
    return [*findings, *_lost(what, absent, cluster, "absent"), *_lost(what, hidden, cluster, "not visible")]


def _kept(view: PartitionView, log: Log, at: Ints) -> Bools:
    """Whether each record is visible, or was still waiting for its marker when its cluster was given up."""
    if not len(log.replica.records):
        return np.zeros(len(at), np.bool_)
    waiting = (log.record_state[at] == OPEN) & (lost_at(view, log.replica.cluster) is not None)
    return np.asarray(log.visible[at] | waiting)


def incomplete(view: PartitionView, log: Log) -> str:
    """Why absence from this log proves nothing; empty when it does."""
    replica = log.replica
    if not log.whole:
        return f"the log of {replica.cluster} is torn, so what is missing may have been there"
    copies = sum(1 for r in view.replicas if r.cluster == replica.cluster)
    brokers = min((c.brokers for c in view.topology.clusters if c.name == replica.cluster), default=1)
    if not replica.leader and copies < min(3, brokers):
        return (
            f"the leader of {view.topic}-{view.partition} on {replica.cluster} is unknown and not all its replicas were captured"
        )
    return ""


def _lost(what: Told, rows: Ints, cluster: str, how: str, **evidence: object) -> Sequence[Finding]:
    """One anomaly per run of neighbouring records, at the offset that was acknowledged."""
    return [
        Found(
            kind="lost-write",
            cluster=cluster,
            offset=int(what.acked[rows[start]]),
            evidence={
                "records": end - start,
                "uid": int(what.uid[rows[start]]),
                "how": how,
                "operation": what.sends[int(what.send[rows[start]])].number,
                "client": what.sends[int(what.send[rows[start]])].client,
                **evidence,
            },
        )
        for start, end in runs(rows, what.uid[rows])
    ]


def _mirrored(view: PartitionView, compared: Hop, heard: Mapping[str, Told]) -> Sequence[Finding]:
    if not (compared.source.whole and compared.destination.whole):
        return [Unjudged(reason="a log is torn, so what is missing may have been there")] if len(compared.missing) else []
    holes = compared.holes
    kept_promise = _shown(view, compared) if compared.tail == "lost-with-source" else compared.behind
    tail = kept_promise if compared.tail != "unknown" else np.empty(0, np.int64)
    how = "tail missing after a drained failover" if compared.tail == "drained" else "the destination had shown it"
    return [*_missing(compared, heard, holes, "overtaken by later records"), *_missing(compared, heard, tail, how)]


def _shown(view: PartitionView, compared: Hop) -> Ints:
    """Positions of the missing tail that the destination once had: a reader got them, or a high watermark covered them."""
    cluster = compared.destination.replica.cluster
    behind = compared.behind
    got = among(compared.source.replica.records.uid[compared.sequence[behind]], read_uids(view, cluster))
    got[: covered(view, compared.destination)] = True
    return behind[got]


def covered(view: PartitionView, log: Log) -> int:
    """How many offsets between the end of the mirrored bytes and the promotion offset the destination was seen to have had.

    Seen by a sampled high watermark, or by the position of a reader, which gets no further than the high watermark. Only what
    was seen before the first native write to this partition was asked for counts: from then on the log ends above the
    promotion offset whether the mirrored tail is there or not. All these times are one harness' clock.
    """
    cluster = log.replica.cluster
    cut = promoted_at(view, cluster)
    if cut is None:
        return 0
    first = min((s.invoked for s in view.sends if s.cluster == cluster), default=FOREVER)
    before = max(first, *(p.time for p in view.promotions if p.cluster == cluster))
    marks = view.watermarks.get(cluster)
    seen = marks.high_watermark[marks.returned <= before].tolist() if marks is not None else []
    seen += [r.position for r in view.reads if r.cluster == cluster and r.kind == "poll" and r.returned <= before]
    below = log.replica.batches.last_offset[log.replica.batches.base_offset < cut]
    end = int(below.max()) + 1 if len(below) else log.replica.log_start
    return max(0, min(max(seen, default=0), cut) - end)


def _missing(compared: Hop, heard: Mapping[str, Told], positions: Ints, how: str) -> Sequence[Finding]:
    uids = compared.source.replica.records.uid[compared.sequence[positions]]
    findings: list[Finding] = []
    for cluster, what in heard.items():
        row = locate(what.uid, uids)
        due = (row >= 0) & (what.must[row] if len(what) else False)
        for start, end in runs(positions[due], row[due]):
            where = compared.neighbours(int(positions[due][start]))
            missing_on = compared.destination.replica.cluster
            findings += _lost(what, row[due][start:end], cluster, how, missing_on=missing_on, **where)
    return findings


def left_behind(view: PartitionView, compared: Hop, what: Told) -> int:
    """Acknowledged records of the source that a forced failover lost (RPO): not mirrored, and not a lost-write either.

    Those without a marker when the source was given up are among them.
    """
    never_arrived = what.uid[what.must & (what.acked >= 0)]
    uids = compared.destination.replica.records.uid[compared.mirrored]
    gone = ~among(never_arrived, uids)
    lost = np.concatenate((compared.holes, _shown(view, compared)))
    return int(np.count_nonzero(gone & ~among(never_arrived, compared.source.replica.records.uid[compared.sequence[lost]])))


CHECK = Check(
    name="lost-write",
    guarantee="Every acknowledged record is where it was acknowledged, and on the other side of the mirror as far as that got.",
    source="Jepsen kafka workload, lost-write; KIP-98 (commit), KIP-382 (mirroring is asynchronous)",
    inputs=frozenset({"batches", "records", "sends", "reads", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="lost-write",
            meaning="An acknowledged record is absent or not visible; the offset is the acknowledged one.",
            smallest="A commit of 1 2 3 was acknowledged and B has 1 3: at the acknowledged offset of 2 on A.",
        ),
    ),
    complete=frozenset({"promotions", "sends"}),
    kernel=kernel,
    due=frozenset({"native"}),
)
