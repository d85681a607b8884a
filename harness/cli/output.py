"""The output streams of a command. If a reader stops reading (`| head -1`), the command continues
with the same exit code, and the rest of the output is dropped.

If standard output cannot be written for another reason (a full disk), this raises an
EnvironmentFailure, because the user wanted that output. A failure of standard error is ignored.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

from linkflap.harness.model.errors import EnvironmentFailure

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
    return _text(number, stream.encoding, stream.errors or "strict", by_line=by_line)


def _text(number: int, encoding: str, errors: str, *, by_line: bool) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Words(number)), encoding=encoding, errors=errors, line_buffering=by_line
    )
