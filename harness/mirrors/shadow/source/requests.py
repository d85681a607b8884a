"""Requests to the source: Fetch, as a consumer sends it, and ListOffsets.

Fetch v17: topic ids distinguish a topic that was deleted and created again (KIP-516); with the last
fetched epoch, the broker reports where its log diverges (KIP-320, KIP-595).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.source.replica_choice import ReplicaReaders
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.replicas import DEBUGGING

SHORT: Final = timedelta(milliseconds=10)
PARTITION_BYTES: Final = 2 << 20
_STALL_SECONDS: Final = 3.0
_EARLIEST, _LATEST = -2, -1


class SourceRequests:
    """Requests for partitions of the mirrored log, with their leaders' epochs. `committed_only`:
    reads like a read_committed consumer."""

    def __init__(self, mirrored: MirroredLog, readers: ReplicaReaders) -> None:
        self._log, self._readers = mirrored, readers
        self.committed_only = mirrored.config.options.bound == "lso"

    async def fetch(
        self,
        connection: Connection,
        positions: Mapping[str, Mapping[int, int]],
        *,
        wait: timedelta,
        most: int,
    ) -> list[tuple[Partition, Message]]:
        """Fetches partitions (topic -> partition -> offset). Returns their answers. Raises
        Unanswered."""
        m = messages.request("fetch", 17)
        ids = {name: topic_id for topic_id, name in self._log.source_names.items()}
        topics = tuple(
            m.FetchTopic(
                topic_id=ids[name],
                partitions=tuple(
                    m.FetchPartition(
                        partition=number,
                        current_leader_epoch=self._epoch(name, number, connection),
                        fetch_offset=position,
                        last_fetched_epoch=self._log.partitions[name, number].source_epochs.at(
                            position - 1
                        ),
                        partition_max_bytes=PARTITION_BYTES,
                    )
                    for number, position in tps.items()
                    if (name, number) in self._log.partitions
                ),
            )
            for name, tps in positions.items()
            if name in ids
        )
        body = m.FetchRequest(
            max_wait=wait,
            min_bytes=1,
            max_bytes=most,
            isolation_level=int(self.committed_only),
            topics=topics,
            forgotten_topics_data=(),
        )
        answer = await connection.call(
            "fetch", 17, body, within=wait.total_seconds() + _STALL_SECONDS
        )
        # Leaves out topics that were deleted meanwhile, on either side.
        return [
            (partition, data)
            for topic in answer.responses
            for data in topic.partitions
            if (
                partition := self._log.partitions.get(
                    (self._log.source_names.get(topic.topic_id, ""), data.partition_index)
                )
            )
        ]

    def _epoch(self, topic: str, number: int, connection: Connection) -> int:
        """The leader epoch for a request over this connection; -1 for a replica that is not the
        leader."""
        reading = self._readers.get((topic, number))
        return (
            reading.epoch if reading is not None and reading.address == connection.address else -1
        )

    async def look(
        self, partition: Partition, connection: Connection, offset: int
    ) -> Message | None:
        """A replica's answer for one offset, with as little data as possible. Raises Unanswered."""
        answer = await self.fetch(
            connection, {partition.topic: {partition.number: offset}}, wait=SHORT, most=1
        )
        return answer[0][1] if answer else None

    async def start(self, partition: Partition, connection: Connection) -> int | None:
        """The log start offset; None when the source returns an error. Raises Unanswered."""
        return await self._offset(partition, connection, _EARLIEST)

    async def end(self, partition: Partition, connection: Connection) -> int | None:
        """The log end offset; None when the source returns an error. Raises Unanswered."""
        return await self._offset(partition, connection, _LATEST)

    async def _offset(self, partition: Partition, connection: Connection, which: int) -> int | None:
        m = messages.request("list_offsets", 7)
        row = m.ListOffsetsPartition(partition_index=partition.number, timestamp=which)
        topic = m.ListOffsetsTopic(name=partition.topic, partitions=(row,))
        answer = await connection.call(
            "list_offsets",
            7,
            m.ListOffsetsRequest(replica_id=DEBUGGING, isolation_level=0, topics=(topic,)),
        )
        result = answer.topics[0].partitions[0]
        return int(result.offset) if result.error_code == Error.none else None
