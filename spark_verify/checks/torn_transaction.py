"""torn-transaction: a transaction is visible everywhere or nowhere (KIP-98, atomic writes to
several partitions).

On the accepting cluster: if one record of a transaction is committed, or a read_committed reader
got one, in any partition, then all of its records must be visible in all partitions. That is
Jepsen's rule: a commit of unknown outcome took place if any of its writes was read. Records that
still waited for their marker when their cluster was failed over are exempt.

On a mirror's destination, after a failover: the mirrored era has all or none of the records of a
transaction that is committed at the source. A planned failover drains first. A forced failover ends
each partition at another moment if the mirror copies partitions independently. Such a transaction
is counted as torn-by-failover, and allowed if the mirror documents it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    grouped,
)
from linkflap.spark_verify.checks.log_model.deleted_records import deleted
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    incomplete,
    log_of,
    not_captured,
)
from linkflap.spark_verify.checks.log_model.logs import (
    ABORTED,
    OPEN,
    Log,
    among,
    distinct,
    each_at,
    locate,
)
from linkflap.spark_verify.checks.log_model.lost_records import EVIDENCE, Taken
from linkflap.spark_verify.checks.log_model.mirrored_ranges import Hop, compared_hops
from linkflap.spark_verify.checks.log_model.outcomes import Outcomes, committed_uids, outcomes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, Origin, PartitionView

COUNTS: Final = ("visible", "aborted", "open", "absent")
LOST, OVERTAKEN = "lost", "overtaken"
"""Optional columns of partial findings: hidden records that a loss explains, and hidden records
that later ones overtook."""


def native_outcomes(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes
) -> Sequence[Finding]:
    """Outcomes of transactions on the cluster that acknowledged them. A torn log yields nothing:
    the caller reports it."""
    cluster, records = log.cluster, log.records
    rows = transactional(what)
    if not log.whole or not len(rows):
        return []
    at = locate(records.uid, what.uid)
    gone, doubtful = deleted(view, generation, log, what, at < 0)
    rows = rows[~what.refused[rows] & ~gone[rows] & ~doubtful[rows]]
    if not len(rows):
        return []
    at = at[rows]
    there = at >= 0
    state = each_at(log.record_state, at, -1)
    waiting = state == OPEN
    unproven = (waiting & (generation.lost is not None)) | (~there & bool(incomplete(view, log)))
    offset = np.where(there, each_at(records.offset, at, -1), what.acked[rows])
    taken, invoked = Taken(view, cluster), what.sends.column("invoked")[what.send[rows]]
    unaborted = there & ~waiting & (taken.unended(offset, what.uid[rows], commit=False) >= 0)
    shown = among(what.uid[rows], committed_uids(view, generation)) & ~unaborted
    became = np.select([(state == ABORTED) | unaborted, waiting, ~there], [1, 2, 3], 0)
    by = np.where(
        there,
        taken.unended(offset, what.uid[rows]),
        taken.sent(what.acked[rows], what.uid[rows], invoked),
    )
    kept = ~unproven
    return _counted_outcomes(
        cluster, "native", "", what, rows[kept], became[kept], offset[kept], shown[kept], by[kept],
        taken,
    )  # fmt: skip


def mirrored_outcomes(compared: Hop, what: Outcomes) -> Sequence[Finding]:
    """The mirrored records of transactions that are committed at the source, in an era that ended
    with a promotion.

    A transaction without its marker at the source counts as committed there if another partition
    has its COMMIT.
    """
    source, destination = compared.source, compared.destination
    mirrored_range = compared.mirrored_range
    promotion = mirrored_range.promotion
    theirs, ours = source.records, destination.records
    rows = transactional(what)
    if promotion is None or not (source.whole and destination.whole and len(theirs) and len(rows)):
        return []
    at = locate(theirs.uid, what.uid[rows])
    due = (
        (at >= 0)
        & (source.visible[at] | (source.record_state[at] == OPEN))
        & (theirs.offset[at] >= compared.since)
    )
    due &= ~among(what.uid[rows], theirs.uid[compared.sequence[compared.cleaned]])
    rows, at = rows[due], at[due]
    era = np.flatnonzero(
        destination.visible
        & (ours.offset >= mirrored_range.start)
        & (ours.offset < mirrored_range.end)
    )
    arrived = among(what.uid[rows], ours.uid[era])
    below = locate(ours.uid, what.uid[rows])
    offset = each_at(ours.offset, below, -1)
    overtaken = among(what.uid[rows], theirs.uid[compared.sequence[compared.holes]])
    hop = f"{promotion.link} {promotion.kind} {promotion.fault_time}"
    nobody = np.zeros(len(rows), np.bool_)
    return _counted_outcomes(
        promotion.cluster, "mirrored", hop, what, rows, np.where(arrived, 0, 3), offset, nobody,
        overtaken=overtaken & ~arrived,
    )  # fmt: skip


def transactional(what: Outcomes) -> Ints:
    return np.flatnonzero(what.sends.says("kind", "transaction")[what.send])


def _counted_outcomes(
    cluster: str,
    origin: Origin,
    hop: str,
    what: Outcomes,
    rows: Ints,
    became: Ints,
    offset: Ints,
    shown: Bools,
    by: Ints | None = None,
    taken: Taken | None = None,
    overtaken: Bools | None = None,
) -> Sequence[Finding]:
    """One partial finding: per transaction a row of `COUNTS`, and the offset and payload id of its
    first invisible record. A loss explains `taken` of the invisible ones (`by`); later records of
    the partition have `overtaken` some.
    """
    if not len(rows):
        return []
    numbers = what.sends.column("number")[what.send[rows]]
    operations = distinct(numbers)
    index = np.searchsorted(operations, numbers)
    table = np.zeros((len(COUNTS), len(operations)), np.int64)
    np.add.at(table, (became, index), 1)
    read = np.zeros(len(operations), np.int64)
    np.add.at(read, index, shown.astype(np.int64))
    gone = np.flatnonzero(became > 0)[::-1]
    first = np.full((2, len(operations)), -1, np.int64)
    first[:, index[gone]] = offset[gone], what.uid[rows[gone]]
    columns = dict(zip(COUNTS, table.tolist(), strict=True))
    data = {"hop": hop, "operation": operations.tolist(), "read": read.tolist()} | columns
    data |= {"offset": first[0].tolist(), "uid": first[1].tolist()}
    lost = None if by is None else (by >= 0) & (became > 0)
    for name, which in ((LOST, lost), (OVERTAKEN, overtaken)):
        if which is not None and which.any():
            data[name] = np.bincount(index[which], minlength=len(operations)).tolist()
    if taken and by is not None:
        data |= taken.evidence(int(by.max()))
    return [
        PartialFinding(cluster=cluster, offset=-1, data=data),
        Examined(cluster=cluster, origin=origin, count=len(operations)),
    ]


TORN, BY_FAILOVER = "torn-transaction", "torn-by-failover"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Counts the visible and invisible records of each transaction in this partition: one partial
    finding per cluster, with one column per count.
    """
    crossed = [c for c in compared_hops(view) if c.mirrored_range.promotion is not None]
    for generation in every(view):
        what = outcomes(view, generation, earlier=False)
        if not len(transactional(what)):
            continue
        log = log_of(view, generation)
        if log is not None:
            yield from native_outcomes(view, generation, log, what)
        else:
            yield not_captured(view, generation.cluster)
        for compared in crossed:
            if compared.mirrored_range.destination != generation.cluster:
                yield from mirrored_outcomes(compared, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """One partition's share of a transaction on one cluster. `offset` and `uid` are of its first
    record that is not visible; of those, `lost` were taken away by the fault `lost_by`, and
    `overtaken` did not arrive though later ones of the partition did."""

    topic: str
    partition: int
    counts: Mapping[str, int]
    read: int
    offset: int
    uid: int
    lost: int = 0
    overtaken: int = 0
    lost_by: str = ""

    @property
    def hidden(self) -> int:
        """How many of its records are not visible."""
        return sum(self.counts.values()) - self.counts["visible"]


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Transactions with both visible and invisible records, at the first partition with an
    invisible record."""
    by_hop = grouped(partials, lambda each: (each.cluster, each.data["hop"]))
    return [
        _torn(cluster, hop, operation, parts)
        for (cluster, hop), mine in sorted(by_hop.items(), key=lambda item: item[0])
        for operation, parts in sorted(_parts(mine).items())
    ]


def _parts(partials: Sequence[PartialFinding]) -> Mapping[int, Sequence[TransactionPart]]:
    """By operation, the part of each partition in a transaction that is visible only in part."""
    torn = _in_part(partials)
    parts: dict[int, list[TransactionPart]] = defaultdict(list)
    for partial in partials:
        columns = [
            np.array(_column(partial, name), np.int64)
            for name in ("operation", "read", "offset", "uid", LOST, OVERTAKEN, *COUNTS)
        ]
        chosen = among(columns[0], torn)
        for operation, read, offset, uid, lost, overtaken, *counts in zip(
            *(column[chosen].tolist() for column in columns), strict=True
        ):
            named = dict(zip(COUNTS, counts, strict=True))
            part = TransactionPart(
                topic=partial.topic,
                partition=partial.partition,
                counts=named,
                read=read,
                offset=offset,
                uid=uid,
                lost=lost,
                overtaken=overtaken,
                lost_by=str(partial.data.get(EVIDENCE, "")),
            )
            parts[operation].append(part)
    return parts


def _in_part(partials: Sequence[PartialFinding]) -> Ints:
    """Operations with a record that is or was visible somewhere, and a record that is not."""
    operation, read, visible, *hidden = (
        np.array([value for partial in partials for value in _column(partial, name)], np.int64)
        for name in ("operation", "read", *COUNTS)
    )
    shown = distinct(operation[visible + read > 0])
    return shown[among(shown, operation[np.sum(hidden, axis=0) > 0])]


def _column(partial: PartialFinding, name: str) -> list[int]:
    none = [0] * len(partial.data["operation"])
    values: list[int] = partial.data.get(name, none)
    return values


def _torn(cluster: str, hop: str, operation: int, parts: Sequence[TransactionPart]) -> Combined:
    # Where it is whole in some partitions, one that has nothing of it says more than one that has a
    # part.
    hidden = [p for p in parts if p.hidden]
    worst = min(
        hidden,
        key=lambda p: (p.counts["visible"] > 0, p.topic, p.partition),
    )
    link, failover, _ = [*hop.split(" "), "", ""][:3]
    evidence: dict[str, object] = {
        "operation": operation,
        "records": sum(p.hidden for p in parts),
        "of": sum(sum(p.counts.values()) for p in parts),
        "uid": worst.uid,
        "partitions": [
            {"topic": p.topic, "partition": p.partition} | dict(p.counts) for p in parts
        ],
    }
    if not hop and all(p.lost == p.hidden for p in hidden):
        evidence[EVIDENCE] = worst.lost_by
    if hop:
        evidence |= {"link": link, "failover": failover}
        overtaken = sum(p.overtaken for p in parts)
        evidence |= {OVERTAKEN: overtaken} if overtaken else {}
    found = Found.at(
        BY_FAILOVER if failover == "forced" else TORN, cluster, worst.offset, **evidence
    )
    return Combined(found=found, topic=worst.topic, partition=worst.partition)


CHECK = Check(
    name="torn-transaction",
    guarantee="""If any record of a transaction is visible, all of them are, in every partition that
        it wrote to.""",
    source="""KIP-98 (atomic writes); Jepsen kafka workload (a commit of unknown outcome took place
        when any of it was read)""",
    wire="""A transaction is the batches from its first Produce to its EndTxn. Batches without an
        acknowledgement belong to it only if a log has them, because a client may commit without
        them.""",
    inputs={"batches", "records", "sends", "reads", "promotions"},
    anomalies=(
        AnomalyKind(
            name=TORN,
            meaning="""Some of a transaction's records are visible on a cluster and others are not;
                the offset is that of the first invisible one, or -1 if the log lacks it. On a
                mirror's destination: after a planned failover.""",
            sentence="""{operation} is visible on {cluster} only in part: {records} of its {of}
                records are hidden or missing, the first at {at}""",
            counted="transaction is torn|transactions are torn",
            one_per=("operation",),
            failover_cost="torn",
            smallest="""a transaction wrote 1 to A.t-0, which has COMMIT, and 2 to A.t-1, which has
                ABORT: at the offset of 2.""",
        ),
        AnomalyKind(
            name=BY_FAILOVER,
            meaning="""After a forced failover the mirrored era has some of a transaction's records
                and not the others.""",
            sentence="""{operation} is visible on {cluster} only in part after the failover:
                {records} of its {of} records are hidden or missing, the first at {at}""",
            counted="transaction is torn|transactions are torn",
            one_per=("operation",),
            failover_cost="torn",
            smallest="""A has a committed 1 and 2, in a partition each; B has 1 and was promoted: at
                offset -1 of the other one.""",
        ),
    ),
    complete={"promotions", "sends"},
    follows={"lost-write", "commit-aborted", "marker-pairing", "order-equality"},
    kernel=kernel,
    combine=combine,
    unit="transactions",
    only_of="transactions",
    due={"native"},
)
