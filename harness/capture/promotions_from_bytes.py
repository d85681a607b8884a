"""Finds the promotions of logs without a recorded history, by their control records.

A KIP-1279 mirror that is stopped writes to every partition an ABORT marker for each open
transaction, then one control record MIRROR_PID_RESET, all in one leader epoch of the destination.
Everything behind them is the destination's own, so the promotion offset is that of the first of
these markers. A reset that the link's source has too was mirrored from there.

If the mirror was reversed (links both ways), the resets are the destination's and the source's in
turn. The bytes also show the reversal itself: the former owner's log has the new owner's batch at
the promotion offset.

Retention and DeleteRecords delete the beginning of a log, and with it in time every reset. A reset
lies behind everything that was mirrored before it. So a log that still has a mirrored batch (one at
the same offsets with the same time as at the source) still has the reset, if there was one. A log
that begins behind offset 0 and has no batch of its source may be its cluster's own from its first
offset on, or the log of a mirror that failed. That is unknown, unless the user names the promotion
(`--promotion`): an event `promotion-unknown` says so. The same holds for a topic of which no record
is the source's, by key and value, in any partition: both clusters may have one of that name, which
no mirror copies.

A mirror that moves offsets leaves no such mark, and no batch of the source at its offset. There
only the records say whether the source has any of them, wherever the logs begin.

Without its first resets, the owner of each that is left is not known from their order alone. If one
log has a reset, and the other reaches back that far and lacks it, the first log's cluster wrote it.
Otherwise the cluster whose log reaches further wrote last.

The times of the events are invented, in order: one round of promotions after the other, each not
before its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import batches, records
from linkflap.harness.log.batch_headers import Headers, reset_rows
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

_FEWEST = 3
"""Records of a topic on either side, without which nothing shows that they are strangers."""
_FIRST = 2000
"""Batches of a log that nearly always show that it is none."""
Log = batches.ReplicaLog | None
Contents = NDArray[np.int64]
"""For each record, 64 bits over its key and value."""
ByCluster = Mapping[str, batches.ReplicaLog]
"""The log of each cluster that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """From `offset` on, a cluster's log is its own; `sure` is False if no reset proves it."""

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


def first_offset(log: Log) -> int:
    """The first offset that a log has bytes of; where it has no batch, the one its first file is
    named by."""
    if log is None:
        return 0
    if len(log.headers):
        return int(log.headers.base_offset.min())
    return max((offset_in(segment.name) for segment in log.segments[:1]), default=0)


def end_offset(log: Log) -> int:
    """The offset behind a log's last batch."""
    return (
        first_offset(log)
        if log is None or not len(log.headers)
        else int(log.headers.last_offset.max()) + 1
    )


def also_in(ours: Log, theirs: Log) -> NDArray[np.bool_]:
    """Per batch of ours, whether the other log has one at the same offsets that was written at the
    same time.

    Other bytes do not matter here: a mirror may have changed the producer id, and a disk anything.
    """
    if ours is None or theirs is None or not len(theirs.headers):
        return np.zeros(0 if ours is None else len(ours.headers), np.bool_)
    partner = partners(ours.headers, theirs.headers)
    names = ("base_offset", "last_offset", "max_timestamp")
    same = [getattr(ours.headers, name) == getattr(theirs.headers, name)[partner] for name in names]
    return np.asarray(np.all(same, axis=0), np.bool_)


def partners(ours: Headers, theirs: Headers) -> NDArray[np.intp]:
    """Per batch of ours, the batch of theirs with the same base offset; any other one if there is
    none."""
    order = np.argsort(theirs.base_offset, kind="stable")
    at = np.searchsorted(theirs.base_offset[order], ours.base_offset)
    return order[np.minimum(at, len(order) - 1)]


def unproven(ours: Log, theirs: Log, cluster: str) -> list[Promoted]:
    """The promotion at a destination's first offset that no reset proves. None if all of the log
    may have been mirrored from the source."""
    if ours is None or not len(ours.headers) or not (first := first_offset(ours)):
        return []
    if also_in(ours, theirs).any() or not (ours.headers.last_offset >= first_offset(theirs)).any():
        return []
    return [Promoted(cluster=cluster, offset=first, sure=False)]


def was_mirrored(mark: ResetMark, ours: Log, theirs: Log) -> bool:
    """Whether a reset that only the destination still has was mirrored: batches of the source
    follow it."""
    if ours is None or mark.reset >= first_offset(theirs):
        return False
    return bool((also_in(ours, theirs) & (ours.headers.base_offset > mark.reset)).any())


def of_reversed_mirror(marks: Marks, logs: ByCluster, link: LinkSpec) -> list[Promoted]:
    """The promotions of a mirror that was reversed, the destination's first, where logs have lost
    their beginning."""
    first, second = link.destination, link.source
    every = sorted((m for own in marks.values() for m in own), key=lambda m: (m.reset, m.begin))
    began = {mark.reset: mark.begin for mark in reversed(every)}
    # A first promotion whose reset is gone came before everything that is left.
    lost = min(first_offset(logs.get(name)) for name in (first, second))
    if not began:
        return _without_resets(logs, link, lost)
    swapped = _first_is_the_sources(sorted(began), marks, logs, link)
    owners = (second, first) if swapped else (first, second)
    found = [
        Promoted(cluster=owners[n % 2], offset=begin)
        for n, (_, begin) in enumerate(sorted(began.items()))
    ]
    follower = next(name for name in owners if name != found[-1].cluster)
    # Behind the last reset that is left, the other cluster may have been promoted once more, and
    # have kept only what it wrote since.
    if first_offset(logs.get(follower)) > found[-1].offset:
        found += unproven(logs.get(follower), logs.get(found[-1].cluster), follower)
    return [Promoted(cluster=first, offset=lost), *found] if swapped else found


def _first_is_the_sources(
    resets: Sequence[int], marks: Marks, logs: ByCluster, link: LinkSpec
) -> bool:
    """Whether the source wrote the first reset that is left."""
    names = (link.destination, link.source)
    for number, reset in enumerate(resets):
        has = [name for name in names if any(m.reset == reset for m in marks.get(name, ()))]
        other = next((name for name in names if name not in has), "")
        if len(has) == 1 and first_offset(logs.get(other)) <= reset:
            return names.index(has[0]) != number % 2
    if min(first_offset(logs.get(name)) for name in names) == 0:
        return False
    further = max(names, key=lambda name: end_offset(logs.get(name)))
    return names.index(further) != (len(resets) - 1) % 2


def _without_resets(logs: ByCluster, link: LinkSpec, lost: int) -> list[Promoted]:
    """Without any reset: where both logs have the same batches, either may be the mirror of the
    other. A destination that reaches further may be the owner."""
    ours, theirs = logs.get(link.destination), logs.get(link.source)
    if ours is None or not also_in(ours, theirs).any():
        return unproven(ours, theirs, link.destination)
    return (
        [Promoted(cluster=link.destination, offset=lost, sure=False)]
        if lost and end_offset(ours) > end_offset(theirs)
        else []
    )


Logs = Iterable[tuple[TopicPartition, ByCluster]]
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


def promotions_in(
    logs: Logs,
    links: Sequence[LinkSpec],
    given: Given,
    homes: Mapping[str, str] | None = None,
    *,
    kept: bool = True,
) -> tuple[list[Event], int]:
    """Events `promotion`, and for each reversal those of a `mirror-reverse`; and when the logs end.

    `homes`: of each topic, by default the source of the first link. `kept`: the mirror keeps
    offsets. Holds the logs of one partition at a time.
    """
    rounds: dict[TopicPartition, list[_Promotion]] = {}
    strangers = _Strangers(links, homes or {}, kept=kept)
    ended = 0
    for tp, by_cluster in logs:
        ended = max([ended, *map(_latest, by_cluster.values())])
        named = _named(given, tp)
        found = named or (_of_partition(by_cluster, links) if kept else [])
        rounds[tp] = [_promotion(each, by_cluster, links) for each in found]
        if not named:
            strangers.compare(tp, by_cluster, promoted=bool(found))
    for tp, promotion in strangers.found():
        rounds[tp].append(promotion)
    events, time = _in_rounds(rounds, links)
    return events, max(ended, time + 1)


def _in_rounds(
    rounds: Mapping[TopicPartition, Sequence[_Promotion]], links: Sequence[LinkSpec]
) -> tuple[list[Event], int]:
    """The events of all promotions, one round after the other, and the time of the last."""
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
                        link=_link_to(links, promotion.cluster).name,
                        cluster=promotion.cluster,
                        topic=topic,
                        partition=partition,
                        offset=promotion.offset,
                    )
                )
        for link in dict.fromkeys(
            _link_to(links, promotion.cluster) for _, promotion in now if promotion.followed
        ):
            events += _reversal(link, number, time + 1)
            time += 3
    return events, time


def _link_to(links: Sequence[LinkSpec], cluster: str) -> LinkSpec:
    return next(link for link in links if link.destination == cluster)


def _named(given: Given, tp: TopicPartition) -> list[Promoted]:
    """The promotions that the user named, in their order."""
    named = [
        (cluster, o)
        for (cluster, topic, number), offsets in given.items()
        if (topic, number) == tp
        for o in offsets
    ]
    return [
        Promoted(cluster=cluster, offset=offset)
        for cluster, offset in sorted(named, key=lambda t: t[1])
    ]


def _promotion(promoted: Promoted, logs: ByCluster, links: Sequence[LinkSpec]) -> _Promotion:
    return _Promotion(
        cluster=promoted.cluster,
        offset=promoted.offset,
        written=_written(logs[promoted.cluster], promoted.offset),
        followed=_follows_new_owner(logs, links, promoted.cluster, promoted.offset),
        sure=promoted.sure,
    )


class _Strangers:
    """Topics of which no record of a destination is in its source, by key and value, in any of its
    partitions: what may be the destination's own from its first offset on."""

    def __init__(self, links: Sequence[LinkSpec], homes: Mapping[str, str], *, kept: bool) -> None:
        self._links, self._homes, self._kept = links, homes, kept
        self._mirrored: set[tuple[LinkSpec, str]] = set()
        self._apart: dict[tuple[LinkSpec, str], list[tuple[TopicPartition, _Promotion]]] = {}
        self._contents: dict[tuple[LinkSpec, str], list[tuple[Contents, Contents]]] = {}

    def compare(self, tp: TopicPartition, logs: ByCluster, *, promoted: bool) -> None:
        """Takes one partition; `promoted`: its bytes show that it was mirrored."""
        for link in self._links:
            topic, ours, theirs = (link, tp[0]), logs.get(link.destination), logs.get(link.source)
            if link.destination == self._homes.get(tp[0], self._links[0].source):
                continue
            if promoted or self._arrived(ours, theirs):
                self._mirrored.add(topic)
            if topic in self._mirrored or ours is None or theirs is None:
                continue
            if (contents := _apart(ours, theirs)) is None:
                self._mirrored.add(topic)
                continue
            own = Promoted(cluster=link.destination, offset=first_offset(ours), sure=False)
            self._contents.setdefault(topic, []).append(contents)
            self._apart.setdefault(topic, []).append((tp, _promotion(own, logs, self._links)))

    def _arrived(self, ours: Log, theirs: Log) -> bool:
        """Whether batches show that it was mirrored; or one beginning is gone, and with it perhaps
        all that both had."""
        if not self._kept:
            return False
        return bool(first_offset(ours) or first_offset(theirs) or also_in(ours, theirs).any())

    def found(self) -> Iterator[tuple[TopicPartition, _Promotion]]:
        for topic, promotions in self._apart.items():
            mine, other = (
                np.concatenate(side) for side in zip(*self._contents[topic], strict=True)
            )
            short = min(len(mine), len(other)) < _FEWEST
            if topic not in self._mirrored and not short and not np.isin(mine, other).any():
                yield from promotions


def _apart(
    ours: batches.ReplicaLog, theirs: batches.ReplicaLog
) -> tuple[Contents, Contents] | None:
    """The contents of the records of both; None if they have any in common."""
    for most in (_FIRST, max(len(ours.headers), len(theirs.headers))):
        mine, other = (records.decode(log, 0, most)[0].content for log in (ours, theirs))
        if np.isin(mine, other).any():
            return None
        if most >= max(len(ours.headers), len(theirs.headers)):
            break
    return mine, other


def _of_partition(logs: ByCluster, links: Sequence[LinkSpec]) -> list[Promoted]:
    """The promotions of one partition in their order, of a mirror that keeps offsets."""
    marks = {name: _resets(log) for name, log in logs.items()}
    if len(links) == 2 and (links[0].source, links[0].destination) == (
        links[1].destination,
        links[1].source,
    ):
        late = any(first_offset(logs.get(name)) for name in (links[0].source, links[0].destination))
        return of_reversed_mirror(marks, logs, links[0]) if late else _alternating(marks, links[0])
    return sorted(
        (each for link in links for each in _over_link(link, marks, logs)), key=lambda p: p.offset
    )


def _over_link(
    link: LinkSpec, marks: Mapping[str, Sequence[ResetMark]], logs: ByCluster
) -> list[Promoted]:
    """The promotion of one link's destination, if there was one."""
    ours, source = logs.get(link.destination), logs.get(link.source)
    theirs = {mark.begin for mark in marks.get(link.source, ())}
    own = [
        m
        for m in marks.get(link.destination, ())
        if m.begin not in theirs and not was_mirrored(m, ours, source)
    ]
    return (
        [Promoted(cluster=link.destination, offset=own[0].begin)]
        if own
        else unproven(ours, source, link.destination)
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


def _follows_new_owner(
    logs: ByCluster, links: Sequence[LinkSpec], cluster: str, offset: int
) -> bool:
    """Whether the former owner has the new owner's batch at the offset where the new owner's part
    begins."""
    link = _link_to(links, cluster)
    if not any(
        (back.source, back.destination) == (link.destination, link.source) for back in links
    ):
        return False
    # Either log may have lost its beginning since.
    offset = max(offset, first_offset(logs.get(cluster)), first_offset(logs.get(link.source)))
    ours, theirs = _batch_at(logs.get(cluster), offset), _batch_at(logs.get(link.source), offset)
    return ours is not None and ours == theirs


def _batch_at(log: Log, offset: int) -> tuple[int, int, int] | None:
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
    return [
        ResetMark(begin=int(headers.base_offset[first]), reset=int(headers.base_offset[reset]))
        for first, reset in reset_rows(headers)
        if headers.crc_ok[reset]
    ]


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
