"""Writes the harness's files of a run: run.json, events, histories, watermarks, group offsets,
bounds and the manifest. And the
histories of client processes, one per client: a restarted client continues its history.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from linkflap.harness.model.events import Event, Kind
from linkflap.harness.model.history import Bounds, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import manifest
from linkflap.harness.rundir.files import (
    Appender,
    Breakage,
    EventLog,
    Row,
    Run,
    Status,
    write_document,
    write_whole,
)

_ClientRow = TypeVar("_ClientRow", Operation, Poll)
_TAIL: Final = 1 << 20
"""Bytes at the end of a history that are searched for its last rows."""


class _Histories:
    """The histories of clients in a run directory, and what else is appended to; closed
    together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.breakage = Breakage(root)
        self._closing = contextlib.ExitStack()

    def _open(self, folder: str, name: str) -> Appender[Row]:
        appender: Appender[Row] = Appender(self.root / folder / f"{name}.jsonl", self.breakage)
        self._closing.callback(appender.close)
        return appender

    def operations(self, client: str) -> Appender[Operation]:
        return self._open("operations", client)

    def polls(self, reader: str) -> Appender[Poll]:
        return self._open("polls", reader)


class ClientWriter(_Histories):
    """Writes a process of clients' part of a run directory: a history for each client. The harness
    writes the events.

    A restarted client appends to its predecessor's file (`last_rows` has removed an unfinished
    line).
    """

    def __init__(self, root: Path, happened: Callable[[Event], None]) -> None:
        super().__init__(root)
        self._happened = happened

    def write(self, event: Event, /) -> None:
        """Passes an event on."""
        self._happened(event)

    def close(self) -> None:
        self._closing.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """The last rows that a client wrote before it died, and how many bytes of an unfinished line
    were removed.
    """

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


class RunWriter(_Histories):
    """Writes a run directory. Appenders are made once per file and closed together. Raises OSError
    when it cannot be made."""

    def __init__(self, root: Path, run: Run) -> None:
        root.mkdir(parents=True, exist_ok=False)
        super().__init__(root)
        self._run = run
        self._captured: dict[str, int | manifest.Content] = {}
        self.logs = root / "logs"
        try:
            self._save()
            self._events = EventLog(root / "events.jsonl", self.breakage)
            self.logs.mkdir()
        except OSError:
            shutil.rmtree(root, ignore_errors=True)
            raise

    def _save(self) -> None:
        write_document(self.root / "run.json", self._run)

    def watermarks(self, cluster: str) -> Appender[Watermark]:
        return self._open("watermarks", cluster)

    def groups(self, cluster: str) -> Appender[GroupOffset]:
        return self._open("groups", cluster)

    def write(self, event: Kind, /) -> Kind:
        """Writes an event, with the time of now where it has none, and returns it so."""
        return self._events.write(event)

    def capture_folder(self, moment: str) -> Path:
        folder = self.root / "captures" / moment
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_bounds(self, moment: str, bounds: Sequence[Bounds]) -> None:
        """Replaces the bounds of one moment; written last, so that a capture without bounds is
        known to be torn. From then on the manifest has the digests of the captured files."""
        write_whole(self.capture_folder(moment) / "bounds.json", msgspec.json.encode(list(bounds)))
        self._captured = manifest.captured(self.root, moment, self._captured)
        manifest.write(self.root, self._captured)

    def revise(self, scenario: Scenario) -> None:
        """Replaces the scenario in run.json, for parts that were not known when the run began."""
        self._run = replace(self._run, scenario=scenario)
        self._save()

    def describe(self, environment: Mapping[str, str]) -> None:
        """Adds facts about the environment that are known only during the run; existing ones
        stay."""
        self._run = replace(self._run, environment={**environment, **self._run.environment})
        self._save()

    def fetched(self, cluster: str, topics: Collection[str]) -> None:
        """Notes the topics of a cluster whose logs are from Fetch and not from disk."""
        every = tuple(sorted({*self._run.fetched.get(cluster, ()), *topics}))
        self._run = replace(self._run, fetched={**self._run.fetched, cluster: every})
        self._save()

    def unfetched(self, cluster: str, why: str) -> None:
        """Notes why topics of a cluster without a log on disk could not be fetched."""
        self._run = replace(self._run, unfetched={**self._run.unfetched, cluster: why})
        self._save()

    def uncompared(self, cluster: str, what: str) -> None:
        """Notes a log from Fetch that could not be fetched a second time, with the reason."""
        every = tuple(dict.fromkeys((*self._run.uncompared.get(cluster, ()), what)))
        self._run = replace(self._run, uncompared={**self._run.uncompared, cluster: every})
        self._save()

    def check(self) -> None:
        """Raises EnvironmentFailure when the record has ended before the run: a write failed, or
        the disk is all but full."""
        if reason := self.breakage.look():
            raise reason

    def close(
        self, status: Status, *, error: str = "", versions: Mapping[str, str] | None = None
    ) -> None:
        """Records how the run ended, and closes every file. Raises EnvironmentFailure if a write
        has failed.
        """
        self._closing.close()
        self._events.close()
        if self.breakage.reason is not None and status == "finished":
            status, error = "failed", str(self.breakage.reason)
        self._run = replace(
            self._run,
            status=status,
            ended=now(),
            error=error,
            versions=versions or self._run.versions,
            digests=True,
        )
        try:
            self._save()
            manifest.write(self.root, {**manifest.inventory(self.root), **self._captured})
        except OSError as failure:
            raise self.breakage.because(failure) from failure
        if self.breakage.reason is not None:
            raise self.breakage.reason
