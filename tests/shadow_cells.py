"""One cell of the matrix of a shadow's steps and faults: a failover that is disturbed exactly
there, watched from outside."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow import control
from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT, STEPS, Step
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror, make
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, Config
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.wire.offsets import Bound, quiet
from tests.shadows import SAME, TOPIC, TOPIC_PARTITIONS, Events, answered, headers

BEFORE = ("mirroring", "settling", "ending")
"""Phases in which no real broker may be in an ISR."""
FAILING_OVER: tuple[Step, ...] = STEPS[STEPS.index("settling") :]


class Settings(TypedDict):
    """What a shadow is configured with otherwise, so that it goes through proxies."""

    controllers: tuple[str, ...]
    real: Mapping[str, Mapping[int, str]]
    behind: Mapping[str, int]
    listeners: Mapping[str, int]


class Sides:
    """Toxiproxy between a shadow and its destination: controllers, brokers, and the followers' and
    clients' way to the shadow."""

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
    """A shadow behind `sides`, or configured otherwise."""

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
        status = control.ask(self._port, "status", within=2)
        return status.step if status is not None else ""

    def go_on(self) -> None:
        control.ask(self._port, "go-on", within=2)


def shadow(deployment: Deployment, sides: Sides | None = None, **options: Option) -> Shadowed:
    """A shadow that is not started; whatever an earlier one left on both sides is removed."""
    mirror = make(
        MirrorSpec(kind="shadow", options=options),
        deployment.topology.links[0],
        deployment,
        Events(),
    )
    mirror.__class__ = Shadowed  # the factory's, with another configuration
    assert isinstance(mirror, Shadowed)
    mirror.sides = sides
    shutil.rmtree(mirror.folder, ignore_errors=True)
    # Metadata names any broker as the controller (KIP-595 clusters): an admin client may wait for a
    # shadow that died.
    until(
        forgotten(deployment.clusters["B"]),
        within=30,
        every=0.1,
        what="the shadow before to be forgotten",
    )
    for cluster in deployment.clusters.values():
        _forget_topics(AdminClient(quiet(cluster.bootstrap)))
    admin = AdminClient(quiet(deployment.clusters["A"].bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, min(3, len(deployment.clusters["A"].brokers)))])[
        TOPIC
    ].result(60)
    return mirror


def _forget_topics(admin: AdminClient) -> None:
    # Where the only broker had stood still there is no controller for a moment, and a client that
    # learns that waits for minutes.
    until(
        lambda: admin.list_topics(timeout=60).controller_id >= 0,
        within=60,
        every=0.1,
        what="a controller",
    )

    def ours() -> list[str]:
        return [name for name in admin.list_topics(timeout=60).topics if name.startswith("A.")]

    if ours():
        for deleted in admin.delete_topics(ours()).values():
            deleted.result(30)
        until(lambda: not ours(), within=30, what="topics to be gone", state=ours)


class Traffic:
    """Transactions on A: some that end, one that stays open on both partitions, one on the second
    alone."""

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


class Watch:
    """Tries to write to B all the time, and looks at its ISRs: what must not be is in `seen`."""

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
            except KafkaException:  # the client knows at once that there is no such topic yet
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
            # Asked afterwards: what is not handed over now was not when the picture was taken.
            phase = self._mirror.notes().phase
            for number, p in found.partitions.items():
                real = [broker for broker in {*p.isrs, p.leader} if 0 <= broker < FIRST_BROKER_ID]
                if real and phase in BEFORE and not self._window:
                    self.seen.append(("in sync", phase, number, real))


def whole(cluster: Cluster) -> bool:
    """Whether every real broker, and nobody else, is in every ISR."""
    topic = AdminClient(quiet(cluster.bootstrap)).list_topics(TOPIC, timeout=60).topics[TOPIC]
    wanted = sorted(cluster.brokers)
    return bool(topic.partitions) and all(
        sorted(p.isrs) == sorted(p.replicas) == wanted and p.leader in wanted
        for p in topic.partitions.values()
    )


def ends(cluster: Cluster, which: Bound = "high") -> dict[tuple[str, int], int]:
    return answered(cluster.bootstrap, which, TOPIC_PARTITIONS)


def assert_failed_over(
    deployment: Deployment,
    mirror: Shadowed,
    *,
    markers: int,
    mirrored: Mapping[tuple[str, int], int],
) -> None:
    """Everything that must be true of a failover that is done, whatever came between; `mirrored`:
    what B had of A."""
    a, b = deployment.clusters["A"], deployment.clusters["B"]
    assert not mirror.alive
    assert mirror.notes().phase == "handed-over"
    until(lambda: whole(b), within=60, every=0.2, what="every replica in sync")
    promoted = mirror.promotion()
    assert promoted == mirrored, (promoted, mirrored)
    until(
        lambda: ends(b, "stable") == ends(b),
        within=20,
        every=0.1,
        what="no transaction to be open",
        state=lambda: ends(b, "stable"),
    )
    until(lambda: _level(b), within=30, every=0.1, what="replicas to be level")
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


def forgotten(cluster: Cluster, broker: int = FIRST_BROKER_ID) -> Callable[[], bool]:
    """Whether the shadow's session has ended: it leads nothing any more."""
    admin = AdminClient(quiet(cluster.bootstrap))
    return lambda: broker not in admin.list_topics(timeout=60).brokers


Break = Callable[[Deployment, Shadowed, Callable[[], None]], None]


def kill(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    """In a failover, that goes on in a process of its own, twice where it comes there twice.
    `forget`: the next does not stop."""
    step, pid = mirror.step(), mirror.pid
    mirror.crash()
    if step in FAILING_OVER:

        def again() -> bool:
            over = mirror.notes().phase == "handed-over"
            return over or (mirror.pid not in (None, pid) and mirror.step() == step)

        until(again, within=60, what="another process to come there too", state=mirror._state)
    forget()
    if mirror.notes().phase != "handed-over":
        mirror.crash()


def stall(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    mirror.pause()
    until(forgotten(deployment.clusters["B"]), within=30, every=0.1, what="its session to end")
    forget()
    mirror.resume()
    mirror.go_on()


def disconnect(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    assert mirror.sides is not None
    link = deployment.links["A->B"]
    mirror.sides.cut()
    link.cut()
    until(forgotten(deployment.clusters["B"]), within=30, every=0.1, what="its session to end")
    forget()
    mirror.sides.restore()
    link.restore()
    mirror.go_on()


BREAKS: dict[str, Break] = {"kill": kill, "stall": stall, "disconnect": disconnect}


def run_cell(
    deployment: Deployment, sides: Sides, step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mirrors and fails over, disturbed at `step`."""
    mirror = shadow(deployment, sides)
    try:
        _play(deployment, mirror, step, how, monkeypatch)
    finally:
        if mirror.alive:
            mirror.crash()


def _play(
    deployment: Deployment, mirror: Shadowed, step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = deployment.clusters["A"], deployment.clusters["B"]
    traffic = Traffic(a.bootstrap)
    traffic.write()
    monkeypatch.setenv(PAUSE_AT, step)
    with ThreadPoolExecutor(1) as pool, Watch(mirror, b.bootstrap).watching() as watch:
        if step not in FAILING_OVER:
            starting = pool.submit(mirror.start)
            until(
                lambda: mirror.step() == step,
                within=60,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
            try:
                starting.result(90)
            except SetupError:
                assert how == "kill"
                mirror.restart()
        else:
            mirror.start()
        markers = traffic.leave_open()
        until(
            lambda: mirror.lag() == 0,
            within=60,
            every=0.1,
            what="the mirror to drain",
            state=mirror._state,
        )
        mirrored = ends(a)
        until(lambda: watch.refused > 2, within=30, what="a refused write")
        stopping = pool.submit(mirror.stop)
        if step in FAILING_OVER:
            until(
                lambda: mirror.step() == step,
                within=90,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
        stopping.result(160)
        until(lambda: len({p for p, _ in watch.written}) == 2, within=30, what="B to take writes")
    assert watch.seen == []
    assert watch.looks > 5
    assert_failed_over(deployment, mirror, markers=markers, mirrored=mirrored)
