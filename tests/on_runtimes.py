"""Clusters for tests of all runtimes, and the smallest clients."""

from __future__ import annotations

import os
import uuid
from functools import cache

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.events import Event, Kind, stamped
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import RUNTIMES
from linkflap.harness.runtimes.distribution.kafka import kafka

QUIET = {"log_level": 0}
EVERY = sorted(RUNTIMES)


NO_DOCKER = "LINKFLAP_NO_DOCKER"
"""An environment variable with the reason for leaving docker out, set by the person or job that
runs the tests."""
NOT_TESTED = "runtime docker is not tested here"


def skip_without(name: str) -> None:
    """Skips the test, with the reason, if the runtime cannot run on this machine."""
    if name != "docker":
        return
    if reason := os.environ.get(NO_DOCKER):
        pytest.skip(f"{NOT_TESTED}: {reason}")
    from linkflap.harness.runtimes.docker import engine

    try:
        engine.client()
    except SetupError as error:
        pytest.skip(f"{NOT_TESTED}: {error}")
    _built_here()


@cache
def _built_here() -> None:
    """Tests the images that this tree builds, not those of a registry."""
    from linkflap.harness.runtimes.docker.images import kafka_image, proxy_image

    proxy_image.ready(build=True)
    kafka_image.ready(kafka(DEFAULT_KAFKA))


class Events:
    def __init__(self) -> None:
        self.all: list[Event] = []

    def write(self, event: Kind, /) -> Kind:
        written = stamped(event)
        self.all.append(written)
        return written

    def of(self, kind: str) -> set[str]:
        return {event.subject for event in self.all if event.kind == kind}


def topology(*clusters: ClusterSpec, links: tuple[str, ...] = ()) -> Topology:
    specs = tuple(LinkSpec(source=link[0], destination=link[-1]) for link in links)
    return Topology(clusters=clusters, links=specs)


def create(cluster: Cluster, topic: str, replicas: int = 1) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, replicas)], request_timeout=60).values():
        future.result()


def produce(bootstrap: str, topic: str, value: bytes, *, within: float = 60) -> int:
    """Writes `value`, and returns its offset once all replicas acknowledged it."""
    reports: list[tuple[KafkaError | None, int | None]] = []
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.timeout.ms": int(within * 1000),
        }
    )
    producer.produce(
        topic, value, on_delivery=lambda error, message: reports.append((error, message.offset()))
    )
    producer.flush(within + 5)
    (error, offset), *rest = reports
    assert not rest
    if error is not None:
        raise KafkaException(error)
    assert offset is not None
    return offset


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(value)
        return len(found) >= count

    try:
        until(enough, within=60, what=f"{count} records", state=lambda: found)
    finally:
        consumer.close()
    return found


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    return set(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].isrs)
