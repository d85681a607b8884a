"""One client: a thread that takes steps on one cluster until it is asked to pause, move or stop.

Every wait of a step is divided into slices of `SLICE` seconds, and between slices the step checks
`interrupted`. So a client of a dead cluster obeys within about a second, and its operations in
flight are recorded as info.

The context of a workload's clients: addresses of clusters, topics, the writer of rows, and the
numbers of incarnations.

Numbers of producer and reader incarnations begin at 1, and each is used once in a run, across all
processes. A small file with a lock keeps the last one. The kernel releases the lock when its holder
is killed, so that no other process waits for it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import ClientCrash, Event
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Moment
from linkflap.harness.model.scenario import Option, WorkloadSpec
from linkflap.harness.model.wait import now, until
from linkflap.harness.rundir import Appender
from linkflap.harness.workloads.library import ClientLibrary, Librdkafka
from linkflap.harness.workloads.protocol import ClientState, Counts


class Numbers:
    """The numbers of one run. Safe from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # the kernel's lock is per process, not per thread

    def next(self) -> int:
        """The number of a new incarnation."""
        with self._lock:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX)
                number = int(os.pread(handle, 32, 0) or b"0") + 1
                os.pwrite(handle, b"%d" % number, 0)
                return number
            finally:
                os.close(handle)


Options = Mapping[str, OptionAbout]
VIA: Final = OptionAbout(
    default="direct",
    choices=("direct", "proxy", "wire"),
    about="proxy: by the path that client faults break; wire: through recorders (not command)",
)


def value_of(spec: WorkloadSpec, name: str, options: Options) -> Option:
    """The value of one of a workload's options, else its default. Raises InputError for a wrong
    value, and for an option that the workload does not have."""
    value = spec.options.get(name)
    if name not in options:
        fix = f"it knows {', '.join(sorted(options))}"
    elif value is None:
        return options[name].default
    else:
        try:
            return options[name].checked(value)
        except ValueError as error:
            fix = str(error)
    raise InputError(f"workload {spec.kind} cannot have {name}={value!r}; {fix}")


class ClientFiles(Protocol):
    """The part of a run directory that clients write to."""

    def operations(self, client: str) -> Appender[Operation]: ...
    def polls(self, reader: str) -> Appender[Poll]: ...
    def write(self, event: Event, /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a workload's clients share. `topics` is topic -> partitions, which can grow, of
    the workload's home only; `clusters` and `links` are name -> bootstrap servers; `library` makes
    their producers and consumers; `deaths` is how many processes of these clients died before."""

    spec: WorkloadSpec
    clusters: Mapping[str, str]
    links: Mapping[str, str]
    options: Options
    topics: dict[str, int]
    writer: ClientFiles
    seed: int
    numbers: Numbers
    library: ClientLibrary = field(default_factory=Librdkafka)
    deaths: int = 0

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Every (topic, partition) of the home."""
        return [(topic, p) for topic, count in sorted(self.topics.items()) for p in range(count)]

    def grown(self, topic: str, partitions: int) -> None:
        """A topic now has this many partitions. Ignored if the workload does not use it."""
        if topic in self.topics:
            self.topics[topic] = partitions

    def bootstrap(self, cluster: str) -> str:
        """Bootstrap servers of a cluster: its own listener or recorder, or with `via=proxy` the
        proxied path of ordinary clients."""
        if self.text("via") == "proxy":
            return self.links[f"*->{cluster}"]
        return self.clusters[cluster]

    def number(self, name: str) -> float:
        """An option that is a number. Raises InputError for a wrong value."""
        value = value_of(self.spec, name, self.options)
        assert isinstance(value, int | float)
        return value

    def count(self, name: str) -> int:
        """An option that is a whole number. Raises InputError for a wrong value."""
        return int(self.number(name))

    def text(self, name: str) -> str:
        """An option that is a text. Raises InputError for a wrong value."""
        return str(value_of(self.spec, name, self.options))

    def flag(self, name: str) -> bool:
        """An option that is true or false. Raises InputError for a wrong value."""
        return bool(value_of(self.spec, name, self.options))


SLICE: Final = 0.25
GRACE: Final = 5.0


class Tally:
    """Counts of one client; only its thread writes them, any thread reads them (reading an int is
    atomic)."""

    __slots__ = (
        "_returned",
        "_sums",
        "aborted",
        "aborts",
        "acknowledged",
        "commits",
        "errors",
        "read",
    )

    def __init__(self) -> None:
        self.acknowledged = self.aborted = self.commits = self.aborts = self.errors = self.read = 0
        self._returned: dict[str, list[int]] = {}
        self._sums: dict[str, list[int]] = {}

    def acknowledge(self, cluster: str, records: int) -> None:
        """An operation that returned now has `records` records acknowledged."""
        self.acknowledged += records
        returned, sums = self._returned.setdefault(cluster, []), self._sums.setdefault(cluster, [0])
        sums.append(sums[-1] + records)
        returned.append(now())  # after the sum: whoever sees the time also sees the sum

    def counts(self) -> Counts:
        """All of it, as reported to the harness."""
        return Counts(
            acknowledged={cluster: sums[-1] for cluster, sums in list(self._sums.items())},
            aborted=self.aborted,
            commits=self.commits,
            aborts=self.aborts,
            errors=self.errors,
            read=self.read,
        )

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""
        returned, sums = self._returned.get(cluster), self._sums.get(cluster)
        if not returned or not sums:
            return 0
        known = len(returned)
        return sums[known] - sums[bisect_right(returned, time, 0, known)]


class Client(ABC):
    """A named thread with a cluster. Subclasses take steps, leave a cluster, and arrive at one by
    their next step."""

    def __init__(self, context: Context, name: str, cluster: str) -> None:
        self.context, self.name, self.cluster = context, name, cluster
        self.tally = Tally()
        self.crash = ""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._paused = False
        self._idle = True
        self._target: str | None = None
        self._give_up_at: int | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def step(self) -> None:
        """One operation, or one poll. Returns soon after `interrupted` turns true."""

    @abstractmethod
    def leave(self, *, clean: bool) -> None:
        """Drops the connection to the current cluster without blocking; what is in flight becomes
        info."""

    @property
    def interrupted(self) -> bool:
        """True once an operation in flight must be abandoned: a forced move, or the grace of a stop
        or pause is over."""
        give_up_at = self._give_up_at
        return give_up_at is not None and now() >= give_up_at

    @property
    def ending(self) -> bool:
        """True once no new operation may begin here, and one that holds a transaction open should
        end it."""
        return self._stopping.is_set() or self._paused or self._target is not None

    def rest(self, seconds: float) -> None:
        """Waits, but returns early when a command arrives."""
        if seconds > 0 and not self.ending:
            self._wake.wait(seconds)

    def start(self, *, paused: bool = False) -> None:
        """`paused`: waits until it is moved, like its predecessor. It may also have been paused
        before it starts."""
        self._paused = self._paused or paused
        self._thread.start()

    def in_flight_at(self, moment: Moment) -> int | None:
        """The operation in flight, if this is such a moment; 0 for a client without operations."""
        return 0 if moment == "any" else None

    def state(self) -> ClientState:
        """The present state and counts of the client."""
        return ClientState(
            name=self.name,
            cluster=self.cluster,
            moved=self.moved,
            settled=self.settled,
            alive=self._thread.is_alive(),
            crash=self.crash,
            counts=self.tally.counts(),
        )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 our own mistake: an event says so, so that it cannot pass for a quiet client
            self.crash = f"{type(error).__name__}: {error}"
            self.tally.errors += 1
            self.context.writer.write(ClientCrash(client=self.name, error=self.crash))
        finally:
            self.leave(clean=not self.interrupted)
            self._idle = True

    def _turn(self) -> None:
        if self._target is not None:
            self.leave(clean=not self.interrupted)
            self.cluster, self._give_up_at = self._target, None
            self._wake.clear()
            self._target, self._paused = None, False
        elif self._paused:
            self._idle = True
            self._wake.clear()
            self._wake.wait(SLICE)
        else:
            self._idle = False
            self.step()

    def grown(self, topic: str, partitions: int) -> None:
        """Sets the partition count of a topic (any thread may read it: one number is replaced at
        once)."""
        self.context.grown(topic, partitions)

    def pause(self) -> None:
        """Begins no new operation; the one in flight has `GRACE` seconds. See `settled`."""
        self._give_up_at = now() + int(GRACE * 1e9)
        self._paused = True
        self._wake.set()

    def move(self, destination: str, *, drained: bool) -> None:
        """Moves the client to `destination`; drained gives the operation in flight `GRACE` seconds,
        else it is abandoned at once."""
        self._give_up_at = now() + int(GRACE * 1e9 if drained else 0)
        self._target = destination
        self._wake.set()

    def stop(self) -> None:
        """Asks to stop; the operation in flight has `GRACE` seconds."""
        self._give_up_at = min(
            self._give_up_at or now() + int(GRACE * 1e9), now() + int(GRACE * 1e9)
        )
        self._stopping.set()
        self._wake.set()

    @property
    def settled(self) -> bool:
        """Paused with nothing in flight, or gone."""
        return (self._paused and self._idle) or not self._thread.is_alive()

    @property
    def moved(self) -> bool:
        return self._target is None or not self._thread.is_alive()

    def join(self, within: float) -> None:
        """Returns when the thread has ended. Raises DeadlineExceeded."""
        if self._thread.ident is not None:
            until(
                lambda: not self._thread.is_alive(),
                within=within,
                what=f"client {self.name} to stop",
            )
