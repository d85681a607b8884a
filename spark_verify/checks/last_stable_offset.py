"""last-stable-offset: the LSO that brokers report is the one that follows from the bytes (KIP-98,
KIP-447).

LSO(h) = the first offset of the earliest transaction with records below high watermark h and no
marker below h; else h. It is a pure function of the log and h, so every sample can be recomputed. A
sample is two requests, LSO and high watermark, at two unknown moments of [time, returned]. The high
watermark at the LSO's moment lies between the samples before and after. A sample is wrong only if
no high watermark in that interval gives its LSO. Samples are compared within one leader's epoch,
because a new leader may begin with an older high watermark. Samples without an epoch are compared
unless brokers were broken, or a mirror ended or began, between them. When a mirror begins or ends
it may truncate its destination's log, and no capture has the truncated part. A sample from before
that is not recomputed if a high watermark above the truncation may have given it. Nor is an LSO
below the log start, or below the compacted offset: the transaction that began there may be gone.
Bytes that were captured before a sample judge it only if the log was no longer then.

A log start only rises, and so does the LSO, which is requested after it. A new leader may have
deleted less than the old one.

A mirror that makes producer ids negative hides transactions from brokers: they treat such batches
as plain, and their LSO is above the one that follows from the bytes. And a transaction that a
mirror which keeps offsets left open is open forever once its cluster was promoted: no coordinator
there knows it. What else is open at the end, its coordinator knows, or it hangs
(`parts.hanging_transactions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linkflap.harness.log.coordinators import TRANSACTIONS
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.parts.generation_truncations import marks_in, truncations_in
from linkflap.spark_verify.checks.parts.generations import (
    before_truncation,
    compacted,
    end_of,
    every,
    examined,
    log_of,
    replica_of,
)
from linkflap.spark_verify.checks.parts.hanging_transactions import (
    HANGING,
    LINGERING,
    combine,
    last_states,
    open_ones,
    recomputed,
)
from linkflap.spark_verify.checks.parts.logs import NOWHERE, read
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.sampled_replicas import ahead, shortened
from linkflap.spark_verify.checks.parts.sampled_watermarks import out_of_order
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica, Watermarks


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every sample against the bytes of its log generation, and what is still open at the
    end."""
    findings: list[Finding] = []
    if view.internal:
        return list(last_states(view)) if view.topic == TRANSACTIONS else findings
    for generation in every(view):
        log, marks = log_of(view, generation), marks_in(view, generation)
        if marks is not None:
            sampled = np.flatnonzero((marks.last_stable >= 0) & (marks.high_watermark >= 0))
            # Up to the first offset that is its own the log is mirrored, so a sample counts for the
            # record below its LSO.
            findings += examined(generation, np.maximum(marks.last_stable[sampled] - 1, 0))
            findings += out_of_order(view, generation.cluster, marks, sampled)
            findings += _against_bytes(view, generation, marks, sampled)
            findings += _above_the_log(view, generation, marks)
            findings += shortened(view, generation.cluster, marks)
            findings += ahead(view, generation.cluster, marks)
        if generation.last and generation.lost is None and log is not None and log.whole:
            findings += open_ones(view, generation, log)
    return findings


def _against_bytes(
    view: PartitionView, generation: LogGeneration, marks: Watermarks, sampled: Ints
) -> Iterator[Finding]:
    """Samples against the log of their time: the first capture that covers them, of those next to a
    loss of the cluster and right before a truncation.

    What a coordinator ended after a capture (its cluster was started again) is in no capture, and
    which log a sample saw that was requested at the moment of a truncation cannot be known.
    """
    since, clear = truncations_in(view, generation), np.ones(len(sampled), np.bool_)
    for time in [
        generation.began,
        *(t.time for t in view.truncations if t.cluster == generation.cluster),
    ]:
        clear &= (marks.time[sampled] > time) | (time > marks.returned[sampled])
    taken = Taken(view, generation.cluster)
    last = None if generation.last else before_truncation(view, generation)
    for replica in (replica_of(view, generation), last):
        if replica is not None and not replica.damage:
            here = clear & _covered(generation, replica, marks, sampled)
            clear &= ~here
            floor = max(replica.log_start, compacted(view, replica))
            found = recomputed(read(replica, untracked=True), marks, sampled, since, floor)
            yield from (
                _explained(taken, marks, sampled[row], each) for row, each in found if here[row]
            )


def _explained(taken: Taken, marks: Watermarks, row: int, found: Found) -> Found:
    """With the loss that explains a sample of a log that is gone."""
    number = taken.sampled(
        int(marks.returned[row]), int(marks.high_watermark[row]), int(marks.leader_epoch[row])
    )
    return replace(found, evidence={**found.evidence, **taken.evidence(number)})


def _covered(
    generation: LogGeneration, replica: Replica, marks: Watermarks, sampled: Ints
) -> Bools:
    """Per sample, whether a capture has all bytes that it can be about: it was taken later, and
    before the next reversal began; or the log was no longer than that."""
    # The LSO may have been requested when the next sample's high watermark was reached.
    high = marks.high_watermark[sampled]
    reached = np.maximum(high, np.append(high[1:], NOWHERE)[: len(sampled)])
    later = (marks.returned[sampled] <= replica.captured) | (replica.captured == 0)
    return np.asarray((later & (marks.time[sampled] < generation.ended)) | (reached <= replica.end))


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
    # What a cluster that was started again appends after its capture shows in how its mirror
    # truncated it, if at all.
    until = max(replica.captured for replica in shown)
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


CHECK = Check(
    name="last-stable-offset",
    guarantee=(
        "The last stable offset that leaders report never steps back, and follows from the "
        "bytes below the high watermark."
    ),
    source="KIP-98 (LSO); KIP-664 (hanging transactions)",
    inputs=frozenset({"batches", "records", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="lso-above-high-watermark",
            meaning=(
                "A sampled LSO is above the high watermark, and above that of the next sample."
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
            name="replica-end-regression",
            meaning=(
                "A replica ends below its own earlier end, and below what it had of the records "
                "that a leader had committed."
            ),
            sentence=(
                "broker {broker} of {cluster} truncated its log of {tp} from {was} to {log_end}, "
                "below the high watermark {high_watermark}"
            ),
            alone="should this broker lead, what readers were shown is lost",
            smallest="broker 2 ended at 1, then 2, then 1; the high watermark is 2: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="high-watermark-ahead",
            meaning=(
                "A mirror that leads a partition reported a high watermark, and a follower that "
                "was in sync ended below it afterwards."
            ),
            sentence=(
                "the mirror that leads {tp} on {cluster} reported the high watermark "
                "{high_watermark}, when the log of broker {broker} ended at {log_end}"
            ),
            alone="readers were shown what is lost if that broker leads next",
            smallest=(
                "the mirror's high watermark is 2, broker 2 of B ended at 0, then 1, then at 1 "
                "again: at offset 1."
            ),
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
                "The log was captured after a sample, ends below the sampled high watermark, "
                "and was not truncated since."
            ),
            sentence=(
                "{cluster} reported the high watermark {high_watermark} for {tp}, whose log ends at"
                " {log_end}"
            ),
            alone="readers may have been shown what is not in the log",
            smallest="A has 1 at offset 0, a sample says high watermark 2: at offset 1.",
        ),
        AnomalyKind(
            name=HANGING,
            meaning=(
                "On a live cluster a transaction is open that its coordinator does not know as "
                "open, or has not ended although its timeout passed; without the coordinator's "
                "log, one that is open for longer than transaction.max.timeout.ms. Or a mirror "
                "left it open: at a promotion, or because a forced failover was refused."
            ),
            sentence=(
                "producer id {producer_id} left a transaction open on {cluster} from {at} on, which"
                " holds up every read_committed reader"
            ),
            counted="transaction hangs|transactions hang",
            smallest=(
                "A has 1 open at offset 0, and the coordinator's last state of its producer is "
                "CompleteCommit: at offset 0."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name=LINGERING,
            meaning=(
                "A transaction is open for more than 10 s at the end (the coordinator's interval), "
                "and may be: its timeout has not passed. It holds up readers of committed records "
                "until then. That is no violation: it is always allowed."
            ),
            sentence=(
                "producer id {producer_id} has had a transaction open on {cluster} from {at} on "
                "for {open_seconds} s, which holds up read_committed readers for {timeout_seconds} "
                "s at most"
            ),
            smallest=(
                "A has 1 open at offset 0, written 80 s before the end, and the coordinator says "
                "Ongoing, with a timeout of 900 s: at offset 0."
            ),
            despite_torn=True,
            noted=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    follows=frozenset(
        {
            "order-equality",
            "marker-pairing",
            "commit-aborted",
            "failover",
            "sequence-continuity",
            "truncation-accounting",
        }
    ),
    kernel=kernel,
    combine=combine,
    internal=True,
    unit="samples",
    time_based=True,
)
