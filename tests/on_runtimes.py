"""Runtimes that this machine has, their brokers, containers and disks."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine import ledger, process_identity
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.events import Event, Kind, stamped
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import RUNTIMES, probe, runtime
from linkflap.harness.runtimes.disks import SlowDisk, SmallDisk
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.librdkafka import quiet
from linkflap.topologies import parse
from tests.waiting import eventually

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


@contextmanager
def deployed(topology: str, folder: Path) -> Iterator[Deployment]:
    """Clusters of child processes; their events are in the folder too."""
    events = EventLog(folder / "events.jsonl")
    try:
        with runtime("process")(parse(topology), folder=folder, recorder=events) as up:
            yield up
    finally:
        events.close()


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
    admin = AdminClient(quiet(cluster.bootstrap))
    for future in admin.create_topics([NewTopic(topic, 1, replicas)], request_timeout=60).values():
        future.result()


def produce(
    bootstrap: str,
    topic: str,
    value: bytes,
    *,
    within: float = 60,
    login: Mapping[str, str | int | float | bool] | None = None,
) -> int:
    """Writes `value`, and returns its offset once all replicas acknowledged it."""
    reports: list[tuple[KafkaError | None, int | None]] = []
    producer = Producer(
        {
            **QUIET,
            **(login or {}),
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
        eventually(f"{count} records", enough, state=lambda: found)
    finally:
        consumer.close()
    return found


def in_sync(cluster: Cluster) -> set[int]:
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
    return set(admin.list_topics("replicated", timeout=60).topics["replicated"].partitions[0].isrs)


# The containers and networks of a process in a Docker engine, and a harness that creates some.


HARNESS = """
import json, sys
from linkflap.harness.machine import cleanup
from linkflap.harness.runtimes import runtime
from tests.on_runtimes import Events, topology
from linkflap.harness.model.topology import ClusterSpec

with cleanup.temporary_folder() as folder:
    one = topology(ClusterSpec(name="A"))
    with runtime("docker")(one, folder=folder, recorder=Events()) as deployment:
        deployment.clusters["A"].brokers[1].pause()
        print(json.dumps(str(folder)), flush=True)
        sys.stdin.readline()
"""


def labelled(owner: process_identity.Identity) -> dict[str, str]:
    """The label of what one process created."""
    from linkflap.harness.machine import engine_leftovers

    return {engine_leftovers.OWNER: engine_leftovers.owner_label(owner)}


def _containers(engine: Any, owner: process_identity.Identity) -> list[Any]:
    ((name, value),) = labelled(owner).items()
    mine = {"label": f"{name}={value}"}
    return list(engine.containers.list(all=True, filters=mine, ignore_removed=True))


def of(engine: Any, owner: process_identity.Identity) -> list[str]:
    """The containers and networks that one process created."""
    ((name, value),) = labelled(owner).items()
    networks = engine.networks.list(filters={"label": f"{name}={value}"})
    return [thing.name for thing in (*_containers(engine, owner), *networks)]


def volumes_of(engine: Any, owner: process_identity.Identity) -> set[str]:
    """The volumes that its containers mount. Other tests create and remove volumes of their own at
    the same time, so all volumes of the engine cannot be compared."""
    mounts = [mount for each in _containers(engine, owner) for mount in each.attrs["Mounts"]]
    return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}


def existing(engine: Any, volumes: set[str]) -> set[str]:
    return volumes & {volume.name for volume in engine.volumes.list()}


# Small disks for tests, on machines that permit them.


def skip_without_slow_disks(folder: Path) -> None:
    folder.mkdir()
    _skip_without(SlowDisk(folder, "skip"))


@contextmanager
def mounted(folder: Path, *, size: int) -> Iterator[Path]:
    """A folder on a disk of its own, in memory."""
    folder.mkdir()
    try:
        ledger.mount(folder, size=size)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted ({error.strerror}); that takes root, on Linux")
    yield folder
    ledger.unmount(folder)


def skip_without_small_disks(folder: Path) -> None:
    folder.mkdir()
    _skip_without(SmallDisk(folder))


def _skip_without(disk: SlowDisk | SmallDisk) -> None:
    try:
        disk.put(spare=1 << 20)
        disk.take_back()
    except SetupError as error:
        pytest.skip(str(error))


# The state of a cluster's controllers: the active one (KIP-595), and ongoing reassignments.


def active_controller(cluster: Cluster) -> int:
    """Asks the quorum, because metadata responses name any broker as the controller."""
    address = next(b.client_address for b in cluster.brokers.values() if b.state == "running")
    found = probe.quorum(address)
    assert found is not None
    return found.leader


def pending(cluster: Cluster) -> list[str]:
    """Topics that are being reassigned (KIP-455)."""
    m = messages.request("list_partition_reassignments", 0)

    async def ask() -> list[str]:
        connection = Connection(
            next(b.client_address for b in cluster.brokers.values() if b.state == "running")
        )
        try:
            body = m.ListPartitionReassignmentsRequest(topics=None)
            return [
                str(topic.name)
                for topic in (await connection.call("list_partition_reassignments", 0, body)).topics
            ]
        finally:
            connection.close()

    return asyncio.run(ask())
