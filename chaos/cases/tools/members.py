"""Members of groups: librdkafka's and Java's consumers, with the calls that relays and rebalances
need, and members whose heartbeats (KIP-848) are sent by hand.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from linkflap.chaos.cases.tools.clients import ClientFailed, LibrdkafkaProducer
from linkflap.chaos.cases.tools.java import JavaTransactional, RawJavaConsumer
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.jvm.bridge import failure
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.offsets import quiet


class CaseMember(Protocol):
    """A member of a group. Every call raises ClientFailed."""

    def subscribe(self, topic: str) -> None: ...
    def poll(self, seconds: float) -> list[tuple[int, bytes]]: ...
    def assignment(self) -> frozenset[int]:
        """The partitions of its topic that it owns."""

    def metadata(self) -> object:
        """What the member gives a producer that commits its offsets (KIP-447): group, generation
        and member id."""

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


JOIN, LEAVE = 0, -1
"""The epochs with which a member joins its group and leaves it."""


def heartbeat(asked: Wire, group: str, member: str, epoch: int, topic: str) -> int:
    """The member's epoch after a heartbeat that the coordinator took. Raises DeadlineExceeded when
    it takes none."""
    m = messages.request("consumer_group_heartbeat", 1)
    body = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=timedelta(seconds=30),
        subscribed_topic_names=(topic,),
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=(),
    )
    answer: Message = None

    def accepted() -> bool:
        nonlocal answer
        answer = asked.call("consumer_group_heartbeat", 1, body)
        return bool(answer.error_code == Error.none)

    until(
        accepted,
        within=60,
        what=f"group {group} to take a heartbeat",
        every=0.1,
        state=lambda: answer,
    )
    return int(answer.member_epoch)
