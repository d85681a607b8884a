"""Reads a run directory: each kind of row, bounds and segments, and the damage in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec

from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.machine.file_kinds import special
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import KINDS, Event, read
from linkflap.harness.model.history import Bounds, EventRow, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.rundir.impossible import IMPOSSIBLE
from linkflap.harness.rundir.manifest import Manifest
from linkflap.harness.rundir.renamed import with_current_kinds
from linkflap.harness.rundir.values import FORMAT, Damage, Row, Run

EVENTS: Final = "events.jsonl"
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
            if kind := special(root / "run.json"):
                raise InputError(
                    f"{root}/run.json is {kind}, not a file; the run directory is damaged beyond "
                    "judging"
                )
            content = (root / "run.json").read_bytes()
        except OSError:
            raise InputError(
                f"{root} is not a run directory: it has no readable run.json; {_instead(root)}"
            ) from None
        try:
            run = msgspec.json.decode(with_current_kinds(content), type=Run)
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
        self.run = _with_guarantee(root, run)
        self._clusters = frozenset(cluster.name for cluster in run.scenario.topology.clusters)
        self._manifest = Manifest(root)

    def damage(self) -> list[Damage]:
        """Files that are not as the manifest has them; and what a run that never ended could not
        promise."""
        if self.run.status != "running":
            return self._manifest.damage(of_ended=True)
        endless = Damage(
            path="run.json", reason="the run never ended: its harness was killed, or it still runs"
        )
        return [endless, *(self._manifest.damage() if self._manifest.there else ())]

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
        return sorted(path.name for path in (self.root / "captures").glob("*") if path.is_dir())

    def bounds(self, moment: str) -> tuple[list[Bounds], list[Damage]]:
        """The bounds in one capture. A partition of which a bound cannot be read has none: its
        leader would be unknown."""
        path = self.root / "captures" / moment / "bounds.json"
        if reason := self._manifest.distrusts(path):
            return [], [self._damage(path, reason)]
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
        return (
            self.root
            / "captures"
            / moment
            / bounds.cluster
            / str(bounds.broker)
            / f"{bounds.topic}-{bounds.partition}"
        )

    def segments(self, moment: str, bounds: Bounds) -> list[Path]:
        """The segment files of one captured replica, in offset order, without those that are
        damaged (`damage`)."""
        found = sorted(self.folder(moment, bounds).glob("*.log"))
        return [path for path in found if not self._manifest.distrusts(path)]

    def _folder(self, name: str) -> list[Path]:
        return sorted((self.root / name).glob("*.jsonl"))

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
            if other := special(path):
                damage.append(self._damage(path, f"is {other}, not a file"))
                return
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
                    if (impossible and (reason := impossible(row))) or (
                        elsewhere and (reason := elsewhere(row))
                    ):
                        damage.append(self._damage(path, f"line {number}: {reason}"))
                    else:
                        yield row
        except OSError as error:
            damage.append(self._damage(path, f"missing: {error.strerror}"))


def _newer(unknown: Mapping[str, int], version: str) -> str:
    """What to do about events of unknown kinds."""
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(unknown.items()))
    return (
        f"it has kinds of events that this linkflap does not know: {kinds}; judge it with linkflap "
        f"{version}, which recorded it"
    )


def _instead(root: Path) -> str:
    """What to give for a folder that is no run directory."""
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
    """The run with what its mirror promises: older versions of linkflap left that to who reads
    it."""
    try:
        mirror = declared(run.scenario.mirror)
    except KeyError:
        raise InputError(
            f"{root}/run.json has the mirror {run.scenario.mirror.kind!r} without its guarantee, "
            f"and linkflap knows {', '.join(DECLARATIONS)}; add scenario.mirror.declared, as runs "
            "of this linkflap have it"
        ) from None
    return replace(run, scenario=replace(run.scenario, mirror=mirror))
