"""Reads the source over the link as a consumer does: one long poll per broker for all its partitions, with bounded memory.

Fetch v17 (KIP-516 topic ids: a topic that was made again is another topic; KIP-320 and KIP-595: the last fetched epoch makes the
broker say where the log was cut). Followers of the destination that are behind the window are read for one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from harness.mirrors.shadow.destination import Picture, picture
from harness.mirrors.shadow.log import BUDGET_BYTES, WINDOW_BYTES, MirroredLog
from harness.mirrors.shadow.partition import Partition
from harness.mirrors.shadow.settings import FIRST_BROKER_ID
from harness.wire import messages
from harness.wire.connection import AnyOf, Connection, Unanswered
from harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
POLL: Final = timedelta(milliseconds=250)
"""How long the source may wait for data, and so how late a partition is that joins a poll."""
_SHORT: Final = timedelta(milliseconds=10)
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 8 << 20
_STALL_SECONDS: Final = 3.0
_EARLIEST, _LATEST = -2, -1


class Source:
    """The source's side of all mirrored partitions."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._log = mirrored
        self.nodes = AnyOf(mirrored.config.source)
        self._isolation = 1 if mirrored.config.options.bound == "lso" else 0
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._behind: dict[str, Connection] = {}
        self._readers: dict[tuple[str, int], str] = {}
        self._silent: set[str] = set()
        self.brokers: dict[int, str] = {}
        """Addresses of the source's brokers by the link, as last seen."""

    @property
    def lost(self) -> bool:
        """Whether no broker that is read from answers."""
        return bool(self._silent) and self._silent >= set(self._readers.values())

    async def picture(self) -> Picture:
        """The source's metadata. Raises Unanswered."""
        found = await picture(self.nodes)
        self._readers = _readers(found)
        self.brokers.clear()
        self.brokers.update({broker: address for broker, address in found.brokers.items() if broker < FIRST_BROKER_ID})
        self._log.source_names = {topic.id: name for name, topic in found.topics.items() if self._log.config.mirrors(name)}
        return found

    def poll(self) -> None:
        """Starts a poll for every broker that partitions are read from; safe to call again."""
        for address in set(self._readers.values()) - self._polls.keys():
            self._polls[address] = asyncio.create_task(self._poll(address))

    async def stop(self) -> None:
        """Returns when nothing is read any more."""
        tasks = list(self._polls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._polls.clear()
        self.nodes.close()
        for connection in self._behind.values():
            connection.close()

    async def _poll(self, address: str) -> None:
        connection = Connection(address)
        try:
            while True:
                try:
                    await self._poll_once(connection)
                    self._silent.discard(address)
                except Unanswered as error:
                    if address not in self._silent:
                        log.warning("source: %s", error)
                        self._silent.add(address)
                    await asyncio.sleep(0.1)
        finally:
            connection.close()

    async def _poll_once(self, connection: Connection) -> None:
        mine = [p for place, p in self._log.partitions.items() if self._readers.get(place) == connection.address and _wanted(p)]
        room = BUDGET_BYTES - self._log.held
        due = [p for p in mine if p.held < WINDOW_BYTES] if room > 0 else []
        if not due:
            await asyncio.sleep(0.005 if mine else 0.05)
            return
        due.sort(key=lambda p: p.held)
        wait = POLL if len(due) == len(mine) else _SHORT
        asked: dict[str, dict[int, int]] = {}
        for p in due:
            asked.setdefault(p.topic, {})[p.number] = p.position
        answer = await self._fetch(connection, asked, wait=wait, most=min(_RESPONSE_BYTES, max(_PARTITION_BYTES, room)))
        for partition, data in answer:
            if partition.position == asked[partition.topic][partition.number]:  # else it was cut or moved meanwhile
                await self._take(partition, data, connection)
        self._log.ring()

    async def _fetch(
        self, connection: Connection, positions: Mapping[str, Mapping[int, int]], *, wait: timedelta, most: int
    ) -> list[tuple[Partition, Message]]:
        m = messages.request("fetch", 17)
        ids = {name: topic_id for topic_id, name in self._log.source_names.items()}
        topics = tuple(
            m.FetchTopic(
                topic_id=ids[name],
                partitions=tuple(
                    m.FetchPartition(
                        partition=number,
                        fetch_offset=position,
                        last_fetched_epoch=self._log.partitions[name, number].source_epochs.at(position - 1),
                        partition_max_bytes=_PARTITION_BYTES,
                    )
                    for number, position in places.items()
                ),
            )
            for name, places in positions.items()
            if name in ids
        )
        body = m.FetchRequest(
            max_wait=wait,
            min_bytes=1,
            max_bytes=most,
            isolation_level=self._isolation,
            topics=topics,
            forgotten_topics_data=(),
        )
        answer = await connection.call("fetch", 17, body, within=wait.total_seconds() + _STALL_SECONDS)
        return [
            (self._log.partitions[self._log.source_names[topic.topic_id], data.partition_index], data)
            for topic in answer.responses
            for data in topic.partitions
            if topic.topic_id in self._log.source_names
        ]

    async def _take(self, partition: Partition, data: Message, connection: Connection) -> None:
        """Takes in what the source said of one partition."""
        if data.error_code == Error.offset_out_of_range:
            await self._out_of_range(partition, connection)
        elif data.error_code != Error.none:
            # A new leader, a topic that is gone: the next look at the metadata says which.
            self._readers.pop((partition.topic, partition.number), None)
        elif data.diverging_epoch.end_offset >= 0:
            self._diverged(partition, int(data.diverging_epoch.end_offset))
        else:
            end = int(data.last_stable_offset if self._isolation else data.high_watermark)
            partition.start = max(partition.start, int(data.log_start_offset))
            if data.records:
                partition.keep(self._log.stamped(partition, data.records, partition.position))
            # Not below what was read: a new leader's high watermark may be behind for a moment.
            partition.end = max(partition.end, end, partition.position)

    async def _out_of_range(self, partition: Partition, connection: Connection) -> None:
        start = await self._offset(partition, connection, _EARLIEST)
        end = await self._offset(partition, connection, _LATEST)
        if start is None or end is None:
            return
        if partition.position < start:
            log.info("%s: the source begins at %d now", partition.name, start)
            partition.start = start
            partition.drop_window(start)
            partition.served = max(partition.served, start)
        elif partition.position > end:
            self._diverged(partition, end)

    async def _offset(self, partition: Partition, connection: Connection, which: int) -> int | None:
        m = messages.request("list_offsets", 7)
        row = m.ListOffsetsPartition(partition_index=partition.number, timestamp=which)
        topic = m.ListOffsetsTopic(name=partition.topic, partitions=(row,))
        answer = await connection.call(
            "list_offsets", 7, m.ListOffsetsRequest(replica_id=-1, isolation_level=self._isolation, topics=(topic,))
        )
        told = answer.topics[0].partitions[0]
        return int(told.offset) if told.error_code == Error.none else None

    def _diverged(self, partition: Partition, end: int) -> None:
        """The source's log was cut at `end` (an unclean election): so is ours, and what follows needs a new leader epoch."""
        cut = min(end, partition.position)
        log.warning("%s: the source was cut at offset %d, from %d", partition.name, cut, partition.position)
        passed = max([partition.served, *(f.offset for f in partition.followers.values())]) > cut
        partition.source_epochs.cut(cut)
        partition.drop_window(cut)
        partition.cut(cut)
        if passed:
            partition.note.truncated.append((partition.served, cut))
            partition.raise_to = partition.leader_epoch + 1
        self._log.remember([partition])

    async def read_behind(self, partition: Partition, offset: int, limit: int) -> bytes:
        """Reads for a follower that is behind the window; empty when the source does not answer. Followers ask again."""
        address = self._readers.get((partition.topic, partition.number))
        if address is None:
            return b""
        connection = self._behind.setdefault(address, Connection(address))
        try:
            answer = await self._fetch(
                connection, {partition.topic: {partition.number: offset}}, wait=_SHORT, most=min(limit, _PARTITION_BYTES)
            )
        except Unanswered:
            return b""
        for _, data in answer:
            if data.error_code == Error.none and data.diverging_epoch.end_offset < 0 and data.records:
                return bytes(self._log.stamped(partition, data.records, offset).data)
        return b""


def _wanted(partition: Partition) -> bool:
    return partition.leader_epoch >= 0 and partition.position >= 0 and partition.raise_to < 0 and not partition.sealed


def _readers(found: Picture) -> dict[tuple[str, int], str]:
    """Per partition the address of the broker to read it from: its leader, or a real replica where a shadow leads (a chain)."""
    chosen: dict[tuple[str, int], str] = {}
    for name, topic in found.topics.items():
        for number, led in topic.partitions.items():
            candidates = [led.leader] if 0 <= led.leader < FIRST_BROKER_ID else list(led.replicas)
            real = [broker for broker in candidates if broker < FIRST_BROKER_ID and broker in found.brokers]
            if real:
                chosen[name, number] = found.brokers[real[0]]
    return chosen
