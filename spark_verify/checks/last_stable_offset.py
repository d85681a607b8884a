"""last-stable-offset: the LSO that brokers report is the one that follows from the bytes (KIP-98,
KIP-447).

LSO(h) = the first offset of the earliest transaction with records below high watermark h and no
marker below h; else h. It is a pure function of the log and h, so every sample can be recomputed. A
sample is two requests, LSO and high watermark, at two unknown moments of [time, returned]. The high
watermark at the LSO's moment lies between the samples before and after. A sample is wrong only if
no high watermark in that interval gives its LSO. Samples are compared within one leader's epoch,
because a new leader may begin with an older high watermark. Samples without an epoch are compared
unless brokers were broken, or a mirror ended or began, between them. When a mirror begins or ends
it may truncate its destination's log, and no capture has the truncated part. An earlier sample is
not recomputed if a high watermark above the truncation may have given its LSO. An LSO below the log
start or below the compacted offset is not recomputed either, because the transaction that began
there may be gone. Bytes that were captured before a sample judge it only if the log had not grown
by then.

A log start only rises, and so does the LSO, which is requested after it. A new leader may have
deleted less than the old one.

A mirror that makes producer ids negative hides transactions from brokers: they treat such batches
as plain, and their LSO is above the one that follows from the bytes. If an offset-keeping mirror
leaves a transaction open, it stays open forever once the destination is promoted, because no
coordinator there knows it. Every other open transaction must be known to its coordinator; otherwise
it hangs (below).

A coordinator aborts a transaction once its timeout has passed since it began (KIP-98): at its next
look, every transaction.abort.timed.out.transaction.cleanup.interval.ms. Until then an open
transaction holds up readers of committed records, which the report mentions. If the coordinator's
log was captured, that log decides: nothing ends a transaction that the coordinator does not know as
open (KIP-664). Otherwise no transaction may be open for longer than transaction.max.timeout.ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    TransactionState,
)
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
    grouped,
)
from linkflap.spark_verify.checks.log_model.generations import (
    captures_of,
    compacted,
    end_of,
    every,
    examined,
    log_of,
    marks_in,
    promoted_at,
    truncations_in,
)
from linkflap.spark_verify.checks.log_model.logs import (
    NOWHERE,
    Log,
    changes,
    high_watermarks_of,
    read,
    recompute_last_stable,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import planner
from linkflap.spark_verify.checks.log_model.replicas import sound
from linkflap.spark_verify.checks.log_model.samples import (
    ahead,
    found_at,
    in_a_step,
    out_of_order,
    shortened,
)
from linkflap.spark_verify.checks.log_model.transaction_states import max_timeout, name_of, setting
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica, Watermarks

HANGING: Final = "hanging-transaction"
LINGERING: Final = "lingering-transaction"
GRACE: Final = 5_000_000_000
"""Nanoseconds that a coordinator may take to end a transaction whose timeout it has noticed."""
MS: Final = 1_000_000
_SWEEP: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_SWEEP_DEFAULT: Final = 10_000
_CAPTURE: Final = 2_000_000_000
"""Nanoseconds before the end of a capture: the log may have been copied before a marker that a
coordinator wrote by itself in this time. Clients have finished by then."""


def recomputed(
    log: Log, marks: Watermarks, sampled: Ints, since: Sequence[tuple[int, int]], floor: int
) -> Iterator[tuple[int, Found]]:
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    known = ~changes(marks.leader_epoch[sampled], marks.leader[sampled])
    lowest = np.where(known, np.minimum(np.concatenate(([0], high[:-1]))[: len(high)], high), 0)
    following = np.concatenate((high[1:], [log.replica.end]))[: len(high)]
    highest = np.maximum(
        high,
        np.where(np.concatenate((known[1:], [False]))[: len(high)], following, log.replica.end),
    )
    first, last = high_watermarks_of(log, lso)
    wrong = ((first > highest) | (last < lowest) | (first > last)) & (lso >= floor)
    for time, offset in since:
        # A marker above the truncation may have ended a transaction that now looks open.
        wrong &= (marks.time[sampled] > time) | (highest <= offset)
    for i in np.flatnonzero(wrong).tolist():
        between = [int(lowest[i]), int(highest[i])]
        evidence = {
            "recomputed": recompute_last_stable(log, int(high[i])),
            "high_watermark_between": between,
        }
        yield i, found_at("lso-mismatch", log.cluster, marks, int(sampled[i]), **evidence)


def open_ones(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    """Transactions that have no marker at the end of the run. Those that a mirror left open hang
    for certain; for all others `combine` asks their coordinator's log."""
    every, records, cluster = log.transactions, log.records, log.cluster
    # Data that came over a link before the cluster's latest promotion.
    given_up = promoted_at(view, generation)
    refused = _refused_over(view, generation)
    if refused:
        # The source is dead and this cluster was not promoted: nothing ends what is open.
        given_up = log.replica.end
    taken, elsewhere = Taken(view, cluster), _elsewhere(view, generation)
    owner = [cluster, *elsewhere][-1]
    for i in np.flatnonzero(every.marker == NOWHERE).tolist():
        at = np.flatnonzero(records.offset >= every.first[i])
        if not len(at):
            continue
        its = records.offset[at[:1]], records.uid[at[:1]]
        lost = int(np.maximum(taken.unended(*its), taken.unended(*its, commit=False))[0])
        first, begun = int(every.first[i]), _begun(view, generation, log, int(at[0]))
        evidence: dict[str, object] = {
            "producer_id": int(every.producer_id[i]),
            "open_seconds": round((view.ended - begun) / 1e9, 1),
            "mirrored": bool(first < given_up),
            **taken.evidence(lost),
        }
        if first < given_up:
            evidence |= {"refused_over": refused} if refused else {}
            yield Found.at(HANGING, cluster, first, **evidence)
            continue
        data = {
            "what": "open", "epoch": int(every.highest_epoch[i]), "begun": begun,
            "ended": view.ended, "captured": log.replica.captured or view.ended,
            "healed": max((w.end for w in on_cluster(view.windows, cluster)), default=0),
            "sweep": setting(view, owner, _SWEEP, _SWEEP_DEFAULT),
            "longest": max_timeout(view, owner), "evidence": evidence,
            "elsewhere": elsewhere, "dead": [each for each in elsewhere if each in view.deaths],
        }  # fmt: skip
        yield PartialFinding(cluster=cluster, offset=first, data=data, together=cluster)


def _elsewhere(view: PartitionView, generation: LogGeneration) -> Sequence[str]:
    """The clusters whose coordinators must end the open transactions of a log that is still
    mirrored: its source and its owner."""
    last = generation.eras[-1]
    mirrored = view.guarantee.offsets_kept and last.origin == "mirrored"
    return [last.source, last.owner] if mirrored else []


def last_states(view: PartitionView) -> Iterator[PartialFinding]:
    """The last state of each transactional id, of each cluster's coordinators."""
    for cluster, replica in view.canonical().items():
        last: dict[str, tuple[TransactionState, TransactionState | None]] = {}
        for entry in replica.entries:
            if isinstance(entry, TransactionState):
                before, _ = last.get(entry.transactional_id, (None, None))
                last[entry.transactional_id] = entry, before
        ids = [
            {
                "id": name, "producer_id": state.producer_id, "epoch": state.producer_epoch,
                "state": state.state, "timeout": state.timeout, "started": state.started,
                "updated": state.updated, "partitions": [list(tp) for tp in state.partitions],
                "ended": _ended_in(state, before),
            }
            for name, (state, before) in last.items()
        ]  # fmt: skip
        data: dict[str, object] = {
            "what": "ids", "ids": ids, "sound": sound(view, replica),
            "captured": replica.captured or view.ended,
            "partitions": setting(view, cluster, "transaction.state.log.num.partitions", 1),
        }  # fmt: skip
        yield PartialFinding(cluster=cluster, offset=0, data=data, together=cluster)


def _ended_in(
    state: TransactionState, before: TransactionState | None
) -> Sequence[Sequence[object]] | None:
    """The partitions of the transaction that a last state says was aborted; None where its prepared
    state, which lists them, is not in the log."""
    if state.state != COMPLETE_ABORT or before is None or before.state != PREPARE_ABORT:
        return None
    return [list(tp) for tp in before.partitions]


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Judges the open transactions of each cluster by its coordinators' states."""
    by_cluster = grouped(partials, lambda each: each.cluster)
    return [each for _, mine in sorted(by_cluster.items()) for each in _in_cluster(mine)]


def _in_cluster(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Judges the open transactions of one cluster: by its coordinators' logs if these are
    undamaged, else by age."""
    logs = {p.partition: p.data for p in partials if p.data["what"] == "ids"}
    states = {state["producer_id"]: state for data in logs.values() for state in data["ids"]}
    for one in (partial for partial in partials if partial.data["what"] == "open"):
        elsewhere = one.data["elsewhere"]
        judged = (
            _by_coordinator(one, states.get(one.data["evidence"]["producer_id"]))
            if not elsewhere and _complete(logs, one.data["begun"])
            else _by_age(one, torn=bool(logs) and not elsewhere)
        )
        for each in judged:
            yield one.combined(each)


def _complete(logs: Mapping[int, Mapping[str, Any]], begun: int) -> bool:
    """Whether these are all partitions of `__transaction_state`, undamaged, and copied after the
    transaction had begun."""
    last = max(data["partitions"] - 1 for data in logs.values()) if logs else 0
    return set(logs) == set(range(max([last, *logs]) + 1)) and all(
        data["sound"] and data["captured"] >= begun for data in logs.values()
    )


def _by_coordinator(
    one: PartialFinding, state: Mapping[str, Any] | None
) -> Iterator[Found | Unjudged]:
    """Judges an open transaction by the last state of its transactional id. A coordinator that
    knows the transaction ends it by its timeout; an unknown one is never ended."""
    data = one.data
    if state is None:
        yield _hangs(one, "no transactional id has this producer id")
        return
    name, there = name_of(state["state"]), [one.topic, one.partition] in state["partitions"]
    ongoing = state["state"] == ONGOING
    # A coordinator prepares the end in the epoch of the data or a later one.
    same = (ongoing and state["epoch"] == data["epoch"]) or (
        state["state"] in (PREPARE_COMMIT, PREPARE_ABORT) and state["epoch"] >= data["epoch"]
    )
    if not same or not there:
        late = int(state["updated"]) * MS + _CAPTURE >= data["captured"]
        ended = state["ended"] is None or [one.topic, one.partition] in state["ended"]
        if state["state"] == COMPLETE_ABORT and late and ended:
            where = f"{one.tp} on {one.cluster}"
            yield Unjudged(
                f"the coordinator aborted a transaction of {where} while it was captured"
            )
            return
        what = f"{name}, elsewhere" if same else name
        yield _hangs(one, f"{state['id']} is {what}, in epoch {state['epoch']}")
        return
    since = (state["started"] + state["timeout"] if ongoing else state["updated"]) * MS
    over = max(since, data["healed"]) + data["sweep"] * MS + GRACE
    if data["ended"] > over:
        yield _hangs(one, f"{state['id']} is {name}, and its timeout has passed")
    else:
        why = f"its coordinator ends it: {state['id']} is {name}"
        yield from _lingers(one, _at_most(state["timeout"]), why)


def _by_age(one: PartialFinding, *, torn: bool) -> Iterator[Found | Unjudged]:
    """Judges an open transaction without the log of its coordinator: by its age and the longest
    timeout that the brokers allow."""
    data = one.data
    over = max(data["begun"] + data["longest"] * MS, data["healed"]) + data["sweep"] * MS + GRACE
    if data["dead"]:  # only the dead cluster or a promotion could have ended it here
        until = f"until {one.cluster} is promoted, for {data['dead'][0]} is dead"
        yield from _lingers(one, until, "no coordinator can end it")
    elif data["ended"] > over:
        yield _hangs(one, "no transaction may be open for so long")
    elif torn:
        where = f"{one.tp} on {one.cluster}"
        reason = f"the coordinator's log cannot say whether an open transaction of {where} hangs"
        yield Unjudged(reason)
    else:
        why = "no coordinator's log says that it hangs"
        yield from _lingers(one, _at_most(data["longest"]), why)


def _hangs(one: PartialFinding, why: str) -> Found:
    return Found.at(HANGING, one.cluster, one.offset, **one.data["evidence"], coordinator=why)


def _at_most(timeout: int) -> str:
    return f"for {timeout / 1000:g} s at most"


def _lingers(one: PartialFinding, until: str, why: str) -> Iterator[Found]:
    data = one.data
    if data["ended"] - data["begun"] > data["sweep"] * MS:
        evidence = {**data["evidence"], "until": until, "why": why}
        yield Found.at(LINGERING, one.cluster, one.offset, **evidence)


def _refused_over(view: PartitionView, generation: LogGeneration) -> str:
    """The link of a refused forced failover, if its source was dead at the end and the partition is
    still mirrored, from the source or from another cluster that mirrors it; else empty. That
    failover would have ended the transactions that the source left open."""
    last = generation.eras[-1]
    links = (LinkSpec.parse(refusal.link) for refusal in view.refusals if refusal.mode == "forced")
    return next(
        (
            link.name
            for link in links
            if generation.last
            and link.source in view.deaths
            and view.guarantee.offsets_kept
            and last.source
            and (
                link.source == last.owner
                or (link.source, link.destination) == (last.source, generation.cluster)
            )
        ),
        "",
    )


def _begun(view: PartitionView, generation: LogGeneration, log: Log, row: int) -> int:
    """When a record was sent, from its sender's row and by the harness's clock. Without such a row,
    the record's timestamp, bounded by samples of the high watermark, because clients choose
    timestamps."""
    uid, offset = int(log.records.uid[row]), int(log.records.offset[row])
    invoked = [s.invoked for s in view.sends if s.first_uid <= uid < s.first_uid + len(s.offsets)]
    written, marks = int(log.records.timestamp[row]) * MS, marks_in(view, generation)
    if invoked or marks is None:
        return invoked[0] if invoked else written
    marks = marks.with_high_watermark()
    had = marks.high_watermark > offset
    if written > view.ended:
        return int(marks.returned[had].min(initial=view.ended))
    return max(written, int(marks.time[~had].max(initial=0)))


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
            findings += _above_what_was_sent(view, generation, marks)
            findings += shortened(view, generation.cluster, marks)
            findings += ahead(view, generation.cluster, marks)
        if generation.last and generation.lost is None and log is not None and log.whole:
            findings += open_ones(view, generation, log)
    return findings


def _against_bytes(
    view: PartitionView, generation: LogGeneration, marks: Watermarks, sampled: Ints
) -> Iterator[Finding]:
    """Compares samples with a log captured near a loss of the cluster or right before a truncation:
    the first capture after a sample, else the last one before it that is complete for the sample.

    Two things are unknown: transactions that a restarted cluster's coordinator ended after the
    capture, and which log a sample saw that was requested during a truncation.
    """
    since, clear = (
        truncations_in(view, generation),
        ~in_a_step(view, generation.cluster, marks, sampled),
    )
    for time in [
        generation.began,
        *(t.time for t in view.truncations if t.cluster == generation.cluster),
    ]:
        clear &= (marks.time[sampled] > time) | (time > marks.returned[sampled])
    taken = Taken(view, generation.cluster)
    captures = captures_of(view, generation)
    later = [_later(generation, replica, marks, sampled) for replica in captures]
    without = ~np.logical_or.reduce(later) if later else clear
    shown = [
        *zip(captures, later, strict=True),
        *((each, without & _same_log(each, marks, sampled)) for each in reversed(captures)),
    ]
    for replica, covered in shown:
        if not replica.damage and (here := clear & covered).any():
            clear &= ~here
            floor = max(replica.log_start, compacted(view, replica))
            found = recomputed(read(replica, untracked=True), marks, sampled, since, floor)
            yield from (
                _explained(taken, marks, sampled[row], each) for row, each in found if here[row]
            )


def _explained(taken: Taken, marks: Watermarks, row: int, found: Found) -> Found:
    """The finding with the unclean election that lost the sampled part of the log."""
    number = taken.sampled(
        int(marks.returned[row]), int(marks.high_watermark[row]), int(marks.leader_epoch[row])
    )
    return replace(found, evidence={**found.evidence, **taken.evidence(number)})


def _later(generation: LogGeneration, replica: Replica, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample, whether a capture was taken later and before the next reversal. Such a capture
    has everything that the sample can show."""
    later = (marks.returned[sampled] <= replica.captured) | (replica.captured == 0)
    return np.asarray(later & (marks.time[sampled] < generation.ended))


def _same_log(replica: Replica, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample from after a capture, whether the log had not changed since the capture.

    That is the case if the log had not grown, and either no other leader had been elected or all
    captured batches were committed: a new leader may lack and replace uncommitted batches. The
    leader is known from earlier samples, or else from the captured batches.
    """
    # The LSO may have been requested when the next sample's high watermark was reached.
    high, epoch = marks.high_watermark[sampled], marks.leader_epoch[sampled]
    reached = np.maximum(high, np.append(high[1:], NOWHERE)[: len(sampled)])
    early = marks.returned <= replica.captured
    epochs = marks.leader_epoch[early] if early.any() else replica.batches.leader_epoch
    led = int(epochs.max(initial=-1))
    committed = marks.high_watermark[early].max(initial=-1)
    same = (epoch >= 0) & (epoch <= led)
    return np.asarray((reached <= replica.end) & (same | (reached <= committed)))


def _above_what_was_sent(
    view: PartitionView, generation: LogGeneration, marks: Watermarks
) -> Iterator[Found]:
    """The first sample whose high watermark is above a record that a client sent only after the
    sample."""
    log = log_of(view, generation)
    if log is None or not log.whole or not len(view.sends):
        return
    sender = planner(log.records.uid, view.sends)
    sent = Sends.of(view.sends).column("invoked")[sender[sender >= 0]]
    order = np.argsort(sent, kind="stable")
    lowest = np.minimum.accumulate(log.records.offset[sender >= 0][order][::-1])[::-1]
    first = np.append(lowest, NOWHERE)[np.searchsorted(sent[order], marks.returned, side="right")]
    above = (marks.high_watermark > first) & (marks.high_watermark <= end_of(view, generation))
    for time, offset in truncations_in(view, generation):
        above &= (marks.time > time) | (offset >= marks.high_watermark)
    taken = Taken(view, generation.cluster)
    for row in np.flatnonzero(above).tolist():
        high, returned = int(marks.high_watermark[row]), int(marks.returned[row])
        if taken.sampled(returned, high, int(marks.leader_epoch[row])) < 0:
            evidence = {"log_end": int(first[row]), "high_watermark": high, "time": returned}
            yield Found.at("high-watermark-above-log", generation.cluster, first[row], **evidence)
            return


def _above_the_log(
    view: PartitionView, generation: LogGeneration, marks: Watermarks
) -> Iterator[Found]:
    """The first sample whose high watermark is above the end of the log captured after it, and
    above every end that the log had before a truncation."""
    shown = captures_of(view, generation)
    if not shown or any(replica.damage for replica in shown):
        return
    # A restarted cluster may append after its capture. Only the truncation that its mirror records
    # can show that.
    until = max(replica.captured for replica in shown)
    end = end_of(view, generation)
    above = (marks.high_watermark > end) & ((marks.returned <= until) | (until == 0))
    for time, offset in truncations_in(view, generation):
        above &= (marks.time > time) | (offset >= marks.high_watermark)
    rows = np.flatnonzero(above)
    if len(rows):
        yield Found.at(
            "high-watermark-above-log",
            generation.cluster,
            end,
            log_end=end,
            high_watermark=marks.high_watermark[rows[0]],
            time=marks.time[rows[0]],
            samples=len(rows),
        )


CHECK = Check(
    name="last-stable-offset",
    guarantee="""The last stable offset that leaders report never steps back, and follows from the
        bytes below the high watermark.""",
    source="KIP-98 (LSO); KIP-664 (hanging transactions)",
    inputs={"batches", "records", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="lso-above-high-watermark",
            meaning="A sampled LSO is above the high watermark, and above that of the next sample.",
            sentence="""{cluster} reported the last stable offset {last_stable} for {tp}, above the
                high watermark {high_watermark}""",
            alone="readers of committed records may be shown what can still be lost",
            smallest="a sample says LSO 3, high watermark 2, and the next 3, 2 again: at offset 3.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="lso-regression",
            meaning="Within one leader's epoch a later sample has a lower LSO.",
            sentence="""the leader of {tp} on {cluster} moved its last stable offset back from {was}
                to {last_stable}""",
            alone="what readers of committed records were shown before, it hides again",
            smallest="samples of one epoch say LSO 2, then 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="high-watermark-regression",
            meaning="""Within one leader's epoch a later sample has a lower high watermark; the
                offset is the sample's LSO.""",
            sentence="""the leader of {tp} on {cluster} moved its high watermark back from {was} to
                {high_watermark}""",
            alone="readers may have been shown what is lost again",
            smallest="samples of one epoch say high watermark 3, then 2.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-start-regression",
            meaning="""Within one leader's epoch a later sample has a lower log start offset; the
                offset is that.""",
            sentence="""the leader of {tp} on {cluster} moved its log start back from {was} to
                {log_start}""",
            alone="a client that begins at the start gets what was deleted",
            smallest="samples of one epoch say log start 2, then 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-start-above-lso",
            meaning="""A sampled log start is above the LSO that the same leader answered after it;
                the offset is the log start.""",
            sentence="""{cluster} reported the log start {log_start} for {tp}, above the last stable
                offset {last_stable}""",
            alone="records were deleted before readers of committed records could get them",
            smallest="a second sample of one epoch says log start 3, LSO 2: at offset 3.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-end-regression",
            meaning="""A replica ends below its own earlier end, and below what it had of the
                records that a leader had committed.""",
            sentence="""broker {broker} of {cluster} truncated its log of {tp} from {was} to
                {log_end}, below the high watermark {high_watermark}""",
            alone="should this broker lead, what readers were shown is lost",
            smallest="broker 2 ended at 1, then 2, then 1; the high watermark is 2: at offset 1.",
            despite_torn=True,
            follows=frozenset(),
        ),
        AnomalyKind(
            name="high-watermark-ahead",
            meaning="""A mirror that leads a partition reported a high watermark, and a follower
                that was in sync ended below it afterwards.""",
            sentence="""the mirror that leads {tp} on {cluster} reported the high watermark
                {high_watermark}, when the log of broker {broker} ended at {log_end}""",
            alone="readers were shown what is lost if that broker leads next",
            smallest="""the mirror's high watermark is 2, broker 2 of B ended at 0, then 1, then at
                1 again: at offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="lso-mismatch",
            meaning="""No high watermark that the partition can have had at that time gives the
                sampled LSO.""",
            sentence="""{cluster} reported the last stable offset {last_stable} for {tp}, and by the
                bytes it was {recomputed}""",
            counted="""sample of the last stable offset contradicts the bytes|samples of the last
                stable offset contradict the bytes""",
            alone="""with another last stable offset readers of committed records wait, or get what
                is not committed""",
            smallest="""A has 1 open at offset 0 and a high watermark of 1, a sample says LSO 1: at
                offset 1.""",
        ),
        AnomalyKind(
            name="high-watermark-above-log",
            meaning="""The log was captured after a sample, ends below the sampled high watermark,
                and was not truncated since; or a record below that was sent only after the answer:
                the offset is the record's.""",
            sentence="""{cluster} reported the high watermark {high_watermark} for {tp}, whose log
                had not got beyond {log_end}""",
            alone="readers may have been shown what is not in the log",
            smallest="A has 1 at offset 0, a sample says high watermark 2: at offset 1.",
        ),
        AnomalyKind(
            name=HANGING,
            meaning="""On a live cluster a transaction is open that its coordinator does not know as
                open, or has not ended although its timeout passed; without the coordinator's log,
                one that is open for longer than transaction.max.timeout.ms. Or a mirror left it
                open: at a promotion, or because a forced failover was refused.""",
            sentence="""producer id {producer_id} left a transaction open on {cluster} from {at} on,
                which holds up every read_committed reader""",
            counted="transaction hangs|transactions hang",
            one_per=("producer_id",),
            smallest="""A has 1 open at offset 0, and the coordinator's last state of its producer
                is CompleteCommit: at offset 0.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=LINGERING,
            meaning="""A transaction is open for more than 10 s at the end (the coordinator's
                interval), and may be: its timeout has not passed, or it was mirrored from a cluster
                that is dead. It holds up readers of committed records until then, or until a
                promotion. That is no violation: it is always allowed.""",
            sentence="""producer id {producer_id} has had a transaction open on {cluster} from {at}
                on for {open_seconds} s, which holds up read_committed readers {until}""",
            smallest="""A has 1 open at offset 0, written 80 s before the end, and the coordinator
                says Ongoing, with a timeout of 900 s: at offset 0.""",
            despite_torn=True,
            noted=True,
        ),
    ),
    follows={
        "order-equality",
        "marker-pairing",
        "commit-aborted",
        "failover",
        "sequence-continuity",
        "truncation-accounting",
        "replica-end-regression",
    },
    kernel=kernel,
    combine=combine,
    internal=True,
    unit="samples",
    time_based=True,
)
