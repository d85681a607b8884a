"""The seams of linkflap: the protocols that faults, mirrors and workloads implement, and those of
the objects that they receive.

A fault receives the `FaultWorld` and nothing else. Only `harness.runtimes` knows whether a Broker,
a Link or a Service is a process or a container. Every method here blocks until its effect is there
(a killed broker is dead, a cut link refuses) or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

from linkflap.harness.model.events import ITSELF, ClientDied, Kind, LostRange
from linkflap.harness.model.interference import Interference, Requests
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.texts import counted
from linkflap.harness.model.topology import LinkSpec, TopicPartition, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class DiedProcess:
    """A process of clients that died. `expected` is the operation that it reported in flight right
    before it was killed: 0 for a reader or a program, None if it reported nothing."""

    event: ClientDied
    expected: int | None

    @property
    def how(self) -> str:
        """How the process ended, in words."""
        status = self.event.status
        return f"killed by {self.event.signal}" if status < 0 else f"exit status {status}"

    @property
    def sentence(self) -> str:
        """The death in one sentence."""
        died = self.event
        by = "by itself" if died.by == ITSELF else f"by fault {died.by}"
        flying = counted(len(died.in_flight), "operation")
        words = f"; its last words: {' | '.join(died.last_words)}" if died.last_words else ""
        return (
            f"process {died.process} of {', '.join(died.clients)} died {by} ({self.how}), "
            f"{flying} in flight{words}"
        )


Moment = Literal["any", "transaction", "commit"]
"""The state of a client in flight: anything; a transaction that has written and has not requested
its end; or a commit."""


class Program(Protocol):
    """A process of clients, or a program of the user's that is a workload: all of its process group
    together."""

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    @property
    def frozen(self) -> bool:
        """Whether the process is suspended (SIGSTOP)."""

    @property
    def any_suspended(self) -> bool:
        """Whether one of the program's processes is suspended, by linkflap or by itself at one of
        its failpoints."""

    def freeze(self) -> None:
        """Returns when it is suspended. Raises InputError if it does not run."""

    def thaw(self) -> None:
        """Safe to call again, and on a program that has ended."""


class Clients(Protocol):
    """All workload clients of a run."""

    @property
    def transactional(self) -> bool:
        """Whether any client of linkflap's own, or of the test's, writes in transactions."""

    @property
    def all_ended(self) -> bool:
        """Whether all writers are programs that run once, and all of them have ended."""

    def start_in(self, fault: str) -> None:
        """Starts the programs that are to start while this fault is under way."""

    def transactions_ended(self) -> int:
        """Transactions that were committed or aborted so far, on all clusters."""

    def commits_in_flight(self, cluster: str) -> int:
        """The number of commits that were requested and are not answered, on this cluster, now."""

    def kill(
        self, cluster: str, *, workload: str, moment: Moment, by: str, within: float
    ) -> DiedProcess:
        """SIGKILLs a process with clients of this kind (or `any`) at a cluster while one of them is
        at `moment`, on behalf of the fault `by`.

        Returns when it is gone. Raises InputError where no such client is there, DeadlineExceeded
        when the moment does not come.
        """

    def programs(self, cluster: str) -> Sequence[Program]:
        """The programs of the user's that are at a cluster."""

    def process(self, cluster: str, *, workload: str) -> Program:
        """A process with clients of this kind (or `any`) at a cluster, those that write before
        readers. Raises InputError."""

    def done_since_restart(self, process: str) -> int:
        """Records that the clients of a process have acknowledged or read since it was started
        last; 0 while it does not run."""

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        """Fails all clients of `source` over to `destination`; drained: in-flight operations end
        first."""

    def pause(self, cluster: str) -> None:
        """Lets operations in flight end and begins no new ones (planned failover)."""

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""

    def read_on(self, cluster: str) -> int | None:
        """Records that readers on this cluster have read, in the workload that has read least; None
        without readers."""

    def groups_on(self, cluster: str) -> frozenset[str]:
        """Consumer groups that are to commit offsets on this cluster: of topics that have a
        writer."""

    def grown(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions now: clients of its home write to the new ones too, and
        read them."""


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
    """The restrictions that a container allows on its broker: network and memory. Every method is
    safe to call again."""

    @property
    def connected(self) -> bool:
        """Whether the broker is on its deployment's network."""

    def disconnect(self) -> None:
        """Disconnects it from the network, in both directions."""

    def reconnect(self) -> None: ...
    @property
    def blocks(self) -> Mapping[str, Sequence[str]]:
        """The addresses that are blocked now, by owner."""

    def block(self, owner: str, addresses: Sequence[str]) -> None:
        """Drops the packets of connections that the broker opens, or has opened, to these
        addresses, until its next start.

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
        """The output of the program."""

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""

    @property
    def exit_status(self) -> int | None:
        """The last exit status, negative for a signal; None while it runs, and before its first
        start."""

    def last_words(self, *, lines: int) -> Sequence[str]:
        """The last lines of the broker's output and of its log, at most `lines` of each."""

    def start(self) -> None:
        """Starts it on the data it has; returns when it answers a metadata request."""

    def stop(self) -> None:
        """Controlled shutdown."""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def give_up(self) -> None:
        """Makes the broker count as stopped. A broker that linkflap did not start continues to
        run."""

    def pause(self) -> None:
        """SIGSTOP: sockets stay open, nothing answers."""

    def resume(self) -> None:
        """SIGCONT."""

    @property
    def inner_addresses(self) -> Sequence[str]:
        """host:port of the listeners by which brokers and controllers reach it."""

    @property
    def confines(self) -> Confines | None:
        """The memory limit of the container; None outside of containers."""


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


Direction = Literal["requests", "responses"]


class Link(Protocol):
    """The proxied path into a cluster: one Toxiproxy server, one proxy per broker of the source.

    `name` is `A->B` for a link of the topology, and `*->A` for the proxied path of ordinary clients
    to A. `A->postgres` is the path from A's brokers to a service that they need, with one proxy.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The cluster that the path leads into (whose brokers stand behind the proxies), or that
        needs the service."""

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: the proxies' addresses."""

    def cut(self, *, owner: str = "") -> None:
        """Disables the proxies: open connections end, new ones are refused. `owner` is the fault
        that does it."""

    def restore(self, *, owner: str | None = None) -> None:
        """Ends the cut and removes every toxic of `owner`, or of everyone; enabled again when no
        other owner cuts it."""

    def add_toxic(
        self,
        kind: str,
        direction: Direction,
        attributes: Mapping[str, int],
        toxicity: float = 1.0,
        *,
        owner: str = "",
    ) -> None:
        """Adds a toxic to live connections of every proxy of the link; rebuilds the proxies if the
        API hangs."""

    def clear(self, *, owner: str | None = None) -> None:
        """Removes every toxic of `owner`, or of everyone, by way of new proxies (open connections
        are reset)."""

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        """Names of the toxics in force, of `owner` or of everyone, asked from the server."""

    def holders(self) -> frozenset[str]:
        """The owners of all cuts and toxics that are wanted now."""

    @property
    def enabled(self) -> bool:
        """Whether every proxy lets connections through, asked from the server."""

    def round_trip(self, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip on a new connection through the path (of a
        service: of a request of its own protocol), or None if there was no answer."""

    def first_answer(self, *, within: float) -> float | None:
        """Seconds until the first bytes come back on a new connection, or None: of a secured link
        before anybody is let in."""

    def transfer(self, *, size: int, within: float) -> float | None:
        """Bytes per second of responses over the path, measured over about `size` bytes, or None if
        it stalled."""

    def delivers_requests(self, *, within: float) -> bool | None:
        """Whether a request sent into the path takes effect on the cluster, seen from behind the
        proxy; None of a service, where it cannot be seen."""

    def prove(self) -> None:
        """Shows that the proxies are in the path, as an event `link-proven`. Raises SetupError when
        they are not."""


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
    def signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def stop(self, *, within: float) -> None:
        """SIGTERM, also to a paused one; returns when it is gone. DeadlineExceeded after `within`
        seconds, and it runs on."""


Spawn = Callable[[], Running]
"""Starts a program on its existing files, with its output in a file that its maker chose. Raises
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
        """The address at which it listens, and brokers reach it."""

    def advertised_host(self, beside: str) -> str:
        """The host that it advertises on a listener on which brokers advertise the address
        `beside`."""

    def reach(self, address: str) -> str:
        """Maps a host:port that brokers advertise to the address by which it is reached from
        there."""

    def spawn(self) -> Running:
        """Starts the program; may be called again after it has exited. Raises SetupError."""


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
    def recorders(self) -> Mapping[str, WireRecorder]:
        """The recorder of each cluster; empty where nothing is recorded on the wire."""

    @property
    def cluster_services(self) -> Mapping[str, ClusterService]:
        """The services that clusters need, by the names of their links: `A->postgres`."""

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
        """A sidecar that will run `python -m module folder` beside the brokers, listens on `ports`
        (free ones), and prints to `log`."""

    def replace_release(self, cluster: str, broker: int, kafka: str) -> str:
        """From its next start on a broker runs this Kafka, whose version is returned. Raises
        InputError or SetupError."""

    def skew_clock(self, cluster: str, broker: int, seconds: float) -> None:
        """From its next start on, the broker's clock is this many seconds ahead (negative: behind).
        Raises InputError.
        """

    def broken(self) -> str:
        """Why its links no longer work, in one sentence: a program of the deployment behind them
        has died. Empty while they work.
        """

    def free_port(self) -> int:
        """A leased port, given back when the deployment ends."""

    def at_close(self, end: Callable[[], None]) -> None:
        """Registers `end`, which is called when the deployment closes, before its own parts end:
        for a mirror's processes."""

    def close(self) -> None:
        """Stops everything that was started; may be called twice."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


FailoverKind = Literal["planned", "forced"]
"""Drained first, or not."""


class Recorder(Protocol):
    """Where events go."""

    def write(self, event: Kind, /) -> Kind:
        """Writes an event, with the present time if it has none, and returns the written event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRecording:
    """The scope of a recording on the wire, into the run directory `root`: writes to `topics`,
    reads of `reads`, the commits of `groups` in these, and what `share_groups` acquire of these and
    acknowledge."""

    root: Path
    topics: frozenset[str]
    reads: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    share_groups: frozenset[str] = frozenset()
    counted: Sequence[Requests] = ()
    """The requests for which faults wait, besides those named by API alone."""


class WireRecorder(Protocol):
    """The recorder of one cluster: programs that are recorded connect to its brokers through it."""

    @property
    def cluster(self) -> str: ...
    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: the recorder's addresses, which brokers advertise there."""

    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> Path: ...
    def last_words(self, *, lines: int) -> Sequence[str]:
        """The last lines of its log, at most `lines`."""

    def interfere(self, fault: str, what: Interference | None) -> None:
        """From now on changes requests as `what` says, for the fault with this id; with None it
        stops. Returns when the recorder has confirmed it. Raises DeadlineExceeded.
        """

    def interfered(self, fault: str) -> int:
        """The number of requests and answers that were changed for this fault."""

    def requested(self, what: Requests) -> int:
        """The number of these requests that programs have sent so far, or that are in flight now.
        Raises InputError for one that is not among `WireRecording.counted`."""


class ClusterService(Protocol):
    """A service that the brokers of a cluster need besides Kafka, and the link over which they
    reach it."""

    @property
    def cluster(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def link(self) -> Link: ...
    @property
    def alive(self) -> bool: ...
    @property
    def exit_status(self) -> int | None:
        """The last exit status, negative for a signal; None while it runs."""

    @property
    def log(self) -> Path: ...
    @property
    def data(self) -> Path:
        """Where it keeps its data."""

    def last_words(self, *, lines: int) -> Sequence[str]:
        """The last lines of its output, at most `lines`."""

    def kill(self) -> None:
        """SIGKILL of all its processes; returns when they are gone."""

    def start_again(self) -> None:
        """Runs its command again, unless it runs; returns when it answers. Raises SetupError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStage:
    """A mirror's own report of its progress. `held`: bytes that it has fetched and that not every
    live replica of the destination has."""

    held: int
    handing_over: bool


@runtime_checkable
class ReportsStage(Protocol):
    """A mirror that reports its progress."""

    def stage(self) -> MirrorStage | None:
        """The progress; None while the mirror does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedVerbs:
    """The result of a sequence of verbs: how many were `asked`, how many of them changed the
    mirror, `wrong`: the first answer or state that contradicts the mirror's model, and
    `unanswered`: a verb without an answer, which proves nothing."""

    asked: int
    changed: int
    wrong: str = ""
    unanswered: str = ""


@runtime_checkable
class Administered(Protocol):
    """A mirror that runs inside the destination's brokers. It has no process of its own; admins
    control it with verbs (admin requests) and settings.
    """

    def coordinator(self) -> int | None:
        """The destination's broker that coordinates it: the leader of the mirror's partition of the
        state topic. None while there is none, or none is known."""

    def source_addresses(self) -> Sequence[str]:
        """host:port of the source, as in the mirror's settings."""

    def move_source(self, addresses: Sequence[str]) -> None:
        """Changes the source addresses in the mirror's settings. Raises FaultError."""

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        """Sends random verbs that do not promote, and compares each answer with the model of the
        mirror's verbs.
        """

    def resume_all(self) -> Sequence[str]:
        """Resumes paused topics and waits until every topic is mirrored. Returns the topics. Raises
        DeadlineExceeded.
        """


@runtime_checkable
class ReportsGivenUpTopics(Protocol):
    """A mirror that reports the topics that it has stopped mirroring although they exist on its
    source.
    """

    def given_up(self) -> Mapping[str, str]:
        """Topic -> the reason. Empty while the mirror does not answer."""


class Mirror(Protocol):
    """A mirror replicates over one link. One class per kind, made by `(spec, link, deployment,
    recorder)`."""

    @property
    def spec(self) -> MirrorSpec: ...
    @property
    def link(self) -> LinkSpec: ...
    def start(self) -> None:
        """Returns when its tasks run and a record went through."""

    def stop(self) -> None:
        """Graceful; nothing is appended to the destination afterwards."""

    def fail_over(self, kind: FailoverKind) -> None:
        """Like `stop`, but final: clients may write to the destination once it returns."""

    def crash(self) -> None:
        """SIGKILL of the worker."""

    def restart(self) -> None:
        """After a crash: returns when records go through again."""

    @property
    def alive(self) -> bool: ...
    def lag(self) -> int | None:
        """Records of the source that it has not read yet, or None while that is unknown (source
        down)."""

    def promotion(self) -> Mapping[tuple[str, int], int]:
        """Per (topic, partition), the first offset on the destination that is not the mirror's;
        asked after stop()."""

    def reversed(self) -> Mirror:
        """A mirror over the reverse link, not started yet, that takes over the topics which this
        one promoted (failback).

        Asked after stop(). When it starts, the reverse link's destination loses what it has behind
        the last common offset: each such cut is an event `truncation` (subject: the reverse link;
        cluster, topic, partition, offset, end = where the log ended before). Raises InputError from
        a kind of mirror that cannot.
        """


class FaultWorld(Protocol):
    """Everything that a fault may use."""

    @property
    def deployment(self) -> Deployment: ...
    @property
    def mirrors(self) -> Mapping[str, Mirror]: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def recorder(self) -> Recorder: ...
    def take_up(self, mirror: Mirror) -> None:
        """Makes `mirror`, a reversed one, the mirror of its link in `mirrors`."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> number of partitions, for the topics that the workloads write, including added
        partitions."""

    def sampled_groups(self, cluster: str) -> frozenset[str]:
        """Consumer groups with a sampled committed offset on a cluster, so that their progress
        there is known."""

    def group_offsets(self, cluster: str, group: str) -> Mapping[TopicPartition, int]:
        """The committed offsets of a group on a cluster, as they were last sampled."""

    def grown(self, topic: str, partitions: int) -> None:
        """Announces a topic's new number of partitions: its writers, readers and waiters use it
        from now on."""

    @property
    def stopping(self) -> bool:
        """True once the run is ending: hold no fault open any longer."""

    def capture(self, moment: str, cluster: str) -> None:
        """Copies the raw logs of a cluster as they are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bite:
    """The measurement on the faulted path within the fault's window. `lost`: the records that the
    fault removed for good."""

    bit: bool
    observable: str
    measured: object
    expected: object
    lost: tuple[LostRange, ...] | None = None
