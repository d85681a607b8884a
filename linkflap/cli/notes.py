"""Prints linkflap's log messages on standard error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from linkflap.report.progress import Progress


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
