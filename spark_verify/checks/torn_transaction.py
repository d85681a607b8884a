"""torn-transaction: a transaction is visible everywhere or nowhere (KIP-98, atomic writes to
several partitions).

On the cluster that accepted it: as soon as one of its records is committed, or a read_committed
reader got one, in any partition, all of its records must be visible in all partitions. That is
Jepsen's rule: a commit of unknown outcome took place if any of its writes was read. Records that
still waited for their marker when their cluster was failed over are exempt.

Over a mirror, after a failover: a mirrored era that ends with the failover has all or nothing of a
transaction that is committed at the source. A planned failover drains first. A forced one over a
mirror that copies each partition independently ends every partition at another moment: that is
counted as torn-by-failover, and allowed where the mirror documents it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts.generations import every, log_of
from linkflap.spark_verify.checks.parts.logs import among, distinct
from linkflap.spark_verify.checks.parts.lost_records import EVIDENCE
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop, hops
from linkflap.spark_verify.checks.parts.outcomes import outcomes
from linkflap.spark_verify.checks.parts.transaction_records import (
    COUNTS,
    LOST,
    OVERTAKEN,
    mirrored_outcomes,
    native_outcomes,
    transactional,
)
from linkflap.spark_verify.facts.view import Ints, PartitionView

TORN, BY_FAILOVER = "torn-transaction", "torn-by-failover"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Counts, per transaction of this partition, what became of its records: one partial finding
    per cluster, with one column per count.
    """
    findings: list[Finding] = []
    crossed = [
        c for c in hops(view) if isinstance(c, Hop) and c.mirrored_range.promotion is not None
    ]
    for generation in every(view):
        what = outcomes(view, generation, earlier=False)
        if not len(transactional(what)):
            continue
        log = log_of(view, generation)
        if log is not None:
            findings += native_outcomes(view, generation, log, what)
        else:
            findings.append(
                Unjudged(
                    reason=(
                        f"no log of {generation.cluster} was captured for "
                        f"{view.topic}-{view.partition}"
                    )
                )
            )
        for compared in crossed:
            if compared.mirrored_range.destination != generation.cluster:
                findings += mirrored_outcomes(compared, what)
    return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
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
    """Transactions of which something is visible, and not everything: at the first partition that
    lacks something."""
    by_hop: dict[tuple[str, str], list[PartialFinding]] = defaultdict(list)
    for partial in partials:
        by_hop[partial.cluster, str(partial.data["hop"])].append(partial)
    return [
        _torn(cluster, hop, operation, parts)
        for (cluster, hop), mine in sorted(by_hop.items(), key=lambda item: item[0])
        for operation, parts in sorted(_parts(mine).items())
    ]


def _parts(partials: Sequence[PartialFinding]) -> Mapping[int, Sequence[Part]]:
    """What each partition has of the transactions that are visible in part, by operation."""
    torn = _in_part(partials)
    parts: dict[int, list[Part]] = defaultdict(list)
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
            part = Part(
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
    """Operations of which anything is, or was, to be seen somewhere, and something is not
    visible."""
    operation, read, visible, *hidden = (
        np.array([value for partial in partials for value in _column(partial, name)], np.int64)
        for name in ("operation", "read", *COUNTS)
    )
    shown = distinct(operation[visible + read > 0])
    return shown[among(shown, operation[np.sum(hidden, axis=0) > 0])]


def _column(partial: PartialFinding, name: str) -> list[int]:
    values = partial.data.get(name)
    none = [0] * len(_column(partial, "operation")) if name in (LOST, OVERTAKEN) else []
    return values if isinstance(values, list) else none


def _torn(cluster: str, hop: str, operation: int, parts: Sequence[Part]) -> Combined:
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
    found = Found(
        kind=BY_FAILOVER if failover == "forced" else TORN,
        cluster=cluster,
        offset=worst.offset,
        evidence=evidence,
    )
    return Combined(found=found, topic=worst.topic, partition=worst.partition)


CHECK = Check(
    name="torn-transaction",
    guarantee=(
        "If any record of a transaction is visible, all of them are, in every partition that "
        "it wrote to."
    ),
    source=(
        "KIP-98 (atomic writes); Jepsen kafka workload (a commit of unknown outcome took place when"
        " any of it was read)"
    ),
    inputs=frozenset({"batches", "records", "sends", "reads", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=TORN,
            meaning=(
                "Some of a transaction's records are visible on a cluster and others are not; "
                "the offset is that of the first invisible one, or -1 if the log lacks it. On "
                "a mirror's destination: after a planned failover."
            ),
            sentence=(
                "{operation} is visible on {cluster} only in part: {records} of {of} records are "
                "not, the first at {at}"
            ),
            counted="transaction is torn|transactions are torn",
            failover_cost="torn",
            smallest=(
                "a transaction wrote 1 to A.t-0, which has COMMIT, and 2 to A.t-1, which has ABORT:"
                " at the offset of 2."
            ),
        ),
        AnomalyKind(
            name=BY_FAILOVER,
            meaning=(
                "After a forced failover the mirrored era has some of a transaction's records and "
                "not the others."
            ),
            sentence=(
                "{operation} is visible on {cluster} only in part after the failover: {records} of "
                "{of} records are not, the first at {at}"
            ),
            counted="transaction is torn|transactions are torn",
            failover_cost="torn",
            smallest=(
                "A has a committed 1 and 2, in a partition each; B has 1 and was promoted: at "
                "offset -1 of the other one."
            ),
        ),
    ),
    complete=frozenset({"promotions", "sends"}),
    follows=frozenset({"lost-write", "commit-aborted", "marker-pairing", "order-equality"}),
    kernel=kernel,
    combine=combine,
    unit="transactions",
    only_of="transactions",
    due=frozenset({"native"}),
)
