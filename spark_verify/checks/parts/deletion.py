"""Deletion: records of a mirrored range that may have been there and are gone, by retention,
DeleteRecords or a cleaner."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from linkflap.harness.model.faults import FORCED, PLANNED
from linkflap.spark_verify.checks.parts.cleaning import (
    Cleaned,
    deleted_keys,
    gone_tombstones,
    tombstones_expired,
    up_to,
)
from linkflap.spark_verify.checks.parts.generations import compacted
from linkflap.spark_verify.checks.parts.logs import Log, among, copies, locate
from linkflap.spark_verify.facts.eras import FOREVER, MirroredRange, touches
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica


def kept_since(
    view: PartitionView, mirrored_range: MirroredRange, destination: Log, sent: Ints, position: Ints
) -> int:
    """The first of the source's offsets that the destination may still have, whose log may have
    lost its beginning.

    Where offsets move, that of what its log now begins with, for it came in order; `position` says
    where in `sent` that is.
    """
    start = destination.replica.log_start
    if start <= (mirrored_range.start if view.guarantee.offsets_kept else 0):
        return mirrored_range.start
    if view.guarantee.offsets_kept:
        return start
    known = position[position >= 0]
    return int(sent[known[0]]) if len(known) else FOREVER


def unsettled_payloads(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, uids: Ints
) -> Ints:
    """Payload ids that may have come of a copy which the source has deleted with its log's
    beginning.

    Only where the mirror into the source may write records again, and something happened to it.
    Records come in order, so that before a first copy there are no more different payloads than the
    source has offsets before it: with as many as are deleted, it is a copy of what the source still
    has.
    """
    if source.replica.log_start == 0 or not _may_have_repeated(view, mirrored_range.source):
        return np.empty(0, np.int64)
    once: Ints = uids[copies(uids)[1] == 0]
    return once[: source.replica.log_start]


def deleted_behind(
    view: PartitionView, mirrored_range: MirroredRange, destination: Log, behind: Ints, older: int
) -> Ints:
    """The positions that arrived before the mirror began again, among those behind the front,
    `older` records before the first.

    What is left of a log that lost its beginning may begin in what was mirrored again; the first
    copies, and what had come after them, are gone. As above: the destination had no more different
    payloads there than it has deleted offsets.
    """
    if not _may_have_repeated(view, mirrored_range.destination):
        return behind[:0]
    return behind[behind + older < destination.replica.log_start]


def _may_have_repeated(view: PartitionView, cluster: str, *, but: Collection[str] = ()) -> bool:
    """Whether a mirror on the way to a cluster delivers at least once, and there was a fault to
    it; `but`: faults of these names do not count."""
    if view.guarantee.offsets_kept or view.guarantee.delivery == "exactly-once":
        return False
    behind = view.upstream(cluster) | {cluster}
    into = [f"{source}->{end}" for source, end in view.hops() if end in behind]
    faults = [window for window in view.windows if window.fault not in but]
    return any(touches(window, link) for window in faults for link in into)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """Records that one end of a mirror has and the other lacks where its cleaner has been, as
    indexes: those that it took or may have taken (`may`), of which `unknown` are those where nobody
    can know; and those that it never takes (`kept`)."""

    may: Ints
    unknown: Ints
    kept: Ints


def cleaned_at_destination(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Replica,
    destination: Replica,
    sequence: Ints,
    arrived_at: Ints,
) -> Cleared:
    """What the destination's cleaner may have taken, among the records that the source sent and
    the destination lacks.

    Where offsets are kept that is all below its checkpoint: `record-equality` compares the records.
    Whether a record behind the last that is there had arrived at all is unknown if the mirror may
    have written records twice, or writes markers, or others wrote there.
    """
    upto = cleaned_up_to(view, destination)
    end = min(upto, mirrored_range.end)
    last = np.flatnonzero(arrived_at >= 0).max(initial=-1)
    if view.guarantee.offsets_kept:
        tail = np.flatnonzero(source.records.offset[sequence[last + 1 :]] < end) + last + 1
        may = np.concatenate((_below(arrived_at, upto, -1), tail))
        return Cleared(may=may, unknown=may[:0], kept=may[:0])
    before = {mirrored_range.source} | view.upstream(mirrored_range.source)
    others = view.upstream(mirrored_range.destination) - before
    once = not _may_have_repeated(view, mirrored_range.destination, but=(PLANNED, FORCED))
    asked = _below(arrived_at, upto, end)
    # What was mirrored after the source was copied is on the destination alone.
    arrived_to = int(arrived_at.max(initial=-1)) + 1
    since = mirrored_range.end if view.recorded else min(mirrored_range.end, arrived_to)
    said = _may_go(
        view,
        _Lacking(log=destination, at=arrived_at, since=since, others=others, once=once),
        source,
        sequence,
        asked,
    )
    arrived = once and not others and view.guarantee.delivery != "exactly-once"
    said[(asked > last) & (said == 0) & (not arrived)] = -1
    return Cleared(may=asked[said != 0], unknown=asked[said < 0], kept=asked[said == 0])


def cleaned_at_source(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Replica,
    destination: Replica,
    mirrored: Ints,
    sent_at: Ints,
) -> Cleared:
    """What the source's cleaner may have taken, among the mirrored records that the source lacks.
    `sent_at` are offsets at the source, or -1."""
    upto = cleaned_up_to(view, source)
    asked = _below(sent_at, upto, upto)
    others = view.upstream(mirrored_range.source)
    once = not _may_have_repeated(view, mirrored_range.destination, but=(PLANNED, FORCED))
    said = _may_go(
        view,
        _Lacking(log=source, at=sent_at, others=others, once=once),
        destination,
        mirrored,
        asked,
    )
    return Cleared(may=asked[said != 0], unknown=asked[said < 0], kept=asked[said == 0])


def cleaned_up_to(view: PartitionView, replica: Replica) -> int:
    """As `compacted`; of copied logs up to the last offset that is missing."""
    noted, batches = compacted(view, replica), replica.batches
    if view.recorded or not noted:
        return noted
    gaps = batches.base_offset[1:] > batches.last_offset[:-1] + 1
    return max(noted, int(batches.base_offset[1:][gaps].max(initial=0)))


def _below(at: Ints, compacted: int, end: int) -> Ints:
    """The records without an offset in a log that come behind one below `compacted`; behind the
    last one that has one, as many as there are offsets before `end`."""
    present, missing = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
    index = np.searchsorted(present, missing)
    before: Ints = np.concatenate(([-1], at[present]))[index]
    nth = np.arange(len(missing)) - np.searchsorted(index, len(present))
    inside = np.where(index < len(present), before + 1 < compacted, nth < end - before - 1)
    return missing[inside]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lacking:
    """One end of a mirror, and the offset of what was mirrored there (`at`, -1: none).

    What was missing was behind the record before it and in front of the one after it; without an
    offset free between them it was never there, if nothing came twice (`once`). From offset `since`
    on clients wrote their own records; -1: everywhere. `others` are clusters from which more came.
    """

    log: Replica
    at: Ints
    since: int = -1
    others: frozenset[str]
    once: bool


def _may_go(
    view: PartitionView, lacking: _Lacking, holder: Replica, rows: Ints, asked: Ints
) -> Ints:
    """Per record asked for (an index into `rows`, records of the other end in the order in which
    they were mirrored), 1 where the cleaner of the log that lacks it may have taken it, 0 where
    not, -1 where that cannot be known."""
    if not len(asked):
        return asked
    crossed = max(int(asked[-1]), int(np.flatnonzero(lacking.at >= 0).max(initial=-1))) + 1
    offsets = _Offsets(lacking.at[:crossed], once=lacking.once)
    # What replaced a record may lie above the checkpoint that was copied, or that the bytes show.
    upto = cleaned_up_to(view, lacking.log) if view.recorded else lacking.log.end
    every, has_key = _at_offsets(holder, rows[:crossed], offsets.first)
    wanted = np.flatnonzero(np.isin(np.flatnonzero(has_key), asked))
    cleaner = Cleaned(
        lacking.log, [every], upto=upto, expired=tombstones_expired(view, lacking.log)
    )
    certain = cleaner.may_go(every, wanted)
    for index in np.flatnonzero(certain < 1).tolist():
        row = wanted[index : index + 1]
        since = lacking.since if lacking.since >= 0 else int(every.parts.offset[row[0]]) + 1
        (gone,) = gone_tombstones(view, every, row, lacking=lacking.log, since=since, upto=upto)
        certain[index] = gone or certain[index]
    unread = (
        not has_key.all() or not among(lacking.log.records.offset, lacking.log.parts.offset).all()
    )
    unread |= bool(lacking.others) and not view.recorded
    unsure = np.isin(every.parts.key[wanted], deleted_keys(view, lacking.others)) | unread
    certain[unsure & (certain == 0)] = -1
    said = np.full(len(asked), -1, np.int64)
    said[has_key[asked]] = certain
    if lacking.once:
        said[offsets.beyond(asked, said != 0)] = 0
    return said


class _Offsets:
    """Per record the first offset at which it can have been, by those before and after it."""

    def __init__(self, at: Ints, *, once: bool) -> None:
        present, missing = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        self._gap = np.searchsorted(present, np.arange(len(at)))
        gap = self._gap[missing]
        begin, end = np.searchsorted(gap, gap), np.searchsorted(gap, gap, side="right")
        before: Ints = np.concatenate(([-1], np.maximum.accumulate(at[present])))
        after: Ints = np.concatenate((np.minimum.accumulate(at[present][::-1])[::-1], [FOREVER]))
        self._room = np.maximum(after - before - 1, 0)
        nth = np.arange(len(missing)) - begin
        self.first = at.copy()
        self.first[missing] = (
            before[gap] + 1 + np.minimum(nth, np.maximum(self._room[gap] - 1, 0))
            if once
            else np.minimum(before[gap], after[gap] - (end - begin) - 1) + 1 + nth
        )

    def beyond(self, rows: Ints, had: Bools) -> Bools:
        """Which of these rows are more than there is room for between their neighbours, the last
        ones; `had`: which of them need an offset."""
        gap = self._gap[rows]
        before: Ints = np.cumsum(had) - had
        begin = np.searchsorted(gap, gap)
        return np.asarray(had & (before - before[begin] >= self._room[gap]))


def _at_offsets(holder: Replica, rows: Ints, offsets: Ints) -> tuple[Replica, Bools]:
    """Records of a log at their offsets in another, as far as their keys were read, and which those
    are."""
    at = locate(holder.parts.offset, holder.records.offset[rows])
    known = at >= 0
    moved = replace(holder.parts.take(at[known]), offset=offsets[known])
    return replace(up_to(holder, 0), parts=moved), known
