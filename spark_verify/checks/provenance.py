"""provenance: a client planned every record that clients can have written, on that cluster, for
that partition.

An operation's row is written before its first record is sent (`harness.model.history.Operation`,
phase invoke). So no client ever sent a payload id that no row covers: the broker has a record that
nobody sent, or the history is not that of this log. The same goes for a record without a payload
id: only the run's clients write to its topics. A record that a client knows to be refused
(`log_model.outcomes.refused`) was planned and never written. It is an anomaly in
any log, whether its transaction was committed or aborted, and whether or not it was read. A
partition without any row of operations has no history to compare with. A user's program writes no
history, so its records are not examined here. order-equality compares mirrored records with their
source.

linkflap's own clients derive key and value from the run's seed and the payload id
(`harness.model.payload`), so what a record must contain is known without a copy of it, and a record
that was changed alike in every log is found. Programs of users write what they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.log.records import contents_written
from linkflap.harness.model.payload import FOREIGN, Values
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.generations import (
    apart,
    examined,
    judged,
    native,
    sends_to,
)
from linkflap.spark_verify.checks.log_model.logs import Log, among, runs
from linkflap.spark_verify.checks.log_model.outcomes import planned, planner, refused, uids_of
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import Ints, PartitionView

NAMELESS: Final = 2**62
"""An offset that puts the numbers of records without a payload id below all payload ids."""

_AT_ONCE: Final = 64 << 20
"""Bytes of values that are compared at once."""
_MOST_DIFFERING: Final = 512 << 20
"""Bytes of values that differ, in one log."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks up the payload id of every record of every native era among what clients were about to
    send there."""
    facts = view.partition_facts.facts
    return [] if view.topic in facts.programs - facts.wired else list(judged(view, _judge))


def _judge(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    cluster, records = log.cluster, log.records
    rows = np.flatnonzero(native(generation, records.offset))
    if not len(rows):
        return
    yield from examined(generation, records.offset[rows])
    uids = records.uid[rows]
    if view.topic in view.partition_facts.facts.wired and (uids == FOREIGN).any():
        yield Unjudged(_unseen(log, rows[uids == FOREIGN]))
        rows, uids = rows[uids != FOREIGN], uids[uids != FOREIGN]
    strange = rows[(uids == FOREIGN) | ~planned(uids, sends_to(view, cluster))]
    if len(strange) and not view.sends:
        yield Unjudged(f"nothing is written down of what clients sent to {view.tp}")
        return
    yield from _refused(view, generation, log, rows)
    yield from _otherwise(view, generation, log, rows)
    ours = records.uid[strange] != FOREIGN
    # Neighbours that say nothing of themselves belong together too, and to nobody who does.
    uid_or_row = np.where(ours, records.uid[strange], strange - NAMELESS)
    together = list(runs(strange, uid_or_row, apart(generation, records.offset[strange])))
    heads = records.uid[strange[[start for start, _ in together]]]
    every = Sends.of(view.sends)
    elsewhere = {
        name: planned(heads, every.take(every.says("cluster", name)))
        for name in sorted(every.words("cluster"))
    }
    for number, (start, end) in enumerate(together):
        first = strange[start]
        yield Found.at(
            "stranger",
            cluster,
            records.offset[first],
            records=end - start,
            uid=records.uid[first],
            operation=records.operation[first],
            planned_on=[name for name, there in elsewhere.items() if there[number]],
        )


def _unseen(log: Log, rows: Ints) -> str:
    """Records that a program wrote by a path that was not recorded, or in a request that could not
    be read, or in one of several equal batches without an identity."""
    return (
        f"{len(rows)} records on {log.cluster}, from offset {int(log.records.offset[rows[0]])} on, "
        "were not seen on the wire, or in several equal batches that nobody acknowledged"
    )


def _refused(
    view: PartitionView, generation: LogGeneration, log: Log, rows: Ints
) -> Iterator[Found]:
    """Records in a log that its clients know to have been refused."""
    mine, records = sends_to(view, generation.cluster), log.records
    certain = refused(mine)
    if not certain.any():
        return
    bad = rows[among(records.uid[rows], uids_of(mine)[0][certain])]
    yield from _found("refused-write", generation, log, bad, mine)


def _otherwise(
    view: PartitionView, generation: LogGeneration, log: Log, rows: Ints
) -> Iterator[Found]:
    """Records with another key or value than their clients wrote."""
    written = view.partition_facts.facts.values
    mine, records = sends_to(view, generation.cluster), log.records
    send = planner(records.uid[rows], mine)
    rows, send = rows[send >= 0], send[send >= 0]
    for values in set(written.values()):
        theirs = mine.says("client", *(name for name, each in written.items() if each == values))
        bad = _differing(values, log, rows[theirs[send]])
        yield from _found("other-content", generation, log, bad, mine)


def _differing(values: Values, log: Log, rows: Ints) -> Ints:
    """The records, of those given, whose key or value is not what was written. Values that are in
    the log cost no more than it does to read. Of others, run.json can ask for any number of bytes:
    once so many differ, the rest is not compared."""
    records, step = log.records, max(1, _AT_ONCE // values.size)
    found, cost = [rows[:0]], 0
    for at in range(0, len(rows), step):
        some = rows[at : at + step]
        bad = some[records.content[some] != contents_written(values, records.uid[some])]
        found.append(bad)
        cost += len(bad) * values.size
        if cost > _MOST_DIFFERING:
            break
    return np.concatenate(found)


def _found(
    kind: str, generation: LogGeneration, log: Log, bad: Ints, mine: Sends
) -> Iterator[Found]:
    """Records that clients sent here, those that belong together at the first of them."""
    records = log.records
    for start, end in runs(bad, records.uid[bad], apart(generation, records.offset[bad])):
        first = int(bad[start])
        sent = mine[int(planner(records.uid[first : first + 1], mine)[0])]
        yield Found.at(
            kind,
            generation.cluster,
            records.offset[first],
            records=end - start,
            uid=records.uid[first],
            operation=sent.number,
            client=sent.client,
            state=log.state_of(first),
        )


CHECK = Check(
    name="provenance",
    guarantee="""A client sent every record of a cluster's own era to that cluster and that
        partition, with that key and value, and it was not refused.""",
    source="linkflap's own history: an operation is recorded before it is sent",
    wire="""A record that was not seen on the wire makes the check unknown, and is no stranger.
        Refused for certain is what a broker refused at its only attempt for the record itself (too
        large, invalid). What a record must contain is not known: a change alike in all logs is not
        found.""",
    inputs={"records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="stranger",
            meaning="""No client planned to send this record there: its payload id belongs to no
                such operation, or it has none.""",
            sentence="{cluster} has {who} at {at} in its own era, which no client sent there",
            counted="record was sent there by nobody|records were sent there by nobody",
            smallest="clients sent 1 to A, A has 1 9: at the offset of 9 on A.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="refused-write",
            meaning="""The client of this record knows that it cannot have been written: it was
                refused for its size or form, or never sent. The outcome of its transaction, and
                whether it was read, do not matter. A record that timed out, was purged in flight or
                was fenced may have been written, and is no anomaly.""",
            sentence="{cluster} has {who} at {at}, which its client knows to be refused",
            counted="refused record is in the log|refused records are in the log",
            smallest="1 was refused as too large, A has 1: at its offset on A.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="other-content",
            meaning="""The key or the value of this record is not what its client sent. It may be
                the same in all replicas and on all clusters, with a right CRC-32C: a broker or a
                client library changed it before it was copied. Only the records of linkflap's own
                workloads are compared, whose contents the seed of the run gives.""",
            sentence="{cluster} has {who} at {at} with another key or value than its client sent",
            counted="record has another content than was sent|records have another content than "
            "was sent",
            smallest="1 was sent with value a, A has it with value b: at its offset on A.",
            despite_torn=True,
        ),
    ),
    complete={"sends", "promotions"},
    follows={"standby-isolation", "truncation-accounting"},
    kernel=kernel,
    due={"native"},
)
