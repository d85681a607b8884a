"""The work of suites and of the shrinker: takes scenario files, records several at once, and judges
them in batches."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from linkflap.harness.machine.disk_full import LEAST_ROOM, room
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.wait import pause
from linkflap.harness.suite import recording
from linkflap.harness.suite.judging import SuiteJudge, warm
from linkflap.harness.suite.recording import Recording

AGAIN: Final = 1
"""How often a run is recorded again after a failure of the environment."""
LOOK_EVERY: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run to be recorded and judged."""

    number: int
    scenario: Path
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One finished run. `document` is its verdict.json; None if it could not be recorded or judged,
    and then `error` says why. `again` counts earlier recordings that failed because of the
    environment."""

    task: Task
    document: Mapping[str, Any] | None
    error: str
    seconds: float
    again: int


@dataclass(slots=True, kw_only=True)
class Workers:
    """All work in progress. The owner calls `step` in a loop. Between two calls, only child
    processes and the judge's thread work."""

    jobs: int
    batch: int
    runtime: str
    record: Callable[..., Recording] = recording.start
    judge: SuiteJudge = field(default_factory=SuiteJudge)
    recordings: list[Recording] = field(default_factory=list)
    waiting: deque[tuple[Task, float]] = field(default_factory=deque)
    _tasks: dict[int, Task] = field(default_factory=dict)
    _seconds: dict[Path, float] = field(default_factory=dict)
    _again: dict[int, int] = field(default_factory=dict)
    _judging: int = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is being recorded or judged, and nothing waits."""
        return not self.recordings and not self.waiting and not self._judging

    @property
    def room(self) -> bool:
        """Whether another recording may start."""
        return len(self.recordings) < self.jobs and len(self.waiting) < self.batch

    def start(self, task: Task) -> None:
        """Starts to record a scenario."""
        if not self._tasks:
            warm()  # Spark starts in the background, during the first recording
        self._tasks[task.number] = task
        shutil.rmtree(task.folder, ignore_errors=True)
        self.recordings.append(
            self.record(task.number, task.scenario, task.folder, runtime=self.runtime)
        )

    def recorded(self, task: Task) -> None:
        """Adds a run that is recorded already and only has to be judged."""
        self._tasks[task.number] = task
        self.waiting.append((task, 0.0))

    def step(self, *, more: bool, done: Callable[[Finished], None]) -> None:
        """Collects ended recordings and verdicts, and starts the next batch if it is due. `more`:
        other runs are still to come. Takes LOOK_EVERY seconds."""
        self._reap(done)
        for outcome in self.judge.take():
            self._judging -= 1
            document = outcome.judgement.document if outcome.judgement else None
            done(
                self._finished(self._by_folder(outcome.folder), document, str(outcome.error or ""))
            )
        enough = len(self.waiting) >= min(2 * self.jobs, self.batch) or not (
            more or self.recordings
        )
        if self.waiting and enough and not self._judging:
            self._judging = len(self.waiting)
            self.judge.start([task.folder for task, _ in self.waiting])
            self.waiting.clear()
        pause(LOOK_EVERY, lambda: False)

    def _reap(self, done: Callable[[Finished], None]) -> None:
        for ended in [r for r in self.recordings if r.over]:
            self.recordings.remove(ended)
            task, failure = self._tasks[ended.number], ended.failure()
            self._seconds[task.folder] = round(ended.seconds, 1)
            if failure and room(task.folder.parent) < 4 * LEAST_ROOM:
                raise EnvironmentFailure(
                    f"the disk of {task.folder.parent} is full; make room, then use --resume"
                )
            if failure and self._again.get(task.number, 0) < AGAIN:
                self._again[task.number] = self._again.get(task.number, 0) + 1
                self.start(task)
            elif not (task.folder / "run.json").exists():
                done(self._finished(task, None, failure))
            else:
                self.waiting.append((task, ended.seconds))

    def _finished(self, task: Task, document: Mapping[str, Any] | None, error: str) -> Finished:
        return Finished(
            task=task,
            document=document,
            error=error,
            seconds=self._seconds.get(task.folder, 0.0),
            again=self._again.get(task.number, 0),
        )

    def _by_folder(self, folder: Path) -> Task:
        return next(task for task in self._tasks.values() if task.folder == folder)

    def close(self) -> None:
        """Ends every recording in progress."""
        recording.stop(self.recordings)
        self.recordings.clear()
