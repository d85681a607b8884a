"""The harness's handle on a process of clients and its successors: starts it, watches it until it
ends, and sends it commands and questions.

A death is an event (`client-died`) and does not end the run: another process replaces the dead one.
The clients start again on their cluster, or on the one that they were moving to. A producer takes
its transactional id again, which fences the dead one and aborts its open transaction; a reader
begins like any new one. A process that dies repeatedly without any progress is not started again,
and the run reports that at its end.

The harness's view of a client: its cluster, its last report, the totals of its predecessors of
the same name, and the deaths of its process: exit status, operations in flight, the last lines
printed, and when to stop restarting.
"""

from __future__ import annotations

import queue
import signal
import socket
import textwrap
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    LinkflapError,
)
from linkflap.harness.model.events import ITSELF, ClientDied, ClientRestarted, InFlight
from linkflap.harness.model.history import Operation
from linkflap.harness.model.protocols import DiedProcess, Running
from linkflap.harness.model.wait import now, until
from linkflap.harness.rundir import LastRows, RunWriter, last_rows
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.protocol import (
    AskState,
    Channel,
    ClientState,
    Command,
    Counts,
    Drained,
    Host,
    Hosted,
    KillAt,
    KilledAt,
    Move,
    PartitionsGrown,
    Pause,
    Report,
    ReportEvent,
    Start,
    State,
    Stop,
)


@dataclass(slots=True, kw_only=True)
class Member:
    """One client of a process. It keeps its name when it is restarted; `before` has the last
    reports of its dead incarnations."""

    name: str
    cluster: str
    paused: bool = False
    commanded: int = 0
    """The number of the last question before the last command: an older answer says nothing about
    obedience."""
    answered: int = 0
    state: ClientState = field(default_factory=lambda: ClientState(name="", cluster=""))
    before: Counts = field(default_factory=Counts)
    drained: dict[tuple[str, int], int] = field(default_factory=dict)
    """Where a reader, or its predecessor of the same name, was when it recorded that it is
    drained."""

    @property
    def hosted(self) -> Hosted:
        """How the client begins if it is started now."""
        return Hosted(name=self.name, cluster=self.cluster, paused=self.paused)

    @property
    def counts(self) -> Counts:
        return self.before + self.state.counts

    @property
    def obeyed(self) -> bool:
        """Whether the client's last report is newer than its last command."""
        return self.answered > self.commanded

    @property
    def moved(self) -> bool:
        return self.obeyed and (self.state.moved or not self.state.alive)

    @property
    def settled(self) -> bool:
        return self.obeyed and self.state.settled

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """Where a reader is."""
        return {(topic, partition): at for topic, partition, at in self.state.positions}

    def take_answer(self, state: ClientState, number: int) -> None:
        """Takes in its answer to a question."""
        self.state = state
        self.answered = max(self.answered, number)
        self.drained.update({(topic, partition): at for topic, partition, at in state.drained})

    def died(self, answered: int) -> None:
        """The process of the client has ended: nothing is in flight, and a successor of the same
        name may begin when commanded."""
        self.before += self.state.counts
        self.state = ClientState(name=self.name, cluster=self.cluster, alive=False)
        self.answered = answered


_LINES: Final = 3
_WIDTH: Final = 160


def signal_name(status: int) -> str:
    """The signal of a negative exit status; empty without one."""
    if status >= 0:
        return ""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _unreturned(rows: Sequence[Operation]) -> Iterator[Operation]:
    returned = {row.number for row in rows if row.phase == "return"}
    return (row for row in rows if row.phase == "invoke" and row.number not in returned)


def _worked(rows: LastRows, since: int) -> bool:
    """Whether any record was acknowledged or read."""
    done = any(
        row.time > since and row.phase == "return" and row.outcome == "ok"
        for row in rows.operations
    )
    return done or any(
        poll.time > since and any(part.runs for part in poll.fetched) for poll in rows.polls
    )


def _short(row: Operation) -> InFlight:
    return InFlight(
        client=row.client,
        operation=row.number,
        kind=row.kind,
        ending=row.ending,
        cluster=row.cluster,
        records=sum(group.count for group in row.sends),
    )


def _last_words(log: Path) -> Iterator[str]:
    """The last lines that it printed, each shortened."""
    try:
        lines = untrusted_files.last_lines(log, _LINES)
    except OSError:
        return iter(())
    return (textwrap.shorten(line, _WIDTH, placeholder=" …") for line in lines if line.strip())


DEATHS_IN_A_ROW: Final = 5
"""After this many deaths of a process soon after its start, without progress, it is not
restarted."""
SOON: Final = int(5e9)
"""In nanoseconds. A process that lived longer without progress may just have a cluster that does
not answer."""


class Deaths:
    """Counts the deaths, and keeps a fault's order to kill the process. Not thread-safe: its owner
    locks."""

    def __init__(self, name: str, *, root: Path, log: Path) -> None:
        self.count = self.in_vain = 0
        self.order: KillAt | None = None
        self.falling: KilledAt | None = None
        """The last report of a process before it was killed by such an order."""
        self._name, self._root, self._log = name, root, log
        self._killer = ""
        self._never_returned: set[int] = set()

    @property
    def never_restarted(self) -> bool:
        """Whether the process is no longer restarted."""
        return self.in_vain >= DEATHS_IN_A_ROW

    def ordered(self, order: KillAt | None, *, by: str) -> None:
        """A fault orders its death, or cancels the order."""
        self.order, self._killer, self.falling = order, by, None

    def examined(
        self, members: Sequence[Member], *, pid: int, status: int, began: int, ending: bool
    ) -> DiedProcess:
        """Examines the process that began at this time and has just ended. `ending`: it was to end,
        and is not started again."""
        killed = status == -signal.SIGKILL and self.falling is not None
        rows = [last_rows(self._root, member.name) for member in members]
        idle = not any(_worked(mine, began) for mine in rows)
        self.in_vain = self.in_vain + (now() - began < SOON) if idle else 0
        event = ClientDied(
            process=self._name,
            by=self._killer if killed else ITSELF,
            pid=pid,
            clients=tuple(member.name for member in members),
            clusters=tuple(sorted({member.cluster for member in members})),
            status=status,
            signal=signal_name(status),
            in_flight=self._in_flight(rows),
            torn_bytes=sum(mine.torn for mine in rows),
            last_words=tuple(_last_words(self._log)),
            again=not (ending or self.never_restarted),
        )
        expected = self.falling.operation if self.falling else None
        self.count += 1
        self.falling = None
        if killed:
            self.order, self._killer = None, ""
        return DiedProcess(event=event, expected=expected)

    def _in_flight(self, rows: Sequence[LastRows]) -> tuple[InFlight, ...]:
        """The operations that never returned and were in flight at no earlier death."""
        flying = [
            op
            for mine in rows
            for op in _unreturned(mine.operations)
            if op.number not in self._never_returned
        ]
        self._never_returned.update(op.number for op in flying)
        return tuple(map(_short, flying))


_MOST: Final = 8
Answer = queue.SimpleQueue[State | None]


class Questions:
    """The open questions of one process and its successors. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last question."""
        self._open: dict[int, Answer] = {}

    @property
    def too_many(self) -> bool:
        """Whether so many questions are open that no more are asked."""
        return len(self._open) >= _MOST

    def ask(self) -> tuple[int, Answer]:
        """The number of a new question, and the queue that receives its answer: None if the process
        ends without one."""
        self.last += 1
        answer = self._open[self.last] = Answer()
        return self.last, answer

    def unsent(self, number: int) -> None:
        """A question did not reach the process."""
        self._open.pop(number).put(None)

    def answered(self, state: State) -> None:
        """The process answered."""
        if (answer := self._open.pop(state.number, None)) is not None:
            answer.put(state)

    def gone(self) -> int:
        """The process has ended and answers nothing more. Returns the number that stands for its
        last answer."""
        for answer in self._open.values():
            answer.put(None)
        self._open.clear()
        self.last += 1
        return self.last


ENDS_WITHIN: Final = 10.0


ANSWERS_WITHIN: Final = 2.0


class Worker:
    """One process of clients and its successors. Safe from several threads."""

    def __init__(self, name: str, host: Host, writer: RunWriter, forks: Prefork) -> None:
        """Starts nothing yet. `host` has the clients as they begin; `forks` starts its
        processes."""
        self.name = name
        self.members = [
            Member(name=each.name, cluster=each.cluster, paused=each.paused)
            for each in host.clients
        ]
        self.deaths: list[DiedProcess] = []
        self.given_up = ""
        self.ready = False
        """Whether the process last reported that its clients would begin at once."""
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
                member.cluster, member.paused = destination, False
                member.commanded = self._questions.last
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
        """Whether the process of the clients runs."""
        return self._child is not None and self._child.alive

    @property
    def frozen(self) -> bool:
        """Whether the process of the clients is suspended (SIGSTOP)."""
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
                else examined(
                    self.members,
                    pid=child.pid,
                    status=status,
                    began=self._began,
                    ending=self._ending,
                )
            )
            for member in self.members:
                member.died(number)
            self._gone = self._ending or self._fate.never_restarted
        if death is not None:
            self._report(death)

    def _report(self, death: DiedProcess) -> None:
        death = replace(death, event=self._writer.write(death.event))
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
                self._gone = True
                self.given_up = f"clients {self.clients} could not be started again: {error}"
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
