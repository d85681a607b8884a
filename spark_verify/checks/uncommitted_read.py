"""uncommitted-read: a read_committed reader gets no record before it is committed (Jepsen's Kafka
workload, precommitted-read).

There are two witnesses of time, both by the harness's one clock. The producer: a record that was
returned before its commit was requested was read too early on every cluster, also by the
transaction itself that sent it. The broker: a sample that began after the record was returned,
under the same leader in the same epoch as the sample before it, still had the last stable offset at
or below the record. A mirror that ends may truncate its destination's log, and the LSO goes back
with it: samples that may be from after that are no witness. Nor is a sample below an earlier report
of the same leader: last-stable-offset reports that the LSO went back, and everything below the
earlier one had been committed. aborted-read reports records that were aborted in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding
from linkflap.spark_verify.checks.log_model.delivered_records import (
    Delivered,
    aborted_there,
    by_client,
    delivered,
    found,
    of_transactions,
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    log_of,
    marks_in,
    maybe_truncated,
    own,
)
from linkflap.spark_verify.checks.log_model.logs import changes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

KIND = "uncommitted-read"
NEVER: Final = np.iinfo(np.int64).max


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Asks both witnesses about every record that a read_committed reader got."""
    for generation in every(view):
        got = delivered(view, generation)
        if len(got):
            yield from examined(generation, got.offset, whole=True)
            yield from own(view, generation, _judge(view, generation, got), of_readers=True)


def _judge(view: PartitionView, generation: LogGeneration, got: Delivered) -> Sequence[Finding]:
    aborted = aborted_there(log_of(view, generation), got) | by_client(view, got)
    unasked = got.returned < of_transactions(view, got, _asked)
    early = (unasked | _beyond_lso(view, generation, got)) & ~aborted
    return found(
        generation.cluster,
        got,
        early,
        KIND,
        lambda row: "producer" if unasked[row] else "last stable offset",
    )


def _asked(sends: Sends) -> Ints:
    """The earliest time at which the commit can have been requested; NEVER if it never was.

    An operation that never returned may have requested its commit at any time since it was invoked.
    """
    invoked, ended_at = sends.column("invoked"), sends.column("ended_at")
    cases = [
        ~sends.says("ending", "commit"),
        sends.column("returned") < 0,
        ended_at > 0,
        sends.says("outcome", "ok"),
    ]
    return np.select(cases, [np.full(len(sends), NEVER), invoked, ended_at, invoked], NEVER)


def _beyond_lso(view: PartitionView, generation: LogGeneration, got: Delivered) -> Bools:
    """Per record: a sample begun after it was returned still had the LSO at or below it, under the
    same leader and epoch."""
    marks = marks_in(view, generation)
    late = np.zeros(len(got), np.bool_)
    if marks is None or not len(marks.time):
        return late
    known = (marks.last_stable >= 0) & (marks.leader_epoch >= 0)
    time, lso = marks.time[known], marks.last_stable[known]
    truncated = maybe_truncated(view, generation, marks)[known]
    leader, epoch = marks.leader[known], marks.leader_epoch[known]
    if len(time) < 2:
        return late
    after = np.searchsorted(time, got.returned, side="left")
    usable = (after > 0) & (after < len(time))
    following = np.where(usable, after, 1)
    before = following - 1
    same = (leader[following] == leader[before]) & (epoch[following] == epoch[before])
    back = _went_back(lso, changes(leader, epoch)[1:])
    return np.asarray(
        usable & same & ~truncated[following] & ~back[following] & (lso[following] <= got.offset)
    )


def _went_back(lso: Ints, changed: Bools) -> Bools:
    """Per sample, whether it is below an earlier one of the same leader in the same epoch."""
    terms = np.split(lso, np.flatnonzero(changed) + 1)
    return np.concatenate([term < np.maximum.accumulate(term) for term in terms])


CHECK = Check(
    name="uncommitted-read",
    guarantee="""A read_committed reader gets no record before its commit is requested, nor at or
        above the last stable offset.""",
    source="KIP-98, isolation.level; Jepsen kafka workload, precommitted-read",
    wire="""The answer to the Fetch and the request to commit have the times at which they passed
        the recorder.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""A read_committed reader got a record before its commit was requested, or at
                or above the last stable offset.""",
            sentence="""{reader} read {who} on {cluster} at {at} before the commit of the
                transaction""",
            counted="record was read before its commit|records were read before their commit",
            smallest="""a read_committed reader got 1 at time 5, its commit was asked for at time 6:
                at its offset.""",
            despite_torn=True,
        ),
    ),
    follows={"order-equality", "marker-pairing", "last-stable-offset"},
    kernel=kernel,
    judges_readers=True,
    only_read_committed=True,
)
