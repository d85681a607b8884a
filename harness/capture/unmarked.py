"""Promotions whose mark is gone: retention and DeleteRecords delete a log's beginning, and in time
everything that was mirrored with it.

A mark (MIRROR_PID_RESET) is behind everything that was mirrored before it. So a log that still has
a mirrored batch still has the mark, if there was one. A log that lost the mark begins with its
cluster's own records. The bytes that a log shares with the source tell the two cases apart: a batch
at the same offsets that was written at the same time was mirrored. Suppose that a log begins behind
offset 0, shares nothing with its source, and has what the source has not. Then it may be its
cluster's own from its first offset on, or the log of a mirror that failed: that is unknown, unless
the user names the promotion (`--promotion`).

Where the mirror was reversed, marks are the destination's and the source's in turn. Without the
first ones their order alone does not show the owner of each. If one log has a mark, and the other
reaches back that far and lacks it, the mark is of the log that has it. Otherwise the log that
reaches further was written last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import batches
from linkflap.harness.log.segment_files import offset_in
from linkflap.harness.model.topology import LinkSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """From `offset` on a cluster's log is its own; `sure` is False if no mark proves it."""

    cluster: str
    offset: int
    sure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetMark:
    """A MIRROR_PID_RESET: the first offset of the markers that belong to it, and its own."""

    begin: int
    reset: int


Marks = Mapping[str, Sequence[ResetMark]]
"""By cluster, what its log has, in offset order."""


def begins(log: batches.ReplicaLog | None) -> int:
    """The first offset that a log has bytes of; where it has no batch, the one its first file is
    named by."""
    if log is None:
        return 0
    if len(log.headers):
        return int(log.headers.base_offset.min())
    return max((offset_in(segment.name) for segment in log.segments[:1]), default=0)


def ends(log: batches.ReplicaLog | None) -> int:
    """The offset behind a log's last batch."""
    return (
        begins(log)
        if log is None or not len(log.headers)
        else int(log.headers.last_offset.max()) + 1
    )


def shared(ours: batches.ReplicaLog | None, theirs: batches.ReplicaLog | None) -> NDArray[np.bool_]:
    """Per batch of ours, whether the other log has one at the same offsets that was written at the
    same time.

    Other bytes do not matter here: a mirror may have changed the producer id, and a disk anything.
    """
    if ours is None or theirs is None or not len(theirs.headers):
        return np.zeros(0 if ours is None else len(ours.headers), np.bool_)
    order = np.argsort(theirs.headers.base_offset, kind="stable")
    at = np.searchsorted(theirs.headers.base_offset[order], ours.headers.base_offset)
    partner = order[np.minimum(at, len(order) - 1)]
    names = ("base_offset", "last_offset", "max_timestamp")
    same = [getattr(ours.headers, name) == getattr(theirs.headers, name)[partner] for name in names]
    return np.asarray(np.all(same, axis=0), np.bool_)


def unmarked(
    ours: batches.ReplicaLog | None, theirs: batches.ReplicaLog | None, cluster: str
) -> list[Promoted]:
    """What may be a destination's own from its first offset on; none where its log can be what its
    source has, or is."""
    if ours is None or not len(ours.headers) or begins(ours) == 0 or shared(ours, theirs).any():
        return []
    stranger = ours.headers.last_offset >= begins(theirs)
    return [Promoted(cluster=cluster, offset=begins(ours), sure=False)] if stranger.any() else []


def came_over(
    mark: ResetMark, ours: batches.ReplicaLog | None, theirs: batches.ReplicaLog | None
) -> bool:
    """Whether a mark that only the destination still has came from its source: the source's own
    batches continue behind it."""
    if ours is None or mark.reset >= begins(theirs):
        return False
    return bool((shared(ours, theirs) & (ours.headers.base_offset > mark.reset)).any())


def in_turn(marks: Marks, logs: Mapping[str, batches.ReplicaLog], link: LinkSpec) -> list[Promoted]:
    """Who left each mark, where the mirror was reversed and logs lost their beginning; first the
    destination did."""
    first, second = link.destination, link.source
    every = sorted((m for own in marks.values() for m in own), key=lambda m: (m.reset, m.begin))
    began = {mark.reset: mark.begin for mark in reversed(every)}
    # A first promotion whose mark is gone was before anything that is left was written.
    lost = min(begins(logs.get(name)) for name in (first, second))
    if not began:
        return _no_mark(logs, link, lost)
    swapped = _swapped(sorted(began), marks, logs, link)
    owners = (second, first) if swapped else (first, second)
    found = [
        Promoted(cluster=owners[n % 2], offset=begin)
        for n, (_, begin) in enumerate(sorted(began.items()))
    ]
    follower = next(name for name in owners if name != found[-1].cluster)
    # Behind the last mark that is left, the other one may have been promoted once more, and lost
    # all but what is its own since.
    if begins(logs.get(follower)) > found[-1].offset:
        found += unmarked(logs.get(follower), logs.get(found[-1].cluster), follower)
    return [Promoted(cluster=first, offset=lost), *found] if swapped else found


def _swapped(
    resets: Sequence[int], marks: Marks, logs: Mapping[str, batches.ReplicaLog], link: LinkSpec
) -> bool:
    """Whether the first mark that is left is the source's."""
    names = (link.destination, link.source)
    for number, reset in enumerate(resets):
        has = [name for name in names if any(m.reset == reset for m in marks.get(name, ()))]
        other = next((name for name in names if name not in has), "")
        if len(has) == 1 and begins(logs.get(other)) <= reset:
            return names.index(has[0]) != number % 2
    if min(begins(logs.get(name)) for name in names) == 0:
        return False
    further = max(names, key=lambda name: ends(logs.get(name)))
    return names.index(further) != (len(resets) - 1) % 2


def _no_mark(logs: Mapping[str, batches.ReplicaLog], link: LinkSpec, lost: int) -> list[Promoted]:
    """Where both have the same, either may be the other's mirror; if the destination reaches
    further, it may be the owner."""
    ours, theirs = logs.get(link.destination), logs.get(link.source)
    if ours is None or not shared(ours, theirs).any():
        return unmarked(ours, theirs, link.destination)
    return (
        [Promoted(cluster=link.destination, offset=lost, sure=False)]
        if lost and ends(ours) > ends(theirs)
        else []
    )
