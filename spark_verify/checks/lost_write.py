"""lost-write: what was acknowledged is there (Jepsen's Kafka workload, lost-write; KIP-98 for what a commit promises).

On the cluster that acknowledged it: in the bytes, and visible. Over a mirror: a record that later ones have overtaken is lost;
a missing tail is lost after a planned failover, which drains first. After a forced one it is RPO, unless a reader on the
destination had got it, or a sampled high watermark or a reader's position had covered offsets that the destination's mirrored
era no longer has: asynchronous mirroring may leave the tail behind, but what the destination has shown it must keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.generations import (
    every,
    examined,
    generations,
    log_of,
    marks_in,
    native,
    own,
    reads_in,
    sends_to,
)
from linkflap.spark_verify.checks.parts.logs import NOWHERE, OPEN, Log, among, locate, runs
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop, hops, may_be_faithful
from linkflap.spark_verify.checks.parts.outcomes import Outcomes, outcomes
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks for every record that must be there, first where it was acknowledged, then over each hop."""
    findings: list[Finding] = []
    heard: list[Outcomes] = []
    for generation in every(view):
        what = outcomes(view, generation)
        if not len(what):
            continue
        log = log_of(view, generation)
        findings += own(generation, None if log is None else log.replica, _native(view, log, generation, what))
        heard.append(outcomes(view, generation, earlier=False) if generation.number else what)
    for compared in hops(view):
        if isinstance(compared, Hop):
            findings += _mirrored(view, compared, heard)
        elif heard:
            findings.append(Unjudged(reason=f"no log of {compared} was captured for {view.topic}-{view.partition}"))
    return findings


def _native(view: PartitionView, log: Log | None, generation: LogGeneration, what: Outcomes) -> Sequence[Finding]:
    must, cluster = np.flatnonzero(what.must), generation.cluster
    if log is None:
        return [Unjudged(reason=f"no log of {cluster} was captured for {view.topic}-{view.partition}")] if len(must) else []
    at = locate(log.replica.records.uid, what.uid[must])
    deleted = (what.acked[must] >= 0) & (what.acked[must] < log.replica.log_start)
    deleted |= (at < 0) & (what.acked[must] >= 0) & (what.acked[must] < view.compacted.get(cluster, 0))
    must, at = must[~deleted], at[~deleted]
    shown = np.where(at >= 0, log.replica.records.offset[at] if len(log.replica.records) else -1, what.acked[must])
    first_own = next((e.start for e in reversed(generation.eras) if e.origin == "native"), 0)
    findings: list[Finding] = list(examined(generation, np.where(native(generation, shown), shown, first_own)))
    absent, hidden = must[at < 0], must[(at >= 0) & ~_kept(generation, log, at)]
    if reason := incomplete(view, log):
        return [*findings, Unjudged(reason=reason)] if len(absent) else findings
    return [
        *findings,
        *_lost(what, absent, cluster, "absent", generation.cut),
        *_lost(what, hidden, cluster, "not visible", generation.cut),
    ]


def _kept(generation: LogGeneration, log: Log, at: Ints) -> Bools:
    """Whether each record is visible, or was still waiting for its marker when its cluster was given up."""
    if not len(log.replica.records):
        return np.zeros(len(at), np.bool_)
    waiting = (log.record_state[at] == OPEN) & (generation.lost is not None)
    return np.asarray(log.visible[at] | waiting)


def incomplete(view: PartitionView, log: Log) -> str:
    """Why absence from this log proves nothing; empty when it does."""
    replica = log.replica
    if not log.whole:
        return f"the log of {replica.cluster} is torn, so what is missing may have been there"
    copies = sum(1 for r in view.replicas if r.cluster == replica.cluster)
    if any(replica is r for r in view.earlier):
        return (
            ""
            if replica.leader
            else f"the leader of {view.topic}-{view.partition} on {replica.cluster} is unknown at {replica.moment}"
        )
    brokers = min((c.brokers for c in view.topology.clusters if c.name == replica.cluster), default=1)
    if not replica.leader and copies < min(3, brokers):
        return (
            f"the leader of {view.topic}-{view.partition} on {replica.cluster} is unknown and not all its replicas were captured"
        )
    return ""


def _lost(what: Outcomes, rows: Ints, cluster: str, how: str, cut: int, **evidence: object) -> Sequence[Finding]:
    """One anomaly per run of neighbouring records, on one side of a cut, at the offset that was acknowledged."""
    found: list[Finding] = []
    for start, end in runs(rows, what.uid[rows], np.arange(len(rows)) + (what.acked[rows] >= cut)):
        first = rows[start]
        send = what.sends[int(what.send[first])]
        shown = {"records": end - start, "uid": int(what.uid[first]), "how": how, "operation": send.number, "client": send.client}
        found.append(Found(kind="lost-write", cluster=cluster, offset=int(what.acked[first]), evidence=shown | evidence))
    return found


def _mirrored(view: PartitionView, compared: Hop, heard: Sequence[Outcomes]) -> Sequence[Finding]:
    if not (compared.source.whole and compared.destination.whole):
        return [Unjudged(reason="a log is torn, so what is missing may have been there")] if len(compared.missing) else []
    holes = compared.holes
    kept_promise = _shown(view, compared) if compared.tail == "lost-with-source" else compared.behind
    tail = kept_promise if compared.tail != "unknown" else np.empty(0, np.int64)
    how = "tail missing after a drained failover" if compared.tail == "drained" else "the destination had shown it"
    doubtful = len(compared.doubtful)
    return [
        *_missing(compared, heard, holes, "overtaken by later records"),
        *_missing(compared, heard, tail, how),
        *([Unjudged(reason=may_be_faithful(compared, doubtful))] if doubtful else []),
    ]


def _shown(view: PartitionView, compared: Hop) -> Ints:
    """Positions of the missing tail that the destination once had: a reader got them, or a high watermark covered them."""
    behind = compared.behind
    uids = compared.source.replica.records.uid[compared.sequence[behind]]
    # What was open there, and was aborted or cut off, had been shown to those who read uncommitted, which promises nothing.
    ended = among(uids, compared.destination.replica.records.uid) | _cut_while_open(view, compared, behind)
    got = among(uids, _read_there(view, compared, "read_committed")) | (among(uids, _read_there(view, compared)) & ~ended)
    got[np.flatnonzero(behind > compared.front)[: covered(view, compared)]] = True
    return behind[got]


def _cut_while_open(view: PartitionView, compared: Hop, positions: Ints) -> Bools:
    """Per position, whether its COMMIT is behind all that had arrived when the mirror ended and cut the destination."""
    mirrored_range, source = compared.mirrored_range, compared.source
    ended = FOREVER if mirrored_range.promotion is None else mirrored_range.promotion.time
    link = f"{mirrored_range.source}->{mirrored_range.destination}"
    stops = [s for s in view.stops if s.link == link and s.truncated and mirrored_range.began <= s.time <= ended]
    marker = source.marker[source.replica.records.batch[compared.sequence[positions]]]
    return np.asarray((marker < NOWHERE) & (marker >= max((s.mirrored for s in stops), default=NOWHERE)))


def _read_there(view: PartitionView, compared: Hop, isolation: str | None = None) -> Ints:
    """Every payload id that readers of the destination, of one isolation level or of any, got since it followed the source."""
    since = generations(view)[compared.mirrored_range.destination][compared.mirrored_range.generation :]
    polls = (r for generation in since for r in reads_in(view, generation) if r.kind == "poll")
    parts = [r.uids for r in polls if isolation in (None, r.isolation)]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def covered(view: PartitionView, compared: Hop) -> int:
    """How many offsets between the end of the mirrored bytes and the promotion offset the destination was seen to have had.

    Seen by a sampled high watermark, or by the position of a reader, which gets no further than the high watermark. Only what
    was seen before the first native write to this partition was asked for counts: from then on the log ends above the
    promotion offset whether the mirrored tail is there or not. All these times are one harness' clock.
    """
    log, mirrored_range = compared.destination, compared.mirrored_range
    cluster, promotion, cut = log.replica.cluster, mirrored_range.promotion, mirrored_range.end
    if promotion is None:
        return 0
    since = sends_to(view, cluster).column("invoked")
    before = max(int(since[since >= mirrored_range.began].min(initial=FOREVER)), promotion.time)
    generation = generations(view)[cluster][mirrored_range.generation]
    marks = marks_in(view, generation)
    seen = (
        marks.high_watermark[(marks.returned <= before) & (marks.time >= mirrored_range.began)].tolist()
        if marks is not None
        else []
    )
    polls = (r for r in reads_in(view, generation) if r.kind == "poll")
    seen += [r.position for r in polls if mirrored_range.began <= r.time and r.returned <= before]
    below = log.replica.batches.last_offset[log.replica.batches.base_offset < cut]
    end = int(below.max()) + 1 if len(below) else log.replica.log_start
    end = max(end, min(cut, view.compacted.get(cluster, 0)))  # what a cleaner took was there
    return max(0, min(max(seen, default=0), cut) - end)


def _missing(compared: Hop, heard: Sequence[Outcomes], positions: Ints, how: str) -> Sequence[Finding]:
    uids = compared.source.replica.records.uid[compared.sequence[positions]]
    findings: list[Finding] = []
    for what in heard:
        row = locate(what.uid, uids)
        due = (row >= 0) & (what.must[row] if len(what) else False)
        missing, row = positions[due], row[due]
        for start, end in runs(missing, row):
            where = compared.neighbours(int(missing[start]))
            missing_on = compared.destination.replica.cluster
            findings += _lost(what, row[start:end], what.sends[0].cluster, how, FOREVER, missing_on=missing_on, **where)
    return findings


def left_behind(view: PartitionView, compared: Hop) -> int:
    """Acknowledged records that a forced failover lost (RPO): not mirrored, and not a lost-write either.

    Those without a marker when the source was given up are among them; and those that the source had from where it mirrored.
    """
    never_arrived = np.concatenate([np.empty(0, np.int64), *_acknowledged(view, compared)])
    uids = compared.destination.replica.records.uid[compared.mirrored]
    gone = ~among(never_arrived, uids)
    lost = np.concatenate((compared.holes, _shown(view, compared), compared.cleaned))
    return int(np.count_nonzero(gone & ~among(never_arrived, compared.source.replica.records.uid[compared.sequence[lost]])))


def _acknowledged(view: PartitionView, compared: Hop) -> Iterator[Ints]:
    """Payload ids that clients of the source, or of those upstream of it, were promised and that this mirrored range was to
    bring.
    """
    mirrored_range, there = compared.mirrored_range, compared.source.replica.records.uid
    for generation in every(view):
        what = outcomes(view, generation, earlier=False)
        due = what.uid[what.must & (what.acked >= mirrored_range.start)] if len(what) else what.uid
        if (generation.cluster, generation.number) == (mirrored_range.source, mirrored_range.source_generation):
            mine = what.must & (what.acked >= max(compared.since, mirrored_range.start))
            if compared.gaps:
                mine &= (what.acked >= view.compacted[generation.cluster]) | among(what.uid, there)
            yield what.uid[mine]
        elif generation.cluster not in (mirrored_range.source, mirrored_range.destination):
            yield due[among(due, there)]


CHECK = Check(
    name="lost-write",
    guarantee="Every acknowledged record is where it was acknowledged, and on the other side of the mirror as far as that got.",
    source="Jepsen kafka workload, lost-write; KIP-98 (commit), KIP-382 (mirroring is asynchronous)",
    inputs=frozenset({"batches", "records", "sends", "reads", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="lost-write",
            meaning="An acknowledged record is absent or not visible; the offset is the acknowledged one.",
            sentence="{who}, acknowledged by {cluster} at {at}, is lost: {how}",
            counted="acknowledged write is lost|acknowledged writes are lost",
            smallest="A commit of 1 2 3 was acknowledged and B has 1 3: at the acknowledged offset of 2 on A.",
        ),
    ),
    complete=frozenset({"promotions", "sends"}),
    follows=frozenset({"ghost-ack", "order-equality", "commit-aborted", "truncation-accounting", "replica-agreement"}),
    kernel=kernel,
    due=frozenset({"native"}),
)
