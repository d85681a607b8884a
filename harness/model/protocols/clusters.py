"""Clusters and their brokers, and the operations on a broker in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

BrokerState = Literal["running", "paused", "stopped"]
Certificate = Literal["valid", "expired", "untrusted"]
"""The last is of an authority that nobody trusts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a limited container: its own bytes (no page cache), its limit, how often it hit
    that, whether that killed it.

    `hits` is None where that cannot be seen.
    """

    used: int
    limit: int | None
    hits: int | None
    killed: bool


class Confines(Protocol):
    """What a broker can have done to it because it runs in a container. Every method is safe to
    call again."""

    @property
    def connected(self) -> bool:
        """Whether it is on its deployment's network."""

    def disconnect(self) -> None:
        """Disconnects it from the network, in both directions."""

    def reconnect(self) -> None: ...
    @property
    def blocks(self) -> Mapping[str, Sequence[str]]:
        """What is blocked now: owner -> addresses."""

    def block(self, owner: str, addresses: Sequence[str]) -> None:
        """Lets the packets of connections that it opens to these addresses vanish, on open ones
        too, until its next start.

        Blocks of several owners add up.
        """

    def unblock(self, owner: str) -> None:
        """Ends the `block` of this owner and of no other."""

    def round_trip(self, address: str, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip from its own network, or None if there was no
        answer."""

    def limit_memory(self, size: int | None) -> None:
        """Bytes that it may use from now on; None: no limit. EnvironmentFailure where it cannot be
        pressed into so few."""

    def memory(self) -> MemoryUse: ...


class Broker(Protocol):
    """One Kafka node in combined mode."""

    @property
    def cluster(self) -> str: ...
    @property
    def id(self) -> int: ...
    @property
    def state(self) -> BrokerState: ...
    @property
    def client_address(self) -> str:
        """host:port of its own CLIENT listener, no proxy in the path."""

    @property
    def log_dir(self) -> Path:
        """Where the partition folders are, readable by the harness also when the broker is dead."""

    @property
    def log(self) -> Path:
        """What it printed."""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""

    @property
    def exit_status(self) -> int | None:
        """How it ended last, negative for a signal; None while it runs, and before its first
        start."""

    def last_words(self, *, lines: int) -> Sequence[str]:
        """The last lines of what it printed and of its log, so many of each at most."""

    def start(self) -> None:
        """Starts it on the data it has; returns when it answers a metadata request."""

    def stop(self) -> None:
        """Controlled shutdown."""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def pause(self) -> None:
        """SIGSTOP: sockets stay open, nothing answers."""

    def resume(self) -> None:
        """SIGCONT."""

    @property
    def inner_addresses(self) -> Sequence[str]:
        """host:port of the listeners by which brokers and controllers reach it."""

    @property
    def confines(self) -> Confines | None:
        """What its container allows; None where it runs in none."""


class Cluster(Protocol):
    """Some brokers with one quorum."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def kafka(self) -> str:
        """The release that really runs, for example 4.3.1."""

    @property
    def brokers(self) -> Mapping[int, Broker]: ...
    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of the CLIENT listeners: the harness' own path, never through a
        proxy."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic, with the requested number of replicas or one on each broker; `config` by
        Kafka's names.

        All replicas but one must be in sync for acknowledged writes, unless `config` sets something
        else. Raises InputError or SetupError.
        """

    def show_certificate(self, path: str, which: Certificate) -> None:
        """From now on, running brokers present this certificate to every client of a path (`A->B`,
        `*->A`), and stopped brokers do so when they start. Raises FaultError if that fails. Only a
        cluster with TLS has certificates."""

    @property
    def inner_bootstrap(self) -> str:
        """Bootstrap servers of the brokers' own listeners, as services of the deployment reach
        them, never through a proxy."""


def is_running(cluster: Cluster) -> bool:
    """Whether any broker of it runs."""
    return any(broker.state == "running" for broker in cluster.brokers.values())
