"""The records that readers got, and the transaction of each: for aborted and uncommitted reads.

A payload id names the send of a record, on whatever cluster the record was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.log_model.logs import (
    ABORTED,
    PLAIN,
    Log,
    each_at,
    joined,
    runs,
    together,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import never, planner, reads_of
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Every record that readers of one cluster got, one element each; `read` is an index into
    `reads`."""

    uid: Ints
    offset: Ints
    returned: Ints
    reads: Sequence[Read]
    read: Ints

    def __len__(self) -> int:
        return len(self.uid)

    @property
    def asked(self) -> Ints:
        """When the poll of each record began."""
        return self.each(lambda read: read.time)

    def each(self, of: Callable[[Read], int]) -> Ints:
        """Per record, a number of its poll."""
        return np.array([of(read) for read in self.reads], np.int64)[self.read]


def delivered(
    view: PartitionView, generation: LogGeneration, isolation: str | None = "read_committed"
) -> Delivered:
    """The reads of one generation of a log, in one isolation or in any, in time order."""
    return columns_of(reads_of(view, generation, isolation))


def columns_of(reads: Sequence[Read]) -> Delivered:
    """The records of these reads."""
    sizes = np.array([len(r.uids) for r in reads], np.int64)
    return Delivered(
        uid=together(r.uids for r in reads),
        offset=together(r.offsets for r in reads),
        returned=np.repeat(np.array([r.returned for r in reads], np.int64), sizes),
        reads=reads,
        read=np.repeat(np.arange(len(reads), dtype=np.int64), sizes),
    )


def aborted_there(log: Log | None, got: Delivered) -> Bools:
    """Per record, whether the log has that very record there, and an ABORT marker for it."""
    if log is None:
        return np.zeros(len(got), np.bool_)
    at = log.holds(got.offset, got.uid)
    return np.asarray(each_at(log.record_state, at, PLAIN) == ABORTED)


def of_transactions(view: PartitionView, got: Delivered, what: Callable[[Sends], Ints]) -> Ints:
    """For each record, the value of the transaction that sent it; 0 if no transaction did."""
    sends = Sends.of(view.sends)
    sends = sends.take(sends.says("kind", "transaction") & (sends.sizes > 0))
    if not len(sends):
        return np.zeros(len(got), np.int64)
    send = planner(got.uid, sends)
    return np.where(send >= 0, what(sends)[send], 0)


def found(
    cluster: str,
    got: Delivered,
    bad: Bools,
    kind: str,
    witness: Callable[[int], str],
    taken: Taken | None = None,
) -> Sequence[Finding]:
    """Every bad record once, neighbours as one anomaly; `witness` says of a row who knows, and a
    loss may explain it (`taken`)."""
    wrong = np.flatnonzero(bad)
    by = np.full(len(wrong), -1, np.int64)
    if taken:
        records = got.offset[wrong], got.uid[wrong]
        by = np.maximum(
            taken.read(*records, got.asked[wrong]), taken.shown(*records, got.returned[wrong])
        )
    chosen = first_unexplained(got.offset[wrong], by)
    order, by = wrong[chosen], by[chosen]
    together = list(runs(got.offset[order], got.uid[order], joined(by)))
    heads = [int(order[start]) for start, _ in together]
    return [
        Found.at(
            kind,
            cluster,
            got.offset[row],
            records=end - start,
            uid=got.uid[row],
            reader=got.reads[int(got.read[row])].reader,
            returned=got.returned[row],
            witness=witness(row),
            **taken.evidence(int(by[start])) if taken else {},
        )
        for row, (start, end) in zip(heads, together, strict=True)
    ]


def first_unexplained(offsets: Ints, by: Ints) -> Ints:
    """One row of each offset: of one that was read twice, what no loss explains."""
    order = np.lexsort((np.arange(len(offsets)), by, offsets))
    return np.asarray(order[np.unique(offsets[order], return_index=True)[1]])


def by_client(view: PartitionView, got: Delivered) -> Bools:
    """Per record, whether its producer aborted it, or was refused the commit for certain."""
    return of_transactions(view, got, lambda sends: never(sends).astype(np.int64)) > 0
