"""The harness's handle on a process of clients: it sends commands and questions.

When the process dies by itself, another replaces it (`worker_process`). Its clients start again on
their cluster, or on the one that they were moving to.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Final

import msgspec

from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Running
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads.death import Death
from linkflap.harness.workloads.deaths import Deaths
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.protocol import (
    AskState,
    Channel,
    Command,
    Drained,
    Host,
    KillAt,
    Move,
    PartitionsGrown,
    Pause,
    Report,
    Start,
    Stop,
)
from linkflap.harness.workloads.questions import Questions
from linkflap.harness.workloads.worker_process import ENDS_WITHIN, WorkerProcess

ANSWERS_WITHIN: Final = 2.0


class Worker(WorkerProcess):
    """One process of clients and its successors. Safe from several threads."""

    def __init__(self, name: str, host: Host, writer: RunWriter, forks: Prefork) -> None:
        """Starts nothing yet. `host` has the clients as they begin; `forks` starts its
        processes."""
        self.name = name
        self.members = [
            Member(name=each.name, cluster=each.cluster, paused=each.paused)
            for each in host.clients
        ]
        self.deaths: list[Death] = []
        self.given_up = ""
        self.ready = False
        """Whether its process last reported that its clients would begin at once."""
        self._host, self._writer, self._forks = host, writer, forks
        self._log = writer.logs / "clients" / f"{name}.log"
        self._lock = threading.Lock()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._questions = Questions()
        self._fate = Deaths(name, root=writer.root, log=self._log)
        self._started = self._ending = self._gone = False
        self._first_began = self._began = 0
        self._channel: Channel[Command, Report] | None = None
        self._child: Running | None = None
        self._thread = threading.Thread(target=self._watch, name=f"process {name}", daemon=True)

    # --- commands and questions

    def prepare(self) -> None:
        """Starts the process, whose clients wait for `start`. Raises SetupError."""
        with self._lock:
            if self._child is not None or self._ending:
                return
            self._first_began = self._began = now()
            self._forks.enter()
            try:
                self._channel, self._child = self._spawn()
            except BaseException:
                self._forks.leave()
                raise
            self._thread.start()

    def start(self) -> None:
        """Makes the clients begin to work."""
        self.prepare()
        with self._lock:
            self._started = True
            self._send(Start())

    def _send(self, command: Command) -> bool:
        return self._channel is not None and self._channel.send(command)

    def pause(self, members: Sequence[Member]) -> None:
        """Begins no new operation; see `Member.settled`."""
        with self._lock:
            for member in members:
                member.paused, member.commanded = True, self._questions.last
            self._send(Pause(tuple(member.name for member in members)))

    def move(self, members: Sequence[Member], destination: str, *, drained: bool) -> None:
        """Continues at another cluster; see `Member.moved`."""
        with self._lock:
            for member in members:
                member.cluster, member.paused, member.commanded = (
                    destination,
                    False,
                    self._questions.last,
                )
                member.drained.clear()
            names = tuple(member.name for member in members)
            self._send(Move(clients=names, destination=destination, drained=drained))

    def grown(self, topic: str, partitions: int) -> None:
        """Reports a topic's new partition count to the clients and their successors."""
        with self._lock:
            self._host = msgspec.structs.replace(
                self._host, topics={**self._host.topics, topic: partitions}
            )
            self._send(PartitionsGrown(topic=topic, partitions=partitions))

    def drained(self, member: Member, *, reached: Sequence[tuple[str, int]], missing: str) -> None:
        """Makes a reader record how far it got; see `Member.drained`."""
        with self._lock:
            member.commanded = self._questions.last
            self._send(Drained(client=member.name, reached=tuple(reached), missing=missing))

    def stop(self) -> None:
        """Asks every client to stop; see `join`."""
        with self._lock:
            self._ending = True
            self._send(Stop())

    def join(self, within: float) -> None:
        """Returns when the process has ended; kills it and raises DeadlineExceeded when it does not
        in time."""
        try:
            until(
                lambda: not self._thread.is_alive(),
                within=within,
                what=f"clients {self.clients} to stop",
            )
        except DeadlineExceeded:
            if self._child is not None:
                self._child.kill()
            until(
                lambda: not self._thread.is_alive(),
                within=ENDS_WITHIN,
                what=f"killed clients {self.clients} to be gone",
            )
            raise

    def fall(self, order: KillAt | None, *, by: str = "") -> None:
        """Makes the process, or its successor, kill itself (SIGKILL) as `order` says, on behalf of
        the fault `by`; None cancels the order."""
        with self._lock:
            self._fate.ordered(order, by=by)
            self._send(order or KillAt(cluster=""))

    def look(self, *, cluster: str = "", since: int = 0) -> int:
        """Asks the process for the state of its clients, and updates `members`; returns what they
        acknowledged on a cluster since a time.

        If it does not answer in time, or is gone, the last reports stay. The acknowledgements of a
        dead process count if all of them were since that time.
        """
        with self._lock:
            if self._questions.too_many:
                return 0
            number, answer = self._questions.ask()
            if not self._send(AskState(number=number, cluster=cluster, since=since)):
                self._questions.unsent(number)
                for member in self.members:
                    # a dead process has nothing in flight, and its successor begins as commanded
                    member.answered = number
        try:
            state = answer.get(timeout=ANSWERS_WITHIN)
        except queue.Empty:
            state = None  # the question stays: who does not answer is not asked again and again
        before = (
            sum(member.before.acknowledged.get(cluster, 0) for member in self.members)
            if since <= self._first_began
            else 0
        )
        return before + (state.acknowledged_since if state is not None else 0)
