"""One mirrored range, compared without offsets: which records of the source arrived at the
destination, and in what order.

The source's sequence has the data records that a read_committed reader gets, in offset order, each
payload once. The destination's sequence has the mirrored records of the range
(`spark_verify.facts.eras`) that a read_committed reader gets. MirrorMaker 2 keeps order and moves
offsets, so a record's identity is its payload id and its content the digest
(`spark_verify.facts.view.Records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Unjudged
from linkflap.spark_verify.checks.log_model.cleaning import (
    by_content,
    cleaned_at_destination,
    cleaned_up_to,
    deleted_behind,
    kept_since,
    may_have_repeated,
    unsettled_payloads,
)
from linkflap.spark_verify.checks.log_model.generations import (
    log_of,
    not_captured,
    sends_of,
    source_log,
)
from linkflap.spark_verify.checks.log_model.logs import (
    NOWHERE,
    PLAIN,
    Log,
    among,
    copies,
    distinct,
    each_at,
    locate,
    read,
)
from linkflap.spark_verify.checks.log_model.same_contents import (
    Contents,
    Origin,
    origin,
    origin_of_cleaned,
)
from linkflap.spark_verify.facts.eras import (
    FOREVER,
    Era,
    History,
    LogGeneration,
    MirroredRange,
    history,
)
from linkflap.spark_verify.facts.partition_facts import MirrorStop
from linkflap.spark_verify.facts.view import DATA, Batches, Bools, Ints, PartitionView, Records

Tail = Literal["lost-with-source", "died-with-destination", "drained", "unknown", "another-hop"]
"""The meaning of a missing tail. `died-with-destination`: every broker of the destination was
killed for good, so only the dead could have shown what had not arrived. In a comparison over
several hops a tail has no meaning: each hop reports its own."""


def tail(view: PartitionView, mirrored_range: MirroredRange) -> Tail:
    if mirrored_range.far:
        return "another-hop"
    if mirrored_range.promotion is not None:
        return "lost-with-source" if mirrored_range.promotion.kind == "forced" else "drained"
    past = history(view.partition_facts).generations[mirrored_range.destination]
    if past[mirrored_range.generation].lost is not None:
        return "died-with-destination"
    # The source is dead for good, or another destination was promoted in its place.
    lost = mirrored_range.source in view.deaths or [
        p
        for p in view.promotions
        if p.kind == "forced"
        and p.source == mirrored_range.source
        and p.time >= mirrored_range.began
    ]
    return "lost-with-source" if lost else "unknown"


def _appends_to(stop: MirrorStop, mirrored_range: MirroredRange) -> bool:
    """Whether the destination's log has the records that a mirror appended at its end: this hop's
    mirror, or that of an earlier hop whose log was copied."""
    if mirrored_range.far:
        return stop.cluster != mirrored_range.source
    return stop.cluster == mirrored_range.destination


def appended_since(view: PartitionView, mirrored_range: MirroredRange, batches: Batches) -> int:
    """The offset from which the destination has only control batches that mirrors appended, and
    recorded, at the end of the run.

    The mirror may be this hop's or one of an earlier hop. Markers that a failover appends are
    behind the promotion, outside of the mirrored range.
    """
    if mirrored_range.promotion is not None:
        return FOREVER
    over = [
        s
        for s in view.stops
        if not any(p.link == s.link and p.time >= s.time for p in view.promotions)
    ]
    whose = [
        s
        for s in over
        if s.time >= mirrored_range.began and s.appended and _appends_to(s, mirrored_range)
    ]
    begins = [min(at for at, _ in s.appended) for s in whose]
    last = int(batches.base_offset[batches.control == DATA].max(initial=-1))
    return min((at for at in begins if at > last), default=FOREVER)


def compared_offsets(view: PartitionView, compared: Hop) -> tuple[int, int]:
    """The offsets [start, end) at which a mirror that keeps offsets has what the source has."""
    source, destination = compared.source.replica, compared.destination.replica
    mirrored_range = compared.mirrored_range
    own = appended_since(view, mirrored_range, destination.batches)
    end = min(destination.end, mirrored_range.end, own)
    start = max(source.begins, destination.begins, mirrored_range.start)
    return start, min(end, source.end) if mirrored_range.far else end


def not_promoted(view: PartitionView, generation: LogGeneration) -> bool:
    """Whether clients wrote to a mirrored log without a promotion: their records look like the
    mirror's. What they wrote before a failback truncated the log to nothing is gone."""
    mirrored = all(e.origin == "mirrored" for e in generation.eras)
    return mirrored and len(sends_of(view, generation)) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """The records that one link mirrored. `sequence` are record indices of the source in the order
    in which they should arrive.

    `generation` is the destination's. `came` are the destination's record indices, in file
    order, of visible mirrored records; `mirrored` are those of `came` that have a payload id.
    For each mirrored record, `first` is the earlier one that it repeats, `copy` the number of
    earlier copies, and `position` its index in `sequence` (-1: none).

    Per position, `arrived_at` is the destination's offset of the first copy, or -1. `present`
    and `missing` are the positions with and without a copy; `front` is the last present one
    (-1: nothing arrived). `late` are missing positions whose COMMIT is behind the mirrored
    range at the source: the records arrived, and the destination had to abort them.

    `since` is the first source offset that the destination may still have after retention
    deleted the beginning of its log. `cleaned` are missing positions that the destination may
    have had and compacted or deleted; for those in `unknown` that cannot be decided. `erased`
    are missing positions behind the last present one that lie below the cleaner's checkpoint,
    although a cleaner never removes such records. `gaps`: the source has compacted its log.

    Payload ids in `unsettled` may come from a copy that the source has deleted
    (`unsettled_payloads`), so their position at the source proves nothing. `unordered` adds payload
    ids that are contents of several records, whose order of arrival is unknown. `sure` is the last
    present position with none of these ids. `origin` and `nameless` apply where payload ids are
    contents: how the destination's contents can have come about, and how many records cannot be
    distinguished from others.
    """

    mirrored_range: MirroredRange
    generation: LogGeneration
    source: Log
    destination: Log
    sequence: Ints
    came: Ints
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
    unordered: Ints
    origin: Origin = field(default=Origin(how="unknown"))
    since: int = 0
    nameless: int = 0

    @property
    def holes(self) -> Ints:
        """Missing positions that later records have overtaken, or that lie below the destination's
        cleaner checkpoint."""
        sure = -1 if self.explained else self.sure
        return np.concatenate((self._overtaken[self._overtaken < sure], self.erased))

    @property
    def doubtful(self) -> Ints:
        """Missing positions that may be no loss: the record behind them may belong to an earlier
        copy, deleted since."""
        sure = -1 if self.explained else self.sure
        return self._overtaken[self._overtaken > sure]

    @property
    def explained(self) -> bool:
        """Whether a mirror that keeps its promise can have made the destination's contents from the
        source's."""
        return self.origin.how in ("once", "again", "coincidence")

    @property
    def _overtaken(self) -> Ints:
        return self.missing[
            (self.missing < self.front)
            & ~among(self.missing, np.concatenate((self.late, self.cleaned)))
        ]

    @property
    def behind(self) -> Ints:
        """Missing positions after the last arrival, and those whose COMMIT comes after it: not
        mirrored yet, or lost with the source."""
        behind = (self.missing > self.front) | among(self.missing, self.late)
        return self.missing[
            behind & ~among(self.missing, np.concatenate((self.cleaned, self.erased)))
        ]

    def neighbours(self, position: int) -> dict[str, object]:
        """The place on the destination where the record of a position belongs: the offsets before
        and after it, or None."""
        index = int(np.searchsorted(self.present, position))
        return {
            "after_offset": int(self.arrived_at[self.present[index - 1]]) if index else None,
            "before_offset": (
                int(self.arrived_at[self.present[index]]) if index < len(self.present) else None
            ),
        }


def judged_hops(
    view: PartitionView, judge: Callable[[PartitionView, Hop], Iterable[Finding]]
) -> Iterator[Finding]:
    """The findings of `judge` in every mirrored range, and between both ends of several hops; and
    the ranges without a captured log."""
    for compared in hops(view, end_to_end=True):
        yield from judge(view, compared) if isinstance(compared, Hop) else (compared,)


def unclear(view: PartitionView) -> Iterator[Unjudged]:
    """Parts of copied logs that a destination's own clients may have written, without a mark in the
    bytes."""
    for cluster, offset in view.unclear.items():
        where = view.tp
        yield Unjudged(
            f"{cluster}'s log of {where} begins with what its source has not, from offset "
            f"{offset} on, and no mark says whose that is; say it with --promotion "
            f"{cluster}:{where}=OFFSET, or leave the topic out with --topics"
        )


def hops(view: PartitionView, *, end_to_end: bool = False) -> Iterator[Hop | Unjudged]:
    """The comparison of every mirrored range, or the reason why it was not compared: no log of a
    cluster was captured.

    `end_to_end`: also ranges that came over more than one link, compared with the cluster that
    wrote them.
    """
    past = history(view.partition_facts)
    finals = view.canonical()
    for mirrored_range in (*past.mirrored_ranges, *(_far(view) if end_to_end else ())):
        if mirrored_range.destination not in finals:
            yield not_captured(view, mirrored_range.destination)
            continue
        source = source_log(view, past, mirrored_range.source, mirrored_range.source_generation)
        if source is None:
            yield not_captured(view, mirrored_range.source)
            continue
        final = read(finals[mirrored_range.destination])
        if view.guarantee.offsets_kept or mirrored_range.far:
            # Everything that arrived is below every later truncation of the destination, so its
            # last log is compared.
            yield hop(
                view,
                mirrored_range,
                past.generations[mirrored_range.destination][-1],
                source,
                final,
            )
        else:
            # A destination that is to follow again is emptied, so the log from before is compared.
            generation = past.generations[mirrored_range.destination][mirrored_range.generation]
            yield hop(view, mirrored_range, generation, source, log_of(view, generation) or final)


def compared_hops(view: PartitionView) -> Iterator[Hop]:
    """Every mirrored range whose logs were captured, compared."""
    return (each for each in hops(view) if isinstance(each, Hop))


def _far(view: PartitionView) -> Iterator[MirroredRange]:
    """Mirrored eras whose source is not their owner, as one hop from the owner."""
    if not view.guarantee.offsets_kept:
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
    """The number of links between an era and its owner."""
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
    theirs, ours = source.records, destination.records
    # Offsets of a mirror that moves them begin at 0 on both sides.
    sent = (theirs.offset >= mirrored_range.start) & (
        theirs.offset < (mirrored_range.end if mirrored_range.far else FOREVER)
    )
    every = np.flatnonzero(source.visible & (theirs.uid >= 0) & sent)
    sequence = every[copies(theirs.uid[every])[1] == 0]
    came = (ours.offset >= mirrored_range.start) & (ours.offset < mirrored_range.end)
    came &= destination.visible
    # A first segment may begin before the log does.
    shown = came & (ours.offset >= destination.replica.log_start)
    mirrored = np.flatnonzero((ours.uid >= 0) & came)
    nameless = 0
    if by_content(view):
        # several records have these contents, and it is unknown which of them arrived
        unknown = ours.digest[came & (ours.uid < 0)]
        sequence = sequence[~among(theirs.digest[sequence], unknown)]
        several = among(unknown, theirs.digest[source.visible]) | (copies(unknown)[1] > 0)
        nameless = int(np.count_nonzero(several))
    unsettled = unsettled_payloads(view, mirrored_range, source, ours.uid[mirrored])
    every = every[among(theirs.uid[every], theirs.uid[sequence])]
    since = kept_since(view, mirrored_range, source, destination, every, ours.uid[mirrored])
    older = int(np.count_nonzero(theirs.offset[sequence] < since))
    sequence = sequence[older:]
    if since > mirrored_range.start:
        # An older record that is still there repeats a first copy that was deleted.
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
    unordered = unsettled
    if by_content(view):
        lost = len(ours) if cleaned_up_to(view, source.replica) else source.replica.log_start
        alike = _alike(source, ours, np.flatnonzero(came), mirrored[copy > 0], lost)
        unordered = np.concatenate((unsettled, alike))
    settled = position[kept & ~among(ours.uid[mirrored], unordered)]
    return Hop(
        mirrored_range=mirrored_range,
        generation=generation,
        source=source,
        destination=destination,
        sequence=sequence,
        came=np.flatnonzero(came),
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
        gaps=cleaned_up_to(view, source.replica) > 0,
        unsettled=unsettled,
        unordered=unordered,
        origin=_origin(view, mirrored_range, source, destination, np.flatnonzero(shown)),
        since=since,
        nameless=nameless,
    )


def _origin(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Log,
    destination: Log,
    came: Ints,
) -> Origin:
    """How the mirrored records (rows of the destination's records) can have come from the source's
    contents; unknown where records have payload ids of their own."""
    if not by_content(view):
        return Origin(how="unknown")
    rows, came = came, destination.records.digest[came]
    first = source.replica.batches.base_offset[:1].min(initial=source.replica.log_start)
    contents = source.records.digest[source.visible]
    # Where none of them is there twice, what came twice was copied twice.
    later = (copies(contents)[1].any() | ~among(came, contents)) & (
        not (view.recorded or source.replica.high_watermark_from == "sampled")
    )
    compared = Contents(
        source=contents,
        hidden=source.records.digest[~source.visible],
        source_deleted=int(first),
        came=came,
        came_deleted=destination.replica.log_start,
        later=later,
    )
    repeats = may_have_repeated(view, mirrored_range.destination)
    if not any(cleaned_up_to(view, log.replica) for log in (source, destination)):
        source_repeats = may_have_repeated(view, mirrored_range.source)
        return origin(compared, repeats=repeats, source_repeats=source_repeats)
    if repeats:
        return Origin(how="unknown")
    there = destination.records.offset[rows]
    return origin_of_cleaned(
        compared,
        _room(source, source.records.offset[source.visible], since=0),
        _room(destination, there, since=destination.replica.log_start),
    )


def _room(log: Log, offsets: Ints, *, since: int) -> Ints:
    """The number of missing offsets before each of these, and after the last; offsets below `since`
    count as missing."""
    batches = log.replica.batches
    markers = batches.base_offset[(batches.control != DATA) & (batches.count > 0)]
    there = np.sort(np.concatenate((log.records.offset, markers)))
    there = there[there >= since]
    edges: Ints = np.concatenate(([-1], offsets, [max(log.replica.end, since)]))
    between = np.searchsorted(there, edges[1:]) - np.searchsorted(there, edges[:-1], side="right")
    return np.maximum(edges[1:] - edges[:-1] - 1 - between, 0)


def _alike(source: Log, ours: Records, came: Ints, again: Ints, lost: int) -> Ints:
    """Payload ids whose first arrival is ambiguous: records that came `again`, and then every
    content that several source records share, because any of these or a deleted one may have come
    first. The first arrival of a content is no deleted record's once as many others came before it
    as the source has `lost`."""
    theirs = source.records
    if not len(again):
        return again
    twice = theirs.digest[source.visible]
    twice = twice[copies(twice)[1] > 0]
    contents = ours.digest[came]
    early = contents[copies(contents)[1] == 0][:lost]
    return np.concatenate(
        (
            theirs.uid[source.visible & among(theirs.digest, twice)],
            ours.uid[again[among(ours.digest[again], early)]],
        )
    )


def _ended_behind(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, destination: Log, rows: Ints
) -> Bools:
    """Per record of the source, whether its transaction was mirrored without its marker; unknown,
    and so false, where the mirror moves offsets.

    The mirrored part ends at the promotion. Without a promotion it ends with the destination's log,
    or where the mirror began to append.
    """
    if not view.guarantee.offsets_kept or not len(rows):
        return np.zeros(len(rows), np.bool_)
    marker = source.marker[source.records.batch[rows]]
    end = min(
        mirrored_range.end,
        destination.replica.end,
        appended_since(view, mirrored_range, destination.batches),
    )
    return np.asarray((source.records.offset[rows] < end) & (marker >= end) & (marker < NOWHERE))


def repeated_at_source(compared: Hop) -> Ints:
    """Payload ids that the source itself has more than once: a faithful mirror repeats them."""
    uids = compared.source.records.uid
    return distinct(uids[copies(uids)[1] > 0])


def why_not_judged(compared: Hop, count: int) -> str:
    """The reason why repeated, out-of-order or missing records are not judged
    (`unsettled_payloads`)."""
    source, destination = compared.source.cluster, compared.destination.cluster
    how = f"{count} records on {destination} came again, out of order, or never"
    return f"{how}: so may {source} have had them, whose start was deleted"


def perhaps_cleaned(count: int, holder: str, lacking: str) -> str:
    """The reason why records are not judged that only one end of a mirror has."""
    return (
        f"{count} records of {holder} are missing on {lacking}, which is compacted, and whether "
        "its cleaner took them cannot be known"
    )


def aborted_or_open(compared: Hop, uids: Ints) -> Ints:
    """Per payload id, the index of its record at the source if the record is aborted or in an open
    transaction there, else -1."""
    at = locate(compared.source.records.uid, uids)
    hidden = each_at(compared.source.record_state, at, PLAIN) > PLAIN
    return np.where(hidden & ~each_at(compared.source.visible, at, True), at, -1)
