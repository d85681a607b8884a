"""The harness's view of a client: its cluster, its last report, the totals of its predecessors of
the same name, and the deaths of its process: exit status, operations in flight, the last lines
printed, and when to stop restarting."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.harness.model.events import ClientDied, InFlight
from linkflap.harness.model.history import Operation
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import LastRows, last_rows
from linkflap.harness.workloads.protocol import ClientState, Counts, Hosted, KillAt, KilledAt


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One death. `by` is a fault's id, or itself. `in_flight` are the operations that never
    returned. `falling` is the last report of a process that was ordered to die at some moment.
    `idle`: the process had made no progress since its start."""

    time: int
    process: str
    pid: int
    by: str
    clients: tuple[str, ...]
    clusters: tuple[str, ...]
    status: int
    in_flight: tuple[InFlight, ...]
    torn: int
    last_words: tuple[str, ...]
    falling: KilledAt | None
    idle: bool

    @property
    def expected(self) -> int | None:
        """The operation that it reported as in flight right before it was killed; 0 for a reader,
        None without a report."""
        return None if self.falling is None else self.falling.operation

    @property
    def how(self) -> str:
        """How the process ended, in words."""
        return (
            f"killed by {signal_name(self.status)}"
            if self.status < 0
            else f"exit status {self.status}"
        )

    @property
    def sentence(self) -> str:
        """The death in one sentence."""
        by = "by itself" if self.by == ITSELF else f"by fault {self.by}"
        flying = f"{len(self.in_flight)} operation{'s' * (len(self.in_flight) != 1)} in flight"
        words = f"; its last words: {' | '.join(self.last_words)}" if self.last_words else ""
        return (
            f"process {self.process} of {', '.join(self.clients)} died {by} ({self.how}), "
            f"{flying}{words}"
        )

    def event(self, *, again: bool) -> ClientDied:
        """As an event."""
        return ClientDied(
            process=self.process,
            by=self.by,
            pid=self.pid,
            clients=self.clients,
            clusters=self.clusters,
            status=self.status,
            signal=signal_name(self.status) if self.status < 0 else "",
            in_flight=self.in_flight,
            torn_bytes=self.torn,
            last_words=self.last_words,
            again=again,
        )


ITSELF: Final = "itself"


def signal_name(status: int) -> str:
    """The signal of a negative exit status."""
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
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return iter(())
    return (
        textwrap.shorten(line, _WIDTH, placeholder=" …") for line in lines[-_LINES:] if line.strip()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDeath:
    """The kill of a user's program (`harness.model.protocols.ClientDeath`): its operations in
    flight are unknown."""

    process: str
    by: str
    clients: Sequence[str]
    status: int
    time: int
    in_flight: Sequence[InFlight] = ()
    expected: int | None = 0


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

    def examined(self, members: Sequence[Member], *, pid: int, status: int, began: int) -> Death:
        """Examines the process that began at this time and has just ended."""
        killed = status == -signal.SIGKILL and self.falling is not None
        rows = {member.name: last_rows(self._root, member.name) for member in members}
        in_flight = [
            op
            for mine in rows.values()
            for op in _unreturned(mine.operations)
            if op.number not in self._never_returned
        ]
        self._never_returned.update(op.number for op in in_flight)
        death = Death(
            time=now(),
            process=self._name,
            pid=pid,
            by=self._killer if killed else ITSELF,
            clients=tuple(member.name for member in members),
            clusters=tuple(sorted({member.cluster for member in members})),
            status=status,
            in_flight=tuple(map(_short, in_flight)),
            torn=sum(mine.torn for mine in rows.values()),
            last_words=tuple(_last_words(self._log)),
            falling=self.falling,
            idle=not any(_worked(mine, began) for mine in rows.values()),
        )
        self.in_vain = 0 if not death.idle else self.in_vain + (death.time - began < SOON)
        self.count += 1
        self.falling = None
        if killed:
            self.order, self._killer = None, ""
        return death
