"""Promotions inferred from control records, for logs without a recorded history.

When a KIP-1279 mirror is stopped, it writes to every partition an ABORT marker for each open
transaction and then one control record MIRROR_PID_RESET, all in one of the destination's own leader
epochs. Everything after them is the destination's. So the offset of the first of those markers is
the promotion's. A reset that is on the link's source too was mirrored. Where the mirror was
reversed (links both ways), the resets are the destination's and the source's in turn. The bytes
also show the reversal: the cluster that was failed over from has the new owner's batch at the
promotion's offset.

A mark may have been deleted with the beginning of its log (`harness.capture.unmarked`). If that
leaves the owner of a log open, an event `promotion-unknown` is recorded.

Times are invented so that they are in order: one round of promotions after the other, each not
before its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from linkflap.harness.capture.unmarked import (
    Promoted,
    ResetMark,
    begins,
    came_over,
    in_turn,
    unmarked,
)
from linkflap.harness.log import batches, layout
from linkflap.harness.log.batch_headers import Headers
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
