"""A truncated log, by captures from before and after: changes below the truncation, and what is
left behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.generations import generations
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Batches, Bools, Ints, PartitionView, Replica

_SAME: Final = ("last_offset", "length", "crc", "leader_epoch")


def absent_before(
    view: PartitionView, generation: LogGeneration, after: Replica, end: int
) -> Iterator[Found]:
    """What is below a truncation, and was not there in a capture between the loss of the cluster
    and the truncation.

    What is below where two histories part was there before they parted: nobody can have added it
    since.
    """
    since = [
        p.fault_time
        for p in view.promotions
        if p.source == generation.cluster and p.time <= generation.ended
    ]
    early = [
        r
        for r in view.earlier
        if r.cluster == generation.cluster and not r.damage and max(since, default=0) <= r.captured
    ]
    for before in (r for r in early if r.captured <= _truncated_by(view, generation)):
        b = after.batches
        rows = np.flatnonzero(
            (b.last_offset < end) & (b.base_offset >= before.log_start) & b.crc_ok
        )
        rows = rows[~np.isin(b.base_offset[rows], before.batches.base_offset)]
        for row in rows[np.concatenate(([True], np.diff(rows) != 1))].tolist() if len(rows) else ():
            base = int(b.base_offset[row])
            yield found_in(
                "history-changed",
                generation,
                base,
                capture=before.moment,
                how="not there before",
                batches=len(rows),
            )


def _truncated_by(view: PartitionView, generation: LogGeneration) -> int:
    """When the log of a generation was truncated at the latest."""
    return generations(view)[generation.cluster][generation.number + 1].settled


def changed_below(
    generation: LogGeneration, before: Replica, after: Replica, rows: Ints
) -> Iterator[Found]:
    """Batches below the truncation that are not there any more as they were; one finding per
    range."""
    wrong = rows[~_has(after.batches, before.batches, rows)]
    for row in wrong[np.concatenate(([True], np.diff(wrong) != 1))].tolist() if len(wrong) else ():
        base = int(before.batches.base_offset[row])
        there = bool((after.batches.base_offset == base).any())
        how = "changed" if there else "absent"
        yield found_in(
            "history-changed", generation, base, capture=before.moment, how=how, batches=len(wrong)
        )


def _has(there: Batches, batches: Batches, rows: Ints) -> Bools:
    """Per row, whether the same batch is there too."""
    if not len(there):
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(there.base_offset, batches.base_offset[rows]), len(there) - 1)
    same = there.base_offset[at] == batches.base_offset[rows]
    for name in _SAME:
        same &= getattr(there, name)[at] == getattr(batches, name)[rows]
    return np.asarray(same)


def left_of_tail(
    view: PartitionView,
    generation: LogGeneration,
    following: LogGeneration,
    before: Replica,
    after: Replica,
    tail: Ints,
) -> Iterator[Found]:
    """What of the tail is there still, and did not come back from the new owner."""
    rows = tail[_has(after.batches, before.batches, tail)]
    foreign = _not_of_the_owner(view, generation, following, before, rows)
    if len(foreign):
        yield found_in(
            "tail-not-truncated",
            generation,
            int(before.batches.base_offset[foreign[0]]),
            capture=before.moment,
            parted_at=generation.truncated_to,
            batches=len(rows),
        )


def reported_too_short(
    view: PartitionView,
    generation: LogGeneration,
    following: LogGeneration,
    before: Replica,
    tail: Ints,
    to: int,
) -> Iterator[Found]:
    """The part of the tail that a recorded truncation to `to` leaves and that the new owner does
    not have.

    A mirror whose next batches truncate the log further repairs that; until then readers get
    records that the new owner never had.
    """
    rows = tail[before.batches.base_offset[tail] < to]
    foreign = _not_of_the_owner(view, generation, following, before, rows)
    if len(foreign):
        yield found_in(
            "truncation-too-short",
            generation,
            int(before.batches.base_offset[foreign[0]]),
            capture=before.moment,
            parted_at=generation.truncated_to,
            truncated_to=to,
        )


def _not_of_the_owner(
    view: PartitionView,
    generation: LogGeneration,
    following: LogGeneration,
    before: Replica,
    rows: Ints,
) -> Ints:
    """Those of some batches that the new owner does not have at their offsets."""
    source = next(
        (e.source for e in following.eras if e.start == generation.truncated_to and e.source), ""
    )
    owner = view.canonical().get(source)
    if owner is None:
        return rows
    theirs = set(zip(owner.batches.base_offset.tolist(), owner.batches.crc.tolist(), strict=True))
    mine = zip(
        before.batches.base_offset[rows].tolist(), before.batches.crc[rows].tolist(), strict=True
    )
    return rows[np.array([batch not in theirs for batch in mine], np.bool_)]


def found_in(kind: str, generation: LogGeneration, offset: int, **evidence: object) -> Found:
    """An anomaly in one log generation."""
    return Found(kind=kind, cluster=generation.cluster, offset=offset, evidence=evidence)
