"""Consumers of a group, librdkafka's and Java's, with the calls that relays and rebalances need."""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from linkflap.chaos.cases.tools.clients import ClientFailed, LibrdkafkaProducer
from linkflap.chaos.cases.tools.java import JavaTransactional, RawJavaConsumer
from linkflap.harness.jvm.bridge import failure
from linkflap.harness.wire.offsets import quiet


class CaseMember(Protocol):
    """A member of a group. Every call raises ClientFailed."""

    def subscribe(self, topic: str) -> None: ...
    def poll(self, seconds: float) -> list[tuple[int, bytes]]: ...
    def assignment(self) -> frozenset[int]:
        """The partitions of its topic that it owns."""

    def metadata(self) -> object:
        """What it gives a producer that commits its offsets (KIP-447): group, generation and member
        id."""

    def close(self) -> None: ...


class LibrdkafkaMember:
    """confluent-kafka's consumer."""

    def __init__(self, bootstrap: str, group: str, settings: dict[str, str]) -> None:
        given = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer(quiet(bootstrap) | given | settings)

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def poll(self, seconds: float) -> list[tuple[int, bytes]]:
        found = self._consumer.consume(500, seconds)
        return [(one.offset() or 0, one.value() or b"") for one in found if one.error() is None]

    def assignment(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def metadata(self) -> object:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


class JavaMember(RawJavaConsumer):
    """The same of the Java client."""

    def assignment(self) -> frozenset[int]:
        return frozenset(int(one.partition()) for one in self.client.assignment())

    def metadata(self) -> object:
        return self.client.groupMetadata()


def send_offsets(producer: object, topic: str, offset: int, metadata: object) -> None:
    """Puts the offset of partition 0 into the producer's transaction (KIP-447). Raises
    ClientFailed."""
    if isinstance(producer, LibrdkafkaProducer):
        try:
            producer.client.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], metadata, 60
            )
        except KafkaException as error:
            raise ClientFailed("send_offsets_to_transaction", error.args[0].name()) from error
        return
    if not isinstance(producer, JavaTransactional):
        raise TypeError(f"{type(producer).__name__} is no transactional client")
    from py4j.protocol import Py4JJavaError

    kafka = producer.java.org.apache.kafka
    at = kafka.clients.consumer.OffsetAndMetadata(offset)
    try:
        producer.client.sendOffsetsToTransaction(
            {kafka.common.TopicPartition(topic, 0): at}, metadata
        )
    except Py4JJavaError as error:
        raise ClientFailed("sendOffsetsToTransaction", failure(error)) from error


__all__ = ["CaseMember", "JavaMember", "LibrdkafkaMember", "send_offsets"]
