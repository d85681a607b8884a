"""A running topology: its clusters and links, and the programs beside its brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from linkflap.harness.model.protocols.clusters import Cluster
from linkflap.harness.model.protocols.links import Link
from linkflap.harness.model.topology import Topology


class Running(Protocol):
    """A program that runs, or has ended since: a child process or a container. All methods are safe
    to call again."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    def poll(self) -> int | None:
        """The exit status, or None while it runs."""

    def pause(self) -> None:
        """Returns when it is suspended."""

    def resume(self) -> None: ...
    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def stop(self, *, within: float) -> None:
        """SIGTERM, also to a paused one; returns when it is gone. DeadlineExceeded after `within`
        seconds, and it runs on."""


Spawn = Callable[[], Running]
"""Starts a program on the files it has, what it prints going to a file that its maker chose. Raises
SetupError."""


class Service(Protocol):
    """A JVM beside the brokers, for instance a MirrorMaker worker."""

    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Sidecar(Protocol):
    """A program of linkflap's own beside the brokers; the ports it listens on are also on this
    machine's loopback."""

    @property
    def address(self) -> str:
        """Where it listens, and brokers reach it."""

    def advertised_host(self, beside: str) -> str:
        """The host that it advertises on a listener on which brokers advertise the address
        `beside`."""

    def reach(self, address: str) -> str:
        """Maps a host:port that brokers advertise to the address by which it is reached from
        there."""

    def spawn(self) -> Running:
        """Starts it, again and again. Raises SetupError."""


class Deployment(Protocol):
    """A running topology."""

    @property
    def topology(self) -> Topology: ...
    @property
    def clusters(self) -> Mapping[str, Cluster]: ...
    @property
    def links(self) -> Mapping[str, Link]:
        """Links of the topology, their reverses, and `*->X` for every cluster X."""

    @property
    def javas(self) -> Mapping[str, str]:
        """Kafka (as a topology names it) -> the feature release of the Java that runs it."""

    def service(
        self,
        name: str,
        *,
        main: str,
        kafka: str,
        files: Mapping[str, str],
        arguments: Sequence[str],
    ) -> Service:
        """A JVM that is not started yet: class `main` of release `kafka`, run in a folder that
        holds `files` (name -> text)."""

    def sidecar(
        self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]
    ) -> Sidecar:
        """Where `python -m module folder` is to run beside the brokers; it listens on `ports` (free
        ones), prints to `log`."""

    def replace_release(self, cluster: str, broker: int, kafka: str) -> str:
        """From its next start on a broker runs this Kafka, whose version is returned. Raises
        InputError or SetupError."""

    def skew_clock(self, cluster: str, broker: int, seconds: float) -> None:
        """From its next start on a broker's clock is so many seconds ahead, or behind where less
        than 0. Raises InputError."""

    def free_port(self) -> int:
        """A leased port, given back when the deployment ends."""

    def at_close(self, end: Callable[[], None]) -> None:
        """Registers `end`, which is called when the deployment closes, before its own parts end:
        for a mirror's processes."""

    def close(self) -> None:
        """Ends everything that was started; safe to call twice."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
