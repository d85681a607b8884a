"""Reads the source over the link as a consumer does: one long poll per broker for all its
partitions, with bounded memory.

Interprets the source's answers: whether its log was truncated or starts later, and which replica to
read from next. Reads separately for followers that are behind the window.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import MetadataSnapshot, picture
from linkflap.harness.mirrors.shadow.partition import (
    BUDGET_BYTES,
    WINDOW_BYTES,
    MirroredLog,
    Partition,
)
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf, Connection, Connections
from linkflap.harness.wire.messages import Buffer, Error, Message
from linkflap.harness.wire.requests import EARLIEST, LATEST, Led, replica_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How one partition is read: from `address`, which leads it in `epoch`, or is a replica under a
    shadow (epoch -1).

    `replicas` are the addresses of all live real replicas. `all_live`: none of its real replicas is
    dead.
    """

    address: str
    epoch: int = -1
    replicas: tuple[str, ...] = ()
    all_live: bool = True

    @property
    def led(self) -> bool:
        return self.epoch >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDivergence:
    """How one replica's log compares with the log that was read up to some offset. `end` is where
    it diverges, -1 when it does not. `epoch` is the leader epoch of its batch there, -1 when its
    log ends there."""

    end: int
    epoch: int = -1


class ReplicaReaders:
    """How each partition is read now."""

    def __init__(self) -> None:
        self._readings: dict[TopicPartition, Reading] = {}
        self._positions: dict[TopicPartition, int] = {}

    def get(self, tp: TopicPartition) -> Reading | None:
        return self._readings.get(tp)

    def addresses(self) -> set[str]:
        return {reading.address for reading in self._readings.values()}

    def leave(self, tp: TopicPartition) -> None:
        """Stops reading a partition until the next metadata shows where to read it."""
        self._readings.pop(tp, None)

    def turn(self, tp: TopicPartition, address: str) -> None:
        """Reads a partition from another replica."""
        if (reading := self._readings.get(tp)) is not None and not reading.led:
            self._readings[tp] = Reading(
                address=address, replicas=reading.replicas, all_live=reading.all_live
            )

    def look(self, found: MetadataSnapshot, positions: Mapping[TopicPartition, int]) -> None:
        """Takes in the source's metadata; `positions` is how far each partition was read."""
        known, self._readings = self._readings, {}
        for name, topic in found.topics.items():
            for number, led in topic.partitions.items():
                tp = name, number
                stuck = positions.get(tp, -1) == self._positions.get(tp, -2)
                reading = _reading(led, found.brokers, known.get(tp), stuck=stuck)
                if reading is not None:
                    self._readings[tp] = reading
        self._positions = dict(positions)


def _reading(
    led: Led, brokers: Mapping[int, str], before: Reading | None, *, stuck: bool
) -> Reading | None:
    if 0 <= led.leader < FIRST_BROKER_ID:
        return (
            Reading(address=brokers[led.leader], epoch=led.epoch) if led.leader in brokers else None
        )
    real = [broker for broker in led.replicas if broker < FIRST_BROKER_ID]
    live = tuple(brokers[broker] for broker in real if broker in brokers)
    if not live:
        return None
    index = live.index(before.address) if before is not None and before.address in live else 0
    # A replica that no longer fetches looks the same as one without new records, so the replicas
    # take turns.
    return Reading(
        address=live[(index + stuck) % len(live)], replicas=live, all_live=len(live) == len(real)
    )


def truncation_point(words: Sequence[LogDivergence], *, all_live: bool) -> int:
    """Where a log under a shadow was truncated, according to its replicas; -1 when it was not, or
    that is unknown yet.

    A batch in a later epoch was written after the truncation. Replicas that only end earlier may
    lag, unless all of them end earlier.
    """
    newest = max((word.epoch for word in words), default=-1)
    if newest >= 0:
        return max(word.end for word in words if word.epoch == newest)
    if all_live and words and all(word.end >= 0 for word in words):
        return max(word.end for word in words)
    return -1


SHORT: Final = timedelta(milliseconds=10)
PARTITION_BYTES: Final = 2 << 20
_STALL_SECONDS: Final = 3.0


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

    async def bound(self, partition: Partition, connection: Connection, which: int) -> int | None:
        """The log start (EARLIEST) or log end offset (LATEST); None when the source returns an
        error. Raises Unanswered."""
        tp = partition.topic, partition.number
        return (await replica_offsets(connection, [tp], which)).get(tp)


log = logging.getLogger(__name__)
POLL: Final = timedelta(milliseconds=250)
"""How long the source may wait for data. A partition that becomes ready waits this long for the
next poll."""
_RESPONSE_BYTES: Final = 8 << 20
_ROOM_SECONDS: Final = 0.05
"""How long partitions with room in their windows wait for those without."""
_EPOCH_IN_BATCH: Final = struct.Struct(">12xi")


class Source:
    """The source's side of all mirrored partitions."""

    def __init__(self, mirrored: MirroredLog) -> None:
        self._log = mirrored
        self.nodes = AnyOf(mirrored.config.source)
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._behind = Connections()
        self._readers = ReplicaReaders()
        self._requests = SourceRequests(mirrored, self._readers)
        self._silent: set[str] = set()
        self._turns = 0
        self.brokers: dict[int, str] = {}
        """Broker id -> its address through the link, as last seen."""

    @property
    def lost(self) -> bool:
        """Whether none of the brokers that are read from answers."""
        return bool(self._silent) and self._silent >= self._readers.addresses()

    async def picture(self) -> MetadataSnapshot:
        """The source's metadata. Raises Unanswered."""
        found = await picture(self.nodes)
        self._readers.look(found, {tp: p.position for tp, p in self._log.partitions.items()})
        self.brokers.clear()
        self.brokers |= {n: at for n, at in found.brokers.items() if n < FIRST_BROKER_ID}
        self._log.source_names = {
            topic.id: name for name, topic in found.topics.items() if self._log.config.mirrors(name)
        }
        return found

    def poll(self) -> None:
        """Starts a poll for every broker that partitions are read from. Safe to call again."""
        for address in self._readers.addresses() - self._polls.keys():
            self._polls[address] = asyncio.create_task(self._poll(address))

    async def stop(self) -> None:
        """Returns when nothing is read any more."""
        tasks = list(self._polls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._polls.clear()
        self.nodes.close()
        self._behind.close()

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
        released = self._log.room.next
        mine, due = self._mine(connection)
        if not mine or len(due) < len(mine):
            # Partitions with room wait a little for those without: one large answer costs less than
            # many small ones.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROOM_SECONDS):
                    await released.wait()
            mine, due = self._mine(connection)
        if not due:
            return
        # A batch above the size limits is only returned for the first partition of a request, so
        # the order rotates.
        self._turns += 1
        due = due[self._turns % len(due) :] + due[: self._turns % len(due)]
        due.sort(key=lambda p: p.held)
        wait = POLL if len(due) == len(mine) else SHORT
        asked: dict[str, dict[int, int]] = {}
        for p in due:
            asked.setdefault(p.topic, {})[p.number] = p.position
        answer = await self._requests.fetch(connection, asked, wait=wait, most=_RESPONSE_BYTES)
        news = False
        for partition, data in answer:
            # otherwise it was truncated or repositioned meanwhile
            if partition.position == asked[partition.topic][partition.number]:
                before = partition.start, partition.position, partition.end
                await self._take(partition, data, connection)
                news |= before != (partition.start, partition.position, partition.end)
        if news:
            self._log.ring()

    def _mine(self, connection: Connection) -> tuple[list[Partition], list[Partition]]:
        """The partitions that are read over this connection, and those of them whose windows have
        room."""
        mine = [
            p for p in self._log.partitions.values() if self._reads(p, connection) and _wanted(p)
        ]
        full = not mine or self._log.memory() >= BUDGET_BYTES
        return mine, [] if full else [p for p in mine if p.held <= WINDOW_BYTES - PARTITION_BYTES]

    def _reads(self, partition: Partition, connection: Connection) -> bool:
        reading = self._readers.get((partition.topic, partition.number))
        return reading is not None and reading.address == connection.address

    async def _take(self, partition: Partition, data: Message, connection: Connection) -> None:
        """Processes the source's answer for one partition."""
        reading = self._readers.get((partition.topic, partition.number))
        diverges = data.error_code == Error.none and data.diverging_epoch.end_offset >= 0
        if data.error_code == Error.offset_out_of_range and await self._began_later(
            partition, connection
        ):
            return
        if (
            reading is not None
            and not reading.led
            and (diverges or data.error_code == Error.offset_out_of_range)
        ):
            await self._weigh(partition, reading)
        elif data.error_code == Error.offset_out_of_range:
            await self._ended_earlier(partition, connection)
        elif data.error_code != Error.none:
            # A new leader, or a deleted topic: the next metadata shows which.
            self._readers.leave((partition.topic, partition.number))
        elif diverges:
            self._diverged(partition, int(data.diverging_epoch.end_offset))
        else:
            end = int(
                data.last_stable_offset if self._requests.committed_only else data.high_watermark
            )
            partition.start = max(partition.start, int(data.log_start_offset))
            if data.records:
                partition.keep(self._log.stamped(partition, data.records, partition.position))
            # Not below the read position: a new leader's high watermark may lag for a moment.
            partition.end = max(partition.end, end, partition.position)

    async def _began_later(self, partition: Partition, connection: Connection) -> bool:
        """Whether the source's log start is after the read position. If so, this log starts there
        too."""
        start = await self._requests.bound(partition, connection, EARLIEST)
        if start is None or partition.position >= start:
            return False
        log.info("%s: the source's log start offset is now %d", partition.name, start)
        partition.start = start
        partition.drop_window(start)
        partition.served = max(partition.served, start)
        return True

    async def _ended_earlier(self, partition: Partition, connection: Connection) -> None:
        end = await self._requests.bound(partition, connection, LATEST)
        if end is not None and partition.position > end:
            self._diverged(partition, end)
        else:
            self._readers.leave((partition.topic, partition.number))

    async def _weigh(self, partition: Partition, reading: Reading) -> None:
        """A replica under a shadow lacks records that were read. Decides among three causes:
        another replica has them, the log was truncated, or that is unknown yet."""
        tp, position = (partition.topic, partition.number), partition.position
        words: list[LogDivergence] = []
        for address in reading.replicas:
            try:
                word = await self._word(partition, self._behind.at(address))
            except Unanswered:
                word = None
            if word is not None and word.end < 0:
                self._readers.turn(tp, address)
                return
            words += [word] if word is not None else []
        end = truncation_point(
            words, all_live=reading.all_live and len(words) == len(reading.replicas)
        )
        if end >= 0 and partition.position == position:
            self._diverged(partition, end)
        else:
            self._readers.leave(tp)

    async def _word(self, partition: Partition, connection: Connection) -> LogDivergence | None:
        """The part that one replica shows of the log that was read; None when it shows nothing
        useful."""
        data = await self._requests.look(partition, connection, partition.position)
        if data is None:
            return None
        if data.error_code == Error.offset_out_of_range:
            end = await self._requests.bound(partition, connection, LATEST)
        elif data.error_code != Error.none:
            return None
        elif data.diverging_epoch.end_offset < 0:
            return LogDivergence(end=-1)
        else:
            end = int(data.diverging_epoch.end_offset)
        if end is None:
            return None
        end = min(end, partition.position)
        there = await self._requests.look(partition, connection, end)
        if there is None or there.error_code != Error.none or there.diverging_epoch.end_offset >= 0:
            return None
        epoch = _EPOCH_IN_BATCH.unpack_from(there.records)[0] if there.records else -1
        return LogDivergence(
            end=end,
            epoch=epoch if epoch > partition.source_epochs.at(partition.position - 1) else -1,
        )

    def _diverged(self, partition: Partition, end: int) -> None:
        """Truncates this log as the source's was (an unclean election). If any of it was served
        already, the rest needs a new leader epoch."""
        offset = min(end, partition.position)
        log.warning(
            "%s: the source was truncated at offset %d, from %d",
            partition.name,
            offset,
            partition.position,
        )
        passed = max([partition.served, *(f.offset for f in partition.followers.values())]) > offset
        partition.source_epochs.truncate(offset)
        partition.drop_window(offset)
        partition.truncate(offset)
        if passed:
            partition.note.truncated.append((partition.served, offset))
            partition.raise_to = partition.leader_epoch + 1
        self._log.remember([partition])

    async def read_behind(self, partition: Partition, offset: int, limit: int) -> Buffer:
        """Reads for a follower that is behind the window. Empty when the source does not answer;
        the follower retries."""
        reading = self._readers.get((partition.topic, partition.number))
        if reading is None:
            return b""
        try:
            answer = await self._requests.fetch(
                self._behind.at(reading.address),
                {partition.topic: {partition.number: offset}},
                wait=SHORT,
                most=min(limit, PARTITION_BYTES),
            )
        except Unanswered:
            return b""
        for _, data in answer:
            agreed = data.error_code == Error.none and data.diverging_epoch.end_offset < 0
            if agreed and data.records:
                return self._log.stamped(partition, data.records, offset).data
        return b""


def _wanted(partition: Partition) -> bool:
    known = partition.leader_epoch >= 0 and partition.position >= 0
    return known and partition.raise_to < 0 and not partition.sealed
