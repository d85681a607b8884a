"""The death of a process of clients: its exit status, its clients' operations in flight, and the
last lines it printed."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.model.clock import now
from linkflap.harness.model.events import ClientDied, InFlight
from linkflap.harness.model.history import Operation
from linkflap.harness.rundir import LastRows, last_rows
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.protocol import KilledAt

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
        """How it ended, in words."""
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


def examined(
    name: str,
    members: Sequence[Member],
    *,
    root: Path,
    log: Path,
    pid: int,
    status: int,
    by: str,
    falling: KilledAt | None,
    began: int,
    known: set[int],
) -> Death:
    """Examines the rows of a process that died since `began`, and removes an incomplete row.
    `known` are operations of earlier processes that never returned; those of this one are added."""
    rows = {member.name: last_rows(root, member.name) for member in members}
    in_flight = [
        op
        for mine in rows.values()
        for op in _unreturned(mine.operations)
        if op.number not in known
    ]
    known.update(op.number for op in in_flight)
    return Death(
        time=now(),
        process=name,
        pid=pid,
        by=by,
        clients=tuple(member.name for member in members),
        clusters=tuple(sorted({member.cluster for member in members})),
        status=status,
        in_flight=tuple(_short(op) for op in in_flight),
        torn=sum(mine.torn for mine in rows.values()),
        last_words=tuple(_last_words(log)),
        falling=falling,
        idle=not any(_worked(mine, began) for mine in rows.values()),
    )


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
