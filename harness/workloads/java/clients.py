"""The objects that the Java clients of one process share: their JVM, and the method handles that
pass records and outcomes to and from it.

The JVM starts and dies with the process of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import TopicPartition

from linkflap.harness.jvm.bridge import Bridge, Handle
from linkflap.harness.jvm.handles import Handles
from linkflap.harness.model.payload import HEADER
from linkflap.harness.workloads.java.consumer_handles import ConsumerHandles
from linkflap.harness.workloads.java.errors import Errors
from linkflap.harness.workloads.java.producer_handles import ProducerHandles
from linkflap.harness.workloads.java.texts import (
    BETWEEN,
    OBJECT,
    STRING,
    WITHIN,
    Texts,
    descriptor,
)

_CONSUMED: Final = "org.apache.kafka.clients.consumer.ConsumerRecord"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArray"


class JavaClients:
    """The Java clients of one process."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._h = h = Handles(bridge)
        self.errors = Errors(bridge, h)
        kafka = bridge.java.org.apache.kafka
        self._make_producer = kafka.clients.producer.KafkaProducer
        self._make_consumer = kafka.clients.consumer.KafkaConsumer
        self._make_partition = kafka.common.TopicPartition
        self._make_offset = kafka.clients.consumer.OffsetAndMetadata
        self._make_map, self._make_list = (
            bridge.java.java.util.HashMap,
            bridge.java.java.util.ArrayList,
        )
        self._make_queue = bridge.java.java.util.concurrent.ConcurrentLinkedQueue
        self._millis = bridge.java.java.time.Duration.ofMillis
        self._to_text = bridge.java.java.util.Objects.toString
        self._partitions: dict[tuple[str, int], Handle] = {}
        self._durations: dict[int, Handle] = {}
        self.texts = Texts(h)
        self.producers = ProducerHandles(bridge, h, self.texts)
        self.consumers = ConsumerHandles(bridge, h, self.texts)
        self._records = self._reading()
        self._acquired: Handle | None = None

    # --- values

    def duration(self, seconds: float) -> Handle:
        millis = int(seconds * 1000)
        if millis not in self._durations:
            self._durations[millis] = self._millis(millis)
        return self._durations[millis]

    def partition(self, topic: str, partition: int) -> Handle:
        """A Java TopicPartition."""
        tp = topic, partition
        if tp not in self._partitions:
            self._partitions[tp] = self._make_partition(topic, partition)
        return self._partitions[tp]

    def partitions(self, partitions: Sequence[TopicPartition]) -> Handle:
        """A Java list of TopicPartitions."""
        made = self._make_list()
        for each in partitions:
            made.add(self.partition(each.topic, each.partition))
        return made

    def offsets(self, partitions: Sequence[TopicPartition]) -> Handle:
        """A Java map from partitions to offsets."""
        made = self._make_map()
        for each in partitions:
            made.put(self.partition(each.topic, each.partition), self._make_offset(each.offset))
        return made

    def queue(self) -> Handle:
        return self._make_queue()

    # --- producers

    def producer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaProducer of bytes."""
        how = {"key.serializer": f"{_BYTES}Serializer", "value.serializer": f"{_BYTES}Serializer"}
        return self._make_producer(self.bridge.properties({**how, **config}))

    def states(self, producer: Handle) -> tuple[Callable[[], str], Callable[[], str]]:
        """Two handles: one returns the state of a producer's transactions, the other its producer
        id and epoch. Both are private in Java's producer, and no public method returns them."""
        field = producer.getClass().getDeclaredField("transactionManager")
        field.setAccessible(True)
        manager = field.get(producer)
        fields = [
            manager.getClass().getDeclaredField(name)
            for name in ("currentState", "producerIdAndEpoch")
        ]
        for each in fields:
            each.setAccessible(True)
        state, identity = (partial(self._field, each, manager) for each in fields)
        return state, identity

    def _field(self, field: Handle, owner: Handle) -> str:
        return str(self._to_text(field.get(owner)))

    # --- consumers

    def consumer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaConsumer of bytes."""
        how = {
            "key.deserializer": f"{_BYTES}Deserializer",
            "value.deserializer": f"{_BYTES}Deserializer",
        }
        return self._make_consumer(self.bridge.properties({**how, **config}))

    def read(self, records: Handle) -> list[tuple[str, int, int, bytes]]:
        """For each record of a poll: topic, partition, offset, and linkflap's header (empty:
        none)."""
        text = str(self._records.apply(records))
        rows = []
        for row in text.split(BETWEEN) if text else ():
            topic, partition, offset, header = row.split(WITHIN)
            rows.append((topic, int(partition), int(offset), bytes.fromhex(header)))
        return rows

    def _reading(self, *more: Handle) -> Handle:
        """For each record its partition and offset, linkflap's header, and `more` texts."""
        h = self._h
        one = descriptor(_CONSUMED)
        headers = "org.apache.kafka.common.header.Headers"
        header = "org.apache.kafka.common.header.Header"
        last = h.given(
            h.method(headers, "lastHeader", f"({STRING}){descriptor(header)}"), 1, HEADER
        )
        format_hex = h.method("java.util.HexFormat", "formatHex", f"([B){STRING}")
        format_hex = h.given(format_hex, 0, self.bridge.java.java.util.HexFormat.of())
        value = h.then(
            h.method(_CONSUMED, "headers", f"(){descriptor(headers)}"),
            last,
            h.method(header, "value", "()[B"),
            format_hex,
        )
        nothing = h.ignoring(
            h.constant("java.lang.String", ""), 0, "java.lang.NullPointerException"
        )
        value = h.caught(value, "java.lang.NullPointerException", nothing)
        partition = h.cast(h.method(_CONSUMED, "partition", "()I"), f"({one})J")
        row = h.joined(
            h.method(_CONSUMED, "topic", f"(){STRING}"),
            h.then(partition, self.texts.of_long),
            h.then(h.method(_CONSUMED, "offset", "()J"), self.texts.of_long),
            value,
            *more,
            descriptor=f"({one}){STRING}",
            between=WITHIN,
        )
        return h.as_a("java.util.function.Function", h.each_iterated(row, between=BETWEEN))

    # --- members of share groups

    def share_consumer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaShareConsumer of bytes."""
        how = {
            "key.deserializer": f"{_BYTES}Deserializer",
            "value.deserializer": f"{_BYTES}Deserializer",
        }
        made = self.bridge.java.org.apache.kafka.clients.consumer.KafkaShareConsumer
        return made(self.bridge.properties({**how, **config}))

    def acquired(self, records: Handle) -> list[tuple[str, int, int, bytes, int]]:
        """Like `read`, with each record's delivery count."""
        if self._acquired is None:
            count = self._h.method(_CONSUMED, "deliveryCount", "()Ljava/util/Optional;")
            unknown = self._h.given(
                self._h.method("java.util.Optional", "orElse", f"({OBJECT}){OBJECT}"), 1, "0"
            )
            count = self._h.then(count, unknown)
            self._acquired = self._reading(self._h.then(count, self.texts.of))
        rows = []
        for row in str(self._acquired.apply(records)).split(BETWEEN):
            topic, partition, offset, header, count = row.split(WITHIN)
            rows.append((topic, int(partition), int(offset), bytes.fromhex(header), int(count)))
        return rows

    def listed(self, records: Handle | None = None) -> Handle:
        """The records of a poll as a Java list."""
        made = self._make_list()
        if records is not None:
            add = self._h.given(self._h.method("java.util.List", "add", f"({OBJECT})Z"), 0, made)
            records.forEach(
                self._h.as_a("java.util.function.Consumer", self._h.cast(add, f"({OBJECT})V"))
            )
        return made

    def accepting(self, consumer: Handle) -> Handle:
        """A handle that makes a share consumer accept one record."""
        owner = "org.apache.kafka.clients.consumer.ShareConsumer"
        acknowledge = self._h.method(owner, "acknowledge", f"({descriptor(_CONSUMED)})V")
        return self._h.as_a("java.util.function.Consumer", self._h.given(acknowledge, 0, consumer))

    def admin(self, config: Mapping[str, object]) -> Handle:
        """An Admin."""
        return self.bridge.java.org.apache.kafka.clients.admin.Admin.create(
            self.bridge.properties(config)
        )
