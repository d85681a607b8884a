"""Lines that a run's processes printed around a moment, for the report: a few lines of each log,
and a link to the log.

Brokers print local time without a zone. The zone follows from the run's own clock: the log begins
when the run did.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from linkflap.harness.machine import untrusted_files

MOST_LINES: Final = 14
_MOST_LOGS: Final = 60
_AROUND: Final = 2.0
_MOST_BYTES: Final = 16 << 20
_WIDEST: Final = 300
_TIME: Final = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
_QUARTER: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of one log around the moment, `line` being the number of the first (0: none), and its
    path in the run directory."""

    path: str
    lines: Sequence[str]
    line: int = 0


def excerpts(folder: Path, started: int, moment: int | None) -> Sequence[Excerpt]:
    """Every log of a process; with lines where there is a moment (nanoseconds) and the log has
    times."""
    found = []
    for path in sorted(folder.glob("logs/**/*.log"))[:_MOST_LOGS]:
        try:
            with untrusted_files.opened(path, root=folder) as file:
                size = os.fstat(file.fileno()).st_size
                numbered = (
                    list(_around(file, started, moment))
                    if moment is not None and size <= _MOST_BYTES
                    else []
                )
            if size:
                first, lines = numbered[0][0] if numbered else 0, [line for _, line in numbered]
                found.append(
                    Excerpt(path=path.relative_to(folder).as_posix(), lines=lines, line=first)
                )
        except OSError:
            continue  # of an application that still has it
    return found


def _around(file: BinaryIO, started: int, moment: int) -> Iterator[tuple[int, str]]:
    """Lines with their numbers."""
    zone: float | None = None
    taken = 0
    for number, content in enumerate(untrusted_files.lines(file), start=1):
        line = content.decode(errors="replace")
        seconds = _seconds(line)
        if seconds is None:
            continue
        if zone is None:
            zone = round((seconds - started / 1e9) / _QUARTER) * _QUARTER
        if abs(seconds - zone - moment / 1e9) <= _AROUND:
            yield number, line.rstrip("\n")[:_WIDEST]
            taken += 1
            if taken == MOST_LINES:
                return


def _seconds(line: str) -> float | None:
    found = _TIME.match(line)
    if found is None:
        return None
    try:
        return (
            datetime.fromisoformat(f"{found[1]}T{found[2]}.{found[3]}")
            .replace(tzinfo=UTC)
            .timestamp()
        )
    except ValueError:
        return None
