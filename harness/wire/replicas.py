"""Log starts and ends of single replicas: a follower answers ListOffsets itself if the request
comes from a debugging replica (ListOffsetsRequest.DEBUGGING_REPLICA_ID)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.messages import Error

DEBUGGING: Final = -2
"""The replica id of such requests. The isolation level of the request is ignored."""
EARLIEST: Final = -2
LATEST: Final = -1


async def replica_offsets(
    connection: Connection, partitions: Iterable[TopicPartition], which: int, *, within: float = 10
) -> dict[TopicPartition, int]:
    """The log start (EARLIEST) or log end offset (LATEST) of the partitions that this broker has a
    replica of. Raises Unanswered."""
    m = messages.request("list_offsets", 7)
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    topics = tuple(
        m.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                m.ListOffsetsPartition(partition_index=number, timestamp=which)
                for number in numbers
            ),
        )
        for topic, numbers in by_topic.items()
    )
    answer = await connection.call(
        "list_offsets",
        7,
        m.ListOffsetsRequest(replica_id=DEBUGGING, isolation_level=0, topics=topics),
        within=within,
    )
    return {
        (str(topic.name), int(row.partition_index)): int(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == Error.none
    }
