"""aborted-read: a read_committed reader never gets what was aborted, or not committed yet (Adya's G1a; Jepsen precommitted-read).

Judged by two witnesses: the markers in the bytes of the cluster it read from, and what the producer itself asked for, which
holds on every cluster: a mirror that reads uncommitted turns aborted records into plain ones, and no marker tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from spark_verify.checks.lives import every, examined, log_of, marks_in, own, replica_of
from spark_verify.checks.logs import ABORTED, Log, locate, runs
from spark_verify.checks.outcomes import never_committed, reads_of
from spark_verify.eras import Life
from spark_verify.view import Bools, Ints, PartitionView, Read, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """Every record that read_committed readers of one cluster got, one element each."""

    uid: Ints
    offset: Ints
    returned: Ints
    reads: Sequence[Read]
    read: Ints


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Asks both witnesses about every record that a read_committed reader got."""
    findings: list[Finding] = []
    for life in every(view):
        got = _got(reads_of(view, life, "read_committed"))
        if len(got.uid):
            findings += examined(life, got.offset)
            findings += own(life, replica_of(view, life), _judge(view, life, log_of(view, life), got))
    return findings


def _got(reads: Sequence[Read]) -> Got:
    none = np.empty(0, np.int64)
    sizes = np.array([len(r.uids) for r in reads], np.int64)
    return Got(
        uid=np.concatenate([r.uids for r in reads]) if reads else none,
        offset=np.concatenate([r.offsets for r in reads]) if reads else none,
        returned=np.repeat(np.array([r.returned for r in reads], np.int64), sizes),
        reads=reads,
        read=np.repeat(np.arange(len(reads), dtype=np.int64), sizes),
    )


def _judge(view: PartitionView, life: Life, log: Log | None, got: Got) -> Sequence[Finding]:
    by_marker = np.zeros(len(got.uid), np.bool_)
    if log is not None and len(log.replica.records):
        at = locate(log.replica.records.offset, got.offset)
        by_marker = (at >= 0) & (log.replica.records.uid[at] == got.uid) & (log.record_state[at] == ABORTED)
    by_client, too_early = _by_client(view, got)
    early = (too_early | _beyond_lso(view, life, got)) & ~(by_marker | by_client)
    return [
        *_found(life.cluster, got, by_marker | by_client, "aborted-read", by_marker),
        *_found(life.cluster, got, early, "uncommitted-read", by_marker),
    ]


def _by_client(view: PartitionView, got: Got) -> tuple[Bools, Bools]:
    """Per record: its producer aborted it; its producer had not asked for the commit when it was returned."""
    sends = sorted((s for s in view.sends if s.kind == "transaction" and len(s.offsets)), key=lambda s: s.first_uid)
    if not sends:
        nothing = np.zeros(len(got.uid), np.bool_)
        return nothing, nothing
    firsts = np.array([s.first_uid for s in sends], np.int64)
    lasts = firsts + np.array([len(s.offsets) for s in sends], np.int64)
    place = np.maximum(np.searchsorted(firsts, got.uid, side="right") - 1, 0)
    known = (got.uid >= firsts[place]) & (got.uid < lasts[place])
    never = np.array([never_committed(s) for s in sends], np.bool_)
    asked = np.array([_asked(s, view.ended) for s in sends], np.int64)
    return known & never[place], known & ~never[place] & (got.returned < asked[place])


def _asked(send: Send, ended: int) -> int:
    """The earliest time at which the commit can have been asked for; after the end where it never was.

    Of an operation that never returned it is not known when it asked for its commit: at any time since it was invoked.
    """
    if send.ending != "commit":
        return ended + 1
    if send.returned < 0:
        return send.invoked
    if send.ended_at > 0:
        return send.ended_at
    return send.invoked if send.outcome == "ok" else ended + 1


def _beyond_lso(view: PartitionView, life: Life, got: Got) -> Bools:
    """Per record: a sample begun after it was returned still had the LSO at or below it, under the same leader and epoch."""
    marks = marks_in(view, life)
    late = np.zeros(len(got.uid), np.bool_)
    if marks is None or not len(marks.time):
        return late
    told = (marks.last_stable >= 0) & (marks.leader_epoch >= 0)
    time, lso = marks.time[told], marks.last_stable[told]
    leader, epoch = marks.leader[told], marks.leader_epoch[told]
    if len(time) < 2:
        return late
    after = np.searchsorted(time, got.returned, side="left")
    usable = (after > 0) & (after < len(time))
    following = np.where(usable, after, 1)
    before = following - 1
    same = (leader[following] == leader[before]) & (epoch[following] == epoch[before])
    return np.asarray(usable & same & (lso[following] <= got.offset))


def _found(cluster: str, got: Got, bad: Bools, kind: str, by_marker: Bools) -> Sequence[Finding]:
    wrong = np.flatnonzero(bad)
    order = wrong[np.unique(got.offset[wrong], return_index=True)[1]]
    findings = []
    for start, end in runs(got.offset[order], got.uid[order]):
        row = int(order[start])
        evidence = {
            "records": end - start,
            "uid": int(got.uid[row]),
            "reader": got.reads[int(got.read[row])].reader,
            "returned": int(got.returned[row]),
            "witness": "marker" if by_marker[row] else ("client" if kind == "aborted-read" else "time"),
        }
        findings.append(Found(kind=kind, cluster=cluster, offset=int(got.offset[row]), evidence=evidence))
    return findings


CHECK = Check(
    name="aborted-read",
    guarantee="A read_committed reader never gets a record of an aborted transaction, nor of one that is not committed yet.",
    source="KIP-98, isolation.level; Adya G1a; Jepsen kafka workload, precommitted-read",
    inputs=frozenset({"batches", "records", "sends", "reads", "watermarks"}),
    anomalies=(
        AnomalyKind(
            name="aborted-read",
            meaning="A read_committed reader got a record whose transaction was aborted.",
            smallest="1 is aborted, a read_committed reader got 1: at the offset where it got it.",
        ),
        AnomalyKind(
            name="uncommitted-read",
            meaning="A read_committed reader got a record before its commit was asked for, or not below the last stable offset.",
            smallest="a read_committed reader got 1 at time 5, its commit was asked for at time 6: at its offset.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
)
