"""lost-write: an acknowledged record is there (Jepsen's Kafka workload, lost-write; KIP-98 for the
promise of a commit).

On the cluster that acknowledged it, it must be in the bytes, and visible. Over a mirror, a record
is lost if the destination has later ones. A missing tail is lost after a planned failover, which
drains first. A record that is missing where the destination's cleaner has been is lost too, unless
a later one with its key replaced it there, or it is an expired tombstone. After a forced failover
it is RPO: asynchronous mirroring may leave the tail behind. But the destination must keep what it
has shown. So the tail is lost if a reader on the destination had got it, or if a sampled high
watermark or a reader's position had covered offsets that the destination's mirrored era no longer
has. Records that retention deleted are not lost, nor are those that the cleaner of their own
cluster took for such a reason. For a record that nobody acknowledged with an offset, the
neighbouring records show whether it was deleted, or it stays open
(`log_model/deleted_records.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.deleted_records import (
    deleted,
    may_be_cleaned,
    may_be_deleted,
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    incomplete,
    log_of,
    native,
    not_captured,
    own,
)
from linkflap.spark_verify.checks.log_model.logs import (
    OPEN,
    PLAIN,
    Log,
    each_at,
    joined,
    locate,
    runs,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.mirrored_ranges import (
    Hop,
    hops,
    perhaps_cleaned,
    why_not_judged,
)
from linkflap.spark_verify.checks.log_model.outcomes import Outcomes, outcomes
from linkflap.spark_verify.checks.log_model.recovery_point import shown_tail
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Looks for every record that must be there: first on the cluster that acknowledged it, then
    over each hop."""
    heard: list[Outcomes] = []
    for generation in every(view):
        what = outcomes(view, generation)
        if not len(what):
            continue
        log = log_of(view, generation)
        yield from own(view, generation, _native(view, log, generation, what))
        heard.append(outcomes(view, generation, earlier=False) if generation.number else what)
    for compared in hops(view):
        if isinstance(compared, Hop):
            yield from _mirrored(view, compared, heard)
        elif heard:
            yield compared


def _native(
    view: PartitionView, log: Log | None, generation: LogGeneration, what: Outcomes
) -> Sequence[Finding]:
    must, cluster = np.flatnonzero(what.must), generation.cluster
    if log is None:
        return [not_captured(view, cluster)] if len(must) else []
    at = locate(log.records.uid, what.uid)
    gone, doubtful = deleted(view, generation, log, what, at < 0)
    unknown = must[doubtful[must]]
    must = must[~gone[must] & ~doubtful[must]]
    at = at[must]
    shown = np.where(at >= 0, each_at(log.records.offset, at, -1), what.acked[must])
    first_own = next((e.start for e in reversed(generation.eras) if e.origin == "native"), 0)
    findings: list[Finding] = list(
        examined(generation, np.where(native(generation, shown), shown, first_own))
    )
    absent, hidden = must[at < 0], must[(at >= 0) & ~_kept(generation, log, at)]
    acknowledged = int(np.count_nonzero(what.acked[unknown] >= 0))
    if acknowledged:
        findings.append(Unjudged(may_be_cleaned(view, log, acknowledged)))
    if len(unknown) > acknowledged:
        findings.append(Unjudged(may_be_deleted(view, log, len(unknown) - acknowledged)))
    if reason := incomplete(view, log):
        return [*findings, Unjudged(reason)] if len(absent) else findings
    taken, invoked = Taken(view, cluster), what.sends.column("invoked")
    sent = taken.sent(what.acked[absent], what.uid[absent], invoked[what.send[absent]])
    unended = taken.unended(what.acked[hidden], what.uid[hidden])
    return [
        *findings,
        *_lost(what, absent, cluster, "absent", generation.truncated_to, (taken, sent)),
        *_lost(what, hidden, cluster, "not visible", generation.truncated_to, (taken, unended)),
    ]


def _kept(generation: LogGeneration, log: Log, at: Ints) -> Bools:
    """Whether each record is visible, or was still waiting for its marker when its cluster was
    failed over."""
    waiting = (each_at(log.record_state, at, PLAIN) == OPEN) & (generation.lost is not None)
    return np.asarray(each_at(log.visible, at, False) | waiting)


def _lost(
    what: Outcomes,
    rows: Ints,
    cluster: str,
    how: str,
    truncated_to: int,
    explained: tuple[Taken, Ints] | None = None,
    **evidence: object,
) -> Iterator[Finding]:
    """One anomaly per run of neighbouring records, on one side of a truncation, at the offset that
    was acknowledged. A loss may have explained each row."""
    taken, by = explained or (None, np.full(len(rows), -1, np.int64))
    above = what.acked[rows] >= truncated_to
    for start, end in runs(rows, what.uid[rows], np.arange(len(rows)) + above, joined(by)):
        first = rows[start]
        send = what.sends[int(what.send[first])]
        shown = {
            "records": end - start,
            "uid": int(what.uid[first]),
            "how": how,
            "operation": send.number,
            "client": send.client,
        }
        shown["last_offset"] = int(what.acked[rows[end - 1]])
        shown |= taken.evidence(int(by[start])) if taken is not None else {}
        yield Found.at("lost-write", cluster, what.acked[first], **(shown | evidence))


def _mirrored(view: PartitionView, compared: Hop, heard: Sequence[Outcomes]) -> Sequence[Finding]:
    if not (compared.source.whole and compared.destination.whole):
        return (
            [Unjudged("a log is torn, so what is missing may have been there")]
            if len(compared.missing)
            else []
        )
    holes = compared.holes
    tail = np.empty(0, np.int64)
    if compared.tail in ("lost-with-source", "died-with-destination"):
        tail = shown_tail(view, compared)
    elif compared.tail != "unknown":
        tail = compared.behind
    how = (
        "tail missing after a drained failover"
        if compared.tail == "drained"
        else "the destination had shown it"
    )
    doubtful, unknown = len(compared.doubtful), len(compared.unknown)
    ends = compared.source.cluster, compared.destination.cluster
    return [
        *_missing(compared, heard, holes, "overtaken by later records"),
        *_missing(compared, heard, tail, how),
        *([Unjudged(why_not_judged(compared, doubtful))] if doubtful else []),
        *([Unjudged(perhaps_cleaned(unknown, *ends))] if unknown else []),
    ]


def _missing(
    compared: Hop, heard: Sequence[Outcomes], positions: Ints, how: str
) -> Iterator[Finding]:
    uids = compared.source.records.uid[compared.sequence[positions]]
    for what in heard:
        must = np.flatnonzero(what.must)
        row = locate(what.uid[must], uids)
        missing, row = positions[row >= 0], must[row[row >= 0]]
        for start, end in runs(missing, row):
            where = compared.neighbours(int(missing[start]))
            missing_on = compared.destination.cluster
            yield from _lost(
                what,
                row[start:end],
                what.sends[0].cluster,
                how,
                FOREVER,
                None,
                missing_on=missing_on,
                **where,
            )


CHECK = Check(
    name="lost-write",
    guarantee="""Every acknowledged record is on the cluster that acknowledged it, and on the
        mirror's destination up to the last record that the mirror copied.""",
    source="""Jepsen kafka workload, lost-write; KIP-98 (commit), KIP-382 (mirroring is
        asynchronous)""",
    wire="""An acknowledgement with acks=all is a promise, and so is an EndTxn that was answered
        without an error. One with acks=1 is a promise where no election can have taken the record:
        the leader epoch is the same in all samples from the first one (of the promotion, on a
        promoted cluster) until after the answer, and the log has a later batch of that epoch, or no
        other epoch began until the run ended. With acks=0, or where the answer was lost with its
        connection, nothing was promised. The keys of records that are gone are not known: where a
        topic is compacted, whether a cleaner took them is unknown.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="lost-write",
            meaning="""An acknowledged record is absent or not visible; the offset is the
                acknowledged one.""",
            sentence="{who}, acknowledged by {cluster} at {at}, is lost: {how}",
            counted="acknowledged write is lost|acknowledged writes are lost",
            smallest="""A commit of 1 2 3 was acknowledged and B has 1 3: at the acknowledged offset
                of 2 on A.""",
        ),
    ),
    complete={"promotions", "sends"},
    follows={
        "ghost-ack",
        "order-equality",
        "commit-aborted",
        "truncation-accounting",
        "replica-agreement",
    },
    kernel=kernel,
    due={"native"},
)
