"""org.apache.kafka.clients.consumer.KafkaConsumer, with the interface of confluent-kafka's Consumer
that readers use; and KafkaShareConsumer (KIP-932), a member of a share group, which acknowledges
each record.

A rebalance calls a listener that runs only in Java: it queues the event and pauses the assigned
partitions. Before the next poll, the reader is asked for their positions, as by librdkafka's
callbacks. Java's position advances over control records and aborted records on its own. Where it
advanced without a record, an end-of-partition notice reports how far the poll has read.

A share group's start offset, its isolation level, and how long a record stays acquired are configs
of the group on the brokers. They are set before a member joins.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from linkflap.harness.jvm import Handle
from linkflap.harness.model.payload import HEADER
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.workloads.java.clients import (
    JavaClients,
    JavaError,
    Partitions,
    TopicsByName,
    raised,
    rows_in,
)

LEAVES_WITHIN: Final = 2.0
Changed = Callable[["JavaConsumer", list[KafkaPartition]], None]


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record; or, with an error, a notice about a partition. The same form as confluent-kafka's
    Message."""

    where: TopicPartition
    at: int
    header: bytes = b""
    failure: KafkaError | None = None

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes]]:
        return [(HEADER, self.header)] if self.header else []

    def error(self) -> KafkaError | None:
        return self.failure


class JavaConsumer:
    """One consumer, used by one thread at a time."""

    def __init__(
        self, clients: JavaClients, config: Mapping[str, object], on_commit: Callable[..., None]
    ) -> None:
        """`config` has Java's names."""
        self._clients, self._on_commit = clients, on_commit
        self._subscribed = False
        self._changes: dict[str, Changed] = {}
        self._asked: list[KafkaPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._dynamic = config.get("group.protocol") == "consumer"
        with raised():
            self._client = clients.consumer(config)
            self._events = clients.queue()
            self._where = clients.consumers.positions(self._client)
            self._committed = clients.consumers.committed(self._events)

    def subscribe(
        self, topics: Sequence[str], *, on_assign: Changed, on_revoke: Changed, on_lost: Changed
    ) -> None:
        self._changes = {
            "onPartitionsAssigned": on_assign,
            "onPartitionsRevoked": on_revoke,
            "onPartitionsLost": on_lost,
        }
        self._subscribed = True
        with raised():
            self._client.subscribe(
                list(topics), self._clients.consumers.listener(self._client, self._events)
            )

    def assign(self, partitions: Sequence[KafkaPartition]) -> None:
        """Continues at these offsets, on partitions of its own choice or of the group's assignment.
        Partitions that the group had assigned before are not moved, because the poll that brought
        the new ones may have advanced them."""
        if self._subscribed:
            partitions = [
                p for p in partitions if self._positions.get((p.topic, p.partition)) != p.offset
            ]
        try:
            with raised():
                if not self._subscribed:
                    self._client.assign(self._clients.partitions(partitions))
                for each in partitions:
                    self._seek(each)
                if self._subscribed and partitions:
                    self._client.resume(self._clients.partitions(partitions))
        except JavaError as error:
            # revoked again meanwhile: the event of that comes next
            if error.simple != "IllegalStateException":
                raise KafkaException(self._clients.errors.of(error.kind, error.text)) from error
        self._positions.update({(p.topic, p.partition): p.offset for p in partitions})

    def _seek(self, partition: KafkaPartition) -> None:
        tp = self._clients.partition(partition.topic, partition.partition)
        if partition.offset >= 0:
            self._client.seek(tp, partition.offset)
        else:
            self._client.seekToBeginning([tp])

    def consume(self, most: int, timeout: float) -> list[Consumed]:
        """The result of one poll, after all events of the group in it. Raises KafkaException."""
        del most  # max.poll.records
        if not self._subscribed and not self._positions:  # which Java takes for a mistake
            threading.Event().wait(timeout)
            return []
        failure, out_of_range = None, list[Consumed]()
        records: list[tuple[str, int, int, bytes]] = []
        try:
            with raised():
                polled = self._client.poll(self._clients.duration(timeout))
                records = self._clients.read(polled) if polled.count() else []
        except JavaError as error:
            failure, out_of_range = self._failed(error)
        if self._happened() and failure and failure.simple == "NoOffsetForPartitionException":
            failure = None
        if failure is not None:
            raise KafkaException(self._clients.errors.of(failure.kind, failure.text))
        got = [
            Consumed((topic, partition), offset, header)
            for topic, partition, offset, header in records
        ]
        return [*got, *self._moved({each.where for each in got}), *out_of_range]

    def _failed(self, error: JavaError) -> tuple[JavaError | None, list[Consumed]]:
        """An out-of-range offset is a notice about its partition; any other error is raised for the
        poll."""
        if error.simple not in ("OffsetOutOfRangeException", "LogTruncationException"):
            return error, []
        with raised():
            offsets = error.thrown.offsetOutOfRangePartitions()
            found = {str(tp.toString()): int(offsets[tp]) for tp in offsets.keySet()}
        cause = KafkaError(KafkaError._AUTO_OFFSET_RESET, f"{error.simple}: {error.text}")
        return None, [
            Consumed(_partition(name), offset, failure=cause) for name, offset in found.items()
        ]

    def _moved(self, read: set[TopicPartition]) -> list[Consumed]:
        """Reads the positions after a poll; returns notices for partitions that were read and gave
        no record."""
        if not self._positions:
            return []
        with raised():
            text = str(self._where(self._client.assignment()))
        notices = []
        for name, at in rows_in(text):
            tp, position = _partition(name), int(at)
            if position < 0 or tp not in self._positions:
                continue
            if tp not in read and position != self._positions[tp]:
                notices.append(
                    Consumed(tp, position, failure=KafkaError(KafkaError._PARTITION_EOF))
                )
            self._positions[tp] = position
        return notices

    def _happened(self) -> bool:
        """Passes events of the group and of commits to the reader. Returns whether there were
        any."""
        happened = False
        while True:
            with raised():
                event = self._events.poll()
            if event is None:
                return happened
            happened = True
            name, _, rest = str(event).partition(" ")
            if name == "committed":
                self._commit_ended(rest)
            elif name in self._changes:
                self._changed(name, rest)

    def _commit_ended(self, thrown: str) -> None:
        asked, self._asked = self._asked, []
        self._on_commit(None if thrown == "null" else self._clients.errors.delivery(thrown), asked)

    def _changed(self, name: str, text: str) -> None:
        theirs = [_partition(each) for each in text.strip("[]").split(", ") if each]
        if name != "onPartitionsAssigned":
            for tp in theirs:
                self._positions.pop(tp, None)
        self._changes[name](self, [KafkaPartition(*tp) for tp in theirs])

    def position(self, partitions: Sequence[KafkaPartition]) -> list[KafkaPartition]:
        """Positions as of the last poll."""
        return [
            KafkaPartition(
                p.topic, p.partition, self._positions.get((p.topic, p.partition), OFFSET_INVALID)
            )
            for p in partitions
        ]

    def committed(
        self, partitions: Sequence[KafkaPartition], timeout: float
    ) -> list[KafkaPartition]:
        """The group's committed offsets. Raises KafkaException."""
        theirs = [self._clients.partition(p.topic, p.partition) for p in partitions]
        with self._clients.errors.raising():
            found = self._client.committed(set(theirs), self._clients.duration(timeout))
            offsets = [found.get(tp) for tp in theirs]
            known = [OFFSET_INVALID if each is None else int(each.offset()) for each in offsets]
        return [
            KafkaPartition(p.topic, p.partition, at)
            for p, at in zip(partitions, known, strict=True)
        ]

    def get_watermark_offsets(self, partition: KafkaPartition, timeout: float) -> tuple[int, int]:
        """Only the log start offset. Raises KafkaException."""
        tp = self._clients.partition(partition.topic, partition.partition)
        with self._clients.errors.raising():
            found = self._client.beginningOffsets([tp], self._clients.duration(timeout))
            return int(found.get(tp)), OFFSET_INVALID

    def list_topics(self, timeout: float) -> TopicsByName:
        """Every topic with its partitions. Raises KafkaException."""
        with self._clients.errors.raising():
            found = self._client.listTopics(self._clients.duration(timeout))
            sizes = {str(name): int(found[name].size()) for name in found.keySet()}
        return TopicsByName({name: Partitions(range(size)) for name, size in sizes.items()})

    def commit(self, *, offsets: Sequence[KafkaPartition], asynchronous: bool) -> None:
        """Requests a commit; a later poll reports its outcome."""
        assert asynchronous
        self._asked = list(offsets)
        with self._clients.errors.raising():
            self._client.commitAsync(self._clients.offsets(offsets), self._committed)

    def consumer_group_metadata(self) -> Handle:
        """The group metadata that a producer sends with the group's offsets."""
        with raised():
            return self._client.groupMetadata()

    def discard(self) -> None:
        """Closes the consumer in a thread that is not joined, because closing may wait for a dead
        coordinator. A static member does not leave its group by that; a dynamic one does if it
        can."""

        def close() -> None:
            with contextlib.suppress(JavaError), raised():
                self._client.close(self._clients.duration(LEAVES_WITHIN if self._dynamic else 0.0))

        threading.Thread(target=close, name="closing a consumer", daemon=True).start()


def _partition(text: str) -> TopicPartition:
    """From Java's TopicPartition as a text."""
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


ANSWERS_WITHIN: Final = 10_000
"""Timeout for the coordinator of a group, in milliseconds."""
Acknowledgement = Literal["accept", "release", "reject", "renew"]


@dataclass(frozen=True, slots=True)
class Acquired(Consumed):
    """A record that this member has acquired: its poll, and its delivery count, this delivery
    included."""

    number: int = 0
    deliveries: int = 0


class JavaShareConsumer:
    """One member of a share group, used by one thread at a time. Raises confluent-kafka's
    KafkaException."""

    def __init__(self, clients: JavaClients, config: Mapping[str, object]) -> None:
        """`config` has Java's names."""
        self._clients, self._group = clients, str(config["group.id"])
        kafka = clients.bridge.java.org.apache.kafka.clients
        self._types = kafka.consumer.AcknowledgeType
        entered = {
            name: value
            for name, value in config.items()
            if name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))
        }
        with raised():
            self._admin = clients.admin(
                {
                    **entered,
                    "default.api.timeout.ms": ANSWERS_WITHIN,
                    "request.timeout.ms": ANSWERS_WITHIN,
                }
            )
            self._client = clients.share_consumer(config)
            self._accept = clients.accepting(self._client)
            self._polled = clients.listed()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Sets the configs of the group. Returns once the brokers have confirmed them."""
        kafka = self._clients.bridge.java.org.apache.kafka
        with self._clients.errors.raising():
            resource = kafka.common.config.ConfigResource(
                kafka.common.config.ConfigResource.Type.GROUP, self._group
            )
            kinds = kafka.clients.admin
            ops = [
                kinds.AlterConfigOp(kinds.ConfigEntry(*each), kinds.AlterConfigOp.OpType.SET)
                for each in settings.items()
            ]
            self._admin.incrementalAlterConfigs({resource: ops}).all().get()

    def subscribe(self, topics: Sequence[str]) -> None:
        with self._clients.errors.raising():
            self._client.subscribe(list(topics))

    def acquire(self, timeout: float) -> list[Acquired]:
        """The records of one poll. Every record has to be acknowledged before the next poll."""
        with self._clients.errors.raising():
            polled = self._client.poll(self._clients.duration(timeout))
            if not polled.count():
                return []
            self._polled = self._clients.listed(polled)
            records = self._clients.acquired(polled)
        return [
            Acquired((topic, partition), at, header, number=number, deliveries=count)
            for number, (topic, partition, at, header, count) in enumerate(records)
        ]

    def acknowledge(self, otherwise: Mapping[Acknowledgement, Sequence[Acquired]]) -> None:
        """Accepts the records of the last poll, except those in `otherwise`; `confirm` sends it."""
        with self._clients.errors.raising():
            self._polled.forEach(self._accept)
            for how, records in otherwise.items():
                for each in records:
                    self._client.acknowledge(
                        self._polled.get(each.number), getattr(self._types, how.upper())
                    )

    def confirm(self, timeout: float) -> dict[TopicPartition, str]:
        """Sends acknowledgements and waits for the answers: partition -> the error, empty if all
        were confirmed."""
        with self._clients.errors.raising():
            answered = self._client.commitSync(self._clients.duration(timeout))
            found: dict[TopicPartition, str] = {}
            for each in answered.entrySet():
                where, failed = each.getKey(), each.getValue()
                text = str(failed.get().toString()) if failed.isPresent() else ""
                found[str(where.topic()), int(where.partition())] = text
        return found

    def starts(self) -> dict[TopicPartition, int]:
        """The group's start offset in each partition, as its coordinator has it: every record below
        it is finished."""
        java = self._clients.bridge.java
        with self._clients.errors.raising():
            asked = {self._group: java.org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec()}
            found = (
                self._admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(self._group).get()
            )
            return {
                (str(each.getKey().topic()), int(each.getKey().partition())): int(
                    each.getValue().startOffset()
                )
                for each in found.entrySet()
                if each.getValue() is not None
            }

    def discard(self) -> None:
        """Closes both clients in a thread that is not joined. Brokers give unacknowledged records
        to other members."""

        def close() -> None:
            with contextlib.suppress(JavaError), raised():
                self._client.close(self._clients.duration(LEAVES_WITHIN))
            with contextlib.suppress(JavaError), raised():
                self._admin.close(self._clients.duration(0.0))

        threading.Thread(target=close, name="closing a share consumer", daemon=True).start()
