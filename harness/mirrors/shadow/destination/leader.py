"""The shadow as a partition leader: answers Fetch, ListOffsets and OffsetForLeaderEpoch from the
destination's brokers, like any leader.

Followers learn of a truncation from `diverging_epoch` (KIP-595), and of the high watermark in the
same answer as the records. The shadow never grants fetch sessions, so each answer covers all
requested partitions (KIP-227).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.batches import end_of
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.model.errors import InputError
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Buffer, Error, Message, Pieces

log = logging.getLogger(__name__)
FETCH, LIST_OFFSETS, EPOCH_ENDS = 1, 2, 23
_APIS: Final = {
    FETCH: "fetch",
    LIST_OFFSETS: "list_offsets",
    EPOCH_ENDS: "offset_for_leader_epoch",
}
_FETCHERS: Final = b"broker-"
"""How the client ids of followers begin: `broker-1-fetcher-0`."""
LATEST = -1
_NOTHING: Final = timedelta()
_NOT_LED: Final[dict[str, Message]] = {"error_code": Error.not_leader_or_follower}
ReadBehind = Callable[[Partition, int, int], Awaitable[Buffer]]


class Leader:
    """Answers for all partitions of the log. `read_behind` reads batches that a window no longer
    has."""

    def __init__(self, mirrored: MirroredLog, read_behind: ReadBehind) -> None:
        self._log = mirrored
        self.read_behind = read_behind

    async def answer(
        self, key: int, version: int, correlation: int, frame: Buffer
    ) -> Pieces | None:
        """The framed response to a broker's request; None for other APIs. Raises InputError for a
        version that is newer than the shadow: a follower asks for no older one (it takes the
        version from its metadata.version, not from ApiVersions)."""
        api = _APIS.get(key)
        if api is None:
            return None
        newest = messages.newest(api)
        if version > newest and messages.client_id(frame).startswith(_FETCHERS):
            name = messages.api_name(api)
            raise InputError(
                f"the brokers of the destination of {self._log.config.link} send {name} v{version},"
                f" and the shadow speaks {name} up to v{newest}; mirror onto that Kafka with "
                "--mirror mm2 or cluster-mirroring, or use a release there"
            )
        request = messages.decode_request(api, version, frame)
        if key == FETCH:
            body = await self._fetch(request, version)
        elif key == LIST_OFFSETS:
            body = self._offsets(request, version)
        else:
            body = self._epoch_ends(request, version)
        return messages.encode_response(api, version, correlation, body)

    def find(self, topic: Message, version: int, number: int) -> Partition | None:
        """The partition that a topic of a fetch request refers to, by topic id from version 13
        on."""
        name = self._log.names.get(topic.topic_id) if version >= 13 else topic.topic
        return None if name is None else self._log.partitions.get((name, number))

    async def _fetch(self, request: Message, version: int) -> Message:
        broker = int(request.replica_state.replica_id if version >= 15 else request.replica_id)
        released = False
        for topic in request.topics:
            for asked in topic.partitions:
                partition = self.find(topic, version, asked.partition)
                if partition is not None and broker in self._log.config.brokers:
                    epochs = int(asked.current_leader_epoch), int(asked.last_fetched_epoch)
                    partition.heard(broker, int(asked.fetch_offset), *epochs)
                    released |= partition.release()
                    if partition.advance():
                        self._log.ring()
        if released:
            self._log.room.ring()
        deadline = time.monotonic() + request.max_wait.total_seconds()
        while True:
            bell = self._log.bell
            answer, urgent = await self._look(request, version, broker)
            left = deadline - time.monotonic()
            if urgent or left <= 0:
                return answer
            try:
                async with asyncio.timeout(left):
                    await bell.wait()
            except TimeoutError:
                return (await self._look(request, version, broker))[0]

    async def _look(self, request: Message, version: int, broker: int) -> tuple[Message, bool]:
        """The answer as of now, and whether it has anything that a follower should get at once."""
        m = messages.response("fetch", version)
        room, urgent = int(request.max_bytes), False
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                row, news = await self._row(
                    m, self.find(topic, version, asked.partition), asked, broker, room
                )
                room -= len(row.records)
                urgent |= news
                rows.append(row)
            named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.topic}
            topics.append(m.FetchableTopicResponse(partitions=tuple(rows), **named))
        return m.FetchResponse(
            throttle_time=_NOTHING, error_code=Error.none, session_id=0, responses=tuple(topics)
        ), urgent

    async def _row(
        self, m: Message, partition: Partition | None, asked: Message, broker: int, room: int
    ) -> tuple[Message, bool]:
        offset = int(asked.fetch_offset)
        error = self._refusal(partition, asked)
        if partition is None or error != Error.none or broker not in partition.followers:
            # Only brokers of the destination are followers; any other client gets no data, and no
            # wait.
            return refused_partition(
                m, asked, error if error != Error.none else Error.not_leader_or_follower
            ), True
        follower = partition.followers[broker]
        split = partition.epochs.diverges(int(asked.last_fetched_epoch), offset, partition.end)
        if split is not None:
            log.info(
                "%s: broker %d fetches from offset %d and diverges: epoch %d ends at %d",
                partition.name,
                broker,
                offset,
                *split,
            )
            diverging = m.EpochEndOffset(epoch=split[0], end_offset=split[1])
            return _row(m, asked, partition, diverging_epoch=diverging), True
        if offset > partition.end:
            return refused_partition(m, asked, Error.offset_out_of_range), True
        records = await self._records(
            partition, offset, min(int(asked.partition_max_bytes), room), first=room > 0
        )
        news = bool(records) or partition.high_watermark > follower.high_watermark_sent
        # Set here, because an answer with a new high watermark is sent at once.
        follower.high_watermark_sent = partition.high_watermark
        return _row(m, asked, partition, records=records), news

    def _refusal(self, partition: Partition | None, asked: Message) -> Message:
        if partition is None:
            return Error.unknown_topic_id
        if not partition.ready or int(asked.current_leader_epoch) not in (
            -1,
            partition.leader_epoch,
        ):
            return Error.not_leader_or_follower  # one side has an older epoch: the follower retries
        if int(asked.fetch_offset) < partition.start:
            return Error.offset_out_of_range
        return Error.none

    async def _records(
        self, partition: Partition, offset: int, limit: int, *, first: bool
    ) -> Pieces:
        if not first or offset >= partition.end:
            return Pieces()
        found = partition.read(offset, limit)
        if found is None:
            data = await self._behind(partition, offset, limit)
            found = Pieces((data,)), end_of(data)
        partition.served = max(partition.served, found[1])
        return found[0]

    async def _behind(self, partition: Partition, offset: int, limit: int) -> Buffer:
        """Reads for a follower that is behind the window. If all followers are behind it, the
        window moves back to them instead."""
        others = [f.offset for f in partition.live().values()]
        if others and max(others) < partition.window_start and not partition.sealed:
            partition.drop_window(min(others))
            return b""
        return await self.read_behind(partition, offset, limit)

    def _led(self, topic: str, number: int) -> Partition | None:
        """A partition that the shadow may answer for."""
        partition = self._log.partitions.get((topic, number))
        return partition if partition is not None and partition.ready else None

    def _offsets(self, request: Message, version: int) -> Message:
        m = messages.response("list_offsets", version)
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self._led(topic.name, asked.partition_index)
                latest = int(asked.timestamp) == LATEST
                fields = (
                    _NOT_LED
                    if partition is None
                    else {
                        "error_code": Error.none,
                        "timestamp": -1,
                        "offset": partition.end if latest else partition.start,
                        "leader_epoch": partition.leader_epoch,
                    }
                )
                rows.append(
                    m.ListOffsetsPartitionResponse(partition_index=asked.partition_index, **fields)
                )
            topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(rows)))
        return m.ListOffsetsResponse(throttle_time=_NOTHING, topics=tuple(topics))

    def _epoch_ends(self, request: Message, version: int) -> Message:
        m = messages.response("offset_for_leader_epoch", version)
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition, fields = self._led(topic.topic, asked.partition), _NOT_LED
                if partition is not None:
                    epoch, end = partition.epochs.end_of(int(asked.leader_epoch), partition.end)
                    fields = {"error_code": Error.none, "leader_epoch": epoch, "end_offset": end}
                rows.append(m.EpochEndOffset(partition=asked.partition, **fields))
            topics.append(m.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(rows)))
        return m.OffsetForLeaderEpochResponse(throttle_time=_NOTHING, topics=tuple(topics))


def refused_partition(m: Message, asked: Message, error: Message) -> Message:
    """One partition of an answer to a fetch, without records."""
    return m.PartitionData(
        partition_index=asked.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _row(m: Message, asked: Message, partition: Partition, **fields: Message) -> Message:
    """One partition of an answer. A log start offset above the high watermark would fail the
    partition on the follower, so it is capped."""
    mark = partition.high_watermark
    return m.PartitionData(
        partition_index=asked.partition,
        error_code=Error.none,
        high_watermark=mark,
        log_start_offset=min(partition.start, mark),
        aborted_transactions=None,
        **{"records": b"", **fields},
    )
