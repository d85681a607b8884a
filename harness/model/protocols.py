"""What faults, mirrors and workloads are handed, and what they must be: the seams of linkflap.

A fault receives the `World` and nothing else; only `harness.runtimes` knows what stands behind a Broker, a Link or a
Service. Everything here blocks until it is true (a killed broker is dead, a cut link refuses) or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from harness.model.history import Event
from harness.model.scenario import FaultSpec, MirrorSpec, Option, WorkloadSpec
from harness.model.topology import LinkSpec, Topology

BrokerState = Literal["running", "paused", "stopped"]
Direction = Literal["requests", "responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Of what is confined: bytes that are its own (no caches), the limit, how often it was met, whether it died of it.

    `hits` is None where that cannot be seen.
    """

    used: int
    limit: int | None
    hits: int | None
    killed: bool


class Confines(Protocol):
    """What a broker can have done to it because it runs in a container. Every method is safe to call again."""

    @property
    def connected(self) -> bool:
        """Whether it is on its deployment's network."""

    def disconnect(self) -> None:
        """Takes it off the network: it reaches nobody, and nobody it."""

    def reconnect(self) -> None: ...
    @property
    def blocks(self) -> Mapping[str, Sequence[str]]:
        """What is blocked now: owner -> addresses."""

    def block(self, owner: str, addresses: Sequence[str]) -> None:
        """Lets the packets of connections that it opens to these addresses vanish, on open ones too, until its next start.

        Blocks of several owners add up.
        """

    def unblock(self, owner: str) -> None:
        """Ends the `block` of this owner and of no other."""

    def round_trip(self, address: str, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip from its own network, or None if there was no answer."""

    def limit_memory(self, size: int | None) -> None:
        """Bytes that it may use from now on; None: no limit. EnvironmentFailure where it cannot be pressed into so few."""

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
    def exit_status(self) -> int | None:
        """How it ended last, negative for a signal; None while it runs, and before its first start."""

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
        """Bootstrap servers of the CLIENT listeners: the harness' own path, never through a proxy."""

    @property
    def inner_bootstrap(self) -> str:
        """Bootstrap servers of the brokers' own listeners, as services of the deployment reach them, never through a proxy."""


class Link(Protocol):
    """The proxied path into a cluster: one Toxiproxy server, one proxy per broker of the source.

    `name` is `A->B` for a link of the topology, and `*->A` for the proxied path of ordinary clients to A.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The cluster that the path leads into (whose brokers stand behind the proxies)."""

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: the proxies' addresses."""

    def cut(self, *, owner: str = "") -> None:
        """Disables the proxies: open connections end, new ones are refused. `owner` is the fault that does it."""

    def restore(self, *, owner: str | None = None) -> None:
        """Ends the cut and removes every toxic of `owner`, or of everyone; enabled again when nobody cuts any more."""

    def add_toxic(
        self, kind: str, direction: Direction, attributes: Mapping[str, int], toxicity: float = 1.0, *, owner: str = ""
    ) -> None:
        """Adds a toxic to live connections of every proxy of the link; rebuilds the proxies if the API hangs."""

    def clear(self, *, owner: str | None = None) -> None:
        """Removes every toxic of `owner`, or of everyone, by way of new proxies (open connections are reset)."""

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        """Names of the toxics in force, of `owner` or of everyone, asked from the server."""

    def holders(self) -> frozenset[str]:
        """The owners of all cuts and toxics that are wanted now."""

    @property
    def enabled(self) -> bool:
        """Whether every proxy lets connections through, asked from the server."""

    def round_trip(self, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip on a new connection through the path, or None if there was no answer."""

    def transfer(self, *, size: int, within: float) -> float | None:
        """Bytes per second of responses over the path, measured over about `size` bytes, or None if it stalled."""

    def delivers_requests(self, *, within: float) -> bool:
        """Whether a request sent into the path takes effect on the cluster, seen from behind the proxy."""


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


class Running(Protocol):
    """A program that runs, or has ended since: a child process or a container. All methods are safe to call again."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    def poll(self) -> int | None:
        """The exit status, or None while it runs."""

    def pause(self) -> None:
        """Returns when it stands still."""

    def resume(self) -> None: ...
    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def stop(self, *, within: float) -> None:
        """SIGTERM, also to a paused one; returns when it is gone. DeadlineExceeded after `within` seconds, and it runs on."""


Spawn = Callable[[], Running]
"""Starts a program on the files it has, what it prints going to a file that its maker chose. Raises SetupError."""


class Sidecar(Protocol):
    """A program of linkflap's own beside the brokers; the ports it listens on are also on this machine's loopback."""

    @property
    def address(self) -> str:
        """Where it listens, and brokers reach it."""

    def advertised_host(self, beside: str) -> str:
        """The host that it advertises on a listener on which brokers advertise the address `beside`."""

    def reach(self, address: str) -> str:
        """A host:port that brokers tell their clients, as it is reached from there."""

    def spawn(self) -> Running:
        """Starts it, again and again. Raises SetupError."""


class Deployment(Protocol):
    """A topology that runs: what a runtime made of it."""

    @property
    def topology(self) -> Topology: ...
    @property
    def clusters(self) -> Mapping[str, Cluster]: ...
    @property
    def links(self) -> Mapping[str, Link]:
        """Links of the topology, their reverses, and `*->X` for every cluster X."""

    def service(self, name: str, *, main: str, kafka: str, files: Mapping[str, str], arguments: Sequence[str]) -> Service:
        """A JVM that is not started yet: class `main` of release `kafka`, run in a folder that holds `files` (name -> text)."""

    def sidecar(self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]) -> Sidecar:
        """Where `python -m module folder` is to run beside the brokers; it listens on `ports` (free ones), prints to `log`."""

    def free_port(self) -> int:
        """A leased port, given back when the deployment ends."""

    def at_close(self, end: Callable[[], None]) -> None:
        """Has `end` called when the deployment closes, before anything of its own ends: for a mirror's own processes."""

    def close(self) -> None:
        """Ends everything that was started; safe to call twice."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Recorder(Protocol):
    """Where events go."""

    def event(self, kind: str, subject: str, /, **data: object) -> Event: ...


class Mirror(Protocol):
    """What replicates over one link. One class per kind, made by `(spec, link, deployment, recorder)`."""

    @property
    def spec(self) -> MirrorSpec: ...
    @property
    def link(self) -> LinkSpec: ...
    def start(self) -> None:
        """Returns when its tasks run and a record went through."""

    def stop(self) -> None:
        """Graceful; nothing is appended to the destination afterwards."""

    def crash(self) -> None:
        """SIGKILL of the worker."""

    def restart(self) -> None:
        """After a crash: returns when records go through again."""

    @property
    def alive(self) -> bool: ...
    def lag(self) -> int | None:
        """Records of the source that it has not read yet, or None while that is unknown (source down)."""

    def promotion(self) -> Mapping[tuple[str, int], int]:
        """Per (topic, partition), the first offset on the destination that is not the mirror's; asked after stop()."""

    def reversed(self) -> Mirror:
        """A mirror over the reverse link, not started yet, that takes over the topics which this one promoted (failback).

        Asked after stop(). When it starts, the reverse link's destination loses what it has behind the last common offset: each
        such cut is an event `truncation` (subject: the reverse link; cluster, topic, partition, offset, end = where the log ended
        before). Raises InputError from a kind of mirror that cannot.
        """


class ClientDeath(Protocol):
    """A process of clients that died."""

    @property
    def process(self) -> str:
        """Its name, which the process that takes its place has too."""

    @property
    def clients(self) -> Sequence[str]: ...
    @property
    def status(self) -> int:
        """Exit status, negative for a signal."""

    @property
    def in_flight(self) -> Sequence[Mapping[str, object]]:
        """The operations that it had begun and that never returned, as its history shows."""

    @property
    def expected(self) -> int | None:
        """The operation that it saw in flight right before it was killed; 0 for a reader, None where it said nothing."""


Moment = Literal["any", "transaction", "commit"]
"""What a client has in flight: anything; a transaction that has written, and whose end was not asked for; or a commit."""


class Clients(Protocol):
    """All workload clients of a run."""

    def commits_in_flight(self, cluster: str) -> int:
        """Commits that were asked for and not answered, on this cluster, now."""

    def kill(self, cluster: str, *, workload: str, moment: Moment, by: str, within: float) -> ClientDeath:
        """SIGKILLs a process with clients of this kind (or `any`) at a cluster, at such a moment of one of them, `by` a fault.

        Returns when it is gone. Raises InputError where no such client is there, DeadlineExceeded when the moment does not come.
        """

    def done_since_restart(self, process: str) -> int:
        """Records that the clients of a process have acknowledged or read since it was started last; 0 while it does not run."""

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        """Fails all clients of `source` over to `destination`; drained: in-flight operations end first."""

    def pause(self, cluster: str) -> None:
        """Lets operations in flight end and begins no new ones (planned failover)."""

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""

    def grown(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions now: clients of its home write to the new ones too, and read them."""


class World(Protocol):
    """What a fault may touch."""

    @property
    def deployment(self) -> Deployment: ...
    @property
    def mirrors(self) -> Mapping[str, Mirror]: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def recorder(self) -> Recorder: ...
    def take_up(self, mirror: Mirror) -> None:
        """From now on `mirror` is the one of its link, in `mirrors`: one that was reversed."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> partitions of what the workloads write, as it was made or has grown."""

    def grown(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions now: whoever writes to it, reads it or waits for its ends goes by that from now on."""

    @property
    def stopping(self) -> bool:
        """True once the run is ending: hold no fault open any longer."""

    def capture(self, moment: str, cluster: str) -> None:
        """Copies the raw logs of a cluster as they are now."""


class Bite:
    """What was measured on the faulted path within its window."""

    __slots__ = ("bit", "expected", "measured", "observable")

    def __init__(self, *, bit: bool, observable: str, measured: object, expected: object) -> None:
        self.bit, self.observable, self.measured, self.expected = bit, observable, measured, expected


class Fault(Protocol):
    """One kind of fault, made by `(spec, world)`; one file in chaos/faults and one line in its registry.

    The schedule calls inject, then bite (within the window), holds for the duration, then heal, in that order. heal is
    always called, also when inject or bite raised, and returns what it checked; it raises FaultError when it is not healed in
    time.
    """

    restores: bool

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        """None, or one sentence why this fault cannot be applied to that target of that topology."""

    def inject(self) -> None: ...
    def bite(self) -> Bite: ...
    def heal(self) -> Sequence[str]: ...


class FaultFactory(Protocol):
    restores: bool

    @property
    def defaults(self) -> Mapping[str, Option]:
        """Its options and what they are when not given; text lists the choices, the first is the default."""

    def __call__(self, spec: FaultSpec, world: World) -> Fault: ...
    def applies_to(self, target: str, topology: Topology) -> str | None: ...


class Workload(Protocol):
    """Some clients with one purpose, each in a thread of its own. One class per kind, one line in harness.workloads."""

    @property
    def spec(self) -> WorkloadSpec: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        """No new operations; those in flight end or become info. Open transactions stay open."""

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Readers read on to `ends` (cluster -> (topic, partition) -> offset); producers do nothing."""
