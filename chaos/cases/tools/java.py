"""Java's own clients, of the release under test, driven through py4j (which Spark brings): no Java of ours, and no compiler.

One JVM per deployment, on loopback with a token; it dies with this process. Calls are a millisecond each.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from linkflap.chaos.cases.tools.clients import ClientFailed
from linkflap.harness.machine import children
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft.installation import Installation

Handle = Any
"""Something in the JVM: py4j has no types for it."""
_bridges: weakref.WeakKeyDictionary[Deployment, Bridge]
_OPTIONS: Final = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_WITHIN: Final = 60.0
_STRING: Final = "org.apache.kafka.common.serialization.StringSerializer"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"


class Bridge:
    """A JVM with the clients of one Kafka. `java` is py4j's view of its packages."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        output = folder / "java-clients.log"
        command = [str(installation.java.path), *_OPTIONS, "-cp", f"{_jar()}:{installation.kafka.classpath}"]
        command += ["py4j.GatewayServer", "--enable-auth", "0"]
        self._child = children.spawn(command, name="java clients", folder=folder, output=output)

        def announced() -> list[str] | None:
            if not self._child.alive:
                raise SetupError(f"the JVM of the Java clients ended: {output.read_text(errors='replace')[-300:]}")
            words = output.read_text().split() if output.exists() else []
            return words[:2] if len(words) >= 2 and words[0].isdigit() else None

        port, token = until(announced, within=_WITHIN, what="the JVM of the Java clients to answer")
        parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self.java: Handle = self._gateway.jvm

    def properties(self, values: Mapping[str, object]) -> Handle:
        """java.util.Properties."""
        made = self.java.java.util.Properties()
        for name, value in values.items():
            made.put(name, str(value).lower() if isinstance(value, bool) else str(value))
        return made

    def close(self) -> None:
        self._gateway.close()
        self._child.kill()


_bridges = weakref.WeakKeyDictionary()


def bridge(deployment: Deployment, installation: Installation, folder: Path) -> Bridge:
    """The bridge of a deployment, started at its first use and ended with it."""
    if deployment not in _bridges:
        made = Bridge(installation, folder)
        deployment.at_close(made.close)
        _bridges[deployment] = made
    return _bridges[deployment]


def failure(error: Handle) -> str:
    """The simple name of the innermost Kafka exception of a py4j error, as Java has it."""
    thrown = error.java_exception
    names = []
    while thrown is not None:
        names.append(str(thrown.getClass().getSimpleName()))
        thrown = thrown.getCause()
    return next((name for name in reversed(names) if name != "ExecutionException"), "?")


class JavaProducer:
    """org.apache.kafka.clients.producer.KafkaProducer with byte values."""

    def __init__(self, bridge_: Bridge, bootstrap: str, settings: Mapping[str, object]) -> None:
        given = {"bootstrap.servers": bootstrap, "linger.ms": 0, "key.serializer": _STRING, "value.serializer": _BYTES}
        self._java = bridge_.java
        self._waiting: list[Handle] = []
        self.client = self._java.org.apache.kafka.clients.producer.KafkaProducer(bridge_.properties({**given, **settings}))

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

        record = self._java.org.apache.kafka.clients.producer.ProducerRecord(topic, partition, None, value)
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

        zero = self._java.java.time.Duration.ofMillis(0)
        try:
            self.client.close(zero)
        except Py4JError as error:
            raise ClientFailed("close", str(error)) from error


class JavaTransactional(JavaProducer):
    """The same five calls as librdkafka's (`tools.clients.Transactional`). On Kafka 4 it speaks transactions V2 (KIP-890)."""

    def __init__(self, bridge_: Bridge, bootstrap: str, transactional_id: str, settings: Mapping[str, object]) -> None:
        super().__init__(bridge_, bootstrap, {"transactional.id": transactional_id, **settings})
        self.call("initTransactions")

    def begin(self) -> None:
        self.call("beginTransaction")

    def commit(self) -> None:
        self.call("commitTransaction")

    def abort(self) -> None:
        self._waiting.clear()
        self.call("abortTransaction")


class JavaConsumer:
    """org.apache.kafka.clients.consumer.KafkaConsumer with byte values; `name` may be another class with the same calls."""

    def __init__(
        self, bridge_: Bridge, bootstrap: str, group: str, settings: Mapping[str, object], name: str = "KafkaConsumer"
    ) -> None:
        text = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        given = {"bootstrap.servers": bootstrap, "group.id": group, "key.deserializer": text, "value.deserializer": text}
        if name == "KafkaConsumer":
            given |= {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        self.java = bridge_.java
        self.client = getattr(self.java.org.apache.kafka.clients.consumer, name)(bridge_.properties({**given, **settings}))

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


def _jar() -> Path:
    """The jar of py4j that pyspark brings."""
    found = find_spec("pyspark")
    jars = (
        sorted((Path(found.submodule_search_locations[0]) / "jars").glob("py4j-*.jar"))
        if found and found.submodule_search_locations
        else []
    )
    if not jars:
        raise SetupError("pyspark has no py4j jar, by which Java clients are driven; install pyspark again")
    return jars[0]
