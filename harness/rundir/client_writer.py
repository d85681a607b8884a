"""Writes the histories of client processes, one per client. A restarted client continues its
history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from linkflap.harness.machine.disk_full import Breakage
from linkflap.harness.model.events import Event
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.rundir.files import Appender

_ClientRow = TypeVar("_ClientRow", Operation, Poll)
_TAIL: Final = 1 << 20
"""Bytes of a history that its last rows are looked for in."""


class ClientWriter:
    """Writes a process of clients' part of a run directory: a history for each client. The harness
    writes the events.

    A restarted client appends to its predecessor's file (`last_rows` has removed an unfinished
    line).
    """

    def __init__(self, root: Path, happened: Callable[[Event], None]) -> None:
        self.root = root
        self.breakage = Breakage(root)
        self._happened = happened
        self._appenders: list[Appender[Operation] | Appender[Poll]] = []

    def operations(self, client: str) -> Appender[Operation]:
        appender: Appender[Operation] = Appender(
            self.root / "operations" / f"{client}.jsonl", self.breakage
        )
        self._appenders.append(appender)
        return appender

    def polls(self, reader: str) -> Appender[Poll]:
        appender: Appender[Poll] = Appender(self.root / "polls" / f"{reader}.jsonl", self.breakage)
        self._appenders.append(appender)
        return appender

    def write(self, event: Event, /) -> None:
        """Passes an event on."""
        self._happened(event)

    def close(self) -> None:
        for appender in self._appenders:
            appender.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """What a client wrote last before it died; and bytes of a line that it did not finish, which
    were taken away."""

    operations: Sequence[Operation] = ()
    polls: Sequence[Poll] = ()
    torn: int = 0


def last_rows(root: Path, client: str) -> LastRows:
    """The last rows of a dead client's history. Removes an unfinished row from the file's end.

    A row is written before the announced action, or after a finished one: a missing row never makes
    a history wrong.
    """
    operations, torn = _tail(root / "operations" / f"{client}.jsonl", Operation)
    polls, torn_polls = _tail(root / "polls" / f"{client}.jsonl", Poll)
    return LastRows(operations=operations, polls=polls, torn=torn + torn_polls)


def _tail(path: Path, kind: type[_ClientRow]) -> tuple[Sequence[_ClientRow], int]:
    try:
        with path.open("r+b") as file:
            size = file.seek(0, 2)
            start = file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")
            torn = len(lines.pop())
            if torn:
                file.truncate(size - torn)
    except FileNotFoundError:
        return [], 0
    return [
        row for line in lines[1 if start else 0 :] if (row := _decoded(line, kind)) is not None
    ], torn


def _decoded(line: bytes, kind: type[_ClientRow]) -> _ClientRow | None:
    """The row of a line; None if the line is no row. The judge reports that."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:
        return None
