"""Files of a run directory: rows appended line by line, and files that are replaced in one step."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Generic

import msgspec

from linkflap.harness.machine.disk_full import Breakage
from linkflap.harness.model.events import Kind, stamped
from linkflap.harness.model.history import EventRow
from linkflap.harness.rundir.values import Row


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
    """Writes a file completely or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
