"""Triage of the failures after the runs of a suite: replays each to measure its rate, shrinks it,
and reports it with a command. Results are kept in the folder of the failure.

failures/<name>/smallest.toml      the smallest scenario so far that fails
failures/<name>/report.json        the result, written at the end
failures/<name>/tries.jsonl        each replay: digest of the scenario, kinds, verdict, seconds
failures/<name>/runs/              run directories of replays in progress
failures/<name>/failed/<digest>/   the first run directory with this failure of a scenario that may
                                   become the result
failures/<name>/evidence/          that of the result, written at the end
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_whole
from linkflap.suite.failures import (
    SMALLEST,
    UNKNOWN,
    FailureReport,
    alike,
    by_kind,
    era_in,
    era_of,
    explained,
    kinds_of,
    paths_of,
    read,
    write_report,
)
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.observed import observed, struck
from linkflap.suite.shrink import OFTEN, Rate, Shrinker, Shrunk
from linkflap.suite.work import Finished, Task, Workers

EVIDENCE: Final = "evidence"
FAILED: Final = "failed"
_COUNTED_FROM = 1_000_000
"""Replays have numbers above this one, so that none equals the number of a run of the suite."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. `era` is that of its first anomaly of the kind of failure."""

    scenario: str
    kinds: tuple[str, ...]
    era: str = ""
    verdict: str
    seconds: float


def digest(scenario: Scenario) -> str:
    """A short digest of a scenario. After a kill, finished replays are found by it."""
    return hashlib.sha256(scenario_file.render(scenario).encode()).hexdigest()[:12]


@dataclass(slots=True, kw_only=True)
class Replays:
    """Replays scenarios of one failure (its kind and era) in `folder`, for at most `seconds`.
    Replays that an earlier session finished are not repeated."""

    folder: Path
    kind: str
    works: Workers
    seconds: float
    era: str = ""
    width: int = 2
    _began: float = field(default_factory=time.monotonic)
    _made: int = 0
    _tries: list[Replay] = field(default_factory=list)
    _left: dict[int, Replay] = field(default_factory=dict)
    _accepted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder / "runs", ignore_errors=True)  # left by a killed session
        (self.folder / "runs").mkdir(parents=True)
        path = self.folder / "tries.jsonl"
        try:
            content = untrusted_files.content(path) if os.path.lexists(path) else b""
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); remove it: its replays are repeated"
            ) from None
        for line in content.splitlines(keepends=True):
            # A torn line is replayed again: it is only one try.
            with contextlib.suppress(msgspec.DecodeError):
                self._tries.append(untrusted_files.decoded(with_current_kinds(line), Replay))
        if content and not content.endswith(b"\n"):
            write_whole(path, b"".join(msgspec.json.encode(one) + b"\n" for one in self._tries))
        self._left = {id(one): one for one in self._tries}

    def accept(self, scenario: Scenario) -> None:
        """Keeps the evidence of this scenario, of those accepted earlier and of those that an
        earlier session replayed, and deletes that of all others."""
        self._accepted.add(digest(scenario))
        kept = self._accepted | {one.scenario for one in self._left.values()}
        for path in (self.folder / FAILED).glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)

    def settle(self, scenario: Scenario) -> Path | None:
        """Makes the evidence of this scenario that of the failure, and deletes all other. Returns
        its run directory; None if the scenario never failed again."""
        found, evidence = self.folder / FAILED / digest(scenario), self.folder / EVIDENCE
        if found.exists():
            shutil.rmtree(evidence, ignore_errors=True)
            found.rename(evidence)
        shutil.rmtree(self.folder / FAILED, ignore_errors=True)
        return evidence if evidence.exists() else None

    def shrinks(self) -> None:
        """Starts the budget of time again: replays before shrinking do not count against it."""
        self._began = time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() - self._began >= self.seconds

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]:
        wanted = [(digest(made), made) for made in candidates]
        found: dict[str, list[Replay]] = {name: [] for name, _ in wanted}
        queue: list[Task] = []
        for name, made in wanted:
            found[name] += self._known(name, times)
            queue += [self._task(name, made) for _ in range(times - len(found[name]))]

        def done(finished: Finished) -> None:
            one = self._taken(finished)
            found[one.scenario].append(one)

        while queue or not self.works.idle:
            if interrupts.asked():
                raise KeyboardInterrupt
            if queue and self.works.room:
                self.works.start(queue.pop(0))
            self.works.step(more=bool(queue), done=done)
        return [
            Rate(
                failed=sum(self._failed(one) for one in found[name]),
                tries=len(found[name]),
            )
            for name, _ in wanted
        ]

    def _failed(self, one: Replay) -> bool:
        return self.kind in one.kinds and alike(self.era, one.era)

    def _known(self, name: str, times: int) -> list[Replay]:
        """Replays of this scenario from an earlier session, at most `times`. Each is used once."""
        known = [key for key, one in self._left.items() if one.scenario == name][:times]
        return [self._left.pop(key) for key in known]

    def _task(self, name: str, made: Scenario) -> Task:
        self._made += 1
        number = _COUNTED_FROM + self._made
        path = self.folder / "runs" / f"{number}-{name}.toml"
        write_whole(path, scenario_file.render(made).encode())
        return Task(number=number, scenario=path, folder=self.folder / "runs" / f"{number}")

    def _taken(self, finished: Finished) -> Replay:
        """Appends a replay to tries.jsonl. Keeps its run directory as evidence if it is the first
        one of its scenario that failed in the same way, and deletes it otherwise."""
        task, document = finished.task, finished.document
        kinds = kinds_of(document) if document is not None else ()
        verdict = str(document["verdict"]) if document is not None else "unknown"
        one = Replay(
            scenario=task.scenario.stem.partition("-")[2],
            kinds=kinds,
            era=era_of(document, self.kind) if document is not None else "",
            verdict=verdict,
            seconds=finished.seconds,
        )
        # Before the line of the try: a session that resumes does not repeat it.
        failed = self.folder / FAILED / one.scenario
        if self._failed(one) and not failed.exists():
            failed.parent.mkdir(exist_ok=True)
            task.folder.rename(failed)
        with (self.folder / "tries.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")
        shutil.rmtree(task.folder, ignore_errors=True)
        task.scenario.unlink(missing_ok=True)
        task.folder.with_name(f"{task.folder.name}.log").unlink(missing_ok=True)
        return one


CHOSEN: Final = "chosen"
"""The number of the run that is shrunk: a session that resumes does not choose again."""
NOT_SHRUNK: Final = f"{UNKNOWN}environment"
_LONGEST_NUMBER: Final = 100
CANDIDATES: Final = 3
"""How many runs with the same failure are replayed, if the first ones rarely fail again."""


def triage(folder: SuiteFolder, works: Workers, say: Callable[[str], None]) -> list[FailureReport]:
    """Reports every failure, and reuses the reports of earlier sessions. All runs of the suite must
    have a verdict."""
    return [
        report
        for kind, runs in by_kind(folder.results).items()
        if kind != NOT_SHRUNK
        for report in _each(folder, works, kind, runs, say)
    ]


def _each(
    folder: SuiteFolder,
    works: Workers,
    kind: str,
    runs: Sequence[RunResult],
    say: Callable[[str], None],
) -> Iterator[FailureReport]:
    """The failures of one kind, until each run is explained; only one in a suite that does not
    shrink."""
    paths = paths_of(folder, kind)
    for number, own in enumerate(paths if folder.plan.shrink_seconds else paths[:1]):
        if not runs:
            return
        if number:
            say(f"{kind}: not explained by that: {', '.join(str(run.number) for run in runs)}")
        report = read(own, kind) or _one(folder, works, own, kind, runs, say)
        mine = [run.number for run in explained(folder, runs, report)]
        report = msgspec.structs.replace(report, found=tuple(mine))
        write_report(own, report)
        yield report
        runs = [run for run in runs if run.number not in mine]
        if not report.reproduced:
            return


def _one(
    folder: SuiteFolder,
    works: Workers,
    own: Path,
    kind: str,
    runs: Sequence[RunResult],
    say: Callable[[str], None],
) -> FailureReport:
    plan, era = folder.plan, era_in(folder, runs[0], kind)
    runs = [run for run in runs if alike(era, era_in(folder, run, kind))]
    replays = Replays(
        folder=own,
        kind=kind,
        works=works,
        seconds=plan.shrink_seconds,
        era=era,
        width=max(2, plan.jobs),
    )
    smallest = own / SMALLEST
    first, replayed = _chosen(folder, own, kind, runs, replays, say)
    scenario, rate = folder.scenario(first.number), replayed
    if smallest.exists():  # an earlier session had begun to shrink it
        scenario = scenario_file.read(smallest, seed=0)
        (rate,) = replays([scenario], times=plan.replays)
    shrunk = Shrunk(scenario=scenario, rate=rate, steps=0)
    replays.accept(scenario)
    replays.shrinks()
    if rate.failed and plan.shrink_seconds:
        shrinker = Shrinker(
            fails=replays,
            accepted=lambda made: _accept(replays, smallest, made, kind, say),
            measures=plan.replays,
        )
        shrunk = shrinker.shrink(scenario, rate)
    _accept(replays, smallest, shrunk.scenario, kind, lambda _: None)
    evidence = replays.settle(shrunk.scenario)
    report = FailureReport(
        kind=kind,
        found=(first.number,),
        cause=first.cause or first.reason,
        original=str(folder.scenario_path(first.number)),
        replayed=str(replayed),
        faults=tuple(f"{fault.fault} on {fault.target}" for fault in shrunk.scenario.schedule),
        rate=str(shrunk.rate),
        steps=shrunk.steps,
        command=f"linkflap run {shlex.quote(str(smallest))} --runtime {plan.bounds.runtime}",
        without_last=str(shrunk.without_last) if shrunk.without_last else "",
        reproduced=shrunk.rate.failed > 0,
        mirror=shrunk.scenario.mirror.kind,
        era=era,
        struck=tuple(struck(observed(evidence).cells)) if evidence else (),
    )
    say(f"{kind}: {len(shrunk.scenario.schedule)} faults, fails in {shrunk.rate}: {report.command}")
    return report


def _chosen(
    folder: SuiteFolder,
    own: Path,
    kind: str,
    runs: Sequence[RunResult],
    replays: Replays,
    say: Callable[[str], None],
) -> tuple[RunResult, Rate]:
    """The run that is shrunk, and its rate: that of an earlier session, or the one that fails
    often. Older versions, which did not write CHOSEN, shrunk the run with the fewest faults."""
    kept = own / CHOSEN
    if kept.exists():
        number = -1
        with suppress(OSError, ValueError):
            number = int(untrusted_files.content(kept, most=_LONGEST_NUMBER))
        run = next((run for run in runs if run.number == number), runs[0])
    elif (own / SMALLEST).exists():
        run = min(runs, key=lambda run: len(folder.scenario(run.number).schedule))
    else:
        run, rate = _fails_often(folder, kind, runs, replays, say)
        write_whole(kept, f"{run.number}\n".encode())
        return run, rate
    (rate,) = replays([folder.scenario(run.number)], times=folder.plan.replays)
    return run, rate


def _fails_often(
    folder: SuiteFolder,
    kind: str,
    runs: Sequence[RunResult],
    replays: Replays,
    say: Callable[[str], None],
) -> tuple[RunResult, Rate]:
    """Replays the runs with the fewest faults, one after another, until one of them fails again in
    half of its replays or more. Returns that run, or the one that failed most often. Other runs are
    only replayed within the time that shrinking may take."""
    scenarios = {run.number: folder.scenario(run.number) for run in runs}
    rates: list[tuple[RunResult, Rate]] = []
    for run in sorted(runs, key=lambda run: len(scenarios[run.number].schedule))[:CANDIDATES]:
        scenario, times = scenarios[run.number], folder.plan.replays
        say(f"{kind}: replaying run {run.number} ({len(scenario.schedule)} faults) {times} times")
        (rate,) = replays([scenario], times=times)
        say(f"{kind}: failed like that in {rate}")
        rates.append((run, rate))
        if rate.share >= OFTEN or replays.spent:
            break
    return max(rates, key=lambda replayed: replayed[1].share)


def _accept(
    replays: Replays, path: Path, scenario: Scenario, kind: str, say: Callable[[str], None]
) -> None:
    write_whole(path, scenario_file.render(scenario).encode())
    replays.accept(scenario)
    say(f"{kind}: still with {', '.join(fault.fault for fault in scenario.schedule)}")
