"""The work of suites and of the shrinker: takes scenario files, records several at once, and judges
them in batches.

The main loop of a suite: it finishes the runs of an earlier session, then generates scenarios
until the time is over.

Each decision is on disk before it takes effect: the scenario is written before its run starts, the
verdict before its run is pruned. A suite that was killed can therefore resume. If a run has no
verdict, it is judged when its recording is complete, and otherwise recorded again from the same
scenario file.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from linkflap.chaos.generator import Coverage, baseline, cells_of, generate
from linkflap.harness.machine.children import Child, module, spawn
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.model.wait import pause
from linkflap.harness.rundir import RunReader
from linkflap.harness.rundir.files import room
from linkflap.judging.service import BatchOutcome, judged
from linkflap.spark_verify.spark import pandas_free, session
from linkflap.suite.failures import UNKNOWN, kinds_of
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import observed


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
    def log(self) -> str:
        """The name of the file with the output of the process."""
        return f"{self.folder.name}.log"

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
                f"{self.log}"
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
_ALMOST_FULL: Final = 1 << 20
"""Bytes: with less room on the disk, a run that failed failed by that."""


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
            if failure and room(task.folder.parent) < _ALMOST_FULL:
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


BASELINE: Final = 0
"""The number of the run without faults."""
AHEAD: Final = 12
"""How many runs are drawn at a time. Of these, runs whose clusters are there go first: more runs
would save more starts, and leave a short suite with fewer shapes."""
Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Suite:
    """A suite that is running."""

    folder: SuiteFolder
    works: Workers
    say: Say
    fits: Callable[[Scenario], bool] | None = None
    """Whether free clusters have the shape of a scenario's; None if no clusters are kept."""
    _drawn: dict[int, Scenario] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _before: float = 0.0
    _begun: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Records and judges until the time is over or all runs are done. A KeyboardInterrupt is
        not caught."""
        self._before = max((result.ended for result in self.folder.results), default=0.0)
        left = self._left_over()
        while True:
            if interrupts.asked():
                raise KeyboardInterrupt
            more = bool(left) or self._more()
            if more and self.works.room:
                self._begin(left.pop(0) if left else self._next())
                more = bool(left) or self._more()
            self.works.step(more=more, done=self._done)
            if not more and self.works.idle:
                return

    @property
    def clock(self) -> float:
        """Seconds that the suite has worked, earlier sessions included."""
        return self._before + time.monotonic() - self._began

    def _left_over(self) -> list[int]:
        """The numbers of the runs that have a scenario file and no verdict yet."""
        known = {result.number for result in self.folder.results}
        numbers = self.folder.numbers()
        self._begun = set(numbers)
        return [number for number in numbers if number not in known]

    def _more(self) -> bool:
        plan = self.folder.plan
        runs = len(self._begun)
        if plan.until_fail and any(r.verdict == Verdict.INVALID for r in self.folder.results):
            return False
        return self.clock < plan.seconds and (not plan.runs or runs < plan.runs)

    def _next(self) -> int:
        """Chooses the next run and writes its scenario file. Returns its number."""
        if not self._drawn:
            self._draw()
        fits = self.fits or (lambda made: False)
        number = next((n for n, made in self._drawn.items() if fits(made)), min(self._drawn))
        self.folder.write_scenario(number, self._drawn.pop(number))
        self._begun.add(number)
        return number

    def _draw(self) -> None:
        """Draws the next runs. Each counts the cells of those before it as covered."""
        plan, coverage = self.folder.plan, self.folder.coverage
        most = AHEAD if self.fits else 1
        if plan.runs:
            most = min(most, plan.runs - len(self._begun))
        numbers = (n for n in range(plan.shard[0], 1 << 31, plan.shard[1]) if n not in self._begun)
        for number in islice(numbers, most):
            self._drawn[number] = made = self._made(number, coverage)
            coverage = coverage.with_run(cells_of(made))

    def _made(self, number: int, coverage: Coverage) -> Scenario:
        plan = self.folder.plan
        if plan.given:
            return self.folder.given(number)
        if number == BASELINE:
            return baseline(plan.seed, plan.bounds)
        return generate(plan.seed, number, coverage, plan.bounds, guided=plan.guided)

    def _begin(self, number: int) -> None:
        folder = self.folder.run_path(number)
        task = Task(number=number, scenario=self.folder.scenario_path(number), folder=folder)
        if _recorded(folder):
            self.works.recorded(task)
        else:
            self.works.start(task)

    def _done(self, finished: Finished) -> None:
        result = result_of(finished, ended=round(self.clock, 1))
        self.folder.append(result)
        if not result.failed:
            self.folder.prune(result.number)
        elif len(self.folder.kept) > self.folder.plan.keep + len(self.works.recordings) + len(
            self.works.waiting
        ):
            # The suite keeps enough failed runs in full; of this one, scenario and verdict remain.
            self.folder.prune(result.number)
        self.say(line(result, self.folder))


def result_of(finished: Finished, *, ended: float) -> RunResult:
    """The line of results.jsonl for a run. `ended`: seconds of the suite's time."""
    number, document = finished.task.number, finished.document
    if document is None:
        return RunResult(
            number=number,
            verdict=Verdict.UNKNOWN,
            reason=finished.error,
            kinds=(f"{UNKNOWN}environment",),
            seconds=finished.seconds,
            again=finished.again,
            ended=ended,
        )
    seen = observed(finished.task.folder)
    return RunResult(
        number=number,
        verdict=document["verdict"],
        reason=str(document["reason"]),
        cause=str(document["cause"]),
        kinds=kinds_of(document),
        cells=seen.cells,
        missed=seen.missed,
        outcomes=seen.outcomes,
        seconds=finished.seconds,
        again=finished.again,
        ended=ended,
    )


def _recorded(folder: Path) -> bool:
    """Whether the recording was complete when its suite was killed."""
    try:
        return RunReader(folder).run.status == "finished" and (folder / "manifest.json").exists()
    except InputError:
        return False


def line(result: RunResult, folder: SuiteFolder) -> str:
    """One line for the live display: number, verdict, mirror, faults and kind of failure."""
    made = folder.scenario(result.number)
    faults = ", ".join(fault.fault for fault in made.schedule) or "nothing broken"
    why = f"  {result.kinds[0]}" if result.kinds else ""
    why += f": {result.reason}" if why.endswith(":environment") else ""
    return f"{result.number:5}  {result.verdict:8} {made.mirror.kind:7} {faults}{why}"
