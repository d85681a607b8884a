"""Writes the harness's files of a run: run.json, events, histories, watermarks, group offsets,
bounds and the manifest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from linkflap.harness.machine.disk_full import Breakage
from linkflap.harness.model.clock import now
from linkflap.harness.model.events import Kind
from linkflap.harness.model.history import Bounds, EventRow, GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import manifest
from linkflap.harness.rundir.files import Appender, EventLog, write_whole
from linkflap.harness.rundir.values import Row, Run, Status


class RunWriter:
    """Writes a run directory. Appenders are made once per file and closed together. Raises OSError
    when it cannot be made."""

    def __init__(self, root: Path, run: Run) -> None:
        root.mkdir(parents=True, exist_ok=False)
        self.root = root
        self.breakage = Breakage(root)
        self._run = run
        self._appenders: list[
            Appender[Operation]
            | Appender[Poll]
            | Appender[Watermark]
            | Appender[GroupOffset]
            | Appender[EventRow]
        ] = []
        self._captured: dict[str, int | manifest.Content] = {}
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
        write_whole(
            self.root / "run.json", msgspec.json.format(msgspec.json.encode(self._run), indent=1)
        )

    def operations(self, client: str) -> Appender[Operation]:
        return self._open(Appender(self.root / "operations" / f"{client}.jsonl", self.breakage))

    def polls(self, reader: str) -> Appender[Poll]:
        return self._open(Appender(self.root / "polls" / f"{reader}.jsonl", self.breakage))

    def watermarks(self, cluster: str) -> Appender[Watermark]:
        return self._open(Appender(self.root / "watermarks" / f"{cluster}.jsonl", self.breakage))

    def groups(self, cluster: str) -> Appender[GroupOffset]:
        return self._open(Appender(self.root / "groups" / f"{cluster}.jsonl", self.breakage))

    def write(self, event: Kind, /) -> Kind:
        """Writes an event, with the time of now where it has none, and returns it so."""
        return self._events.write(event)

    def capture_folder(self, moment: str) -> Path:
        folder = self.root / "captures" / moment
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_bounds(self, moment: str, bounds: Sequence[Bounds]) -> None:
        """Replaces the bounds of one moment; written last, so that a capture without bounds is
        known to be torn. From then on the manifest has the digests of what was captured."""
        write_whole(self.capture_folder(moment) / "bounds.json", msgspec.json.encode(list(bounds)))
        self._captured = manifest.captured(self.root, moment, self._captured)
        manifest.write(self.root, self._captured)

    def revise(self, scenario: Scenario) -> None:
        """Says what the run is of, where that was not known when it began."""
        self._run = replace(self._run, scenario=scenario)
        self._save()

    def describe(self, environment: Mapping[str, str]) -> None:
        """Adds facts about the environment that are known only during the run; existing ones
        stay."""
        self._run = replace(self._run, environment={**environment, **self._run.environment})
        self._save()

    def check(self) -> None:
        """Raises EnvironmentFailure when the record has ended before the run: a write failed, or
        the disk is all but full."""
        if reason := self.breakage.look():
            raise reason

    def close(
        self, status: Status, *, error: str = "", versions: Mapping[str, str] | None = None
    ) -> None:
        """Says how the run ended and closes every file. Raises EnvironmentFailure when not
        everything could be written."""
        for appender in (*self._appenders, self._events):
            appender.close()
        if self.breakage.reason is not None and status == "finished":
            status, error = "failed", str(self.breakage.reason)
        self._run = replace(
            self._run,
            status=status,
            ended=now(),
            error=error,
            versions=versions or self._run.versions,
            digests=True,
        )
        try:
            self._save()
            manifest.write(self.root, {**manifest.inventory(self.root), **self._captured})
        except OSError as failure:
            raise self.breakage.because(failure) from failure
        if self.breakage.reason is not None:
            raise self.breakage.reason
