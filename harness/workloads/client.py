"""One client: a thread that takes steps on one cluster until it is asked to pause, move or stop.

Every wait of a step is divided into slices of `SLICE` seconds, and between slices the step checks
`interrupted`. So a client of a dead cluster obeys within about a second, and its operations in
flight are recorded as info.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Final

from linkflap.harness.model.events import ClientCrash
from linkflap.harness.model.protocols import Moment
from linkflap.harness.model.wait import now, until
from linkflap.harness.workloads.context import Context
from linkflap.harness.workloads.protocol import ClientState, Counts

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
        returned.append(now())  # after its sum: a reader that finds the time finds the sum as well

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
        """Waits, but less when there is a command to obey."""
        if seconds > 0 and not self.ending:
            self._wake.wait(seconds)

    def start(self, *, paused: bool = False) -> None:
        """`paused`: waits until it is moved, like its predecessor."""
        self._paused = paused
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
