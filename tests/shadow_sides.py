"""A shadow behind its own proxies, which can separate it from its destination."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow import control
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror, make
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID, Config
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import MirrorSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.wire.offsets import quiet
from tests.shadows import TOPIC, Events


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

    def go_on(self) -> None:
        control.ask(self._port, "go-on", folder=self.folder, within=2)


def shadow(deployment: Deployment, sides: Sides | None = None, **options: Option) -> Shadowed:
    """A shadow that is not started. Remains of an earlier shadow on both sides are removed
    first."""
    mirror = make(
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
    # After the only broker was suspended, there is no controller for a moment. A client that gets
    # this answer waits for minutes.
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
