"""Translates librdkafka's configuration of a workload's client to that of Java's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.security import OPEN, security_of
from linkflap.harness.workloads.java.producer import BLOCKS

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
