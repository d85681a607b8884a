"""The main loop of a suite: it finishes the runs of an earlier session, then generates scenarios
until the time is over.

Each decision is on disk before it takes effect: the scenario is written before its run starts, the
verdict before its run is pruned. A suite that was killed can therefore resume. If a run has no
verdict, it is judged when its recording is complete, and otherwise recorded again from the same
scenario file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.chaos.generator import baseline, generate
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import RunReader
from linkflap.suite.failures import UNKNOWN, kinds_of
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import observed
from linkflap.suite.work import Finished, Task, Workers

BASELINE: Final = 0
"""The number of the run without faults."""
Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Suite:
    """A suite that is running."""

    folder: SuiteFolder
    works: Workers
    say: Say
    given: tuple[Path, ...] = ()
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
        plan = self.folder.plan
        part, of = plan.shard
        number = next(n for n in range(part, 1 << 31, of) if n not in self._begun)
        self.folder.write_scenario(number, self._made(number))
        self._begun.add(number)
        return number

    def _made(self, number: int) -> Scenario:
        plan = self.folder.plan
        if plan.given:
            return self.folder.given(number)
        if number == BASELINE:
            return baseline(plan.seed, plan.bounds)
        return generate(plan.seed, number, self.folder.coverage, plan.bounds, guided=plan.guided)

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
