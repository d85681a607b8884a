"""Files of a run directory: rows appended line by line, and files that are replaced in one step.

The content of run.json, the kinds of rows of a run directory, and damage to it. Why it can no
longer be written: a write failed, or the disk is nearly full.

Files of older versions of linkflap have former names of kinds of anomalies. Everything that was
stored goes through a converter to the present names: guarantees in run.json, verdicts, results of
suites and of cases.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Literal, Self, TypeVar

import msgspec

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import Kind, stamped
from linkflap.harness.model.history import EventRow, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.scenario import SCHEMA_VERSION, Scenario
from linkflap.harness.model.wait import now
from linkflap.harness.version import VERSION

RENAMED: Final[Mapping[bytes, bytes]] = {
    b"skipped-by-cut": b"skipped-by-truncation",
    b"tail-not-cut": b"tail-not-truncated",
    b"cut-not-made": b"truncation-not-made",
}
_OLD: Final = re.compile(rb"(?<![\w-])(?:" + b"|".join(RENAMED) + rb")(?![\w-])")


def with_current_kinds(content: bytes) -> bytes:
    """A stored JSON document, or a line of one, with the present name of every kind of anomaly."""
    if not any(kind in content for kind in RENAMED):
        return content  # the pattern takes a hundred times as long to find none
    return _OLD.sub(lambda found: RENAMED[found[0]], content)


FORMAT: Final = SCHEMA_VERSION
Status = Literal["running", "finished", "interrupted", "failed"]
Row = TypeVar("Row", Operation, Poll, Watermark, GroupOffset, EventRow)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR)
"""Errors that mean: this user may not write there, or a folder has the name of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of run.json.

    `recorded`: clients' histories were recorded; else there are only logs
    (`harness.capture.folders`). `homes` are the home clusters of topics whose names do not begin
    with them. `leaders_only`: only one replica of every partition could be read, so whether the
    others agree is unknown. `environment`: the machine and software of the recording, for people
    (`linkflap.recording.surroundings`); empty in runs of older versions. `digests`: its manifest
    has the size and digest of every file; false in runs of older versions. `fetched`: by
    cluster, the topics whose logs are from Fetch and not from disk. `uncompared`: by cluster, the
    logs of those that could not be fetched a second time, each with the reason. `unfetched`: by
    cluster, why topics without a log on disk could not be fetched.
    """

    format: int
    linkflap: str
    command: str
    runtime: str
    status: Status
    started: int
    ended: int
    scenario: Scenario
    error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = True
    homes: Mapping[str, str] = field(default_factory=dict)
    leaders_only: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    digests: bool = False
    fetched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uncompared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unfetched: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> str:
        """Why the run is not complete; empty for one that finished."""
        if self.status == "finished":
            return ""
        if self.status == "running":
            return "the run never ended: its harness was killed, or it still runs"
        return f"the run was {self.status}" + (f": {self.error}" if self.error else "")

    @classmethod
    def begun(cls, scenario: Scenario, runtime: str, command: str = "") -> Self:
        """A run of this linkflap that starts now, in the current format."""
        return cls(
            format=FORMAT,
            linkflap=VERSION,
            command=command,
            runtime=runtime,
            status="running",
            started=now(),
            ended=0,
            scenario=scenario,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A part of a run directory that cannot be trusted, and why."""

    path: str
    reason: str


class Appender(Generic[Row]):
    """Appends rows of one type to one file; thread-safe; each line is flushed to the kernel in one
    piece. A failed write goes to the `breakage` if there is one (then nothing more is written),
    else it raises OSError.
    """

    def __init__(self, path: Path, breakage: Breakage | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()
        self._breakage = breakage

    def write(self, row: Row) -> None:
        line = self._encoder.encode(row) + b"\n"
        with self._lock:
            if self._breakage is None:
                self._append(line)
            elif self._breakage.reason is None:
                try:
                    self._append(line)
                except OSError as error:
                    self._breakage.because(error)

    def _append(self, line: bytes) -> None:
        """Writes a complete line or nothing: a disk that fills up accepts the beginning of a line,
        and refuses the rest."""
        done = 0
        try:
            while done < len(line):
                done += self._file.write(line[done:])
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._file.tell() - done)
            raise

    def close(self) -> None:
        self._file.close()


class EventLog:
    """A file of events alone: what a deployment without a run writes to, and the part of a run that
    everything writes to."""

    def __init__(self, path: Path, breakage: Breakage | None = None) -> None:
        self._rows: Appender[EventRow] = Appender(path, breakage)

    def write(self, event: Kind, /) -> Kind:
        """Writes an event, with the time of now where it has none, and returns it so."""
        written = stamped(event)
        self._rows.write(written.row)
        return written

    def close(self) -> None:
        self._rows.close()


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file completely or not at all. Does not follow a link, or block on a FIFO, that
    others put in its place.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        # made here and now: a link that was left under this name leads out of the folder
        with open(os.open(partial, _NEW, 0o666), "wb") as file:
            file.write(content)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_document(path: Path, value: object) -> None:
    """Writes a value as JSON that people read; as `write_whole`."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=1))


_LEAST_ROOM: Final = 256 << 10
_MOST_ROOM: Final = 256 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Breakage:
    """Why a run directory can no longer be written: the first write that failed. Safe from several
    threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.reason: EnvironmentFailure | None = None

    def because(self, error: OSError) -> EnvironmentFailure:
        """Notes a failed write, and returns the error to raise: that of the first failed write."""
        if self.reason is None:
            self.reason = unwritable(self._root, error)
        return self.reason

    def look(self) -> EnvironmentFailure | None:
        """The error, if a write has failed or the disk is nearly full; otherwise None."""
        if self.reason is None and room(self._root) < 0:
            self.because(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return self.reason


def is_full(error: OSError) -> bool:
    """Whether the error means that the disk, or the user's quota, is full."""
    return error.errno in _FULL


def unwritable(root: Path, error: OSError) -> EnvironmentFailure:
    """The sentence for a run directory that cannot be written to."""
    if is_full(error):
        return EnvironmentFailure(
            f"no space left for the run directory {root}; free some on its disk, or name a folder "
            "on another disk with --out"
        )
    return EnvironmentFailure(
        f"the run directory {root} can no longer be written ({error.strerror}); check its disk, or "
        "name another with --out"
    )


def room(folder: Path) -> float:
    """Bytes that may still be written to a folder's disk; infinity if the file system does not
    report it.

    A disk counts as full while a fiftieth of it is free, at least 256 KiB and at most 256 MiB: for
    recording how the run ended, and for the other programs on it.
    """
    try:
        disk = os.statvfs(folder)
    except OSError:
        return float("inf")
    # some blocks are reserved for root
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    kept = min(max(_LEAST_ROOM, disk.f_blocks * disk.f_frsize // 50), _MOST_ROOM)
    return blocks * disk.f_frsize - kept if disk.f_blocks else float("inf")
