"""Promotions inferred from control records, for logs without a recorded history.

When a KIP-1279 mirror is stopped, it writes to every partition an ABORT marker for each open
transaction and then one control record MIRROR_PID_RESET, all in one of the destination's own leader
epochs. Everything after them is the destination's. So the offset of the first of those markers is
the promotion's. A reset that is on the link's source too was mirrored. Where the mirror was
reversed (links both ways), the resets are the destination's and the source's in turn. The bytes
also show the reversal: the cluster that was failed over from has the new owner's batch at the
promotion's offset.

A mark may have been deleted with the beginning of its log. If that leaves the owner of a log open,
an event `promotion-unknown` is recorded.

Times are invented so that they are in order: one round of promotions after the other, each not
before its bytes.

A mark may be gone: retention and DeleteRecords delete a log's beginning, and in time everything
that was mirrored with it.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import batches, layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.segments import offset_in
from linkflap.harness.model.events import (
    Event,
    FaultEnd,
    FaultStart,
    MirrorStarted,
    Promotion,
    PromotionUnknown,
)
from linkflap.harness.model.faults import REVERSE
from linkflap.harness.model.topology import LinkSpec, TopicPartition


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


Logs = Iterable[tuple[TopicPartition, Mapping[str, batches.ReplicaLog]]]
"""Per partition, the log of each cluster."""
Given = Mapping[tuple[str, str, int], Sequence[int]]
"""Promotions that the user named: cluster, topic, partition -> offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promotion:
    """One promotion of one partition: when its bytes were written (nanoseconds), and whether the
    former owner has them too. `sure` is False if no mark of it is left.
    """

    cluster: str
    offset: int
    written: int
    followed: bool
    sure: bool


def promotions_in(logs: Logs, links: Sequence[LinkSpec], given: Given) -> tuple[list[Event], int]:
    """Events `promotion`, and for each reversal those of a `mirror-reverse`; and when the logs end.

    Holds the logs of one partition at a time.
    """
    rounds: dict[TopicPartition, list[_Promotion]] = {}
    ended = 0
    for tp, by_cluster in logs:
        ended = max([ended, *map(_latest, by_cluster.values())])
        rounds[tp] = [
            _Promotion(
                cluster=each.cluster, offset=each.offset,
                written=_written(by_cluster[each.cluster], each.offset),
                followed=_follows(by_cluster, links, each.cluster, each.offset), sure=each.sure,
            )
            for each in _rounds(by_cluster, links, given, tp)
        ]  # fmt: skip
    events: list[Event] = []
    time = 0
    for number in range(max((len(own) for own in rounds.values()), default=0)):
        now = [(tp, own[number]) for tp, own in sorted(rounds.items()) if number < len(own)]
        time = max([time + 1, *(promotion.written for _, promotion in now)])
        for (topic, partition), promotion in now:
            for kind in (Promotion,) if promotion.sure else (Promotion, PromotionUnknown):
                events.append(
                    kind(
                        time=time,
                        link=_into(links, promotion.cluster).name,
                        cluster=promotion.cluster,
                        topic=topic,
                        partition=partition,
                        offset=promotion.offset,
                    )
                )
        for link in dict.fromkeys(
            _into(links, promotion.cluster) for _, promotion in now if promotion.followed
        ):
            events += _reversal(link, number, time + 1)
            time += 3
    return events, max(ended, time + 1)


def _into(links: Sequence[LinkSpec], cluster: str) -> LinkSpec:
    return next(link for link in links if link.destination == cluster)


def _rounds(
    logs: Mapping[str, batches.ReplicaLog],
    links: Sequence[LinkSpec],
    given: Given,
    tp: TopicPartition,
) -> list[Promoted]:
    """The promotions of one partition in their order."""
    named = [
        (cluster, o)
        for (cluster, topic, number), offsets in given.items()
        if (topic, number) == tp
        for o in offsets
    ]
    if named:
        return [
            Promoted(cluster=cluster, offset=offset)
            for cluster, offset in sorted(named, key=lambda t: t[1])
        ]
    marks = {name: _resets(log) for name, log in logs.items()}
    if len(links) == 2 and (links[0].source, links[0].destination) == (
        links[1].destination,
        links[1].source,
    ):
        late = any(begins(logs.get(name)) for name in (links[0].source, links[0].destination))
        return in_turn(marks, logs, links[0]) if late else _alternating(marks, links[0])
    return sorted(
        (each for link in links for each in _over(link, marks, logs)), key=lambda p: p.offset
    )


def _over(
    link: LinkSpec, marks: Mapping[str, Sequence[ResetMark]], logs: Mapping[str, batches.ReplicaLog]
) -> list[Promoted]:
    """The promotion of one link's destination, if there was one."""
    ours, source = logs.get(link.destination), logs.get(link.source)
    theirs = {mark.begin for mark in marks.get(link.source, ())}
    own = [
        m
        for m in marks.get(link.destination, ())
        if m.begin not in theirs and not came_over(m, ours, source)
    ]
    return (
        [Promoted(cluster=link.destination, offset=own[0].begin)]
        if own
        else unmarked(ours, source, link.destination)
    )


def _alternating(marks: Mapping[str, Sequence[ResetMark]], link: LinkSpec) -> list[Promoted]:
    found: list[Promoted] = []
    owner, other = link.destination, link.source
    reached = -1
    while True:
        following = [mark for mark in marks.get(owner, ()) if mark.reset > reached]
        if not following:
            return found
        found.append(Promoted(cluster=owner, offset=following[0].begin))
        reached = following[0].reset
        owner, other = other, owner


def _follows(
    logs: Mapping[str, batches.ReplicaLog], links: Sequence[LinkSpec], cluster: str, offset: int
) -> bool:
    """Whether the former owner has the new owner's batch at the offset where the new owner's part
    begins."""
    link = _into(links, cluster)
    if not any(
        (back.source, back.destination) == (link.destination, link.source) for back in links
    ):
        return False
    # Either log may have lost its beginning since.
    offset = max(offset, begins(logs.get(cluster)), begins(logs.get(link.source)))
    ours, theirs = _batch_at(logs.get(cluster), offset), _batch_at(logs.get(link.source), offset)
    return ours is not None and ours == theirs


def _batch_at(log: batches.ReplicaLog | None, offset: int) -> tuple[int, int, int] | None:
    """(first offset, length, CRC) of the first batch that begins there or behind."""
    if log is None:
        return None
    at = np.flatnonzero(log.headers.base_offset >= offset)
    if not len(at):
        return None
    return (
        int(log.headers.base_offset[at[0]]),
        int(log.headers.length[at[0]]),
        int(log.headers.crc[at[0]]),
    )


def _reversal(link: LinkSpec, number: int, time: int) -> Iterator[Event]:
    turned = f"turned-{number + 1}"
    yield FaultStart(time=time, target=link.name, id=turned, fault=REVERSE)
    yield MirrorStarted(time=time + 1, link=link.reverse.name, mirror="exact")
    yield FaultEnd(time=time + 1, target=link.name, id=turned, fault=REVERSE)


def _resets(log: batches.ReplicaLog) -> list[ResetMark]:
    """Every MIRROR_PID_RESET."""
    headers = log.headers
    found = []
    for i in np.flatnonzero((headers.control == layout.OTHER_CONTROL) & headers.crc_ok).tolist():
        begin = i
        while begin > 0 and _belongs(headers, begin - 1, i):
            begin -= 1
        found.append(
            ResetMark(begin=int(headers.base_offset[begin]), reset=int(headers.base_offset[i]))
        )
    return found


def _belongs(headers: Headers, row: int, reset: int) -> bool:
    marker, epoch = (
        headers.control[row] == layout.ABORT,
        headers.leader_epoch[row] == headers.leader_epoch[reset],
    )
    return bool(marker and epoch and headers.last_offset[row] + 1 == headers.base_offset[row + 1])


def _written(log: batches.ReplicaLog, offset: int) -> int:
    """When the batch that holds an offset was written, nanoseconds; the log's end where none
    does."""
    at = np.flatnonzero(log.headers.last_offset >= offset)
    return int(log.headers.max_timestamp[at[0]]) * 1_000_000 if len(at) else _latest(log)


def _latest(log: batches.ReplicaLog) -> int:
    """The newest sound timestamp of a log, nanoseconds; 0 where there is none."""
    times = log.headers.max_timestamp
    newest_first = np.argsort(times, kind="stable")[::-1].tolist()
    return next(
        (max(0, int(times[row])) * 1_000_000 for row in newest_first if batches.is_sound(log, row)),
        0,
    )
