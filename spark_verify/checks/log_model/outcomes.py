"""The brokers' answers to the clients of a cluster in one log generation: which records must be
there, and which must never be seen.

A record must be committed (Jepsen's rule) if its transaction's commit returned ok, or if the commit
returned nothing but a read_committed reader got one of its records. It must also be there if it was
sent without a transaction and acknowledged. A record must never be seen if its transaction was
aborted, or its commit was certainly refused. A read counts here in its own partition.
torn-transaction looks across partitions: it finds that the transaction's other partitions must have
it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from linkflap.spark_verify.checks.log_model.generations import (
    generations,
    log_of,
    numbers_at,
    polls_in,
    sends_to,
)
from linkflap.spark_verify.checks.log_model.logs import (
    PLAIN,
    Log,
    among,
    chunks,
    distinct,
    locate,
    together,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read, Send, Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Records that clients sent to one cluster, as columns. `acked` is an offset or -1, `send` an
    index into `sends`."""

    sends: Sends
    uid: Ints
    acked: Ints
    refused: Bools
    must: Bools
    never: Bools
    send: Ints

    def __len__(self) -> int:
        return len(self.uid)


def outcomes(view: PartitionView, generation: LogGeneration, *, earlier: bool = True) -> Outcomes:
    """The records that were acknowledged to clients in this log generation, and before it as far as
    no truncation since then removed them.

    A record that was acknowledged below a truncation is still there, unless its transaction ended
    above it: then the next owner ended it.
    """
    mine = generations(view)[generation.cluster]
    there = sends_to(view, generation.cluster)
    number = numbers_at(mine, there.column("invoked"))
    if not earlier or generation.number == 0:
        return _outcomes(view, generation, there.take(number == generation.number))
    chosen = number <= generation.number
    what = _outcomes(view, generation, there.take(chosen))
    since = number[chosen][what.send]
    keep = since == generation.number
    for before in mine[: generation.number]:
        log = log_of(view, before)
        truncated_to = min(generation.earlier[before.number :])
        keep |= (
            (since == before.number)
            & (what.acked >= 0)
            & (what.acked < truncated_to)
            & _settled(log, what.uid, truncated_to)
        )
    return Outcomes(
        sends=what.sends,
        uid=what.uid[keep],
        acked=what.acked[keep],
        refused=what.refused[keep],
        must=what.must[keep],
        never=what.never[keep],
        send=what.send[keep],
    )


def _settled(log: Log | None, uids: Ints, truncated_to: int) -> Bools:
    """Per record, whether what became of it in an earlier generation was decided below the
    truncation."""
    if log is None or not len(log.records):
        return np.ones(len(uids), np.bool_)
    at = locate(log.records.uid, uids)
    batch = log.records.batch[at]
    return np.asarray(
        (at >= 0) & ((log.record_state[at] == PLAIN) | (log.marker[batch] < truncated_to))
    )


def _outcomes(view: PartitionView, generation: LogGeneration, sends: Sends) -> Outcomes:
    uid, send = uids_of(sends)
    acked, certain = sends.each("offsets"), sends.each("refused")
    seen = among(uid, committed_uids(view, generation))
    return Outcomes(
        sends=sends,
        uid=uid,
        acked=acked,
        refused=certain,
        must=_must(sends, send, seen, acked) & ~certain,
        never=never(sends)[send],
        send=send,
    )


def uids_of(sends: Sends) -> tuple[Ints, Ints]:
    """Every payload id that was handed over, and by which of these sends."""
    sizes = sends.sizes
    send = np.repeat(np.arange(len(sends), dtype=np.int64), sizes)
    begins = sends.column("first_uid") - (np.cumsum(sizes) - sizes)
    return np.arange(len(send)) + begins[send], send


def _must(sends: Sends, send: Ints, seen: Bools, acked: Ints) -> Bools:
    commits = sends.says("kind", "transaction") & sends.says("ending", "commit")
    shown = np.zeros(len(sends), np.bool_)
    shown[send[seen]] = True
    promised = commits & (sends.says("outcome", "ok") | (sends.says("outcome", "info") & shown))
    return np.asarray(promised[send] | (sends.says("kind", "send")[send] & (acked >= 0)))


def refused(sends: Sends) -> Bools:
    """Per payload id (`uids_of`), whether its client knows for certain that it was not written. The
    client reports that for each record (`harness.workloads.incarnation`): it was never sent, or
    refused for a property of the record, so that every attempt had the same result. Failed, timed
    out or purged is none of that, for it may have been sent. An operation without a transaction
    that failed for certain refused all of its records."""
    failed = sends.says("kind", "send") & sends.says("outcome", "fail")
    return np.asarray(
        (sends.each("refused") | np.repeat(failed, sends.sizes)) & (sends.each("offsets") < 0)
    )


def never(sends: Sends) -> Bools:
    """Per operation, whether none of its records may ever be visible: it was aborted, or its commit
    refused for certain."""
    aborted = sends.says("ending", "abort") | (
        sends.says("ending", "commit") & sends.says("outcome", "fail")
    )
    return np.asarray(sends.says("kind", "transaction") & aborted)


def reads_of(
    view: PartitionView, generation: LogGeneration, isolation: str | None = None
) -> list[Read]:
    """Polls on a cluster in one generation that returned something, of one isolation level or of
    any, in time order."""
    chosen = (r for r in polls_in(view, generation) if isolation in (None, r.isolation))
    return sorted(chosen, key=lambda r: r.returned)


def committed_uids(view: PartitionView, generation: LogGeneration) -> Ints:
    """Every payload id that read_committed readers of a cluster got in one generation, once."""
    return distinct(together(r.uids for r in reads_of(view, generation, "read_committed")))


def planned(uids: Ints, sends: Sequence[Send]) -> Bools:
    """Per payload id, whether one of these sends covers it."""
    return planner(uids, sends) >= 0


def planner(uids: Ints, sends: Sequence[Send]) -> Ints:
    """Per payload id, which of these sends covers it, or -1; no two operations share one
    (`harness.model.payload`)."""
    mine = Sends.of(sends)
    found = np.full(len(uids), -1, np.int64)
    if not len(mine):
        return found
    first = mine.column("first_uid")
    order = np.argsort(first, kind="stable")
    first, end = first[order], (first + mine.sizes)[order]
    for some in chunks(uids):
        index = np.searchsorted(first, uids[some], side="right") - 1
        found[some] = np.where((index >= 0) & (uids[some] < end[index]), order[index], -1)
    return found
