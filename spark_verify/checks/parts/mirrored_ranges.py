"""One mirrored range, compared without offsets: which records of the source arrived at the
destination, and in what order.

The source's sequence is its data records that a read_committed reader gets, in offset order, each
payload once. The destination's is what a read_committed reader gets of what came in the mirrored
range (`spark_verify.facts.eras`). MirrorMaker 2 keeps order and moves offsets, so a record's
identity is its payload id and its content the digest (`spark_verify.facts.view.Records`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from linkflap.spark_verify.checks.parts.deletion import (
    cleaned_at_destination,
    deleted_behind,
    kept_since,
    unsettled_payloads,
)
from linkflap.spark_verify.checks.parts.generations import log_of, source_log
from linkflap.spark_verify.checks.parts.logs import (
    NOWHERE,
    Log,
    among,
    copies,
    locate,
    read,
)
from linkflap.spark_verify.checks.parts.range_endings import Tail, appended_since, tail
from linkflap.spark_verify.facts.eras import FOREVER, Era, History, LogGeneration, MirroredRange
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """The records that one link mirrored. `sequence` are record indices of the source in the order
    in which they should arrive.

    `generation` is the destination's. `mirrored` are the destination's record indices, in file
    order, of linkflap's visible mirrored records. For each, `first` and `copy` are the earlier one
    that it repeats and the number of earlier copies, `position` its place in `sequence` (-1: none).
    Per position, `arrived_at` is the destination's offset of its first copy, or -1. `present` and
    `missing` are the positions with and without a copy, `front` is the last of `present` (-1:
    nothing arrived). `late` are the missing ones whose COMMIT is behind the mirrored range at the
    source: they arrived, and the destination had to abort them. `since` is the first offset of the
    source that the destination may still have: it has deleted the beginning of its own log
    (retention). `cleaned` are missing ones that it may have had, and compacted or deleted; of those
    that are `unknown` it cannot be known. `erased` are behind the last that arrived, and below
    where its cleaner was, which never takes them. `gaps`: the source has compacted its log. For the
    payload ids `unsettled` the first copy may come from a copy that the source has deleted
    (`unsettled_payloads`): their present position at the source does not show the former one.
    `sure` is the last of `present` that is none of those.
    """

    mirrored_range: MirroredRange
    generation: LogGeneration
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
    late: Ints
    front: int
    sure: int
    tail: Tail
    cleaned: Ints
    unknown: Ints
    erased: Ints
    gaps: bool
    unsettled: Ints
    since: int = 0

    @property
    def holes(self) -> Ints:
        """Missing positions that later records have overtaken, or behind which the destination's
        cleaner has been."""
        return np.concatenate((self._overtaken[self._overtaken < self.sure], self.erased))

    @property
    def doubtful(self) -> Ints:
        """Missing positions that may be no loss: the record behind them may belong to an earlier
        copy, deleted since."""
        return self._overtaken[self._overtaken > self.sure]

    @property
    def _overtaken(self) -> Ints:
        return self.missing[
            (self.missing < self.front)
            & ~among(self.missing, np.concatenate((self.late, self.cleaned)))
        ]

    @property
    def behind(self) -> Ints:
        """Missing positions after the last that arrived, or whose COMMIT is: not mirrored yet, or
        lost with the source."""
        behind = (self.missing > self.front) | among(self.missing, self.late)
        return self.missing[
            behind & ~among(self.missing, np.concatenate((self.cleaned, self.erased)))
        ]

    def neighbours(self, position: int) -> dict[str, object]:
        """Where on the destination the record of a position belongs: the offset it comes after,
        that it comes before, or None."""
        index = int(np.searchsorted(self.present, position))
        return {
            "after_offset": int(self.arrived_at[self.present[index - 1]]) if index else None,
            "before_offset": (
                int(self.arrived_at[self.present[index]]) if index < len(self.present) else None
            ),
        }


def hops(view: PartitionView, *, end_to_end: bool = False) -> Iterator[Hop | str]:
    """Every mirrored range, compared; or the cluster of which no log was captured to compare with.

    `end_to_end`: also what is further away than one link from where it was written.
    """
    past = history(view.partition_facts)
    finals = view.canonical()
    for mirrored_range in (*past.mirrored_ranges, *(_far(view) if end_to_end else ())):
        if mirrored_range.destination not in finals:
            yield mirrored_range.destination
            continue
        source = source_log(view, past, mirrored_range.source, mirrored_range.source_generation)
        if source is None:
            yield mirrored_range.source
            continue
        final = read(finals[mirrored_range.destination])
        if view.mirror.guarantee.offsets_kept or mirrored_range.far:
            # What arrived is below every later truncation of the destination: what it had in the
            # end speaks.
            yield hop(
                view,
                mirrored_range,
                past.generations[mirrored_range.destination][-1],
                source,
                final,
            )
        else:
            # A destination that is to follow is emptied: what it had before that speaks.
            generation = past.generations[mirrored_range.destination][mirrored_range.generation]
            yield hop(view, mirrored_range, generation, source, log_of(view, generation) or final)


def _far(view: PartitionView) -> Iterator[MirroredRange]:
    """Mirrored eras whose owner is not where they were mirrored from, as if they had come in one
    hop."""
    if not view.mirror.guarantee.offsets_kept:
        return
    past = history(view.partition_facts)
    for cluster, mine in past.generations.items():
        for era in mine[-1].eras:
            number = next(
                (
                    n
                    for n, generation in enumerate(past.generations.get(era.owner, ()))
                    if _same(generation, era.start, era.began)
                ),
                -1,
            )
            if era.source and era.owner != era.source and number >= 0:
                yield MirroredRange(
                    source=era.owner, destination=cluster, start=era.start, end=era.end,
                    began=era.began, ended=FOREVER,
                    promotion=None, generation=mine[-1].number, source_generation=number,
                    far=_links(past, era),
                )  # fmt: skip


def _links(past: History, era: Era) -> int:
    """Over how many links an era came from its owner."""
    links, source = 1, era.source
    while source != era.owner and links < len(past.generations):
        source, links = past.generations[source][-1].era(era.start).source or era.owner, links + 1
    return links


def _same(generation: LogGeneration, start: int, began: int) -> bool:
    """Whether a generation has the era that began there and then."""
    return any((e.start, e.began, e.source) == (start, began, "") for e in generation.eras)


def hop(
    view: PartitionView,
    mirrored_range: MirroredRange,
    generation: LogGeneration,
    source: Log,
    destination: Log,
) -> Hop:
    """Compares what the source has with what came over to the destination."""
    theirs, ours = source.replica.records, destination.replica.records
    # Offsets of a mirror that moves them begin at 0 on both sides.
    sent = (theirs.offset >= mirrored_range.start) & (
        theirs.offset < (mirrored_range.end if mirrored_range.far else FOREVER)
    )
    sequence = np.flatnonzero(source.visible & (theirs.uid >= 0) & sent)
    sequence = sequence[copies(theirs.uid[sequence])[1] == 0]
    came = (ours.offset >= mirrored_range.start) & (ours.offset < mirrored_range.end)
    mirrored = np.flatnonzero(destination.visible & (ours.uid >= 0) & came)
    unsettled = unsettled_payloads(view, mirrored_range, source, ours.uid[mirrored])
    since = kept_since(
        view,
        mirrored_range,
        destination,
        theirs.offset[sequence],
        locate(theirs.uid[sequence], ours.uid[mirrored]),
    )
    older = int(np.count_nonzero(theirs.offset[sequence] < since))
    sequence = sequence[older:]
    if since > mirrored_range.start:
        # What is older and there all the same is a repeat of a first copy that is gone.
        repeats = (
            locate(theirs.uid[source.visible & (theirs.offset < since)], ours.uid[mirrored]) >= 0
        )
        mirrored = mirrored[~repeats]
    first, copy = copies(ours.uid[mirrored])
    position = locate(theirs.uid[sequence], ours.uid[mirrored])
    arrived_at = np.full(len(sequence), -1, np.int64)
    kept = (position >= 0) & (copy == 0)
    arrived_at[position[kept]] = ours.offset[mirrored[kept]]
    present, missing = np.flatnonzero(arrived_at >= 0), np.flatnonzero(arrived_at < 0)
    front = int(present[-1]) if len(present) else -1
    cleaned = cleaned_at_destination(
        view, mirrored_range, source.replica, destination.replica, sequence, arrived_at
    )
    settled = position[kept & ~among(ours.uid[mirrored], unsettled)]
    return Hop(
        mirrored_range=mirrored_range,
        generation=generation,
        source=source,
        destination=destination,
        sequence=sequence,
        mirrored=mirrored,
        first=first,
        copy=copy,
        position=position,
        arrived_at=arrived_at,
        present=present,
        missing=missing,
        late=missing[_ended_behind(view, mirrored_range, source, destination, sequence[missing])],
        front=front,
        sure=int(settled.max()) if len(settled) else -1,
        tail=tail(view, mirrored_range),
        cleaned=np.concatenate(
            (
                cleaned.may,
                deleted_behind(view, mirrored_range, destination, missing[missing > front], older),
            )
        ),
        unknown=cleaned.unknown,
        erased=cleaned.kept[cleaned.kept > front],
        gaps=view.compacted.get(mirrored_range.source, 0) > 0,
        unsettled=unsettled,
        since=since,
    )


def _ended_behind(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, destination: Log, rows: Ints
) -> Bools:
    """Per record of the source, whether its transaction crossed without its marker. Where offsets
    move, nobody can tell.

    What crossed ends with the promotion; without one, where the destination's log ends, or its
    mirror began to append to it.
    """
    if not view.mirror.guarantee.offsets_kept or not len(rows):
        return np.zeros(len(rows), np.bool_)
    marker = source.marker[source.replica.records.batch[rows]]
    end = min(
        mirrored_range.end,
        destination.replica.end,
        appended_since(view, mirrored_range, destination.replica.batches),
    )
    return np.asarray(
        (source.replica.records.offset[rows] < end) & (marker >= end) & (marker < NOWHERE)
    )
