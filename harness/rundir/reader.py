"""Reads a run directory: each kind of row, bounds and segments, and the damage in them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec

from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import KINDS, Event, read
from linkflap.harness.model.history import (
    Bounds,
    EventRow,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir.files import FORMAT, Damage, Row, Run, with_current_kinds
from linkflap.harness.rundir.manifest import Manifest


def _impossible_span(row: Poll | Watermark) -> str:
    """A reason if the answer is earlier than the request, else empty: all times of a run are from
    one clock.
    """
    return (
        f"it was asked at {row.time} and answered at {row.returned}, before that"
        if row.returned < row.time
        else ""
    )


def _impossible_operation(row: Operation) -> str:
    """A reason if the operation reports on records that it did not send, else empty."""
    for group in row.sends:
        for index, count, _ in group.acks:
            if index + count > group.count:
                return _beyond(group, index, count, "acknowledged")
        for index, count in group.refused:
            if index + count > group.count:
                return _beyond(group, index, count, "refused")
        ended = sum(count for _, count, _ in group.acks) + sum(count for _, count in group.refused)
        if ended > group.count:
            return (
                f"{ended} records were acknowledged or refused, of {group.count} sent to "
                f"{group.topic}-{group.partition}"
            )
    return ""


def _beyond(group: SendGroup, index: int, count: int, what: str) -> str:
    return (
        f"records {index + 1} to {index + count} were {what}, of {group.count} sent to "
        f"{group.topic}-{group.partition}"
    )


IMPOSSIBLE: Final[Mapping[type, Callable[[Any], str]]] = {
    Operation: _impossible_operation,
    Poll: _impossible_span,
    Watermark: _impossible_span,
}
"""Kind of row -> a function that returns why a row with legal numbers is impossible; empty if it is
possible.
"""


EVENTS: Final = "events.jsonl"
_MOST_CLIENTS: Final = 1 << 20
_BLOCK: Final = 512
_MOST_PARTS: Final = 256
_MOST_FAULTS: Final = 1 << 14
_MOST_ABSENT: Final = 1000
"""The most logs that bounds may list without their bytes, because every check judges each log."""
_NAMED: Final = 20
"""Unknown kinds of events that a sentence names."""
_LARGEST_NUMBER: Final = 1 << 128
_FOLDERS: Final[Mapping[type, str]] = {
    Operation: "operations",
    Poll: "polls",
    Watermark: "watermarks",
    GroupOffset: "groups",
}


class RunReader:
    """Reads a run directory, at any time, on any machine. Raises InputError when it is not one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            content = untrusted_files.content(root / "run.json")
        except OSError as error:
            raise InputError(
                f"{root} is not a run directory: it has no readable run.json"
                f"{_unless_absent(error)}; {_instead(root)}"
            ) from None
        try:
            run = untrusted_files.decoded(with_current_kinds(content), Run)
            document = untrusted_files.decoded(content, object)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{root}/run.json cannot be read ({error}); the run directory is damaged beyond "
                "judging"
            ) from None
        if run.format != FORMAT:
            raise InputError(
                f"{root} has format {run.format}, this linkflap reads format {FORMAT}; use the "
                "linkflap that wrote it"
            )
        _refuse_monsters(root, run.scenario, document)
        self.run = _with_guarantee(root, run)
        self._clusters = frozenset(cluster.name for cluster in run.scenario.topology.clusters)
        self._manifest = Manifest(root, digests=run.digests and run.status != "running")

    def damage(self) -> list[Damage]:
        """Files that differ from the manifest, or are no regular files; for a run that never ended,
        one entry that says so.
        """
        ended = self.run.status != "running"
        found = self._manifest.damage(of_ended=ended) if ended or self._manifest.there else []
        if not ended:
            found = [Damage(path="run.json", reason=self.run.unfinished), *found]
        named = {damage.path for damage in found}
        return found + [
            Damage(path=path, reason=what)
            for path, what in untrusted_files.special_entries(self.root)
            if path not in named
            and not path.startswith("logs/")
            and (self.run.recorded or what != untrusted_files.A_LINK)
        ]

    @property
    def has_digests(self) -> bool:
        """Whether the manifest would reveal a file that was shortened later."""
        return self._manifest.has_digests

    def events(self) -> tuple[list[Event], list[Damage]]:
        """Every readable event. The damage names the kinds that this linkflap does not know, each
        once."""
        rows, damage = self._rows(EventRow, [self.root / EVENTS])
        found, unknown = list[Event](), Counter[str]()
        for row in rows:
            if row.kind not in KINDS:
                unknown[row.kind] += 1
                continue
            try:
                found.append(read(row))
            except ValueError as error:
                damage.append(Damage(path=EVENTS, reason=str(error)))
        if unknown:
            damage.append(Damage(path=EVENTS, reason=_newer(unknown, self.run.linkflap)))
        return found, damage

    def operations(self) -> tuple[list[Operation], list[Damage]]:
        return self._rows(Operation, self._folder("operations"))

    def polls(self) -> tuple[list[Poll], list[Damage]]:
        return self._rows(Poll, self._folder("polls"))

    def watermarks(self) -> tuple[list[Watermark], list[Damage]]:
        return self._rows(Watermark, self._folder("watermarks"))

    def groups(self) -> tuple[list[GroupOffset], list[Damage]]:
        return self._rows(GroupOffset, self._folder("groups"))

    def each(self, kind: type[Row], damage: list[Damage]) -> Iterator[Row]:
        """The rows of one kind, one at a time, for callers that need not keep them; adds damaged
        rows to `damage`."""
        return self._each(kind, self._folder(_FOLDERS[kind]), damage)

    def moments(self) -> list[str]:
        """Names of the captures, oldest first by name."""
        return self._folders_in("captures")

    def captured_clusters(self, moment: str) -> list[str]:
        """The clusters that a capture holds anything of."""
        return self._folders_in("captures", moment)

    def _folders_in(self, *steps: str) -> list[str]:
        paths = untrusted_files.listed(self.root, self.root.joinpath(*steps))
        return [path.name for path in paths if path.is_dir() and not path.is_symlink()]

    def bounds(self, moment: str) -> tuple[list[Bounds], list[Damage]]:
        """The bounds in one capture. A partition with a bound that cannot be read has none: its
        leader would be unknown."""
        if not untrusted_files.is_name(moment):
            return [], [Damage(path="captures", reason=f"no capture can be called {moment!r}")]
        path = self.root / "captures" / moment / "bounds.json"
        if reason := self._manifest.distrusts(path):
            return [], [self._damage(path, reason)]
        try:
            rows = untrusted_files.decoded(
                untrusted_files.content(path, root=self.root), list[dict[str, Any]]
            )
        except OSError as error:
            why = f"missing: the capture was not finished{_unless_absent(error)}"
            return [], [self._damage(path, why)]
        except msgspec.DecodeError as error:
            return [], [self._damage(path, str(error))]
        found, damage = list[Bounds](), list[Damage]()
        doubtful = set[tuple[str, ...]]()
        for number, each in enumerate(rows, start=1):
            key = tuple(str(each.get(name)) for name in ("cluster", "topic", "partition"))
            try:
                bounds = msgspec.convert(each, Bounds)
                for name in (bounds.cluster, bounds.topic):
                    if not untrusted_files.is_name(name):
                        raise msgspec.ValidationError(f"nothing can be called {name!r}")
                found.append(bounds)
            except msgspec.ValidationError as error:
                damage.append(self._damage(path, f"entry {number} (of {' '.join(key)}): {error}"))
                doubtful.add(key)
        sound = [b for b in found if (b.cluster, b.topic, str(b.partition)) not in doubtful]
        return self._without_made_up(moment, sound, damage), damage

    def _without_made_up(
        self, moment: str, listed: list[Bounds], damage: list[Damage]
    ) -> list[Bounds]:
        """The bounds of logs that exist, and of a limited number that do not."""
        absent = [b for b in listed if not self.folder(moment, b).is_dir()]
        if len(absent) <= _MOST_ABSENT:
            return listed
        why = f"it lists {len(absent)} logs that are not there; {_MOST_ABSENT} are looked at"
        damage.append(self._damage(self.root / "captures" / moment / "bounds.json", why))
        left_out = {id(b) for b in absent[_MOST_ABSENT:]}
        return [b for b in listed if id(b) not in left_out]

    def folder(self, moment: str, bounds: Bounds) -> Path:
        """Where the segments of one captured replica are."""
        return (
            self.root
            / "captures"
            / moment
            / bounds.cluster
            / str(bounds.broker)
            / f"{bounds.topic}-{bounds.partition}"
        )

    def captured_bytes(self) -> int:
        """Bytes of the captured logs, without holes."""
        found = 0
        for folder, _, files in os.walk(self.root / "captures"):
            for name in files:
                with suppress(OSError):
                    status = os.lstat(os.path.join(folder, name))
                    found += min(status.st_size, _BLOCK * status.st_blocks)
        return found

    def segments(self, moment: str, bounds: Bounds) -> list[Path]:
        """The segment files of one captured replica, in offset order, without those that are
        damaged (`damage`). Of logs that linkflap did not record, the folder is a link to where they
        are."""
        folder = self.folder(moment, bounds)
        root = folder if not self.run.recorded and os.path.islink(folder) else self.root
        found = untrusted_files.listed(root, folder, ".log")
        return [path for path in found if not self._manifest.distrusts(path)]

    def _folder(self, name: str) -> list[Path]:
        return untrusted_files.listed(self.root, self.root / name, ".jsonl")

    def _damage(self, path: Path, reason: str) -> Damage:
        return Damage(path=str(path.relative_to(self.root)), reason=reason)

    def _rows(self, kind: type[Row], paths: Sequence[Path]) -> tuple[list[Row], list[Damage]]:
        damage: list[Damage] = []
        return list(self._each(kind, paths, damage)), damage

    def _each(self, kind: type[Row], paths: Sequence[Path], damage: list[Damage]) -> Iterator[Row]:
        if not paths and self.run.recorded:
            damage.append(
                Damage(
                    path=kind.__name__.lower(), reason="missing: no file of this kind was written"
                )
            )
        for path in paths:
            if reason := self._manifest.distrusts(path):
                damage.append(self._damage(path, reason))
            else:
                yield from self._whole_lines(kind, path, damage)

    def _elsewhere(self, row: Operation | Poll | Watermark | GroupOffset | EventRow) -> str:
        """Why a row has no cluster or no time of this run; empty if it has both. The verifier
        checks events."""
        if isinstance(row, EventRow):
            return ""
        if row.cluster not in self._clusters:
            return (
                f"it is of cluster {row.cluster!r}, and the run has "
                f"{', '.join(sorted(self._clusters))}"
            )
        if row.time < self.run.started:
            return (
                f"it is of {(self.run.started - row.time) / 1e9:.1f} s before the run had started"
            )
        if self.run.ended and row.time > self.run.ended:
            return f"it is of {(row.time - self.run.ended) / 1e9:.1f} s after the run had ended"
        return ""

    def _whole_lines(self, kind: type[Row], path: Path, damage: list[Damage]) -> Iterator[Row]:
        decoder, impossible = msgspec.json.Decoder(kind), IMPOSSIBLE.get(kind)
        elsewhere = self._elsewhere if self.run.recorded else None
        try:
            with untrusted_files.opened(path, root=self.root) as file:
                for number, line in enumerate(untrusted_files.lines(file), start=1):
                    if not line.endswith(b"\n"):
                        damage.append(self._damage(path, f"line {number} is torn"))
                        return
                    try:
                        row = untrusted_files.decoded(line, decoder)
                    except msgspec.DecodeError as error:
                        damage.append(self._damage(path, f"line {number}: {error}"))
                        continue
                    if (impossible and (reason := impossible(row))) or (
                        elsewhere and (reason := elsewhere(row))
                    ):
                        damage.append(self._damage(path, f"line {number}: {reason}"))
                    else:
                        yield row
        except OSError as error:
            damage.append(self._damage(path, f"cannot be read: {error.strerror}"))


def _refuse_monsters(root: Path, scenario: Scenario, document: object) -> None:
    """Raises InputError for more clients, clusters, … than any run has, because some checks compare
    all pairs, and for numbers too large for arithmetic."""
    largest = _largest(document)
    if largest > _LARGEST_NUMBER:
        raise InputError(
            f"{root}/run.json has a number of {largest.bit_length()} bits, which no run has; the "
            "run directory is damaged beyond judging"
        )
    for what, most, many in (
        ("clients", _MOST_CLIENTS, sum(abs(each.clients) for each in scenario.workloads)),
        ("workloads", _MOST_PARTS, len(scenario.workloads)),
        ("clusters", _MOST_PARTS, len(scenario.topology.clusters)),
        ("links", _MOST_PARTS, len(scenario.topology.links)),
        ("faults", _MOST_FAULTS, len(scenario.schedule)),
    ):
        if many > most:
            raise InputError(
                f"{root}/run.json has {many} {what}, and no run has more than {most}; the run "
                "directory is damaged beyond judging"
            )


def _largest(document: object) -> int:
    """The largest integer in a JSON document, without its sign."""
    found, left = 0, [document]
    while left:
        match left.pop():
            case dict() as each:
                left += each.values()
            case list() as each:
                left += each
            case int() as number:
                found = max(found, abs(number))
    return found


def _unless_absent(error: OSError) -> str:
    """Why an existing file cannot be read; empty if it does not exist."""
    absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return "" if absent else f" (it {error.strerror})"


def _newer(unknown: Mapping[str, int], version: str) -> str:
    """The fix for events of unknown kinds."""
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(unknown.items())[:_NAMED])
    if len(unknown) > _NAMED:
        kinds += f", and {len(unknown) - _NAMED} more"
    return (
        f"it has kinds of events that this linkflap does not know: {kinds}; judge it with linkflap "
        f"{version}, which recorded it"
    )


def _instead(root: Path) -> str:
    """The fix for a folder that is no run directory: the run directories in it, if any."""
    try:
        inside = sorted(
            (path.parent for path in root.glob("*/run.json")), key=lambda path: path.stat().st_mtime
        )
    except OSError:
        inside = []
    if not inside:
        return "give the folder that linkflap run named"
    if len(inside) == 1:
        return f"give the one in it: {quote(str(inside[0]))}"
    return (
        f"give one of the {len(inside)} in it, the newest is {quote(str(inside[-1]))}, or all: "
        f"{quote(str(root))}/*"
    )


def _with_guarantee(root: Path, run: Run) -> Run:
    """The run with its mirror's guarantee, which older versions of linkflap did not write."""
    try:
        mirror = declared(run.scenario.mirror)
    except KeyError:
        raise InputError(
            f"{root}/run.json has the mirror {run.scenario.mirror.kind!r} without its guarantee, "
            f"and linkflap knows {', '.join(DECLARATIONS)}; add scenario.mirror.declared, as runs "
            "of this linkflap have it"
        ) from None
    return replace(run, scenario=replace(run.scenario, mirror=mirror))
