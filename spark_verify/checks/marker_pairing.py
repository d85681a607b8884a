"""marker-pairing: every transaction in a partition ends in one marker of its epoch or a later one
(KIP-98, KIP-890, KIP-1228).

With transactions v1 the marker has the data's epoch, or a higher one if a timeout or a successor
ended it. With v2 the coordinator raises the epoch at every end, so the marker's is one higher. Both
are accepted. After a marker no data of a lower epoch may follow: its producer was fenced by then.
One transaction has one epoch and is one operation of one client, so data of another epoch or of
another operation without a marker in between means that a marker is missing. Where a mirror writes
with its own producer ids, its transactions contain many operations, so only epochs count there.
Markers without data are normal: a partition is added to a transaction before its first record is
sent.

When a mirror ends, its reset of the producer state (KIP-1279) leaves open transactions open
forever. And a transaction that is committed on one cluster is committed on all that have it. In
copied logs without such a reset it is unknown whether the marker of a transaction that was open at
a promotion is still to come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.parts.fenced_epochs import fenced_data
from linkflap.spark_verify.checks.parts.generations import examined, judged
from linkflap.spark_verify.checks.parts.logs import NOWHERE, Log, followed
from linkflap.spark_verify.checks.parts.transaction_ends import (
    LEFT_OPEN,
    SPLIT,
    STUCK,
    last_stable_too_low,
    left_open,
    splits,
)
from linkflap.spark_verify.checks.parts.transaction_headers import (
    COORDINATOR,
    IMPOSSIBLE,
    NOT_TRANSACTIONAL,
    coordinators,
    impossible,
    not_transactional,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Pairs transactions and markers of every cluster's log."""

    def judge(generation: LogGeneration, log: Log) -> Sequence[Finding]:
        return [
            *examined(generation, log.transactions.first),
            *_epochs(log),
            *_overrun(view, generation, log),
            *fenced_data(generation, log),
            *left_open(view, generation, log),
            *(last_stable_too_low(log) if generation.last else ()),
            *not_transactional(generation, log),
            *coordinators(view, generation, log),
            *impossible(log),
        ]

    return [*judged(view, judge), *splits(view)]


def _epochs(log: Log) -> Sequence[Finding]:
    every, found = log.transactions, []
    closed = every.marker != NOWHERE
    older = np.flatnonzero(closed & (every.marker_epoch < every.highest_epoch))
    for i in older.tolist():
        evidence: dict[str, object] = {
            "producer_id": int(every.producer_id[i]),
            "marker_epoch": int(every.marker_epoch[i]),
            "data_epoch": int(every.highest_epoch[i]),
            "first_offset": int(every.first[i]),
        }
        found.append(
            Found(
                kind="marker-epoch",
                cluster=log.replica.cluster,
                offset=int(every.marker[i]),
                evidence=evidence,
            )
        )
    for i in np.flatnonzero(every.lowest_epoch != every.highest_epoch).tolist():
        evidence = {
            "producer_id": int(every.producer_id[i]),
            "epochs": [int(every.lowest_epoch[i]), int(every.highest_epoch[i])],
            "last_offset": int(every.last[i]),
        }
        found.append(
            Found(
                kind="marker-missing",
                cluster=log.replica.cluster,
                offset=int(every.first[i]),
                evidence=evidence,
            )
        )
    return found


def _overrun(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Operations whose producer id went on to the next one, in the same epoch, without a marker in
    between."""
    cluster, records, batches = log.replica.cluster, log.replica.records, log.replica.batches
    following = followed(log)
    rows = np.flatnonzero(following >= 0)
    own = np.zeros(len(rows), np.bool_)
    for era in generation.eras:
        if era.origin == "native" or view.mirror.guarantee.offsets_kept:
            own |= (records.offset[rows] >= era.start) & (records.offset[following[rows]] < era.end)
    # `_epochs` reports a new epoch.
    epochs = batches.producer_epoch[records.batch]
    rows = rows[own & (epochs[rows] == epochs[following[rows]])]
    nexts, firsts, counts = np.unique(following[rows], return_index=True, return_counts=True)
    found = []
    for after, first, count in zip(
        nexts.tolist(), rows[firsts].tolist(), counts.tolist(), strict=True
    ):
        evidence: dict[str, object] = {
            "producer_id": int(batches.producer_id[records.batch[first]]),
            "records": count,
            "operations": [int(records.operation[first]), int(records.operation[after])],
            "next_offset": int(records.offset[after]),
        }
        found.append(
            Found(
                kind="marker-missing",
                cluster=cluster,
                offset=int(records.offset[first]),
                evidence=evidence,
            )
        )
    return found


CHECK = Check(
    name="marker-pairing",
    guarantee=(
        "Every transaction ends in one marker of its epoch or a later one, with the same "
        "outcome on every cluster, and nothing of a lower epoch follows a marker."
    ),
    source="KIP-98; KIP-890 (transactions v2); KIP-1228; KIP-1279 (open transactions at a stop)",
    inputs=frozenset({"batches", "records", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="marker-epoch",
            meaning="A marker has a lower epoch than the data it ends; the offset is the marker's.",
            sentence=(
                "the marker at {at} on {cluster} has producer epoch {marker_epoch}, its data of "
                "producer id {producer_id} {data_epoch}"
            ),
            alone="data of the epochs in between can be written behind the marker",
            smallest=(
                "producer 7 wrote 1 in epoch 2, its COMMIT has epoch 1: at the offset of COMMIT."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name="marker-missing",
            meaning=(
                "A producer id wrote in a new epoch, or for its next operation, although its "
                "transaction has no marker; the offset is that of the transaction's first data."
            ),
            sentence=(
                "{cluster} has no marker between two transactions of producer id {producer_id} at "
                "{at}"
            ),
            counted="transaction has no marker|transactions have no marker",
            alone="the next marker decides about two transactions",
            smallest=(
                "producer 7 wrote 1 in one transaction and 2 in the next, without a marker in "
                "between: at the offset of 1."
            ),
        ),
        AnomalyKind(
            name="stale-data",
            meaning="Data follows a marker of a higher epoch: a fenced producer wrote.",
            sentence=(
                "a fenced producer (id {producer_id}, epoch {producer_epoch}) wrote to {cluster} at"
                " {at}"
            ),
            alone="two incarnations of one producer write side by side",
            smallest=(
                "producer 7's COMMIT has epoch 1, then it wrote 2 in epoch 0: at the offset of 2."
            ),
            despite_torn=True,
        ),
        AnomalyKind(
            name=LEFT_OPEN,
            meaning=(
                "A transaction without a marker is followed by a reset of the producer state. "
                "Nothing can end it, and read_committed readers get no further. The offset is "
                "that of the transaction's first data."
            ),
            sentence="{cluster} left a transaction of producer id {producer_id} open at {at}",
            counted="transaction was left open|transactions were left open",
            smallest=(
                "producer 7 wrote 1 on A; B has 1 and a reset, and no marker: at the offset of 1 "
                "on B."
            ),
        ),
        AnomalyKind(
            name=STUCK,
            meaning=(
                "The leader of a running cluster answers a last stable offset below the one "
                "that its log gives for an earlier high watermark: the markers in the log do "
                "not move it on. The offset is that answer."
            ),
            sentence=(
                "the last stable offset of {tp} on {cluster} is stuck at {last_stable}, although "
                "all transactions have ended"
            ),
            alone="readers of committed records get no further",
            smallest=(
                "A has 1 and COMMIT, its high watermark is 2, and its last stable offset 0: at "
                "offset 0."
            ),
        ),
        AnomalyKind(
            name=SPLIT,
            meaning=(
                "A transaction has one outcome on the source and another on the mirror's "
                "destination; the offset is that of the marker on the destination. After a "
                "forced failover of a recorded run a mirror's guarantee may allow an abort of "
                "data whose marker had not arrived."
            ),
            sentence=(
                "a transaction of producer id {producer_id} ends as {outcomes} on {source} and "
                "{cluster}, at {at}"
            ),
            counted="transaction ended in two ways|transactions ended in two ways",
            smallest=(
                "producer 7 wrote 1 on A, which has COMMIT for it; B has 1 and ABORT: at the offset"
                " of ABORT on B."
            ),
        ),
        AnomalyKind(
            name=NOT_TRANSACTIONAL,
            meaning=(
                "A batch of a transactional producer is not transactional: every reader gets "
                "it, whatever its marker is. For an id without a marker, the offset is that "
                "of a batch of the rarer kind, transactional or not."
            ),
            sentence=(
                "{cluster} has data of a transaction of producer id {producer_id} at {at} that is "
                "not marked as transactional"
            ),
            alone="readers of committed records get it even if it is aborted",
            smallest="producer 7 wrote 1, not transactional, and has COMMIT: at the offset of 1.",
        ),
        AnomalyKind(
            name=IMPOSSIBLE,
            meaning=(
                "A batch is transactional without a producer id; has an id without an epoch; or is "
                "a marker without an id or the transactional bit. Without an id, epoch and "
                "sequence mean nothing: several clients write 0 there."
            ),
            sentence=(
                "{cluster} has a batch at {at} that names its producer only in part: producer id "
                "{producer_id}, epoch {producer_epoch}, transactional {transactional}"
            ),
            alone="what brokers and readers do with it nobody can say",
            smallest="A has 1, transactional and without a producer id: at its offset.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=COORDINATOR,
            meaning=(
                "A marker is of an older transaction coordinator than an earlier marker of the same"
                " producer id."
            ),
            sentence=(
                "{cluster} has a marker of a fenced coordinator (epoch {coordinator_epoch}) at {at}"
            ),
            alone="a coordinator that was replaced can end transactions",
            smallest=(
                "producer 7's first COMMIT has coordinator epoch 4, its second one 3: at the second"
                " one."
            ),
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    follows=frozenset(
        {"producer-id-uniqueness", "sequence-continuity", "order-equality", "internal-topics"}
    ),
    kernel=kernel,
    from_bytes=True,
    unit="transactions",
    only_of="transactions",
    due=frozenset({"native"}),
    only_our_records=True,
    of_one_cluster=True,
)
