"""Transactions that are open at the end of a run: which hang, and which only linger.

A coordinator aborts a transaction once its timeout has passed since it began (KIP-98): at its next
look, every transaction.abort.timed.out.transaction.cleanup.interval.ms. Until then an open
transaction holds up readers of committed records, which is worth a line. Where the coordinator's
log is there, it decides: nothing ends what it does not know as open (KIP-664). Where it is not
there, no transaction is open for longer than transaction.max.timeout.ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import (
    Combined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts.internal_replicas import sound
from linkflap.spark_verify.checks.parts.last_stable import high_watermarks_of, recompute_last_stable
from linkflap.spark_verify.checks.parts.logs import NOWHERE, Log
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.sampled_watermarks import found_at
from linkflap.spark_verify.checks.parts.transaction_states import max_timeout, name_of, setting
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks

HANGING: Final = "hanging-transaction"
LINGERING: Final = "lingering-transaction"
GRACE: Final = 5_000_000_000
"""Nanoseconds that a coordinator may take to end what it has found to be over."""
MS: Final = 1_000_000
_SWEEP: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_SWEEP_DEFAULT: Final = 10_000
_CAPTURE: Final = 2_000_000_000
"""Nanoseconds before the end of a capture in which a log may have been copied before a marker that
a coordinator wrote by itself; clients have finished by then."""


def recomputed(
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
    first, last = high_watermarks_of(log, lso)
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
        yield i, found_at("lso-mismatch", log.replica.cluster, marks, int(sampled[i]), **evidence)


def open_ones(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    """Transactions that have no marker at the end. What a mirror left open hangs at once; of the
    others their coordinator knows more."""
    every, records, cluster = log.transactions, log.replica.records, log.replica.cluster
    # What came over a link before the cluster was promoted again, or for the first time.
    own = (
        [e.start for e in generation.eras[1:] if e.origin == "native"]
        if view.mirror.guarantee.offsets_kept
        else []
    )
    given_up = own[-1] if own else 0
    refused = _refused_over(view, generation)
    if refused:
        # The source is dead and this cluster was not promoted: nothing ends what is open.
        given_up = log.replica.end
    mirrored = view.mirror.guarantee.offsets_kept and generation.eras[-1].origin == "mirrored"
    taken = Taken(view, cluster)
    for i in np.flatnonzero(every.marker == NOWHERE).tolist():
        at = np.flatnonzero(records.offset >= every.first[i])
        if not len(at):
            continue
        uid = records.uid[at[:1]]
        lost = int(np.maximum(taken.unended(uid), taken.unended(uid, commit=False))[0])
        first, begun = int(every.first[i]), _begun(view, log, int(at[0]))
        evidence: dict[str, object] = {
            "producer_id": int(every.producer_id[i]),
            "open_seconds": round((view.ended - begun) / 1e9, 1),
            "mirrored": bool(first < given_up),
            **taken.evidence(lost),
        }
        if first < given_up:
            evidence |= {"refused_over": refused} if refused else {}
            yield Found(kind=HANGING, cluster=cluster, offset=first, evidence=evidence)
            continue
        data = {
            "what": "open", "epoch": int(every.highest_epoch[i]), "begun": begun,
            "ended": view.ended, "captured": log.replica.captured or view.ended,
            "healed": max((w.end for w in on_cluster(view.windows, cluster)), default=0),
            "sweep": setting(view, cluster, _SWEEP, _SWEEP_DEFAULT),
            "longest": max_timeout(view, cluster), "evidence": evidence, "elsewhere": mirrored,
        }  # fmt: skip
        yield PartialFinding(cluster=cluster, offset=first, data=data, together=cluster)


def last_states(view: PartitionView) -> Iterator[PartialFinding]:
    """The last state of each transactional id, of each cluster's coordinators."""
    for cluster, replica in view.canonical().items():
        last = {
            entry.transactional_id: entry
            for entry in replica.entries
            if isinstance(entry, TransactionState)
        }
        ids = [
            {
                "id": name, "producer_id": state.producer_id, "epoch": state.producer_epoch,
                "state": state.state, "timeout": state.timeout, "started": state.started,
                "updated": state.updated, "partitions": [list(tp) for tp in state.partitions],
            }
            for name, state in last.items()
        ]  # fmt: skip
        data: dict[str, object] = {"what": "ids", "ids": ids, "sound": sound(view, replica)}
        yield PartialFinding(cluster=cluster, offset=0, data=data, together=cluster)


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """What is open, with what its coordinator says of it: of each cluster."""
    return [
        combined
        for cluster in sorted({partial.cluster for partial in partials})
        for combined in _in_cluster([each for each in partials if each.cluster == cluster])
    ]


def _in_cluster(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """What is open in one cluster: by its coordinators where their logs are sound, else by age."""
    logs = [partial.data for partial in partials if partial.data["what"] == "ids"]
    states = {state["producer_id"]: state for data in logs for state in data["ids"]}  # type: ignore[attr-defined]
    known = bool(logs) and all(data["sound"] for data in logs)
    for one in (partial for partial in partials if partial.data["what"] == "open"):
        judged = (
            _by_coordinator(one, states.get(one.data["evidence"]["producer_id"]))  # type: ignore[index]
            if known and not one.data["elsewhere"]
            else _by_age(one, torn=bool(logs) and not one.data["elsewhere"])
        )
        for each in judged:
            yield Combined(found=each, topic=one.topic, partition=one.partition)


def _by_coordinator(
    one: PartialFinding, state: Mapping[str, Any] | None
) -> Iterator[Found | Unjudged]:
    """By the last state of its transactional id: a coordinator that knows it ends it, by the
    timeout at the latest; nothing ends what it does not know."""
    data: Mapping[str, Any] = one.data
    if state is None:
        yield _hangs(one, "no transactional id has this producer id")
        return
    name, there = name_of(state["state"]), [one.topic, one.partition] in state["partitions"]
    ongoing = state["state"] == ONGOING
    # It is prepared in the epoch of the data, or in a later one.
    same = (ongoing and state["epoch"] == data["epoch"]) or (
        state["state"] in (PREPARE_COMMIT, PREPARE_ABORT) and state["epoch"] >= data["epoch"]
    )
    if not same or not there:
        ended = int(state["updated"]) * MS
        if state["state"] == COMPLETE_ABORT and ended + _CAPTURE >= data["captured"]:
            where = f"{one.topic}-{one.partition} on {one.cluster}"
            yield Unjudged(
                reason=f"the coordinator aborted a transaction of {where} while it was captured"
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
        yield from _lingers(
            one, state["timeout"], f"its coordinator ends it: {state['id']} is {name}"
        )


def _by_age(one: PartialFinding, *, torn: bool) -> Iterator[Found | Unjudged]:
    """Without its coordinator's log: by the longest transaction that the brokers allow."""
    data: Mapping[str, Any] = one.data
    over = max(data["begun"] + data["longest"] * MS, data["healed"]) + data["sweep"] * MS + GRACE
    if data["ended"] > over:
        yield _hangs(one, "no transaction may be open for so long")
    elif torn:
        where = f"{one.topic}-{one.partition} on {one.cluster}"
        reason = f"the coordinator's log cannot say whether an open transaction of {where} hangs"
        yield Unjudged(reason=reason)
    else:
        yield from _lingers(one, data["longest"], "no coordinator's log says that it hangs")


def _hangs(one: PartialFinding, why: str) -> Found:
    evidence = {**one.data["evidence"], "coordinator": why}  # type: ignore[dict-item]
    return Found(kind=HANGING, cluster=one.cluster, offset=one.offset, evidence=evidence)


def _lingers(one: PartialFinding, timeout: int, why: str) -> Iterator[Found]:
    data: Mapping[str, Any] = one.data
    if data["ended"] - data["begun"] > data["sweep"] * MS:
        evidence = {
            **data["evidence"],
            "timeout_seconds": round(timeout / 1000, 1),
            "why": f"{why}; at most {timeout / 1000:g} s after it began",
        }
        yield Found(kind=LINGERING, cluster=one.cluster, offset=one.offset, evidence=evidence)


def _refused_over(view: PartitionView, generation: LogGeneration) -> str:
    """The link of a refused forced failover, if its source was dead at the end and the partition is
    still mirrored, from the source or from another cluster that mirrors it; else empty. That
    failover would have ended the transactions that the source left open."""
    last = generation.eras[-1]
    links = (LinkSpec.parse(refusal.link) for refusal in view.refusals if refusal.kind == "forced")
    return next(
        (
            link.name
            for link in links
            if generation.last
            and link.source in view.deaths
            and view.mirror.guarantee.offsets_kept
            and last.source
            and (
                link.source == last.owner
                or (link.source, link.destination) == (last.source, generation.cluster)
            )
        ),
        "",
    )


def _begun(view: PartitionView, log: Log, row: int) -> int:
    """When a record was sent, by its sender's row and the harness's clock; its timestamp is from
    its client's clock."""
    uid = int(log.replica.records.uid[row])
    invoked = [s.invoked for s in view.sends if s.first_uid <= uid < s.first_uid + len(s.offsets)]
    return invoked[0] if invoked else int(log.replica.records.timestamp[row]) * 1_000_000
