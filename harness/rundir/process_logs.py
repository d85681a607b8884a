"""The warnings and errors of brokers, mirrors and coordinators, from logs/ of a run directory, and
messages about losses that they log as information.

Every log is read once, from its beginning, in bounded memory: the beginning of each line is kept,
and only the times of a repeated text. Text beyond the limits below is left out, and
`ProcessLogs.unread` says so. A log may have any content: undecodable bytes are replaced, a line
without a time gets that of the previous line, and a log that cannot be opened is named. The first
exception below a line, or the cause that Java names last, belongs to the line.

Brokers print local time without a zone. All processes of a run are on one machine (or in
containers, whose time is UTC), so the zone of the broker that printed first applies to all. If a
log's lines would then lie outside the run, UTC is tried; if that fails too, the log is assumed to
begin with the run.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.texts import in_one_line

_OF_CLIENTS: Final = frozenset({"clients", "commands"})
_OF_LINKFLAP: Final = frozenset({"toxiproxy.log", "recorder.log", "pip.log"})
"""Links and recorders are broken on purpose."""
MOST_LOGS: Final = 200
MOST_BYTES: Final = 128 << 20
"""The limit of one log."""
MOST_OF_ALL: Final = 512 << 20
MOST_TEXTS: Final = 20_000
MOST_LINES: Final = 1_000_000
_WIDEST: Final = 4096
_SHOWN: Final = 600
"""The number of characters of a line that are kept."""
_HEAD: Final = 200
_QUARTER: Final = 900.0
_STAMP: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r" ?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_TIME_OF_DAY: Final = re.compile(r"\[?(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?\b")
_LEVEL: Final = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SEVERE|FATAL|CRITICAL)\b"
    r'|"level": ?"(\w+)"'
)
_LEVELS: Final = {
    "WARN": "WARN", "WARNING": "WARN",
    "ERROR": "ERROR", "SEVERE": "ERROR", "FATAL": "ERROR", "CRITICAL": "ERROR",
}  # fmt: skip
_DROPS: Final = re.compile(r"Couldn't find leader endpoint for partitions")
"""A message that brokers log as information when they drop transaction markers (KAFKA-20734)."""
_EXCEPTION: Final = re.compile(r"(?:Caused by: )?(?:\w+\.)*\w*(?:Exception|Error)\b")
_DIFFERS: Final = re.compile(r"\b(?=[\w-]*\d)[\w-]{22}\b|[0-9a-f]{8,}|\d+")
"""The parts in which lines of one kind differ: numbers, addresses, and Kafka's ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A log line, and all lines that differ from it only in numbers.

    `count` lines within an interval, with the times of the first and last (nanoseconds, 0:
    unknown), and `before`, the number of earlier ones. `where`: log and line number of the first
    line in each log. `names`: the line matches the requested names.
    """

    level: str
    text: str
    count: int
    before: int = 0
    first: int = 0
    last: int = 0
    where: tuple[str, ...] = ()
    names: bool = False

    @property
    def process(self) -> str:
        """The process that wrote the log: `B/1`."""
        return str(Path(self.where[0]).parent).removeprefix("logs/") if self.where else ""


@dataclass(slots=True)
class _Text:
    """One text of one log."""

    log: str
    level: str
    text: str
    kind: tuple[str, str]
    times: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class ProcessLogs:
    """The warnings and errors of a run's processes. `logs` is how many logs there are."""

    logs: int = 0
    unread: list[str] = field(default_factory=list)
    _texts: dict[tuple[str, str, str], _Text] = field(default_factory=dict)
    _lines: int = 0
    _dropped: int = 0

    def between(
        self, begin: int, end: int, names: re.Pattern[str] | None = None
    ) -> Sequence[Logged]:
        """The lines of an interval (nanoseconds, both ends included), each kind of line once.

        Lines that match `names` come first, then lines that were not logged before, errors before
        warnings. Lines without any time count as lines of the interval.
        """
        kinds: dict[
            tuple[tuple[str, str], bool], list[tuple[_Text, Sequence[tuple[int, int]]]]
        ] = {}
        earlier: dict[tuple[str, str], int] = {}
        for each in self._texts.values():
            earlier[each.kind] = earlier.get(each.kind, 0) + _before(each, begin)
            if rows := _within(each, begin, end):
                named = names is not None and names.search(each.text) is not None
                kinds.setdefault((each.kind, named), []).append((each, rows))
        found = [
            _joined(several, names=named, before=earlier[kind])
            for (kind, named), several in kinds.items()
        ]
        return sorted(
            found,
            key=lambda each: (
                not each.names, each.before > 0, each.level != "ERROR", each.first, each.text,
            ),
        )  # fmt: skip

    def add(self, log: str, line: _Line) -> None:
        """Keeps a line, within the limits."""
        key = (log, line.level, line.text)
        if self._lines >= MOST_LINES or (key not in self._texts and len(self._texts) >= MOST_TEXTS):
            self._dropped += 1
            return
        self._lines += 1
        if key not in self._texts:
            kind = (line.level, _DIFFERS.sub("#", line.text))
            self._texts[key] = _Text(log, line.level, line.text, kind)
        self._texts[key].times.append(line.time)
        self._texts[key].lines.append(line.number)

    def close(self) -> None:
        """Puts times in order, and counts what was left out."""
        for each in self._texts.values():
            ordered = sorted(zip(each.times, each.lines, strict=True))
            each.times = array("q", [time for time, _ in ordered])
            each.lines = array("q", [line for _, line in ordered])
        if self._dropped:
            self.unread.append(f"{self._dropped:,} more warnings and errors are not looked at")


@dataclass(frozen=True, slots=True)
class _Line:
    """A warning or an error; `time` in nanoseconds, 0 where none is known."""

    number: int
    time: int
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class _Stamp:
    """A printed time, in seconds since 1970 as if it were UTC, and whether its zone is known."""

    seconds: float
    known: bool


def read(root: Path, started: int, ended: int) -> ProcessLogs:
    """The warnings and errors in a run directory's logs; `started` and `ended` (0: it never did)
    are the run's own, in nanoseconds."""
    found = ProcessLogs()
    paths = [path for path in logs_in(root / "logs") if not _aside(path.relative_to(root))]
    found.logs = len(paths)
    if len(paths) > MOST_LOGS:
        found.unread.append(f"{len(paths) - MOST_LOGS:,} more logs are not read")
    zone: float | None = None
    left = MOST_OF_ALL
    for path in sorted(paths[:MOST_LOGS], key=lambda path: path.name != "server.log"):
        name = path.relative_to(root).as_posix()
        try:
            with untrusted_files.opened(path, root=root) as file:
                clock, most = _Clock(started, ended, zone), min(left, MOST_BYTES)
                for line in _warnings(file, clock, most):
                    found.add(name, line)
                zone = clock.zone if zone is None else zone
                left -= (size := min(most, os.fstat(file.fileno()).st_size))
                if os.fstat(file.fileno()).st_size > size:
                    found.unread.append(f"{name} is not read beyond {most >> 20} MiB")
        except OSError as error:
            found.unread.append(f"{name} cannot be read: it {error.strerror}")
    found.close()
    return found


def logs_in(folder: Path) -> list[Path]:
    """The logs of processes, and those that were rolled (`server.log.1`); no segments of data that
    were kept."""
    return sorted(
        path
        for path in folder.glob("**/*.log*")
        if re.search(r"\.log(\.\d+)?$", path.name) and not path.name.partition(".")[0].isdigit()
    )


def _aside(path: Path) -> bool:
    """Whether a log is that of a client, or of a program that linkflap runs beside the clusters."""
    return path.parts[1] in _OF_CLIENTS or path.name in _OF_LINKFLAP


class _Clock:
    """Converts the printed times of one log to the run's clock: `zone` is in seconds east of
    UTC."""

    def __init__(self, started: int, ended: int, of_run: float | None) -> None:
        self._started, self._ended = started / 1e9, ended / 1e9 or float("inf")
        self._of_run = of_run
        self.zone: float | None = None
        self._last = self._started

    def time(self, stamp: _Stamp) -> int:
        """The time in nanoseconds; an impossible time becomes the nearest possible one."""
        seconds = stamp.seconds
        if not stamp.known:
            if self.zone is None:
                self.zone = self._zone(seconds)
            seconds -= self.zone
        return int(min(max(seconds, 0), _FAR) * 1e9)

    def today(self, hour: str, part: str | None) -> _Stamp | None:
        """A time of day, UTC, of the day on which the line before was printed, or the next."""
        day = datetime.fromtimestamp(self._last, UTC).date().isoformat()
        stamp = _stamp(day, hour, part, "Z")
        if stamp is not None and stamp.seconds < self._last - _DAY / 2:
            stamp = _Stamp(stamp.seconds + _DAY, known=True)
        if stamp is not None:
            self._last = max(self._last, stamp.seconds)
        return stamp

    def _zone(self, seconds: float) -> float:
        own = round((seconds - self._started) / _QUARTER) * _QUARTER
        known = () if self._of_run is None else (self._of_run, 0.0)
        within = (
            zone for zone in known
            if self._started - _SLACK <= seconds - zone <= self._ended + _SLACK
        )  # fmt: skip
        return next(within, own)


_DAY: Final = 86_400.0
_FAR: Final = 9e9
"""Seconds: a time behind it does not fit into 64 bits of nanoseconds."""
_SLACK: Final = 60.0


def _stamp(day: str, hour: str, part: str | None, zone: str | None) -> _Stamp | None:
    try:
        at = datetime.fromisoformat(f"{day}T{hour}")
        east = timedelta()
        if zone and zone != "Z":
            digits = zone[1:].replace(":", "")
            east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            east = -east if zone[0] == "-" else east
        whole = (at.replace(tzinfo=UTC) - east).timestamp()
    except (ValueError, OverflowError):
        return None
    return _Stamp(whole + (int(part) / 10 ** len(part) if part else 0.0), known=bool(zone))


def stamp_of(text: str, clock: _Clock) -> _Stamp | None:
    """The time at the beginning or in the head of a line; None without a time."""
    if found := _STAMP.search(text, 0, _HEAD):
        return _stamp(found["date"], found["time"], found["part"], found["zone"])
    if found := _TIME_OF_DAY.match(text):
        return clock.today(found["time"], found["part"])
    return None


def _warnings(file: BinaryIO, clock: _Clock, most: int) -> Iterator[_Line]:
    """The warnings and errors of a log, each with the exception below it."""
    open_line: _Line | None = None
    reason, time = "", 0
    for number, text in _lines(file, most):
        stamp = stamp_of(text, clock)
        level = _level(text)
        if stamp is None and not level:
            if open_line is not None and _EXCEPTION.match(text):
                reason = text if text.startswith("Caused by: ") or not reason else reason
            continue
        if open_line is not None:
            yield _with(open_line, reason)
        open_line, reason = None, ""
        time = time if stamp is None else clock.time(stamp)
        if level in _LEVELS or (level and _DROPS.search(text)):
            open_line = _Line(number, time, _LEVELS.get(level, level), _message(text))
    if open_line is not None:
        yield _with(open_line, reason)


def _with(line: _Line, reason: str) -> _Line:
    if not reason or reason in line.text:
        return line
    text = f"{line.text}: {in_one_line(reason.removeprefix('Caused by: '))}"
    return _Line(line.number, line.time, line.level, text[:_SHOWN])


def _level(text: str) -> str:
    """The first word that is a level; empty without one."""
    found = _LEVEL.search(text, 0, _HEAD)
    return (found[1] or found[2].upper()) if found else ""


def _message(text: str) -> str:
    """The message after the time and the level."""
    found = _LEVEL.search(text, 0, _HEAD)
    plain = found is not None and found[1]
    return in_one_line(text[found.end() :] if found and plain else text).lstrip(": ]")[:_SHOWN]


def _lines(file: BinaryIO, most: int) -> Iterator[tuple[int, str]]:
    """The lines of the first bytes of a log, shortened, with their numbers."""
    number, left = 0, most
    while left > 0 and (content := file.readline(_WIDEST)):
        number += 1
        left -= len(content)
        rest = content
        while left > 0 and not rest.endswith(b"\n") and (rest := file.readline(1 << 16)):
            left -= len(rest)
        yield number, content.decode(errors="replace").rstrip("\r\n")


def _before(each: _Text, begin: int) -> int:
    return max(0, bisect_left(each.times, begin) - bisect_right(each.times, 0))


def _within(each: _Text, begin: int, end: int) -> Sequence[tuple[int, int]]:
    """The times and lines in [begin, end]; lines without a time are included."""
    timeless = bisect_right(each.times, 0)
    low, high = bisect_left(each.times, max(begin, 1)), bisect_right(each.times, end)
    chosen = (*range(timeless), *range(low, high))
    return [(each.times[at], each.lines[at]) for at in chosen]


def _joined(
    several: Sequence[tuple[_Text, Sequence[tuple[int, int]]]], *, names: bool, before: int
) -> Logged:
    """Texts of one kind as one line, with the most frequent text (the first of these)."""
    most, there = max(several, key=lambda each: len(each[1]))
    times = [time for _, rows in several for time, _ in rows if time]
    logs: dict[str, int] = {}
    for text, rows in ((most, there), *several):
        logs.setdefault(text.log, rows[0][1])
    return Logged(
        level=most.level,
        text=most.text,
        count=sum(len(rows) for _, rows in several),
        before=before,
        first=min(times, default=0),
        last=max(times, default=0),
        where=tuple(f"{log}:{line}" for log, line in logs.items()),
        names=names,
    )
