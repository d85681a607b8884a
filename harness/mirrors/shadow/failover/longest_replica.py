"""Reads batches that a follower lacks from the longest live replica."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection, Unanswered
from linkflap.harness.wire.messages import Error

_READ_BYTES: Final = 1 << 20


class LongestReplica:
    """The longest live replica of each partition, over one connection per broker."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._log = mirrored
        self._connections: dict[str, Connection] = {}

    async def read(self, partition: Partition, offset: int, limit: int) -> bytes:
        """Batches from `offset` on, from the longest live replica; empty when it has none, or does
        not answer."""
        live = {
            broker: partition.agreed(f)
            for broker, f in partition.live().items()
            if broker in self._log.config.brokers
        }
        longest = max(live, key=lambda broker: live[broker], default=-1)
        if longest < 0 or live[longest] <= offset:
            return b""
        address = self._log.config.brokers[longest]
        connection = self._connections.setdefault(address, Connection(address))
        m = messages.request("fetch", 17)
        ids = {name: topic_id for topic_id, name in self._log.names.items()}
        if partition.topic not in ids:
            return b""
        asked = m.FetchPartition(
            partition=partition.number,
            fetch_offset=offset,
            partition_max_bytes=max(1, min(limit, _READ_BYTES)),
        )
        topic = m.FetchTopic(topic_id=ids[partition.topic], partitions=(asked,))
        body = m.FetchRequest(
            max_wait=timedelta(milliseconds=50),
            min_bytes=1,
            max_bytes=_READ_BYTES,
            topics=(topic,),
            forgotten_topics_data=(),
        )
        try:
            answer = await connection.call("fetch", 17, body, within=3)
        except Unanswered:
            return b""
        data = answer.responses[0].partitions[0]
        return bytes(data.records or b"") if data.error_code == Error.none else b""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
