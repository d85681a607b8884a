"""The work of suites and of the shrinker: takes scenario files, records several at once, and judges
them in batches."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.machine.disk_full import LEAST_ROOM, room
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.wait import pause
from linkflap.harness.rundir import RunReader
from linkflap.judging.service import BatchOutcome, judged
from linkflap.spark_verify.spark import pandas_free, session


class SuiteJudge:
    """Judges one batch at a time. While it judges, call only `busy` and `take`."""

    def __init__(self) -> None:
        pandas_free.settle()
        self._thread: threading.Thread | None = None
        self._done: list[BatchOutcome] = []
        self._crash: BaseException | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, folders: Sequence[Path]) -> None:
        """Starts to judge a batch of run directories."""
        self._thread = threading.Thread(
            target=self._work, args=(list(folders),), name="judge", daemon=True
        )
        self._thread.start()

    def take(self) -> list[BatchOutcome]:
        """The new verdicts; none while a batch is being judged. Raises the exception that ended a
        batch, if any."""
        if self.busy:
            return []
        if self._crash is not None:
            raise self._crash
        done, self._done = self._done, []
        return done

    def _work(self, folders: list[Path]) -> None:
        try:
            self._done.extend(judged(folders))
        except BaseException as crash:  # noqa: BLE001  (handed to the main thread by take)
            self._crash = crash


def warm() -> None:
    """Starts Spark in the background."""
    session.warm()


LONGEST: Final = 900.0
"""Seconds after which a recording is killed."""
ENDS_WITHIN: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Recording:
    """A recording that runs or has ended. `number` is the caller's number for it."""

    number: int
    folder: Path
    child: Child
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether the recording has ended. Kills it first if it has taken longer than LONGEST."""
        if self.child.alive and time.monotonic() - self.began > LONGEST:
            self.child.kill()
        return not self.child.alive

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def failure(self) -> str:
        """Why the recording ended early: a failure of the environment or of linkflap, never a
        violation. Empty if the recording is complete."""
        try:
            run = RunReader(self.folder).run
        except InputError:
            return (
                f"it exited with status {self.child.poll()} before anything was recorded; see "
                f"{self.folder.name}.log"
            )
        if run.status == "finished":
            return ""
        return run.error or f"it ended as {run.status} with exit status {self.child.poll()}"


def start(number: int, scenario: Path, folder: Path, *, runtime: str) -> Recording:
    """Starts to record a scenario file into the run directory `folder`. The output of the process
    goes to `<folder>.log`."""
    command, environment = module(
        "linkflap",
        "run",
        str(scenario.absolute()),
        "--no-verify",
        "--runtime",
        runtime,
        "--out",
        str(folder.absolute()),
    )
    log = folder.with_name(f"{folder.name}.log")
    child = spawn(
        command, name=f"run {number}", folder=scenario.parent, output=log, environment=environment
    )
    return Recording(number=number, folder=folder, child=child)


def stop(recordings: list[Recording]) -> None:
    """Sends SIGTERM to all recordings, so that each stops its brokers. Kills those that have not
    ended within ENDS_WITHIN seconds."""
    for recording in recordings:
        recording.child.signal(15)
    for recording in recordings:
        try:
            recording.child.stop(within=ENDS_WITHIN)
        except Exception:  # noqa: BLE001  (whatever it is, the process must not outlive us)
            recording.child.kill()


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
    record: Callable[..., Recording] = start
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
        stop(self.recordings)
        self.recordings.clear()
