"""Records that are absent because the start of their log was deleted, or a cleaner removed them.

For a record with an acknowledged offset that is obvious. A record whose client died before the
acknowledgement has none, and still has to be there if its transaction was committed. A poll may
have returned it with its offset. Otherwise it lies between the records that the same producer wrote
before and after it: a producer's records are in a log in the order of its sequence numbers
(KIP-98). Between a record below the start of the log and one above it, or behind the last known
one, it is unknown whether it was deleted.
"""

from __future__ import annotations

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.checks.parts.logs import Log, locate
from linkflap.spark_verify.checks.parts.outcomes import Outcomes, reads_of
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def deleted(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes, absent: Bools
) -> tuple[Bools, Bools]:
    """Per record of `what`: whether it was deleted, and whether it may have been.

    `absent` says of each whether the log lacks it. Records that are there, or have an offset that
    was acknowledged at or above everything deleted, are neither.
    """
    start = log.replica.log_start
    floor = max(start, view.compacted.get(generation.cluster, 0))
    certain = (what.acked >= 0) & (what.acked < np.where(absent, floor, start))
    without = absent & (what.acked < 0)
    if not floor or not without.any():
        return certain, np.zeros(len(what), np.bool_)
    before, after = _between(what.uid, _known_offsets(view, generation, what))
    certain |= without & (after <= floor)
    return certain, without & ~certain & (before + 1 < floor)


def _known_offsets(view: PartitionView, generation: LogGeneration, what: Outcomes) -> Ints:
    """The offset of each record as it was acknowledged, or as a poll returned it; else -1."""
    offsets = what.acked.copy()
    for read in reads_of(view, generation):
        at = locate(read.uids, what.uid)
        found = (at >= 0) & (offsets < 0)
        offsets[found] = read.offsets[at[found]]
    return offsets


def _between(uids: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Per record, the last offset up to it that is known of the same producer, or -1; and the end
    of where it may be: behind its own offset, or else at the next that is known, or `FOREVER`."""
    order = np.argsort(uids, kind="stable")
    known, process = offsets[order], uids[order] >> PROCESS_SHIFT
    # Offsets of one producer grow with its payload ids, so the maximum so far is the last known;
    # a new process number means a new producer.
    begins = np.flatnonzero(np.r_[True, process[1:] != process[:-1]])
    ends = np.r_[begins[1:], len(order)]
    before, after = np.empty_like(known), np.empty_like(known)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        mine = known[begin:end]
        before[begin:end] = np.maximum.accumulate(mine)
        later = np.where(mine >= 0, mine, FOREVER)
        follows = np.r_[np.minimum.accumulate(later[::-1])[::-1][1:], FOREVER]
        after[begin:end] = np.where(mine >= 0, mine + 1, follows)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return before[back], after[back]


def may_be_deleted(view: PartitionView, log: Log, records: int) -> str:
    """The reason why nothing is reported about records that may have been deleted."""
    where = f"{view.topic}-{view.partition} of {log.replica.cluster}"
    return (
        f"{records} records that had to be there have no acknowledged offset and are absent from "
        f"{where}, from which older records were deleted; they may be among those"
    )
