"""send-order: the records that one producer incarnation sent to a partition are in every log in
that order (Jepsen, nonmonotonic sends).

A payload id numbers the records of an incarnation (`harness.model.payload`). So along a log those
of one incarnation only rise, inside an operation and from one operation to the next (KIP-98). Other
clients' records in between do not matter. In mirrored eras the check judges what a read_committed
reader gets, and of every payload its first copy: at-least-once permits repeats, and no mirror
permits another order. duplicate reports repeats. Where a cleaner may have taken the first copy of a
record that a mirror wrote again, the order is unknown.

On the wire, a client with several requests in flight may ask for them again in another order, or
lose the first one before it is recorded. There a record is out of order only if its operation had
returned before the other was asked for. sequence-continuity compares the order of the sequences of
idempotent clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.cleaning import by_content, perhaps_again, written_again
from linkflap.spark_verify.checks.log_model.generations import apart, examined, judged, native
from linkflap.spark_verify.checks.log_model.logs import Log, among, copies, each_at, locate, runs
from linkflap.spark_verify.checks.log_model.mirrored_ranges import compared_hops
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

BETWEEN, INSIDE = "send-inversion", "internal-inversion"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every producer incarnation through every log."""
    return list(judged(view, _judge))


def _judge(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    records = log.records
    rows = np.flatnonzero((records.uid >= 0) & (native(generation, records.offset) | log.visible))
    rows = rows[copies(records.uid[rows])[1] == 0]
    in_order = rows[:0]
    if by_content(view):
        copied = ~native(generation, records.offset[rows])
        if _copied_in_order(view, generation):
            rows, in_order = rows[~copied], rows[copied]
        else:
            rows = rows[~(copied & among(records.digest[rows], _repeated_contents(log)))]
    if log.replica.log_start > 0 and not view.guarantee.offsets_kept:
        rows = rows[~_repeated(records.uid[rows]) | native(generation, records.offset[rows])]
    seen = records.offset[np.append(rows, in_order)]
    return [*examined(generation, seen), *_late(view, generation, log, rows)]


def _copied_in_order(view: PartitionView, generation: LogGeneration) -> bool:
    """Whether the contents of the copies show that the mirror copied the source's log in order.
    That log is followed too; which of several with the same contents came need not be known."""
    return any(
        way.explained and way.mirrored_range.destination == generation.cluster
        for way in compared_hops(view)
    )


def _repeated_contents(log: Log) -> Ints:
    """Contents that several records of a log have."""
    contents = log.records.digest
    return contents[copies(contents)[1] > 0]


def _repeated(uids: Ints) -> Bools:
    """Whether each payload is below the first one of its incarnation, in a log that lost its
    beginning: its first copy may have been there."""
    incarnation = uids >> PROCESS_SHIFT
    return np.asarray(uids < uids[copies(incarnation)[0]])


def _late(
    view: PartitionView, generation: LogGeneration, log: Log, rows: Ints
) -> Iterator[Finding]:
    """Records behind one that was sent after them; neighbours are one anomaly."""
    records, cluster = log.records, log.cluster
    rows = rows[np.argsort(records.uid[rows] >> PROCESS_SHIFT, kind="stable")]
    # The number of the incarnation leads the id: one running maximum serves them all.
    index = np.arange(len(rows))
    reached = np.maximum.accumulate(records.uid[rows]) if len(rows) else rows
    holder = (
        np.maximum.accumulate(np.where(records.uid[rows] == reached, index, 0))
        if len(rows)
        else index
    )
    late = np.flatnonzero(records.uid[rows] < reached)
    late = late[_asked_for_later(view, records.operation, rows[late], rows[holder[late]])]
    doubted = ~native(generation, records.offset[rows[late]]) & written_again(
        view, log.replica, rows[late], rows[holder[late]]
    )
    if doubted.any():
        yield Unjudged(perhaps_again(int(doubted.sum()), cluster))
    late = late[~doubted]
    along = np.arange(len(late))
    same = records.operation[rows[late]] == records.operation[rows[holder[late]]]
    split = apart(generation, records.offset[rows[late]])
    for start, end in runs(
        rows[late], records.uid[rows[late]], holder[late] + along, same + along, split
    ):
        row, after = int(rows[late[start]]), int(rows[holder[late[start]]])
        evidence = {
            "records": end - start,
            "uid": int(records.uid[row]),
            "operation": int(records.operation[row]),
            "after_uid": int(records.uid[after]),
            "after_operation": int(records.operation[after]),
            "after_offset": int(records.offset[after]),
        }
        kind = INSIDE if same[start] else BETWEEN
        yield Found.at(kind, cluster, records.offset[row], **evidence)


def _asked_for_later(view: PartitionView, operation: Ints, rows: Ints, before: Ints) -> Bools:
    """Per record, whether the one before it in the log was certainly sent after it."""
    if view.topic not in view.partition_facts.facts.wired:
        return np.ones(len(rows), np.bool_)
    sends = Sends.of(view.sends)
    number = sends.column("number")
    returned = each_at(sends.column("returned"), locate(number, operation[rows]), -1)
    invoked = each_at(sends.column("invoked"), locate(number, operation[before]), -1)
    return np.asarray((returned >= 0) & (returned < invoked))


CHECK = Check(
    name="send-order",
    guarantee="""Every cluster has the records that one producer sent to a partition in the order in
        which it sent them.""",
    source="""KIP-98 (idempotent producers keep the order of a partition); Jepsen kafka workload,
        nonmonotonic-send and int-send""",
    wire="""A record is out of order only if its operation had returned before the other was asked
        for: a client may send again what was in flight, in another order. sequence-continuity finds
        the rest of idempotent clients.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name=BETWEEN,
            meaning="""A record is behind one that the same producer incarnation sent in a later
                operation.""",
            sentence="{cluster} has {who} at {at} behind {after_uid}, which was sent later",
            counted="record is out of order|records are out of order",
            smallest="a producer sent 1, then 2, A has 2 1: at the offset of 1.",
        ),
        AnomalyKind(
            name=INSIDE,
            meaning="A record is behind one that was sent after it in the same operation.",
            sentence="""{cluster} has {who} at {at} behind {after_uid}, which was sent after it in
                the same operation""",
            counted="record is out of order|records are out of order",
            smallest="a producer sent 1 2 in one transaction, A has 2 1: at the offset of 1.",
        ),
    ),
    follows={"sequence-continuity", "order-equality", "ghost-ack"},
    kernel=kernel,
)
