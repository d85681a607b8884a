"""librdkafka's configuration for workloads, and its errors as texts."""

from __future__ import annotations

from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.model.security import security_of

ROOM: Final = 4096
"""Bytes of a batch besides the value of its only record: its headers and key, and the overhead of
the format."""

STATISTICS_MS: Final = 100


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
