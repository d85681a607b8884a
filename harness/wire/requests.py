"""Requests that several packages make: their bodies, and their answers as values. The connection,
blocking or asyncio, is the caller's.

Log starts and ends of single replicas: a follower answers ListOffsets itself if the request
comes from a debugging replica (ListOffsetsRequest.DEBUGGING_REPLICA_ID).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.messages import Error, Message

_TIMEOUT: Final = timedelta(seconds=10)
PREFERRED, UNCLEAN = 0, 1
"""Types of an election (KIP-460)."""
DEBUGGING: Final = -2
"""The replica id of a request that any replica answers, whatever its isolation level."""
EARLIEST: Final = -2
LATEST: Final = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> its partitions, as requests name them."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def coordinating_partition(name: str, partitions: int) -> int:
    """The partition of a coordinator's topic to which a name belongs (a transactional id, a group,
    a mirror): Kafka's `Utils.abs(name.hashCode) % partitions`. Its `Utils.toPositive` differs for
    names with a negative hash."""
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", name.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - 0x100000000 if hashed >= 0x80000000 else hashed
    return (0 if signed == -0x80000000 else abs(signed)) % partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """One partition in a cluster's metadata; `leader` is -1 when it has none, `epoch` is the leader
    epoch."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: Message
    partitions: Mapping[int, Led]


def metadata(topics: Iterable[str] | None) -> Message:
    """Metadata v12 for these topics, or for all; creates none."""
    m = messages.request("metadata", 12)
    wanted = (
        None
        if topics is None
        else tuple(m.MetadataRequestTopic(topic_id=None, name=name) for name in topics)
    )
    return m.MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def topics_in(answer: Message) -> dict[str, Topic]:
    """The topics that an answer to `metadata` knows."""
    return {
        str(t.name): Topic(
            id=t.topic_id,
            partitions={
                int(p.partition_index): Led(
                    leader=int(p.leader_id),
                    epoch=int(p.leader_epoch),
                    replicas=tuple(map(int, p.replica_nodes)),
                    in_sync=tuple(map(int, p.isr_nodes)),
                )
                for p in t.partitions
            },
        )
        for t in answer.topics
        if t.error_code == Error.none
    }


def reassignment(wanted: Mapping[TopicPartition, Sequence[int]]) -> Message:
    """AlterPartitionReassignments v0 (KIP-455): these replicas, in this order."""
    m = messages.request("alter_partition_reassignments", 0)
    topics = tuple(
        m.ReassignableTopic(
            name=topic,
            partitions=tuple(
                m.ReassignablePartition(partition_index=n, replicas=tuple(wanted[topic, n]))
                for n in numbers
            ),
        )
        for topic, numbers in by_topic(wanted).items()
    )
    return m.AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=topics)


def new_producer(transactional_id: str | None = None, *, timeout: float = 1.0) -> Message:
    """InitProducerId v4: a producer id for a transactional id, with its timeout in seconds, or for
    none."""
    return messages.request("init_producer_id", 4).InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=timedelta(seconds=timeout),
        producer_id=-1,
        producer_epoch=-1,
    )


def election(partitions: Iterable[TopicPartition], kind: int) -> Message:
    """ElectLeaders v2 (KIP-460)."""
    m = messages.request("elect_leaders", 2)
    topics = tuple(
        m.TopicPartitions(topic=topic, partitions=tuple(numbers))
        for topic, numbers in by_topic(partitions).items()
    )
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout=_TIMEOUT)


def fetch(
    version: int, topic: Message, number: int, offset: int, *, most: int, epoch: int = -1
) -> Message:
    """Fetch of one partition, from version 12 on: `topic` is its name, from version 13 on its id.
    `epoch`: the leader epoch that the client knows."""
    m = messages.request("fetch", version)
    row = m.FetchPartition(
        partition=number,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        partition_max_bytes=most,
    )
    named = {"topic_id": topic} if version >= 13 else {"topic": topic}
    return m.FetchRequest(
        max_wait=timedelta(milliseconds=50),
        min_bytes=1,
        max_bytes=most,
        topics=(m.FetchTopic(**named, partitions=(row,)),),
        forgotten_topics_data=(),
    )


def fetched(answer: Message) -> bytes:
    """The batches of the one partition in an answer to `fetch`; empty where it is an error."""
    row = answer.responses[0].partitions[0]
    return bytes(row.records or b"") if row.error_code == Error.none else b""


async def replica_offsets(
    connection: Connection,
    partitions: Iterable[TopicPartition],
    which: int,
    *,
    replica: int = DEBUGGING,
    within: float = 10,
) -> dict[TopicPartition, int]:
    """The log start (EARLIEST) or log end offset (LATEST) of the partitions that this broker has a
    replica of; for `replica` of its followers, of those that it leads. Raises Unanswered."""
    m = messages.request("list_offsets", 7)
    topics = tuple(
        m.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                m.ListOffsetsPartition(partition_index=number, timestamp=which)
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(partitions).items()
    )
    answer = await connection.call(
        "list_offsets",
        7,
        m.ListOffsetsRequest(replica_id=replica, isolation_level=0, topics=topics),
        within=within,
    )
    return {
        (str(topic.name), int(row.partition_index)): int(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == Error.none
    }


async def share_group_starts(
    connection: Connection, groups: Iterable[str], *, within: float = 10
) -> dict[str, dict[TopicPartition, int]]:
    """The start offsets of the share groups that this broker coordinates: every record below one
    is finished (KIP-932). Raises Unanswered."""
    m = messages.request("describe_share_group_offsets", 0)
    each = m.DescribeShareGroupOffsetsRequestGroup
    body = m.DescribeShareGroupOffsetsRequest(
        groups=tuple(each(group_id=group, topics=None) for group in groups)
    )
    answer = await connection.call("describe_share_group_offsets", 0, body, within=within)
    return {
        str(group.group_id): {
            (str(topic.topic_name), int(row.partition_index)): int(row.start_offset)
            for topic in group.topics
            for row in topic.partitions
            if row.error_code == Error.none and row.start_offset >= 0
        }
        for group in answer.groups
        if group.error_code == Error.none
    }
