"""The run directory: the only file that knows its layout.

    run.json                        format, linkflap version, command, status, Scenario
    events.jsonl                    Event
    operations/<client>.jsonl       Operation, two rows each (invoke, return)
    polls/<reader>.jsonl            Poll
    watermarks/<cluster>.jsonl      Watermark
    groups/<cluster>.jsonl          GroupOffset
    captures/<moment>/bounds.json   [Bounds]
    captures/<moment>/<cluster>/<broker>/<topic>-<partition>/*.log      as the broker wrote them
    logs/                           what processes printed
    manifest.json                   what there was when the run ended: path -> bytes (-1 for segments: only that they exist)
    verdict.json, report.html       the judgement, made anew by every `linkflap verify`; and findings.parquet, examined.parquet

Rows are appended line by line and flushed, so that a killed harness leaves a directory in which at most the last line of a
file is torn. The first write that fails ends the record: nothing more is written, and whoever closes it, or asks before
(`RunWriter.check`), learns why; the threads that write need not care. Readers never half trust it: a torn or missing part, or a
row that says what cannot be, becomes a `Damage` with the reason, beside the rows that are whole.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.machine.disk_full import Breakage
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.history import LARGEST, Bounds, Event, GroupOffset, Operation, Poll, SendGroup, Watermark
from linkflap.harness.model.scenario import Scenario

FORMAT: Final = 1
Status = Literal["running", "finished", "interrupted", "failed"]
Row = TypeVar("Row", Operation, Poll, Watermark, GroupOffset, Event)
_ClientRow = TypeVar("_ClientRow", Operation, Poll)
_TAIL: Final = 1 << 20
_FOLDERS: Final[Mapping[type, str]] = {
    Operation: "operations",
    Poll: "polls",
    Watermark: "watermarks",
    GroupOffset: "groups",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What run.json says.

    `recorded`: clients' history was written down; else the logs are all there is (`harness.capture.folders`). `homes` are the
    clusters on which topics were first written to, where their names do not say so. `leaders_only`: of every partition one
    replica was there to be had, so that nothing says whether the others agree. `environment`: what it was recorded on and with,
    for people (`harness.recording.surroundings`); empty in runs of older versions.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A part of a run directory that cannot be trusted, and why."""

    path: str
    reason: str


class Appender(Generic[Row]):
    """Appends rows of one type to one file; safe from several threads; each line is flushed to the kernel whole.

    A failed write is the `breakage`'s where there is one (then nothing is written from then on), else OSError.
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
        """The whole line or none of it: a disk that fills up takes the beginning of a line first, and refuses the rest."""
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
    """A file of events alone: what a deployment without a run writes to, and the part of a run that everything writes to."""

    def __init__(self, path: Path, breakage: Breakage | None = None) -> None:
        self._rows: Appender[Event] = Appender(path, breakage)

    def event(self, kind: str, subject: str, /, **data: object) -> Event:
        """Writes an event with the time of now, and returns it."""
        event = Event(time=now(), kind=kind, subject=subject, data=data)
        self._rows.write(event)
        return event

    def tell(self, event: Event) -> None:
        """Writes an event of another time."""
        self._rows.write(event)

    def close(self) -> None:
        self._rows.close()


class RunWriter:
    """Writes a run directory. Appenders are made once per file and closed together. Raises OSError when it cannot be made."""

    def __init__(self, root: Path, run: Run) -> None:
        root.mkdir(parents=True, exist_ok=False)
        self.root = root
        self.breakage = Breakage(root)
        self._run = run
        self._appenders: list[
            Appender[Operation] | Appender[Poll] | Appender[Watermark] | Appender[GroupOffset] | Appender[Event]
        ] = []
        self.logs = root / "logs"
        try:
            self._save()
            self._events = EventLog(root / "events.jsonl", self.breakage)
            self.logs.mkdir()
        except OSError:
            shutil.rmtree(root, ignore_errors=True)
            raise

    def _open(self, appender: Appender[Row]) -> Appender[Row]:
        self._appenders.append(appender)
        return appender

    def _save(self) -> None:
        write_whole(self.root / "run.json", msgspec.json.format(msgspec.json.encode(self._run), indent=1))

    def operations(self, client: str) -> Appender[Operation]:
        return self._open(Appender(self.root / "operations" / f"{client}.jsonl", self.breakage))

    def polls(self, reader: str) -> Appender[Poll]:
        return self._open(Appender(self.root / "polls" / f"{reader}.jsonl", self.breakage))

    def watermarks(self, cluster: str) -> Appender[Watermark]:
        return self._open(Appender(self.root / "watermarks" / f"{cluster}.jsonl", self.breakage))

    def groups(self, cluster: str) -> Appender[GroupOffset]:
        return self._open(Appender(self.root / "groups" / f"{cluster}.jsonl", self.breakage))

    def event(self, kind: str, subject: str, /, **data: object) -> Event:
        """Writes an event with the time of now, and returns it."""
        return self._events.event(kind, subject, **data)

    def tell(self, event: Event) -> None:
        """Writes an event of another time."""
        self._events.tell(event)

    def capture_folder(self, moment: str) -> Path:
        folder = self.root / "captures" / moment
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_bounds(self, moment: str, bounds: Sequence[Bounds]) -> None:
        """Replaces the bounds of one moment; written last, so that a capture without bounds is known to be torn."""
        write_whole(self.capture_folder(moment) / "bounds.json", msgspec.json.encode(list(bounds)))

    def revise(self, scenario: Scenario) -> None:
        """Says what the run is of, where that was not known when it began."""
        self._run = replace(self._run, scenario=scenario)
        self._save()

    def describe(self, environment: Mapping[str, str]) -> None:
        """Adds to what the run was recorded with what only shows when it runs; what is said already stays."""
        self._run = replace(self._run, environment={**environment, **self._run.environment})
        self._save()

    def check(self) -> None:
        """Raises EnvironmentFailure when the record has ended before the run: a write failed, or the disk is all but full."""
        if reason := self.breakage.look():
            raise reason

    def close(self, status: Status, *, error: str = "", versions: Mapping[str, str] | None = None) -> None:
        """Says how the run ended and closes every file. Raises EnvironmentFailure when not everything could be written."""
        for appender in (*self._appenders, self._events):
            appender.close()
        if self.breakage.reason is not None and status == "finished":
            status, error = "failed", str(self.breakage.reason)
        self._run = replace(self._run, status=status, ended=now(), error=error, versions=versions or self._run.versions)
        try:
            self._save()
            write_whole(self.root / "manifest.json", msgspec.json.encode(inventory(self.root)))
        except OSError as failure:
            raise self.breakage.because(failure) from failure
        if self.breakage.reason is not None:
            raise self.breakage.reason


class ClientWriter:
    """What a process of clients writes of a run directory: a history for each client. What happens is for the harness to write.

    A client that is started again goes on in the file of the one before it (`last_rows` has removed an unfinished line).
    """

    def __init__(self, root: Path, happened: Callable[[str, str, dict[str, object]], None]) -> None:
        self.root = root
        self.breakage = Breakage(root)
        self._happened = happened
        self._appenders: list[Appender[Operation] | Appender[Poll]] = []

    def operations(self, client: str) -> Appender[Operation]:
        appender: Appender[Operation] = Appender(self.root / "operations" / f"{client}.jsonl", self.breakage)
        self._appenders.append(appender)
        return appender

    def polls(self, reader: str) -> Appender[Poll]:
        appender: Appender[Poll] = Appender(self.root / "polls" / f"{reader}.jsonl", self.breakage)
        self._appenders.append(appender)
        return appender

    def event(self, kind: str, subject: str, /, **data: object) -> None:
        """Passes an event on."""
        self._happened(kind, subject, data)

    def close(self) -> None:
        for appender in self._appenders:
            appender.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """What a client wrote last before it died; and bytes of a line that it did not finish, which were taken away."""

    operations: Sequence[Operation] = ()
    polls: Sequence[Poll] = ()
    torn: int = 0


def last_rows(root: Path, client: str) -> LastRows:
    """The last rows of a dead client's history. What it was writing when it died is removed from the file's end.

    A row is written before what it announces is done, or after it was done: one that is missing makes nothing wrong.
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
    return [row for line in lines[1 if start else 0 :] if (row := _decoded(line, kind)) is not None], torn


def _decoded(line: bytes, kind: type[_ClientRow]) -> _ClientRow | None:
    """The row of a line; None where it is none, which is for those to say who judge the run."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:
        return None


def inventory(root: Path) -> dict[str, int]:
    """What manifest.json holds: path -> bytes, -1 for segments."""
    rows = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*.jsonl")}
    bounds = {str(path.relative_to(root)): path.stat().st_size for path in root.glob("captures/*/bounds.json")}
    segments = {str(path.relative_to(root)): -1 for path in root.glob("captures/*/*/*/*/*.log")}
    return dict(sorted((rows | bounds | segments).items()))


def _instead(root: Path) -> str:
    """What to give for a folder that is no run directory."""
    try:
        inside = sorted((path.parent for path in root.glob("*/run.json")), key=lambda path: path.stat().st_mtime)
    except OSError:
        inside = []
    if not inside:
        return "give the folder that linkflap run named"
    if len(inside) == 1:
        return f"give the one in it: {quote(str(inside[0]))}"
    return f"give one of the {len(inside)} in it, the newest is {quote(str(inside[-1]))}, or all: {quote(str(root))}/*"


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _with_guarantee(root: Path, run: Run) -> Run:
    """The run with what its mirror promises: older versions of linkflap left that to who reads it."""
    try:
        mirror = declared(run.scenario.mirror)
    except KeyError:
        raise InputError(
            f"{root}/run.json has the mirror {run.scenario.mirror.kind!r} without its guarantee, and linkflap knows "
            f"{', '.join(DECLARATIONS)}; add scenario.mirror.declared, as runs of this linkflap have it"
        ) from None
    return replace(run, scenario=replace(run.scenario, mirror=mirror))


class RunReader:
    """Reads a run directory, at any time, on any machine. Raises InputError when it is not one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            content = (root / "run.json").read_bytes()
        except OSError:
            raise InputError(f"{root} is not a run directory: it has no readable run.json; {_instead(root)}") from None
        try:
            run = msgspec.json.decode(content, type=Run)
        except msgspec.DecodeError as error:
            raise InputError(f"{root}/run.json cannot be read ({error}); the run directory is damaged beyond judging") from None
        if run.format != FORMAT:
            raise InputError(
                f"{root} has format {run.format}, this linkflap reads format {FORMAT}; use the linkflap that wrote it"
            )
        self.run = _with_guarantee(root, run)
        self._clusters = frozenset(cluster.name for cluster in run.scenario.topology.clusters)

    def damage(self) -> list[Damage]:
        """What the manifest promises and the directory does not have; and what a run that never ended could not promise."""
        if self.run.status == "running":
            return [Damage(path="run.json", reason="the run never ended: its harness was killed, or it still runs")]
        try:
            manifest = msgspec.json.decode((self.root / "manifest.json").read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError) as error:
            return [Damage(path="manifest.json", reason=f"cannot be read: {error}")]
        return [d for path, size in manifest.items() if (d := self._missing(path, size))]

    def _missing(self, path: str, size: int) -> Damage | None:
        try:
            found = (self.root / path).stat().st_size
        except OSError:
            return Damage(path=path, reason="missing: it was there when the run ended")
        if size not in (-1, found):
            return Damage(path=path, reason=f"has {found} bytes, had {size} when the run ended")
        return None

    def events(self) -> tuple[list[Event], list[Damage]]:
        return self._rows(Event, [self.root / "events.jsonl"])

    def operations(self) -> tuple[list[Operation], list[Damage]]:
        return self._rows(Operation, self._folder("operations"))

    def polls(self) -> tuple[list[Poll], list[Damage]]:
        return self._rows(Poll, self._folder("polls"))

    def watermarks(self) -> tuple[list[Watermark], list[Damage]]:
        return self._rows(Watermark, self._folder("watermarks"))

    def groups(self) -> tuple[list[GroupOffset], list[Damage]]:
        return self._rows(GroupOffset, self._folder("groups"))

    def each(self, kind: type[Row], damage: list[Damage]) -> Iterator[Row]:
        """The rows of one kind, one at a time, for those who need not hold them; what is wrong with them joins `damage`."""
        paths = [self.root / "events.jsonl"] if kind is Event else self._folder(_FOLDERS[kind])
        return self._each(kind, paths, damage)

    def moments(self) -> list[str]:
        """Names of the captures, oldest first by name."""
        return sorted(path.name for path in (self.root / "captures").glob("*") if path.is_dir())

    def bounds(self, moment: str) -> tuple[list[Bounds], list[Damage]]:
        """The bounds that one capture tells; of a partition of which some cannot be, none: who speaks for it nobody knows."""
        path = self.root / "captures" / moment / "bounds.json"
        try:
            rows = msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
        except OSError:
            return [], [self._damage(path, "missing: the capture was not finished")]
        except msgspec.DecodeError as error:
            return [], [self._damage(path, str(error))]
        found, damage = list[Bounds](), list[Damage]()
        doubtful = set[tuple[str, ...]]()
        for number, each in enumerate(rows, start=1):
            key = tuple(str(each.get(name)) for name in ("cluster", "topic", "partition"))
            try:
                found.append(msgspec.convert(each, Bounds))
            except msgspec.ValidationError as error:
                damage.append(self._damage(path, f"entry {number} (of {' '.join(key)}): {error}"))
                doubtful.add(key)
        return [b for b in found if (b.cluster, b.topic, str(b.partition)) not in doubtful], damage

    def folder(self, moment: str, bounds: Bounds) -> Path:
        """Where the segments of one captured replica are."""
        return self.root / "captures" / moment / bounds.cluster / str(bounds.broker) / f"{bounds.topic}-{bounds.partition}"

    def segments(self, moment: str, bounds: Bounds) -> list[Path]:
        """The segment files of one captured replica, in offset order."""
        return sorted(self.folder(moment, bounds).glob("*.log"))

    def _folder(self, name: str) -> list[Path]:
        return sorted((self.root / name).glob("*.jsonl"))

    def _damage(self, path: Path, reason: str) -> Damage:
        return Damage(path=str(path.relative_to(self.root)), reason=reason)

    def _rows(self, kind: type[Row], paths: Sequence[Path]) -> tuple[list[Row], list[Damage]]:
        damage: list[Damage] = []
        return list(self._each(kind, paths, damage)), damage

    def _each(self, kind: type[Row], paths: Sequence[Path], damage: list[Damage]) -> Iterator[Row]:
        if not paths and self.run.recorded:
            damage.append(Damage(path=kind.__name__.lower(), reason="missing: no file of this kind was written"))
        for path in paths:
            yield from self._whole_lines(kind, path, damage)

    def _elsewhere(self, row: Operation | Poll | Watermark | GroupOffset | Event) -> str:
        """Why a row is of no cluster or no time of this run; empty where it is. What holds for events the verifier says."""
        if isinstance(row, Event):
            return ""
        if row.cluster not in self._clusters:
            return f"it is of cluster {row.cluster!r}, and the run has {', '.join(sorted(self._clusters))}"
        if row.time < self.run.started:
            return f"it is of {(self.run.started - row.time) / 1e9:.1f} s before the run had started"
        if self.run.ended and row.time > self.run.ended:
            return f"it is of {(row.time - self.run.ended) / 1e9:.1f} s after the run had ended"
        return ""

    def _whole_lines(self, kind: type[Row], path: Path, damage: list[Damage]) -> Iterator[Row]:
        decoder, impossible = msgspec.json.Decoder(kind), _IMPOSSIBLE.get(kind)
        elsewhere = self._elsewhere if self.run.recorded else None
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.endswith(b"\n"):
                        damage.append(self._damage(path, f"line {number} is torn"))
                        return
                    try:
                        row = decoder.decode(line)
                    except msgspec.DecodeError as error:
                        damage.append(self._damage(path, f"line {number}: {error}"))
                        continue
                    if (impossible and (reason := impossible(row))) or (elsewhere and (reason := elsewhere(row))):
                        damage.append(self._damage(path, f"line {number}: {reason}"))
                    else:
                        yield row
        except OSError as error:
            damage.append(self._damage(path, f"missing: {error.strerror}"))


def _impossible_span(row: Poll | Watermark) -> str:
    """An answer from before its question: all times of a run are of one clock."""
    return f"it was asked at {row.time} and answered at {row.returned}, before that" if row.returned < row.time else ""


def _impossible_operation(row: Operation) -> str:
    """What it says of records that it did not send."""
    for group in row.sends:
        for index, count, _ in group.acks:
            if index + count > group.count:
                return _beyond(group, index, count, "acknowledged")
        for index, count in group.refused:
            if index + count > group.count:
                return _beyond(group, index, count, "refused")
    return ""


def _beyond(group: SendGroup, index: int, count: int, what: str) -> str:
    return f"records {index + 1} to {index + count} were {what}, of {group.count} sent to {group.topic}-{group.partition}"


def _impossible_event(row: Event) -> str:
    """What it says of places that no log has. What it does not say at all is for others to miss."""
    for name in _PLACED.get(row.kind, ()):
        value = row.data.get(name, 0)
        if isinstance(value, int) and not 0 <= value <= (_LAST_PARTITION if name == "partition" else LARGEST):
            return f"{name} {value} in a {row.kind} of {row.subject}"
    return ""


_LAST_PARTITION: Final = 2**31 - 1
_PLACED: Final[Mapping[str, Sequence[str]]] = {
    "promotion": ("partition", "offset"),
    "truncation": ("partition", "offset", "end"),
    "failover": ("fault_time",),
}
_IMPOSSIBLE: Final[Mapping[type, Callable[[Any], str]]] = {
    Operation: _impossible_operation,
    Event: _impossible_event,
    Poll: _impossible_span,
    Watermark: _impossible_span,
}
"""By kind of row, what in it cannot be though each number of it could: empty, or the reason."""
