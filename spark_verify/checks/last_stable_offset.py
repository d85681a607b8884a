"""last-stable-offset: the LSO that brokers report is the one that follows from the bytes (KIP-98,
KIP-447).

LSO(h) = the first offset of the earliest transaction with records below high watermark h and no
marker below h; else h. It is a pure function of the log and h, so every sample can be recomputed. A
sample is two requests, LSO and high watermark, at two unknown moments of [time, returned]; the high
watermark at the LSO's moment lies between the samples before and after. A sample is wrong only if
no high watermark in that interval gives its LSO. Samples are compared within one leader's epoch,
because a new leader may begin with an older high watermark; those that carry no epoch, unless
brokers were broken or a mirror ended or began between them. What a mirror truncated of its
destination's log, when it began or ended, is in no capture any more: a sample from before that,
which a high watermark above the truncation may have given, is not recomputed. Nor is an LSO below
the log start, or below what a cleaner has compacted: the transaction that began there may be gone.

A log start only rises, and the LSO, which is asked for after it, rises with it. A new leader may
have deleted less than the old.

A mirror that made producer ids negative blinds brokers: they take such batches for plain ones, and
their LSO is above what the bytes give. And a transaction that a mirror which keeps offsets left
open is open for ever once its cluster was promoted: no coordinator there knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.parts.generations import (
    before_truncation,
    compacted,
    end_of,
    every,
    examined,
    log_of,
    marks_in,
    replica_of,
    truncations_in,
)
from linkflap.spark_verify.checks.parts.last_stable import attained, recompute_last_stable
from linkflap.spark_verify.checks.parts.logs import NOWHERE, Log, read
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Watermarks

TIMEOUT = 75_000_000_000
"""Nanoseconds: librdkafka's and Kafka's default transaction.timeout.ms of 60 s, the coordinator's
sweep every 10 s, and 5 s."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every sample against the bytes of its log generation, and what is still open at the
    end."""
    findings: list[Finding] = []
    for generation in every(view):
        log, marks = log_of(view, generation), marks_in(view, generation)
        if marks is not None:
            sampled = np.flatnonzero((marks.last_stable >= 0) & (marks.high_watermark >= 0))
            # Up to the first offset that is its own the log is mirrored, so a sample counts for the
            # record below its LSO.
            findings += examined(generation, np.maximum(marks.last_stable[sampled] - 1, 0))
            findings += _order(view, generation.cluster, marks, sampled)
            findings += _against_bytes(view, generation, marks, sampled)
            findings += _above_the_log(view, generation, marks)
        if generation.last and generation.lost is None and log is not None and log.whole:
            findings += _hanging(view, generation, log)
    return findings


def _found(kind: str, cluster: str, marks: Watermarks, row: int, **evidence: object) -> Found:
    lso, high = int(marks.last_stable[row]), int(marks.high_watermark[row])
    sample = {
        "last_stable": lso,
        "high_watermark": high,
        "time": int(marks.time[row]),
        "leader_epoch": int(marks.leader_epoch[row]),
    }
    return Found(kind=kind, cluster=cluster, offset=lso, evidence=sample | evidence)


def _same_tenure(view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample but the first: whether the one before is surely of the same leader's same
    epoch."""
    before, after = sampled[:-1], sampled[1:]
    same = (marks.leader[before] == marks.leader[after]) & (
        marks.leader_epoch[before] == marks.leader_epoch[after]
    )
    unknown = marks.leader_epoch[after] < 0
    for start, end in _leaders_moved(view, cluster):
        same &= ~(unknown & (marks.time[before] <= end) & (marks.returned[after] >= start))
    return np.asarray(same)


def _leaders_moved(view: PartitionView, cluster: str) -> Iterator[tuple[int, int]]:
    """[start, end] of all that may have given a partition another leader: broken brokers, and a
    mirror that ends or begins."""
    yield from ((window.start, window.end) for window in on_cluster(view.windows, cluster))
    yield from ((p.fault_time, p.time) for p in view.promotions if p.cluster == cluster)
    yield from ((stop.time, stop.time) for stop in view.stops if stop.cluster == cluster)
    yield from ((t.time, t.time) for t in view.truncations if t.cluster == cluster)


def _order(
    view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints
) -> Sequence[Finding]:
    if not len(sampled):
        return []
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    same = _same_tenure(view, cluster, marks, sampled)
    findings: list[Finding] = []
    for name, values, kind in (
        ("last_stable", lso, "lso-regression"),
        ("high_watermark", high, "high-watermark-regression"),
    ):
        for i in np.flatnonzero(same & (values[1:] < values[:-1])).tolist():
            findings.append(
                _found(kind, cluster, marks, int(sampled[i + 1]), before={name: int(values[i])})
            )
    findings += _starts(cluster, marks, sampled, same)
    # The LSO may have been asked for after the high watermark: the next sample bounds what that had
    # become by then.
    bound = np.maximum(high[:-1], np.where(same, high[1:], NOWHERE))
    findings += [
        _found("lso-above-high-watermark", cluster, marks, int(sampled[i]))
        for i in np.flatnonzero(lso[:-1] > bound).tolist()
    ]
    return findings


def _starts(cluster: str, marks: Watermarks, sampled: Ints, same: Bools) -> Iterator[Finding]:
    """Log starts that went back, or were above the LSO, which is asked for next: it is raised with
    the log start."""
    start, lso = marks.log_start[sampled], marks.last_stable[sampled]
    known = same & (start[1:] >= 0)
    for kind, wrong in (
        ("log-start-regression", start[1:] < start[:-1]),
        ("log-start-above-lso", start[1:] > lso[1:]),
    ):
        for i in np.flatnonzero(known & wrong).tolist():
            said = {"log_start": int(start[i + 1]), "before": {"log_start": int(start[i])}}
            yield replace(
                _found(kind, cluster, marks, int(sampled[i + 1]), **said), offset=int(start[i + 1])
            )


def _against_bytes(
    view: PartitionView, generation: LogGeneration, marks: Watermarks, sampled: Ints
) -> Iterator[Finding]:
    """Samples against the log of their time: until a reversal began as it was captured first, then
    as it was before that truncated it.

    What a coordinator ended after that capture (its cluster was started for the reversal) no
    capture shows, and which log a sample saw that was asked for in the moment of a truncation
    cannot be known.
    """
    since, last = (
        truncations_in(view, generation),
        None if generation.last else before_truncation(view, generation),
    )
    over = marks.time[sampled] >= generation.ended
    clear = np.ones(len(sampled), np.bool_)
    for time in [
        generation.began,
        *(t.time for t in view.truncations if t.cluster == generation.cluster),
    ]:
        clear &= (marks.time[sampled] > time) | (time > marks.returned[sampled])
    # The LSO may have been asked for when the next sample's high watermark was reached.
    next_high = np.append(marks.high_watermark[sampled[1:]], NOWHERE)[: len(sampled)]
    shown = over & (next_high <= (last.end if last is not None else -1))
    for replica, here in ((replica_of(view, generation), ~over), (last, shown)):
        if replica is not None and not replica.damage:
            floor = max(replica.log_start, compacted(view, replica))
            found = _recomputed(read(replica, untracked=True), marks, sampled, since, floor)
            yield from (each for row, each in found if (here & clear)[row])


def _above_the_log(
    view: PartitionView, generation: LogGeneration, marks: Watermarks
) -> Iterator[Found]:
    """The first sample whose high watermark the log, captured after it, does not reach, and never
    did before it was truncated."""
    shown = [
        replica
        for replica in (
            replica_of(view, generation),
            None if generation.last else before_truncation(view, generation),
        )
        if replica is not None
    ]
    if not shown or any(replica.damage for replica in shown):
        return
    # What a cluster that was started for a reversal appends after its capture shows in how its
    # mirror truncated it, if at all.
    noted = any(
        t.cluster == generation.cluster and t.time >= generation.ended for t in view.truncations
    )
    until = (
        max(replica.captured for replica in shown) if generation.last or noted else generation.ended
    )
    end = end_of(view, generation)
    above = (marks.high_watermark > end) & ((marks.returned <= until) | (until == 0))
    for time, offset in truncations_in(view, generation):
        above &= (marks.time > time) | (offset >= marks.high_watermark)
    rows = np.flatnonzero(above)
    if len(rows):
        evidence = {
            "log_end": end,
            "high_watermark": int(marks.high_watermark[rows[0]]),
            "time": int(marks.time[rows[0]]),
        }
        yield Found(
            kind="high-watermark-above-log",
            cluster=generation.cluster,
            offset=end,
            evidence=evidence | {"samples": len(rows)},
        )


def _recomputed(
    log: Log, marks: Watermarks, sampled: Ints, since: Sequence[tuple[int, int]], floor: int
) -> Iterator[tuple[int, Found]]:
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    tenure = marks.leader_epoch[sampled] * 1_000_003 + marks.leader[sampled]
    known = (
        np.concatenate(([False], tenure[1:] == tenure[:-1]))
        if len(sampled)
        else np.empty(0, np.bool_)
    )
    lowest = np.where(known, np.minimum(np.concatenate(([0], high[:-1]))[: len(high)], high), 0)
    following = np.concatenate((high[1:], [log.replica.end]))[: len(high)]
    highest = np.maximum(
        high,
        np.where(np.concatenate((known[1:], [False]))[: len(high)], following, log.replica.end),
    )
    first, last = attained(log, lso)
    wrong = ((first > highest) | (last < lowest) | (first > last)) & (lso >= floor)
    for time, offset in since:
        # A marker above the truncation may have ended what now is open.
        wrong &= (marks.time[sampled] > time) | (highest <= offset)
    for i in np.flatnonzero(wrong).tolist():
        between = [int(lowest[i]), int(highest[i])]
        evidence = {
            "recomputed": recompute_last_stable(log, int(high[i])),
            "high_watermark_between": between,
        }
        yield i, _found("lso-mismatch", log.replica.cluster, marks, int(sampled[i]), **evidence)


def _hanging(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    every, records, cluster = log.transactions, log.replica.records, log.replica.cluster
    # What came over a link before the cluster was promoted again, or for the first time.
    own = (
        [e.start for e in generation.eras[1:] if e.origin == "native"]
        if view.mirror.guarantee.offsets_kept
        else []
    )
    given_up = own[-1] if own else 0
    findings = []
    for i in np.flatnonzero(every.marker == NOWHERE).tolist():
        at = np.flatnonzero(records.offset >= every.first[i])
        if not len(at):
            continue
        age = view.ended - _begun(view, log, int(at[0]))
        if age > TIMEOUT or every.first[i] < given_up:
            evidence = {
                "producer_id": int(every.producer_id[i]),
                "open_seconds": round(age / 1e9, 1),
                "mirrored": bool(every.first[i] < given_up),
            }
            findings.append(
                Found(
                    kind="hanging-transaction",
                    cluster=cluster,
                    offset=int(every.first[i]),
                    evidence=evidence,
                )
            )
    return findings


def _begun(view: PartitionView, log: Log, row: int) -> int:
    """When a record was sent: as its sender wrote down, by the harness' clock; its timestamp is of
    its client's clock."""
    uid = int(log.replica.records.uid[row])
    invoked = [s.invoked for s in view.sends if s.first_uid <= uid < s.first_uid + len(s.offsets)]
    return invoked[0] if invoked else int(log.replica.records.timestamp[row]) * 1_000_000


CHECK = Check(
    name="last-stable-offset",
    guarantee=(
        "The last stable offset that leaders report never steps back and is what the bytes below "
        "the high watermark give."
    ),
    source="KIP-98 (LSO); KIP-664 (hanging transactions)",
    inputs=frozenset({"batches", "records", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="lso-above-high-watermark",
            meaning=(
                "A sampled LSO is above the high watermark, also above that of the next sample."
            ),
            sentence=(
                "{cluster} reported the last stable offset {last_stable} for {tp}, above the high "
                "watermark {high_watermark}"
            ),
            alone="readers of committed records may be shown what can still be lost",
            smallest="a sample says LSO 3, high watermark 2, and the next 3, 2 again: at offset 3.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="lso-regression",
            meaning="Within one leader's epoch a later sample has a lower LSO.",
            sentence=(
                "the leader of {tp} on {cluster} moved its last stable offset back from {was} to "
                "{last_stable}"
            ),
            alone="what readers of committed records were shown before, it hides again",
            smallest="samples of one epoch say LSO 2, then 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="high-watermark-regression",
            meaning=(
                "Within one leader's epoch a later sample has a lower high watermark; the offset is"
                " the sample's LSO."
            ),
            sentence=(
                "the leader of {tp} on {cluster} moved its high watermark back from {was} to "
                "{high_watermark}"
            ),
            alone="readers may have been shown what is lost again",
            smallest="samples of one epoch say high watermark 3, then 2.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-start-regression",
            meaning=(
                "Within one leader's epoch a later sample has a lower log start offset; the offset "
                "is that."
            ),
            sentence=(
                "the leader of {tp} on {cluster} moved its log start back from {was} to {log_start}"
            ),
            alone="a client that begins at the start gets what was deleted",
            smallest="samples of one epoch say log start 2, then 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-start-above-lso",
            meaning=(
                "A sampled log start is above the LSO that the same leader answered after it; the "
                "offset is the log start."
            ),
            sentence=(
                "{cluster} reported the log start {log_start} for {tp}, above the last stable "
                "offset {last_stable}"
            ),
            alone="records were deleted before readers of committed records could get them",
            smallest="a second sample of one epoch says log start 3, LSO 2: at offset 3.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="lso-mismatch",
            meaning=(
                "No high watermark that the partition can have had at that time gives the sampled "
                "LSO."
            ),
            sentence=(
                "{cluster} reported the last stable offset {last_stable} for {tp}, and by the bytes"
                " it was {recomputed}"
            ),
            counted=(
                "sample of the last stable offset contradicts the bytes|samples of the last stable "
                "offset contradict the bytes"
            ),
            alone=(
                "with another last stable offset readers of committed records wait, or get what is "
                "not committed"
            ),
            smallest=(
                "A has 1 open at offset 0 and a high watermark of 1, a sample says LSO 1: at "
                "offset 1."
            ),
        ),
        AnomalyKind(
            name="high-watermark-above-log",
            meaning=(
                "The log, captured after a sample, ends below the sampled high watermark, and was "
                "not truncated since."
            ),
            sentence=(
                "{cluster} reported the high watermark {high_watermark} for {tp}, whose log ends at"
                " {log_end}"
            ),
            alone="readers may have been shown what is not in the log",
            smallest="A has 1 at offset 0, a sample says high watermark 2: at offset 1.",
        ),
        AnomalyKind(
            name="hanging-transaction",
            meaning=(
                "On a cluster that lives on, a transaction is open longer than its timeout allows, "
                "or a mirror left it."
            ),
            sentence=(
                "producer id {producer_id} left a transaction open on {cluster} from {at} on, which"
                " holds up every read_committed reader"
            ),
            counted="transaction hangs|transactions hang",
            smallest="A has 1 open at offset 0, written 80 s before the end: at offset 0.",
        ),
    ),
    complete=frozenset({"promotions"}),
    follows=frozenset(
        {
            "order-equality",
            "marker-pairing",
            "commit-aborted",
            "sequence-continuity",
            "truncation-accounting",
        }
    ),
    kernel=kernel,
    unit="samples",
    time_based=True,
)
