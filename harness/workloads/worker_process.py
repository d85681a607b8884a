"""The process of a worker and its successors: started, watched until it ends, and started again.

A death is an event (`client-died`) and does not end the run. The clients start again on their
cluster, or on the one that they were moving to. A producer takes its transactional id again, which
fences the dead one and aborts its open transaction; a reader begins like any new one. A process
that dies repeatedly without any progress is not started again, and the run reports that at its end.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    LinkflapError,
)
from linkflap.harness.model.events import ClientRestarted
from linkflap.harness.model.protocols import Running
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads.death import Death
from linkflap.harness.workloads.deaths import Deaths
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.protocol import (
    Channel,
    Command,
    Host,
    KilledAt,
    Report,
    ReportEvent,
    Start,
    State,
)
from linkflap.harness.workloads.questions import Questions

ENDS_WITHIN: Final = 10.0


class WorkerProcess:
    """One process after another, followed by one thread; the worker commands the clients."""

    name: str
    members: list[Member]
    deaths: list[Death]
    given_up: str
    ready: bool
    _host: Host
    _writer: RunWriter
    _forks: Prefork
    _log: Path
    _lock: threading.Lock
    _questions: Questions
    _fate: Deaths
    _started: bool
    _ending: bool
    _gone: bool
    _began: int
    _channel: Channel[Command, Report] | None
    _child: Running | None
    _thread: threading.Thread

    @property
    def clients(self) -> str:
        """The names of its clients, for a sentence."""
        return ", ".join(member.name for member in self.members)

    @property
    def pid(self) -> int:
        """The pid of its current process, or of the last; 0 before the first."""
        return 0 if self._child is None else self._child.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._child is not None and self._child.alive

    @property
    def frozen(self) -> bool:
        """Whether its process is suspended (SIGSTOP)."""
        return self._child is not None and self._child.paused

    @property
    def any_suspended(self) -> bool:
        """The same as `frozen`: it has only one process."""
        return self.frozen

    def freeze(self) -> None:
        """SIGSTOP; returns when it is suspended. Raises InputError if no process of it runs."""
        child = self._child
        if child is None or not child.alive:
            raise InputError(
                f"the process of clients {self.clients} does not run, so it cannot be paused"
            )
        child.pause()

    def thaw(self) -> None:
        """SIGCONT. Safe to call again, and after it has ended."""
        if self._child is not None:
            self._child.resume()

    def _spawn(self) -> tuple[Channel[Command, Report], Running]:
        ours, theirs = socket.socketpair()
        with theirs:
            child = self._forks.start(
                f"clients {self.clients}", theirs, folder=self._writer.root, log=self._log
            )
        channel: Channel[Command, Report] = Channel(ours, Report)
        hosted = tuple(member.hosted for member in self.members)
        channel.send(msgspec.structs.replace(self._host, clients=hosted, deaths=self._fate.count))
        return channel, child

    def _watch(self) -> None:
        """The thread of this process and its successors: reads their messages, and handles each
        death."""
        try:
            while self._channel is not None and self._child is not None:
                self._hear(self._channel)
                self._over(self._channel, self._child)
                if self._gone or not self._start_again():
                    return
        finally:
            self._forks.leave()

    def _hear(self, channel: Channel[Command, Report]) -> None:
        """Reads the messages of the process until it ends."""
        while True:
            try:
                report = channel.receive()
            except EOFError:
                return
            match report:
                case State():
                    self._answered(report)
                case ReportEvent():
                    self._writer.write(report.event)
                case KilledAt():
                    self._fate.falling = report

    def _answered(self, state: State) -> None:
        if state.broken and self._writer.breakage.reason is None:
            self._writer.breakage.reason = EnvironmentFailure(state.broken)
        with self._lock:
            self.ready = state.ready
            by_name = {client.name: client for client in state.clients}
            for member in self.members:
                member.take_answer(by_name.get(member.name, member.state), state.number)
            self._questions.answered(state)

    def _over(self, channel: Channel[Command, Report], child: Running) -> None:
        """Records the end of a process as a death, unless it was asked to end."""
        try:
            until(
                lambda: not child.alive, within=ENDS_WITHIN, what=f"clients {self.clients} to end"
            )
        except DeadlineExceeded:
            child.kill()
        status = child.poll() or 0
        with self._lock:
            channel.close()
            number = self._questions.gone()
            expected = self._ending and status == 0
            examined = self._fate.examined
            death = (
                None
                if expected
                else examined(self.members, pid=child.pid, status=status, began=self._began)
            )
            for member in self.members:
                member.died(number)
            self._gone = self._ending or self._fate.never_restarted
        if death is not None:
            self._report(death)

    def _report(self, death: Death) -> None:
        self._writer.write(death.event(again=not self._gone))
        if self._gone and not self._ending:
            self.given_up = (
                f"{death.sentence}, {self._fate.in_vain} times in a row; see {self._log}"
            )
        self.deaths.append(death)

    def _start_again(self) -> bool:
        """Restarts the clients. Returns whether that succeeded."""
        with self._lock:
            if self._ending:
                return False
            self._began = now()
            try:
                self._channel, self._child = self._spawn()
            except LinkflapError as error:
                self._gone, self.given_up = (
                    True,
                    f"clients {self.clients} could not be started again: {error}",
                )
                return False
            if self._started:
                self._channel.send(Start())
            if self._fate.order is not None:
                self._channel.send(self._fate.order)
        self._writer.write(
            ClientRestarted(
                process=self.name, pid=self.pid, clients=tuple(m.name for m in self.members)
            )
        )
        return True
