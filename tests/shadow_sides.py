"""A shadow behind proxies that separate it from its destination, the invariants that are watched
from outside, and its logs after failovers and failbacks."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow import control
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, Config
from linkflap.harness.model.protocols import Cluster, Deployment, Mirror
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.wire.librdkafka import quiet
from tests.shadows import SAME, TOPIC, TOPIC_PARTITIONS, Events, Writer, drained, ends, headers
from tests.waiting import eventually


class Settings(TypedDict):
    """Changes of a shadow's configuration, so that its connections go through proxies."""

    controllers: tuple[str, ...]
    real: Mapping[str, Mapping[int, str]]
    behind: Mapping[str, int]
    listeners: Mapping[str, int]


class Sides:
    """Toxiproxy between a shadow and its destination: to the controllers and brokers, and from
    followers and clients to the shadow."""

    def __init__(
        self, deployment: Deployment, plain: Config, folder: Path, destination: str = "B"
    ) -> None:
        self._proxies: dict[int, tuple[int, str]] = {}

        def through(address: str) -> str:
            port = deployment.free_port()
            self._proxies[len(self._proxies) + 1] = port, address
            return f"127.0.0.1:{port}"

        behind = {name: deployment.free_port() for name in plain.listeners}
        self.settings: Settings = {
            "controllers": tuple(map(through, plain.controllers)),
            "real": {
                name: {b: through(a) for b, a in brokers.items()}
                for name, brokers in plain.real.items()
            },
            "behind": behind,
            "listeners": {
                name: int(through(f"127.0.0.1:{port}").rpartition(":")[2])
                for name, port in behind.items()
            },
        }
        direct = deployment.clusters[destination].bootstrap
        self._link = ToxiproxyLink(
            "sides", destination, self._proxies, deployment.free_port(), folder, Events(), direct
        )
        self._link.start()
        deployment.at_close(self._link.close)

    def cut(self) -> None:
        self._link.cut()

    def restore(self) -> None:
        self._link.restore()


class Shadowed(ShadowMirror):
    """A shadow behind `sides`, or with another configuration."""

    sides: Sides | None = None
    override: Callable[[], Config] | None = None
    kept_open: Traffic | None = None

    def _config(self) -> Config:
        if self.override is not None:
            return self.override()
        plain = super()._config()
        return plain if self.sides is None else dataclasses.replace(plain, **self.sides.settings)

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def port(self) -> int:
        return self._port

    def plain(self) -> Config:
        return super()._config()

    def step(self) -> str:
        status = control.ask(self._port, "status", folder=self.folder, within=2)
        return status.step if status is not None else ""

    def come_to(self, step: str) -> None:
        eventually(f"the shadow at {step}", lambda: self.step() == step, state=self._state)

    def go_on(self) -> None:
        control.ask(self._port, "go-on", folder=self.folder, within=2)


def shadow(deployment: Deployment, sides: Sides | None = None, **options: Option) -> Shadowed:
    """A shadow that is not started. Remains of an earlier shadow on both sides are removed
    first."""
    mirror = ShadowMirror(
        MirrorSpec(kind="shadow", options=options),
        deployment.topology.links[0],
        deployment,
        Events(),
    )
    mirror.__class__ = Shadowed  # the factory's shadow, with another configuration
    assert isinstance(mirror, Shadowed)
    mirror.sides = sides
    shutil.rmtree(mirror.folder, ignore_errors=True)
    # Metadata responses name any broker as the controller (KIP-595 clusters), so an admin client
    # may wait for a dead shadow.
    eventually("the shadow before to be forgotten", forgotten(deployment.clusters["B"]))
    for cluster in deployment.clusters.values():
        _forget_topics(AdminClient(quiet(cluster.bootstrap)))
    admin = AdminClient(quiet(deployment.clusters["A"].bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, min(3, len(deployment.clusters["A"].brokers)))])[
        TOPIC
    ].result(60)
    return mirror


def _forget_topics(admin: AdminClient) -> None:
    # After the only broker was suspended, there is no controller for a moment. A client that gets
    # this answer waits for minutes.
    eventually("a controller", lambda: admin.list_topics(timeout=60).controller_id >= 0)

    def ours() -> list[str]:
        return [name for name in admin.list_topics(timeout=60).topics if name.startswith("A.")]

    if ours():
        for deleted in admin.delete_topics(ours()).values():
            deleted.result(30)
        eventually("topics to be gone", lambda: not ours(), state=ours)


class Traffic:
    """Transactions on A: some that end, one that stays open on both partitions, and one that stays
    open on the second alone."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._open: list[Producer] = []

    def write(self) -> None:
        producer = Producer(quiet(self._bootstrap) | {"transactional.id": "ends", "linger.ms": 0})
        producer.init_transactions(60)
        for turn in range(4):
            producer.begin_transaction()
            for n in range(10):
                producer.produce(TOPIC, b"%d" % n * 100, partition=n % 2)
            producer.flush(60)
            (producer.abort_transaction if turn % 2 else producer.commit_transaction)(60)

    def leave_open(self) -> int:
        """Returns how many markers are due."""
        for name, partitions in (("both", (0, 1)), ("second", (1,))):
            producer = Producer(
                quiet(self._bootstrap)
                | {"transactional.id": name, "linger.ms": 0, "transaction.timeout.ms": 600_000}
            )
            producer.init_transactions(60)
            producer.begin_transaction()
            for partition in partitions:
                producer.produce(TOPIC, b"open", partition=partition)
            producer.flush(60)
            self._open.append(producer)
        return 3


def forgotten(cluster: Cluster, broker: int = FIRST_BROKER_ID) -> Callable[[], bool]:
    """Whether the shadow's broker session has ended: it leads no partition any more."""
    admin = AdminClient(quiet(cluster.bootstrap))
    return lambda: broker not in admin.list_topics(timeout=60).brokers


# The state after failovers and failbacks of a shadow: logs, leaders and truncations on both
# sides.
def same_everywhere(deployment: Deployment) -> None:
    """Waits until every live replica of every cluster has the same bytes, except for leader epochs:
    a commit returns before its markers are written."""

    def differing() -> dict[TopicPartition, dict[tuple[str, int], list[Any]]]:
        each = {tp: _bytes(deployment, tp) for tp in TOPIC_PARTITIONS}
        return {tp: logs for tp, logs in each.items() if not _same(*logs.values())}

    eventually(
        "all replicas to be the same",
        lambda: not differing(),
        state=lambda: {
            tp: {where: log[0][-3:] for where, log in logs.items()}
            for tp, logs in differing().items()
        },
    )


def _bytes(deployment: Deployment, tp: TopicPartition) -> dict[tuple[str, int], list[Any]]:
    return {
        (cluster.name, broker.id): [headers(broker, tp)[key] for key in SAME]
        for cluster in deployment.clusters.values()
        for broker in cluster.brokers.values()
        if broker.state == "running"
    }


def _same(first: list[Any], *others: list[Any]) -> bool:
    return bool(first[0]) and all(log == first for log in others)


def led_by_its_own(cluster: Cluster, *, replicas: int = 1) -> None:
    """Only real brokers lead and replicate every partition, and all are in sync."""
    admin = AdminClient(quiet(cluster.bootstrap))

    def whole() -> bool:
        partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return all(
            p.leader >= 0 and len(p.isrs) == replicas == len(p.replicas) and max(p.replicas) < 1000
            for p in partitions
        )

    eventually(f"{cluster.name} to be its own", whole)


def truncations(events: Events, link: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The truncations of the last takeover over a link: (topic, partition) -> (offset, end
    before)."""
    return cast(
        dict[tuple[str, int], tuple[int, int]],
        {
            (d["topic"], d["partition"]): (d["offset"], d["end"])
            for kind, at, d in events
            if (kind, at) == ("truncation", link)
        },
    )


def away(deployment: Deployment, mirror: Mirror, *, dead: bool = True, first: int = 0) -> Any:
    """A forced failover over a mirror's link, whose source then has a tail. Returns the end of that
    source's log. Clients have continued on the destination when this returns. Broker `first` dies
    before the others."""
    here, there = (
        deployment.clusters[mirror.link.source],
        deployment.clusters[mirror.link.destination],
    )
    drained(mirror)
    deployment.links[mirror.link.name].cut()
    writer = Writer(here.bootstrap)
    writer.write(2)
    tail = ends(here.bootstrap)
    if first:
        here.brokers[first].kill()
        eventually(f"broker {first} to be out of every ISR", lambda: not _in_sync(here, first))
    if dead:
        side_by_side(broker.kill for broker in here.brokers.values())
    mirror.stop()
    deployment.links[mirror.link.name].restore()
    Writer(there.bootstrap).write(5)
    return tail


def _in_sync(cluster: Cluster, broker: int) -> bool:
    partitions = (
        AdminClient(quiet(cluster.bootstrap))
        .list_topics(TOPIC, timeout=60)
        .topics[TOPIC]
        .partitions.values()
    )
    return any(broker in p.isrs for p in partitions)


def revived(cluster: Cluster, *, without: tuple[int, ...] = ()) -> None:
    side_by_side(
        b.start for b in cluster.brokers.values() if b.state == "stopped" and b.id not in without
    )
    ends(cluster.bootstrap)


# Invariants while a shadow mirrors and after it has failed over, observed from outside.


BEFORE = ("mirroring", "settling", "ending")
"""Phases in which no real broker may be in an ISR."""


class Watch:
    """Continuously tries to write to B, and samples its ISRs; `seen` has the violations."""

    def __init__(self, mirror: Shadowed, bootstrap: str, *, window: bool = False) -> None:
        self._mirror, self._bootstrap, self._window = mirror, bootstrap, window
        self._stop = threading.Event()
        self.seen: list[object] = []
        self.refused = self.looks = 0
        self.written: list[tuple[int | None, int | None]] = []

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        threads = [threading.Thread(target=work) for work in (self._write, self._look)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(60)

    def _write(self) -> None:
        settings = {
            "message.timeout.ms": 1500,
            "linger.ms": 0,
            "acks": 1,
            "enable.idempotence": False,
        }
        producer = Producer(quiet(self._bootstrap) | settings)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error:
                self.refused += 1
                return
            self.written.append((message.partition(), message.offset()))
            if (phase := self._mirror.notes().phase) in BEFORE:
                self.seen.append(("written", phase, message.partition(), message.offset()))

        turn = 0
        while not self._stop.wait(0.02):
            turn += 1
            try:
                producer.produce(TOPIC, b"own", partition=turn % 2, on_delivery=delivered)
            except KafkaException:  # the client notices at once that the topic does not exist yet
                self.refused += 1
            producer.flush(5)

    def _look(self) -> None:
        admin = AdminClient(quiet(self._bootstrap))
        while not self._stop.wait(0.05):
            try:
                found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC]
            except KafkaException:
                continue
            self.looks += 1
            # Sampled afterwards: what is not handed over now was not handed over at the sample
            # either.
            phase = self._mirror.notes().phase
            for number, p in found.partitions.items():
                real = [broker for broker in {*p.isrs, p.leader} if 0 <= broker < FIRST_BROKER_ID]
                if real and phase in BEFORE and not self._window:
                    self.seen.append(("in sync", phase, number, real))


def whole(cluster: Cluster) -> bool:
    """Whether the ISRs consist of all real brokers and no other."""
    topic = AdminClient(quiet(cluster.bootstrap)).list_topics(TOPIC, timeout=60).topics[TOPIC]
    wanted = sorted(cluster.brokers)
    return bool(topic.partitions) and all(
        sorted(p.isrs) == sorted(p.replicas) == wanted and p.leader in wanted
        for p in topic.partitions.values()
    )


def assert_failed_over(
    deployment: Deployment,
    mirror: Shadowed,
    *,
    markers: int,
    mirrored: Mapping[tuple[str, int], int],
) -> None:
    """All invariants of a completed failover, whatever happened during it. `mirrored` is what B had
    of A."""
    a, b = deployment.clusters["A"], deployment.clusters["B"]
    assert not mirror.alive
    assert mirror.notes().phase == "handed-over"
    eventually("every replica in sync", lambda: whole(b))
    promoted = mirror.promotion()
    assert promoted == mirrored, (promoted, mirrored)
    eventually(
        "no transaction to be open",
        lambda: ends(b, "stable") == ends(b),
        state=lambda: ends(b, "stable"),
    )
    eventually("replicas to be level", lambda: _level(b))
    appended = 0
    for tp in TOPIC_PARTITIONS:
        there = headers(next(iter(a.brokers.values())), tp, below=promoted[tp])
        everyone = [headers(broker, tp) for broker in b.brokers.values()]
        assert all(one == everyone[0] for one in everyone), tp
        here = {name: np.array(values) for name, values in everyone[0].items()}
        below = here["last_offset"] < promoted[tp]
        assert {name: here[name][below].tolist() for name in SAME} == {
            name: there[name] for name in SAME
        }
        marks = ~below & (here["control"] >= 0)
        own = here["base_offset"][marks].tolist()
        noted = [offset for offset, _ in mirror.notes().partitions[TOPIC][tp[1]].appended]
        assert own == noted, (tp, own, noted, promoted)
        assert len(set(here["producer_id"][marks].tolist())) == len(own), (
            "a transaction with two markers"
        )
        appended += len(own)
    assert appended == markers


def _level(cluster: Cluster) -> bool:
    return all(
        len({tuple(headers(broker, tp)["last_offset"][-1:]) for broker in cluster.brokers.values()})
        == 1
        for tp in TOPIC_PARTITIONS
    )


def mirroring(wide: Deployment, mirror: Shadowed) -> tuple[int, dict[tuple[str, int], int]]:
    """Waits for records on A that reach B. Returns (markers due, ends of A's logs)."""
    traffic = Traffic(wide.clusters["A"].bootstrap)
    traffic.write()
    if not mirror.alive:
        mirror.start()
    markers = traffic.leave_open()
    drained(mirror)
    mirror.kept_open = traffic  # its transactions stay open as long as their producers exist
    return markers, ends(wide.clusters["A"])
