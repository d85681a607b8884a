"""Clients of cases. Producers with transactions: the same calls of librdkafka and of the Java
client under test. Members of groups: librdkafka's and Java's consumers, with the calls that relays
and rebalances need, and members whose heartbeats (KIP-848) are sent by hand.

They are not the workloads' clients (`harness.workloads`): those collect records, translate errors
and write a history, and a case needs one call, at a chosen moment, with the client's own error.

Java's clients are those of the release under test, driven through py4j (which Spark brings):
linkflap has no Java code and needs no compiler. One JVM per deployment, on loopback with a token;
it dies with this process. A call takes about a millisecond.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from linkflap.chaos.cases.wire import Wire
from linkflap.harness.jvm import Bridge, Handle, failure
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.wire import messages
from linkflap.harness.wire.librdkafka import quiet
from linkflap.harness.wire.messages import Error, Message

LOG: Final = logging.getLogger("linkflap.cases.librdkafka")
"""The log for librdkafka's messages about fatal errors, which cases provoke on purpose."""
LOG.addHandler(logging.NullHandler())
LOG.propagate = False


def ignored(_: object) -> None:
    """An error callback that ignores fatal errors, because the failing call reports them. Without a
    callback, the next call of any kind would raise them."""


class ClientFailed(EnvironmentFailure):
    """The client reported an error; `name` is Kafka's name of it."""

    def __init__(self, doing: str, name: str) -> None:
        super().__init__(f"{doing} failed with {name}")
        self.name = name


def answer_to(call: Callable[[], object]) -> str:
    """The name of the error that a call of a client reports, or "none"."""
    try:
        call()
    except ClientFailed as error:
        return error.name
    except KafkaException as error:
        return str(error.args[0].name())
    return "none"


class Transactional(Protocol):
    """A transactional producer. Every call raises ClientFailed."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...
    def flush(self) -> None:
        """Returns when everything that was sent is acknowledged."""

    def send_offsets(self, topic: str, offset: int, metadata: object) -> None:
        """Puts the offset of partition 0 into the transaction; `metadata` is that of the member
        (KIP-447)."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class LibrdkafkaProducer:
    """confluent-kafka's transactional producer; it has no client side of KIP-890."""

    def __init__(
        self, bootstrap: str, transactional_id: str, settings: Mapping[str, str | int | bool]
    ) -> None:
        self._failed: list[str] = []
        given = {
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "error_cb": ignored,
            **settings,
        }
        self.client = Producer(quiet(bootstrap) | given, logger=LOG)
        self._call("init_transactions", 60)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            getattr(self.client, name)(*arguments)
        except KafkaException as error:
            raise ClientFailed(name, error.args[0].name()) from error

    def begin(self) -> None:
        self._call("begin_transaction")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.client.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error.name())  # type: ignore[attr-defined]

    def flush(self) -> None:
        if self.client.flush(60):
            raise DeadlineExceeded("waited 60 s for acknowledgements")
        if self._failed:
            raise ClientFailed("produce", self._failed.pop(0))

    def send_offsets(self, topic: str, offset: int, metadata: object) -> None:
        at = [TopicPartition(topic, 0, offset)]
        self._call("send_offsets_to_transaction", at, metadata, 60)

    def commit(self) -> None:
        self._call("commit_transaction", 60)

    def abort(self) -> None:
        self._failed.clear()
        self._call("abort_transaction", 60)

    def close(self) -> None:
        self.client.purge()
        self.client.flush(1)


class CaseMember(Protocol):
    """A member of a group. Every call raises ClientFailed."""

    def subscribe(self, topic: str) -> None: ...
    def poll(self, seconds: float) -> list[tuple[int, bytes]]: ...
    def assignment(self) -> frozenset[int]:
        """The partitions of its topic that it owns."""

    def metadata(self) -> object:
        """The group metadata for a producer that commits the member's offsets (KIP-447): group,
        generation and member id."""

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


_STRING: Final = "org.apache.kafka.common.serialization.StringSerializer"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"


_bridges: weakref.WeakKeyDictionary[Deployment, Bridge] = weakref.WeakKeyDictionary()


def bridge(deployment: Deployment, installation: Installation, folder: Path) -> Bridge:
    """The bridge of a deployment, started at its first use and ended with it."""
    if deployment not in _bridges:
        made = Bridge(installation.java, installation.kafka.classpath, folder)
        deployment.at_close(made.close)
        _bridges[deployment] = made
    return _bridges[deployment]


@contextmanager
def _java_errors(doing: str) -> Iterator[None]:
    """Turns an error of the Java client, or of the bridge to it, into ClientFailed."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise ClientFailed(doing, failure(error)) from error
    except Py4JError as error:
        raise ClientFailed(doing, str(error)) from error


class RawJavaProducer:
    """org.apache.kafka.clients.producer.KafkaProducer with byte values."""

    def __init__(self, bridge_: Bridge, bootstrap: str, settings: Mapping[str, object]) -> None:
        given = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "key.serializer": _STRING,
            "value.serializer": _BYTES,
        }
        self.java = bridge_.java
        self._waiting: list[Handle] = []
        self.client = self.java.org.apache.kafka.clients.producer.KafkaProducer(
            bridge_.properties({**given, **settings})
        )

    def call(self, name: str, *arguments: object) -> None:
        """Calls a method. Raises ClientFailed."""
        with _java_errors(name):
            getattr(self.client, name)(*arguments)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Sends one record; `flush` reports whether it was acknowledged."""
        record = self.java.org.apache.kafka.clients.producer.ProducerRecord(
            topic, partition, None, value
        )
        with _java_errors("send"):
            self._waiting.append(self.client.send(record))

    def flush(self) -> None:
        self.call("flush")
        waiting, self._waiting = self._waiting, []
        for sent in waiting:
            with _java_errors("send"):
                sent.get()

    def close(self) -> None:
        self.call("close", self.java.java.time.Duration.ofMillis(0))


class JavaTransactional(RawJavaProducer):
    """The same calls as librdkafka's. On Kafka 4 it speaks
    transactions V2 (KIP-890)."""

    def __init__(
        self, bridge_: Bridge, bootstrap: str, transactional_id: str, settings: Mapping[str, object]
    ) -> None:
        super().__init__(bridge_, bootstrap, {"transactional.id": transactional_id, **settings})
        self.call("initTransactions")

    def begin(self) -> None:
        self.call("beginTransaction")

    def send_offsets(self, topic: str, offset: int, metadata: object) -> None:
        kafka = self.java.org.apache.kafka
        at = kafka.clients.consumer.OffsetAndMetadata(offset)
        tp = kafka.common.TopicPartition(topic, 0)
        self.call("sendOffsetsToTransaction", {tp: at}, metadata)

    def commit(self) -> None:
        self.call("commitTransaction")

    def abort(self) -> None:
        self._waiting.clear()
        self.call("abortTransaction")


class RawJavaConsumer:
    """org.apache.kafka.clients.consumer.KafkaConsumer with byte values; `name` may be another class
    with the same calls."""

    def __init__(
        self,
        bridge_: Bridge,
        bootstrap: str,
        group: str,
        settings: Mapping[str, object],
        name: str = "KafkaConsumer",
    ) -> None:
        text = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        given = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.deserializer": text,
            "value.deserializer": text,
        }
        if name == "KafkaConsumer":
            given |= {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        self.java = bridge_.java
        self.client = getattr(self.java.org.apache.kafka.clients.consumer, name)(
            bridge_.properties({**given, **settings})
        )

    def subscribe(self, topic: str) -> None:
        self.client.subscribe([topic])

    def poll(self, seconds: float) -> list[tuple[int, bytes]]:
        """(offset, value) of what one poll returned. Raises ClientFailed."""
        with _java_errors("poll"):
            found = self.client.poll(self.java.java.time.Duration.ofMillis(int(seconds * 1000)))
        records = found.iterator()
        read = []
        while records.hasNext():
            record = records.next()
            read.append((int(record.offset()), bytes(record.value() or b"")))
        return read

    def close(self) -> None:
        with _java_errors("close"):
            self.client.close(self.java.java.time.Duration.ofMillis(500))


class JavaMember(RawJavaConsumer):
    """A group member with the Java client."""

    def assignment(self) -> frozenset[int]:
        return frozenset(int(one.partition()) for one in self.client.assignment())

    def metadata(self) -> object:
        return self.client.groupMetadata()


JOIN, LEAVE = 0, -1
"""The epochs with which a member joins its group and leaves it."""


def heartbeat(asked: Wire, group: str, member: str, epoch: int, topic: str) -> int:
    """The member's epoch after a heartbeat that the coordinator accepted. Raises DeadlineExceeded
    if it accepts none."""
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
