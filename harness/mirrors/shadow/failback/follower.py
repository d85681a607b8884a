"""A follower's requests to a leader: its log ends, its leader epochs, and to join the ISR.

A leader judges a follower by its fetch offset (KIP-497, Partition.maybeExpandIsr). So a shadow that
fetches at the log end counts as in sync, although it stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.log.leader_epochs import NONE, Entry, Lineage
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection, Unanswered
from linkflap.harness.wire.messages import Error, Message

_WAIT: Final = timedelta(milliseconds=20)
_LATEST: Final = -1


class Leaders:
    """Connections to the leaders of one cluster, one per address."""

    def __init__(self) -> None:
        self._known: dict[str, Connection] = {}

    def at(self, address: str) -> Connection:
        return self._known.setdefault(address, Connection(address))

    def close(self) -> None:
        for connection in self._known.values():
            connection.close()


async def epochs_of(
    leader: Connection, latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Lineage, int]]:
    """Partition -> (its leader epochs, its log end). `latest`: partition -> its current leader
    epoch.

    OffsetForLeaderEpoch returns the end of one epoch at a time. So the epochs are requested from
    the newest to the oldest, for all partitions at once. Raises Unanswered.
    """
    ends: dict[TopicPartition, list[Entry]] = {tp: [] for tp in latest}
    asked = dict(latest)
    while asked:
        answers = await _epoch_ends(leader, asked)
        asked = {
            tp: below
            for tp, entry in answers.items()
            if (below := _note(ends[tp], entry, asked[tp])) >= 0
        }
    return {tp: _lineage(found) for tp, found in ends.items()}


def _note(ends: list[Entry], entry: Entry, asked: int) -> int:
    """Adds (epoch, its end offset). Returns the epoch to request next, or NONE when all are
    known."""
    epoch, end = entry
    if epoch == NONE:
        # Either above all epochs of the leader, which has written nothing in its newest one, or
        # below them.
        return NONE if ends else asked - 1
    if len(ends) > 1 and end >= ends[-1][1]:
        # No such epoch: the answer is the start of the oldest one. Only the newest epoch can be
        # empty.
        return NONE
    ends.append(entry)
    return epoch - 1 if end > 0 else NONE


def _lineage(ends: list[Entry]) -> tuple[Lineage, int]:
    """The lineage of (epoch, end) entries in descending order: each epoch begins where the one
    before it ends. And the log end."""
    lineage = Lineage()
    start = 0
    for epoch, end in reversed(ends):
        lineage.begin(epoch, start)
        start = end
    return lineage, start


async def _epoch_ends(
    leader: Connection, asked: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Entry]:
    m = messages.request("offset_for_leader_epoch", 4)
    topics = tuple(
        m.OffsetForLeaderTopic(
            topic=topic,
            partitions=tuple(
                m.OffsetForLeaderPartition(
                    partition=number, current_leader_epoch=-1, leader_epoch=asked[topic, number]
                )
                for number in numbers
            ),
        )
        for topic, numbers in _by_topic(asked).items()
    )
    answer = await leader.call(
        "offset_for_leader_epoch", 4, m.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    )
    found: dict[TopicPartition, Entry] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            _check(
                row,
                f"{leader.address} did not return the leader epochs of"
                f" {topic.topic}-{row.partition}",
            )
            found[str(topic.topic), int(row.partition)] = int(row.leader_epoch), int(row.end_offset)
    return found


async def claim(
    leader: Connection,
    ids: Mapping[str, Message],
    tps: Iterable[TopicPartition],
    *,
    broker: int,
    epoch: int,
) -> None:
    """Fetches once at the log ends of these partitions, as follower `broker` with broker epoch
    `epoch`.

    Ignores a refusal (the leader may not know its new replica yet): the ISR shows the result.
    Raises Unanswered.
    """
    ends = await _log_ends(leader, tps, broker)
    m = messages.request("fetch", 17)
    topics = tuple(
        m.FetchTopic(
            topic_id=ids[topic],
            partitions=tuple(
                m.FetchPartition(
                    partition=number,
                    fetch_offset=ends[topic, number],
                    log_start_offset=0,
                    partition_max_bytes=1,
                )
                for number in numbers
            ),
        )
        for topic, numbers in _by_topic(ends).items()
    )
    if not topics:
        await asyncio.sleep(_WAIT.total_seconds())
        return
    body = m.FetchRequest(
        replica_state=m.ReplicaState(replica_id=broker, replica_epoch=epoch),
        max_wait=_WAIT,
        min_bytes=1,
        max_bytes=1,
        topics=topics,
        forgotten_topics_data=(),
    )
    await leader.call("fetch", 17, body)


async def _log_ends(
    leader: Connection, tps: Iterable[TopicPartition], broker: int
) -> dict[TopicPartition, int]:
    """Log end offsets, as a replica gets them, of those of the partitions that this broker
    leads."""
    m = messages.request("list_offsets", 7)
    topics = tuple(
        m.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                m.ListOffsetsPartition(partition_index=n, timestamp=_LATEST) for n in numbers
            ),
        )
        for topic, numbers in _by_topic(tps).items()
    )
    answer = await leader.call(
        "list_offsets", 7, m.ListOffsetsRequest(replica_id=broker, isolation_level=0, topics=topics)
    )
    return {
        (str(topic.name), int(row.partition_index)): int(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == Error.none
    }


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in tps:
        found.setdefault(topic, []).append(number)
    return found


def _check(row: Message, what: str) -> None:
    if row.error_code != Error.none:
        raise Unanswered(f"{what}: {row.error_code.name}")
