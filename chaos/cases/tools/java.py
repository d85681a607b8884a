"""Java's own clients, of the release under test, driven through py4j (which Spark brings). linkflap
has no Java code and needs no compiler.

One JVM per deployment, on loopback with a token; it dies with this process. A call takes about a
millisecond.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from linkflap.chaos.cases.tools.clients import ClientFailed
from linkflap.harness.jvm.bridge import Bridge, Handle, failure
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.runtimes.kraft.installation import Installation

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

    def call(self, name: str) -> None:
        """Calls a method without arguments. Raises ClientFailed."""
        from py4j.protocol import Py4JJavaError

        try:
            getattr(self.client, name)()
        except Py4JJavaError as error:
            raise ClientFailed(name, failure(error)) from error

    def send(self, topic: str, value: bytes, partition: int = 0) -> Handle:
        """The future of one record."""
        from py4j.protocol import Py4JJavaError

        record = self.java.org.apache.kafka.clients.producer.ProducerRecord(
            topic, partition, None, value
        )
        try:
            sent = self.client.send(record)
        except Py4JJavaError as error:
            raise ClientFailed("send", failure(error)) from error
        self._waiting.append(sent)
        return sent

    def flush(self) -> None:
        from py4j.protocol import Py4JJavaError

        self.call("flush")
        waiting, self._waiting = self._waiting, []
        for sent in waiting:
            try:
                sent.get()
            except Py4JJavaError as error:
                raise ClientFailed("send", failure(error)) from error

    def close(self) -> None:
        from py4j.protocol import Py4JError

        zero = self.java.java.time.Duration.ofMillis(0)
        try:
            self.client.close(zero)
        except Py4JError as error:
            raise ClientFailed("close", str(error)) from error


class JavaTransactional(RawJavaProducer):
    """The same five calls as librdkafka's (`tools.clients.Transactional`). On Kafka 4 it speaks
    transactions V2 (KIP-890)."""

    def __init__(
        self, bridge_: Bridge, bootstrap: str, transactional_id: str, settings: Mapping[str, object]
    ) -> None:
        super().__init__(bridge_, bootstrap, {"transactional.id": transactional_id, **settings})
        self.call("initTransactions")

    def begin(self) -> None:
        self.call("beginTransaction")

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
        from py4j.protocol import Py4JJavaError

        try:
            found = self.client.poll(self.java.java.time.Duration.ofMillis(int(seconds * 1000)))
        except Py4JJavaError as error:
            raise ClientFailed("poll", failure(error)) from error
        records = found.iterator()
        read = []
        while records.hasNext():
            record = records.next()
            read.append((int(record.offset()), bytes(record.value() or b"")))
        return read

    def close(self) -> None:
        from py4j.protocol import Py4JError

        try:
            self.client.close(self.java.java.time.Duration.ofMillis(500))
        except Py4JError as error:
            raise ClientFailed("close", str(error)) from error
