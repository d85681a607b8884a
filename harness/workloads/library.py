"""The client library of a workload: librdkafka (confluent-kafka), or Kafka's own in Java. Workloads
use both in the same way.

The interface is the part of confluent-kafka's that workloads need; `harness.workloads.java`
provides it for Java's clients, whose configuration is translated here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from linkflap.harness.model.security import OPEN, security_of

if TYPE_CHECKING:
    from linkflap.harness.workloads.java.clients import JavaClients
    from linkflap.harness.workloads.java.consumer import JavaConsumer, JavaShareConsumer

ROOM: Final = 4096
"""Bytes of a batch besides the value of its only record: its headers and key, and the overhead of
the format."""

STATISTICS_MS: Final = 100
BLOCKS: Final = 1.0
"""How many seconds a call of Java's producer may block."""


class _Eos(msgspec.Struct):
    producer_id: int = -1
    producer_epoch: int = -1


class _Statistics(msgspec.Struct):
    eos: _Eos = msgspec.field(default_factory=_Eos)


_decode: Final = msgspec.json.Decoder(_Statistics).decode


def identity_in(statistics: str) -> tuple[int, int]:
    """A producer's id and epoch, as librdkafka's statistics have them (-1: none yet)."""
    eos = _decode(statistics).eos
    return eos.producer_id, eos.producer_epoch


def producer_config(
    bootstrap: str, transactional_id: str, *, timeout: float, compression: str, largest: int = 0
) -> dict[str, str | int | float | bool]:
    """librdkafka's configuration of a workload producer. `timeout` is in seconds, of the
    transaction or of a record's delivery. `largest` is the size of the largest value in bytes: the
    producer's own limit is raised to fit it, while the topic's limit is up to the scenario."""
    config: dict[str, str | int | float | bool] = {
        **security_of(bootstrap).librdkafka(),
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 1,
        "compression.type": compression,
        "message.max.bytes": max(1_000_000, largest + ROOM),
        "message.timeout.ms": int(timeout * 1000),
        "socket.timeout.ms": 5000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 5000,
        "log_level": 0,
    }
    if transactional_id:
        config |= {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout * 1000),
        }
    return config


def describe(error: KafkaException) -> str:
    """A librdkafka error as one short text: its name and its message."""
    cause = error.args[0] if error.args else None
    return f"{cause.name()}: {cause.str()}" if isinstance(cause, KafkaError) else str(error)


def consumer_config(bootstrap: str, group: str) -> dict[str, str | int | float | bool]:
    """librdkafka's configuration of any workload consumer: it soon notices metadata changes, and
    that a cluster is back."""
    return {
        **security_of(bootstrap).librdkafka(),
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "topic.metadata.refresh.interval.ms": 1000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "socket.timeout.ms": 10000,
    }


Config = Mapping[str, str | int | float | bool]
Identified = Callable[[int, int], None]
"""Called with a producer's id and epoch, as often as its library knows them."""
Loose = Any
"""Objects for which each library has types of its own."""
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
QUIET: Final = logging.getLogger("linkflap.librdkafka")
"""librdkafka prints fatal errors (a fenced producer: expected) on stderr, whatever log_level says;
rows and events have them."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class ClientMessage(Protocol):
    """A consumed record, or an event of a consumer."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def headers(self) -> Loose: ...
    def error(self) -> KafkaError | None: ...


class ClientProducer(Protocol):
    """A producer; errors are confluent-kafka's."""

    def __len__(self) -> int: ...
    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Loose,
        *,
        headers: Loose,
    ) -> None: ...
    def poll(self, timeout: float, /) -> int: ...
    def list_topics(self, topic: str, timeout: float) -> Loose: ...
    def init_transactions(self, timeout: float, /) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self, timeout: float, /) -> None: ...
    def abort_transaction(self, timeout: float, /) -> None: ...
    def send_offsets_to_transaction(
        self, offsets: Loose, metadata: Loose, timeout: float, /
    ) -> None: ...
    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None: ...


class ClientConsumer(Protocol):
    """A consumer; errors are confluent-kafka's."""

    def subscribe(
        self, topics: list[str], *, on_assign: Loose, on_revoke: Loose, on_lost: Loose
    ) -> None: ...
    def assign(self, partitions: list[TopicPartition], /) -> None: ...
    def consume(self, most: int, timeout: float, /) -> Sequence[ClientMessage]: ...
    def position(self, partitions: list[TopicPartition], /) -> list[TopicPartition]: ...
    def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]: ...
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float
    ) -> tuple[int, int]: ...
    def list_topics(self, *, timeout: float) -> Loose: ...
    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> object: ...
    def consumer_group_metadata(self) -> Loose: ...


class Librdkafka:
    """confluent-kafka, as a library of clients (`ClientLibrary`). Only its statistics have the
    producer id and epoch of records that never reached a log."""

    ready = True
    """Whether the preparations are complete."""

    def prepare(self) -> None:
        """Begins slow preparations, so that clients are made quickly later; here there are none."""

    def producer(
        self, config: Config, *, identified: Identified, noticed: Callable[[KafkaError], None]
    ) -> ClientProducer:
        def statistics(text: str) -> None:
            identified(*identity_in(text))

        own = {
            "statistics.interval.ms": STATISTICS_MS,
            "logger": QUIET,
            "stats_cb": statistics,
            "error_cb": noticed,
        }
        return cast("ClientProducer", Producer({**config, **own}))

    def consumer(
        self,
        config: Config,
        *,
        on_commit: OnCommit,
        noticed: Callable[[KafkaError], None],
        batch: int,
    ) -> ClientConsumer:
        del batch  # given with each poll
        # A recorder that it passes tells it from a program's consumers by its client id, unless
        # the configuration has one.
        named = {"client.id": config["group.id"]} if "group.id" in config else {}
        own = {"on_commit": on_commit, "error_cb": noticed}
        return cast("ClientConsumer", Consumer({**named, **config, **own}))

    def share_consumer(self, config: Config, *, batch: int) -> JavaShareConsumer:
        # workloads that need one are refused before
        raise NotImplementedError("librdkafka has no share consumer")

    def discard(self, consumer: ClientConsumer | JavaShareConsumer) -> None:
        """Ends the use of a consumer, which is destroyed once nobody refers to it.

        Closing it waits without a deadline for a coordinator that may be dead or moving (seen: as
        long as the session timeout with a commit pending). The group notices after that timeout.
        """


class Jvm(msgspec.Struct, frozen=True, kw_only=True):
    """The JVM of Java clients: the Java, the classes of a Kafka release, and the JVM's log."""

    java: str
    major: int
    classpath: str
    release: str
    log: str
    options: tuple[str, ...] = ()


class JavaLibrary:
    """Kafka's own clients. All of a process share one JVM, which starts once and ends with the
    process."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._lock = threading.Lock()
        self._clients: JavaClients | None = None

    def prepare(self) -> None:
        threading.Thread(target=self._started, name="starting the JVM", daemon=True).start()

    @property
    def ready(self) -> bool:
        return self._clients is not None

    def _started(self) -> JavaClients:
        # not needed by processes of librdkafka's clients, which are to be small
        from linkflap.harness.jvm import Bridge
        from linkflap.harness.machine.java import Java
        from linkflap.harness.workloads.java.clients import JavaClients

        with self._lock:
            if self._clients is None:
                log, jvm = Path(self._jvm.log), self._jvm
                java = Java(path=Path(jvm.java), major=jvm.major)
                self._clients = JavaClients(
                    Bridge(java, jvm.classpath, log.parent, name=log.stem, options=jvm.options)
                )
            return self._clients

    def producer(
        self, config: Config, *, identified: Identified, noticed: Callable[[KafkaError], None]
    ) -> ClientProducer:
        from linkflap.harness.workloads.java.producer import JavaProducer

        del noticed  # Java's log has them
        return JavaProducer(self._started(), of_producer(config), identified)

    def consumer(
        self,
        config: Config,
        *,
        on_commit: OnCommit,
        noticed: Callable[[KafkaError], None],
        batch: int,
    ) -> ClientConsumer:
        del noticed  # Java's log has them
        from linkflap.harness.workloads.java.consumer import JavaConsumer

        return JavaConsumer(self._started(), of_consumer(config, batch=batch), on_commit)

    def share_consumer(self, config: Config, *, batch: int) -> JavaShareConsumer:
        from linkflap.harness.workloads.java.consumer import JavaShareConsumer

        return JavaShareConsumer(self._started(), of_share_consumer(config, batch=batch))

    def discard(self, consumer: ClientConsumer | JavaShareConsumer) -> None:
        cast("JavaConsumer | JavaShareConsumer", consumer).discard()


ClientLibrary = Librdkafka | JavaLibrary
"""Makes clients from their librdkafka configuration."""


def library(jvm: Jvm | None) -> ClientLibrary:
    """Java's library if there is a JVM, else librdkafka."""
    return Librdkafka() if jvm is None else JavaLibrary(jvm)


_SAME: Final = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "bootstrap.servers",
        "client.id",
        "compression.type",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "linger.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "session.timeout.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
_OTHER: Final = {
    "fetch.error.backoff.ms": "retry.backoff.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_LIBRDKAFKAS: Final = frozenset(
    {"enable.partition.eof", "log_level", "on_commit", "statistics.interval.ms"}
)
_OF_THE_BROKER: Final = frozenset(
    {"group.instance.id", "heartbeat.interval.ms", "session.timeout.ms"}
)
"""With the group protocol of KIP-848, timeouts are configs of the group. And a static member that
was killed keeps its membership until its session ends, which does not suit readers that are killed
and restarted."""

_OF_THE_GROUP: Final = frozenset({"enable.auto.commit", "isolation.level"})
"""Configs that belong to a share group (KIP-932): all of its members have one isolation level, and
only acknowledgements are committed."""


def _translated(config: Mapping[str, object]) -> dict[str, object]:
    """The same settings by Java's names. LookupError for one that has no translation here."""
    bootstrap = config["bootstrap.servers"]
    entered = security_of(bootstrap) if isinstance(bootstrap, str) else OPEN
    settled = _LIBRDKAFKAS | {"auto.offset.reset"} | entered.librdkafka().keys()
    unknown = config.keys() - _SAME - _OTHER.keys() - settled
    if unknown:
        raise LookupError(f"no name of a Java client is known for {', '.join(sorted(unknown))}")
    java = {
        _OTHER.get(name, name): value
        for name, value in config.items()
        if name in _SAME or name in _OTHER
    }
    return {**java, **entered.java()}


def of_producer(config: Mapping[str, object]) -> dict[str, object]:
    """For a KafkaProducer."""
    java = _translated(config)
    linger, whole = int(str(java["linger.ms"])), int(str(java["delivery.timeout.ms"]))
    java["request.timeout.ms"] = min(int(str(java["request.timeout.ms"])), whole - linger)
    return {
        **java,
        "max.block.ms": int(BLOCKS * 1000),
        "buffer.memory": max(32 << 20, 2 * int(str(java["max.request.size"]))),
    }


def of_consumer(config: Mapping[str, object], *, batch: int) -> dict[str, object]:
    """For a KafkaConsumer; `batch` is how many records a poll may return."""
    java = {**_translated(config), "auto.offset.reset": "none", "max.poll.records": batch}
    if java.get("group.protocol") == "consumer":
        return {name: value for name, value in java.items() if name not in _OF_THE_BROKER}
    return {
        **java,
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
    }


def of_share_consumer(config: Mapping[str, object], *, batch: int) -> dict[str, object]:
    """For a KafkaShareConsumer, which acknowledges record by record. The brokers keep the group's
    own configs."""
    java = {
        name: value
        for name, value in _translated(config).items()
        if name not in _OF_THE_BROKER | _OF_THE_GROUP
    }
    return {**java, "max.poll.records": batch, "share.acknowledgement.mode": "explicit"}
