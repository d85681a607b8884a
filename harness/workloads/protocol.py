"""The protocol between the harness and a process of clients: messages over a pair of sockets, each
in JSON.

The harness sends commands and questions. The process answers each `AskState` with one `State`, and
reports events as they happen. Messages of one direction arrive in order, so an answer is newer than
every command before its question. The end of the stream means that the other side has ended or
died.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

import msgspec

from linkflap.harness.model.events import Event, read
from linkflap.harness.model.history import EventRow
from linkflap.harness.model.protocols import Moment
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.security import Address, Security
from linkflap.harness.workloads.library import Jvm


class Hosted(msgspec.Struct, frozen=True, kw_only=True):
    """One client of a process: its first cluster, and whether it waits there until it is moved."""

    name: str
    cluster: str
    paused: bool = False


class Host(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message: the clients of the process, their workload, and their clusters. `clusters`
    and `links` are name -> bootstrap servers. `entries` is how these clients authenticate to
    secured clusters, by name. `jvm` is what Java clients run in. `deaths` is how many processes of
    these clients died before."""

    spec: WorkloadSpec
    topics: Mapping[str, int]
    seed: int
    clusters: Mapping[str, str]
    links: Mapping[str, str]
    root: str
    numbers: str
    clients: tuple[Hosted, ...]
    jvm: Jvm | None = None
    deaths: int = 0
    entries: Mapping[str, Security] = {}

    def entered(self, cluster: str, servers: str) -> str:
        """Bootstrap servers of a cluster, and how these clients enter there."""
        return Address(servers, self.entries[cluster]) if cluster in self.entries else servers


class Start(msgspec.Struct, frozen=True, tag=True):
    """Begin to work."""


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Begin no new operation."""

    clients: tuple[str, ...]


class Move(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Continue at another cluster."""

    clients: tuple[str, ...]
    destination: str
    drained: bool


class PartitionsGrown(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A topic now has this many partitions."""

    topic: str
    partitions: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Stop every client, send a last `State`, and end."""


class AskState(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answer with a `State` of this number. `cluster` and `since` are for its
    `acknowledged_since`."""

    number: int
    cluster: str = ""
    since: int = 0


class Drained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write that a reader got to the ends of these partitions, and what it did not reach (empty:
    nothing)."""

    client: str
    reached: tuple[tuple[str, int], ...]
    missing: str


class KillAt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill yourself (SIGKILL) at this moment of a client at `cluster`. An empty cluster cancels an
    earlier order."""

    cluster: str
    moment: Moment = "any"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a client. `acknowledged` is by cluster."""

    acknowledged: Mapping[str, int] = {}
    aborted: int = 0
    commits: int = 0
    aborts: int = 0
    errors: int = 0
    read: int = 0

    def __add__(self, other: Counts) -> Counts:
        every = {*self.acknowledged, *other.acknowledged}
        return Counts(
            acknowledged={
                name: self.acknowledged.get(name, 0) + other.acknowledged.get(name, 0)
                for name in every
            },
            aborted=self.aborted + other.aborted,
            commits=self.commits + other.commits,
            aborts=self.aborts + other.aborts,
            errors=self.errors + other.errors,
            read=self.read + other.read,
        )


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """One client: its cluster, whether it has obeyed, its operation in flight, a reader's
    positions, and its positions when it recorded that it is drained."""

    name: str
    cluster: str
    moved: bool = True
    settled: bool = True
    alive: bool = True
    crash: str = ""
    open: bool = False
    committing: bool = False
    counts: Counts = Counts()
    positions: tuple[tuple[str, int, int], ...] = ()
    drained: tuple[tuple[str, int, int], ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `AskState`. `broken` is why nothing can be written any more, empty while it
    can; `ready`, whether clients that are started now begin at once."""

    number: int
    clients: tuple[ClientState, ...]
    acknowledged_since: int = 0
    broken: str = ""
    ready: bool = True


class ReportEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An event for the run's record."""

    row: EventRow

    @classmethod
    def of(cls, event: Event) -> ReportEvent:
        return cls(row=event.row)

    @property
    def event(self) -> Event:
        return read(self.row)


class KilledAt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last message of a process that obeys `KillAt`: which client has what in flight."""

    client: str
    operation: int
    moment: Moment


Command = Host | Start | Pause | Move | PartitionsGrown | Stop | AskState | Drained | KillAt
Report = State | ReportEvent | KilledAt
Sent = TypeVar("Sent")
Received = TypeVar("Received")


class Channel(Generic[Sent, Received]):
    """One end. Any thread may send; only one receives."""

    def __init__(self, end: socket.socket, received: object) -> None:
        """`received` is the type of the other side's messages."""
        self._connection = Connection(end.detach())
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[Received] = msgspec.json.Decoder(received)
        self._lock = threading.Lock()

    def send(self, message: Sent) -> bool:
        """Returns whether it was sent: the other side may have ended."""
        try:
            with self._lock:
                self._connection.send_bytes(self._encoder.encode(message))
        except OSError:
            return False
        return True

    def receive(self, within: float | None = None) -> Received | None:
        """The next message; None when none came within this many seconds. Raises EOFError when the
        other side has ended."""
        try:
            if not self._connection.poll(within):
                return None
            return self._decoder.decode(self._connection.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()
