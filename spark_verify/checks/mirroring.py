"""One hop of a mirror, compared without offsets: which records of the source arrived at the destination, and in what order.

The source's sequence is its data records that a read_committed reader gets, in offset order, each payload once. The
destination's is what a read_committed reader gets of its mirrored era. MirrorMaker 2 keeps order and moves offsets, so a
record's identity is its payload id and its content the digest (`spark_verify.view.Records`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from spark_verify.checks.logs import PLAIN, Log, copies, distinct, locate
from spark_verify.eras import FOREVER, home, promoted_at
from spark_verify.view import Ints, PartitionView

Tail = Literal["lost-with-source", "drained", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """What crossed one link. `sequence` are record indices of the source in the order they should arrive.

    `mirrored` are record indices of the destination, in file order, of all that is visible and ours in its mirrored era; `first`
    and `copy` say which earlier of them it repeats and how often before, `position` where in `sequence` it belongs (-1: nowhere).
    Per position, `arrived_at` is the destination's offset of its first copy, or -1. `present` and `missing` are the positions
    that have one and that have none, `front` is the last of `present` (-1: nothing arrived).
    """

    source: Log
    destination: Log
    sequence: Ints
    mirrored: Ints
    first: Ints
    copy: Ints
    position: Ints
    arrived_at: Ints
    present: Ints
    missing: Ints
    front: int
    tail: Tail

    @property
    def holes(self) -> Ints:
        """Missing positions that later records have overtaken."""
        return self.missing[self.missing < self.front]

    @property
    def behind(self) -> Ints:
        """Missing positions after the last that arrived: not mirrored yet, or lost with the source."""
        return self.missing[self.missing > self.front]

    def neighbours(self, position: int) -> dict[str, object]:
        """Where on the destination the record of a position belongs: the offset it comes after, that it comes before, or None."""
        place = int(np.searchsorted(self.present, position))
        return {
            "after_offset": int(self.arrived_at[self.present[place - 1]]) if place else None,
            "before_offset": int(self.arrived_at[self.present[place]]) if place < len(self.present) else None,
        }


def hop(view: PartitionView, source: Log, destination: Log) -> Hop:
    """Compares what the source has with what the destination's mirrored era has."""
    theirs, ours = source.replica.records, destination.replica.records
    cut = promoted_at(view, destination.replica.cluster)
    sequence = np.flatnonzero(source.visible & (theirs.uid >= 0))
    sequence = sequence[copies(theirs.uid[sequence])[1] == 0]
    mirrored = np.flatnonzero(destination.visible & (ours.uid >= 0) & (ours.offset < (FOREVER if cut is None else cut)))
    first, copy = copies(ours.uid[mirrored])
    position = locate(theirs.uid[sequence], ours.uid[mirrored])
    arrived_at = np.full(len(sequence), -1, np.int64)
    kept = (position >= 0) & (copy == 0)
    arrived_at[position[kept]] = ours.offset[mirrored[kept]]
    present = np.flatnonzero(arrived_at >= 0)
    return Hop(
        source=source,
        destination=destination,
        sequence=sequence,
        mirrored=mirrored,
        first=first,
        copy=copy,
        position=position,
        arrived_at=arrived_at,
        present=present,
        missing=np.flatnonzero(arrived_at < 0),
        front=int(present[-1]) if len(present) else -1,
        tail=_tail(view, source.replica.cluster, destination.replica.cluster),
    )


def _tail(view: PartitionView, source: str, destination: str) -> Tail:
    if any(p.kind == "forced" and (p.source == source or p.cluster == destination) for p in view.promotions):
        return "lost-with-source"
    return "drained" if any(p.cluster == destination for p in view.promotions) else "unknown"


def not_promoted(view: PartitionView, cluster: str) -> bool:
    """Whether clients wrote to a mirrored log that nobody promoted: then nothing tells their records from a mirror's."""
    if cluster == home(view.topic) or promoted_at(view, cluster) is not None:
        return False
    return any(s.cluster == cluster for s in view.sends)


def repeated_at_source(compared: Hop) -> Ints:
    """Payload ids that the source itself has more than once: repeating those is faithful."""
    uids = compared.source.replica.records.uid
    return distinct(uids[copies(uids)[1] > 0])


def aborted_or_open(compared: Hop, uids: Ints) -> Ints:
    """Per uid, the index of its record at the source when that is neither plain nor committed there, else -1."""
    at = locate(compared.source.replica.records.uid, uids)
    hidden = (
        (at >= 0) & (compared.source.record_state[at] > PLAIN) & ~compared.source.visible[at]
        if len(compared.source.visible)
        else at >= 0
    )
    return np.where(hidden, at, -1).astype(np.int64)
