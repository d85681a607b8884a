"""The output streams of a command, and linkflap's log messages on standard error. If a reader stops
reading (`| head -1`), the command continues with the same exit code, and the rest of the output is
dropped.

If standard output cannot be written for another reason (a full disk), this raises an
EnvironmentFailure, because the user wanted that output. A failure of standard error is ignored.

The run directory and the files that a command makes: their names, and whether they can be written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypeVar, cast

import click

from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.texts import for_terminal, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from linkflap.report.progress import Progress


Command = TypeVar("Command", bound=Callable[..., object])


def options(*every: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Adds several options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(every):
            command = option(command)
        return command

    return add


def say(text: str) -> None:
    """Prints a line on standard error."""
    click.echo(text, err=True)


STANDARD_OUTPUT: Final = 1
_lines_out = False


class _Words(io.FileIO):
    """A standard stream, raw."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        global _lines_out
        _lines_out = _lines_out or self.fileno() == STANDARD_OUTPUT
        try:
            return super().write(data) or 0
        except OSError as error:
            if self.fileno() == STANDARD_OUTPUT and not isinstance(error, BrokenPipeError):
                raise EnvironmentFailure(
                    f"standard output cannot be written: {error.strerror}; make room on its disk, "
                    "then run the command again"
                ) from error
            return memoryview(data).nbytes


class _Printable(io.TextIOWrapper):
    """A standard stream that steers no terminal, whatever is in the names that are written to it.
    What draws on a terminal writes to `unfiltered`."""

    def write(self, text: str, /) -> int:
        super().write(for_terminal(text))
        return len(text)

    @property
    def unfiltered(self) -> TextIO:
        return cast("TextIO", _Unfiltered(self))


class _Unfiltered:
    """The same stream, character by character."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def has_written() -> bool:
    """Whether a command has written to standard output."""
    sys.stdout.flush()
    return _lines_out


def obey() -> None:
    """Takes standard output and standard error over until this process ends."""
    sys.stdout, sys.stderr = _taken(sys.stdout, 1), _taken(sys.stderr, 2)


def _taken(stream: TextIO | None, number: int) -> TextIO:
    # The stream was closed (`>&-`). Without this, the next opened file would get its file
    # descriptor, and the output would be written to that file.
    if stream is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        return _text(number, "utf-8", "backslashreplace", by_line=False)
    stream.flush()
    by_line = (
        number != STANDARD_OUTPUT
        or stream.isatty()
        or bool(getattr(stream, "write_through", False))
    )
    # A terminal in Latin-1 has no arrows, and no lines for tables.
    errors = "replace" if stream.errors in (None, "strict") else stream.errors
    return _text(number, stream.encoding, errors, by_line=by_line)


def _text(number: int, encoding: str, errors: str, *, by_line: bool) -> TextIO:
    return _Printable(
        io.BufferedWriter(_Words(number)), encoding=encoding, errors=errors, line_buffering=by_line
    )


class LogNotes(logging.Handler):
    """Prints linkflap's log messages (first use: something is fetched or built) as lines on
    standard error."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.progress: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.progress:
            self.progress.note(record.getMessage())
        else:
            click.echo(f"linkflap: {record.getMessage()}", err=True)

    @contextlib.contextmanager
    def through(self, progress: Progress) -> Iterator[None]:
        """Prints log messages through a progress display while that is shown."""
        self.progress = progress
        try:
            yield
        finally:
            self.progress = None


NOTES = LogNotes()


_FILE_AND_LINE: Final = re.compile(r"(\S+\.toml)(?:, line (\d+))?\b")


def annotate(title: str, text: str, file: str = "") -> bool:
    """In GitHub Actions, an annotation of the workflow's run, at the scenario file that the text
    names (`mine.toml, line 3: …`) or at `file`. Whether it was written: the workflow's log then has
    the text."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return False
    found = _FILE_AND_LINE.match(text)
    at_line = (found[1], found[2] or "") if found else (file, "")
    at = {"file": at_line[0], "line": at_line[1], "title": f"linkflap: {title}"}
    properties = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in at.items()
        if value
    )
    stream = getattr(sys.stderr, "unfiltered", sys.stderr)
    click.echo(f"::error {properties}::{_escaped(text)}", file=stream)
    return True


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


RUNS: Final = Path("linkflap-runs")


def new_folder(name: str) -> Path:
    """A new name for a run directory in `linkflap-runs/`."""
    return RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def check_output(folder: Path, out: Path | None, junit: Path | None) -> None:
    """Raises InputError if the output of a run cannot be written. Called before the run starts."""
    if os.path.lexists(folder):
        raise InputError(f"{folder} exists already; give a new folder, or omit --out")
    if out:
        _check_parent("--out", out)
    if junit:
        check_junit(junit)


def check_store(store: Path) -> None:
    """Makes the folder of the results. Raises InputError if it cannot be written. Called before the
    cases are played."""
    try:  # only an attempt shows it
        store.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=store).close()
    except OSError as error:
        raise InputError(
            f"--store {store} cannot be written ({error.strerror}); give another folder"
        ) from None


def check_keep(keep: Path) -> None:
    """Raises InputError for a folder that exists already, or that cannot be made."""
    if os.path.lexists(keep):
        raise InputError(f"{keep} exists already; give a new folder for --keep")
    _check_parent("--keep", keep)


def check_junit(junit: Path) -> None:
    _check_parent("--junit", junit)
    if junit.is_dir():
        raise InputError(f"--junit {junit} is a folder; give a file")
    there = os.path.lexists(junit)
    try:  # only an attempt shows it: nothing can be created in /proc, whatever its permissions
        junit.open("ab").close()
    except OSError as error:
        raise InputError(
            f"--junit {junit} cannot be written ({error.strerror}); give another file"
        ) from None
    if not there:
        junit.unlink()


def _check_parent(option: str, path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(
            f"{option} {path}: there is no folder {parent}; make it, or give another path"
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{option} {path}: the folder {parent} cannot be written; give another path"
        )
