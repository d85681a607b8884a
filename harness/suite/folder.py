"""The suite directory. Whenever its suite is killed, at most its last line is torn, and `--resume`
goes on from there.

suite.json                 Plan
given.toml                 the scenario, where it is one that is run again and again
results.jsonl              Result, one line for each verdict, appended and synced
scenarios/0007.toml        what run 7 is; written before it is started, and never changed
runs/0007/                 its run directory while there is no verdict; of a failed one, for good
passed/0007/               of a run that passed: verdict.json alone
failures/<name>/           of each kind of failure: smallest.toml, tries.jsonl
summary.md, suite.html     what it found, written at each end
lock                       held by the suite that works on it
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.chaos.generator import Coverage
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_whole
from linkflap.harness.suite.plan import FORMAT, Plan
from linkflap.harness.version import VERSION

SUITE: Final = "suite.json"
RESULTS: Final = "results.jsonl"
GIVEN: Final = "given.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one run.

    `kinds` are its anomalies that nothing allows, as check:kind, and `cause` what they follow from;
    `cells` what it exercised, `missed` triggers that never came true; `again` how often it was
    recorded anew because the environment had failed.
    """

    number: int
    verdict: str
    reason: str = ""
    cause: str = ""
    kinds: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    again: int = 0
    ended: float = 0.0
    """Seconds of the suite's own time at which the verdict was known."""

    @property
    def failed(self) -> bool:
        return self.verdict != "valid"


class SuiteFolder:
    """Reads and writes one suite directory. Not safe from several threads."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.results: list[Result] = list(_results(root / RESULTS))

    @classmethod
    def create(cls, root: Path, plan: Plan) -> SuiteFolder:
        """Raises InputError where there is something already."""
        if os.path.lexists(root):
            raise InputError(
                f"{root} exists already; name a folder that does not, or go on with it: linkflap "
                f"suite --resume {root}"
            )
        root.mkdir(parents=True)
        for name in ("scenarios", "runs", "passed", "failures"):
            (root / name).mkdir()
        if plan.given:
            (root / GIVEN).write_text(plan.given)
        write_whole(root / SUITE, msgspec.json.format(msgspec.json.encode(plan), indent=1))
        return cls(root, plan)

    @classmethod
    def open(cls, root: Path) -> SuiteFolder:
        """One that was begun before. Raises InputError where it cannot be resumed, and says why."""
        try:
            content = (root / SUITE).read_bytes()
        except OSError:
            raise InputError(
                f"{root} is no suite directory: it has no readable {SUITE}; give the folder that "
                "linkflap suite named"
            ) from None
        try:
            plan = msgspec.json.decode(content, type=Plan)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{root / SUITE} cannot be read ({error}); it is of another linkflap, or damaged"
            ) from None
        if plan.format != FORMAT:
            raise InputError(
                f"{root} has format {plan.format}, this linkflap ({VERSION}) goes on with format "
                f"{FORMAT}; use its own linkflap"
            )
        return cls(root, plan)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While this lasts no other suite works on the directory. Raises InputError when one
        does."""
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another linkflap suite works on {self.root}; wait until it has ended"
                ) from None
            yield

    @property
    def coverage(self) -> Coverage:
        """Of all runs so far, and of the suites before this one."""
        coverage = Coverage(hits=self.plan.before)
        for result in self.results:
            coverage = coverage.with_run(result.cells)
        return coverage

    def scenario_path(self, number: int) -> Path:
        return self.root / "scenarios" / f"{number:04d}.toml"

    def run_path(self, number: int) -> Path:
        return self.root / "runs" / f"{number:04d}"

    def numbers(self) -> list[int]:
        """The runs that were decided on, in order."""
        return sorted(
            int(path.stem)
            for path in (self.root / "scenarios").glob("*.toml")
            if path.stem.isdecimal()
        )

    def write_scenario(self, number: int, scenario: Scenario) -> Path:
        """Before the run is started: from then on it is decided what run it is."""
        path = self.scenario_path(number)
        write_whole(path, scenario_file.render(scenario).encode())
        return path

    def scenario(self, number: int) -> Scenario:
        return scenario_file.read(self.scenario_path(number), seed=0)

    def given(self, number: int) -> Scenario:
        """The scenario that is run again and again, with the seed of one of these runs."""
        return scenario_file.read(
            self.root / GIVEN, seed=(self.plan.seed + number) % (1 << 32), chosen=True
        )

    def append(self, result: Result) -> None:
        """Adds a verdict, for good."""
        with (self.root / RESULTS).open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.results.append(result)

    def prune(self, number: int) -> None:
        """Leaves of a run its scenario, its verdict and what it exercised (in the results)."""
        run, kept = self.run_path(number), self.root / "passed" / f"{number:04d}"
        kept.mkdir(exist_ok=True)
        if (run / "verdict.json").exists():
            (run / "verdict.json").replace(kept / "verdict.json")
        shutil.rmtree(run, ignore_errors=True)

    @property
    def kept(self) -> Sequence[int]:
        """Runs that are there in full."""
        return sorted(
            int(path.name) for path in (self.root / "runs").glob("*") if path.name.isdecimal()
        )


def _results(path: Path) -> Iterator[Result]:
    """The lines of a results file; one that was not finished when its suite was killed is taken
    away."""
    if not path.exists():
        return
    decoder, whole = msgspec.json.Decoder(Result), 0
    content = path.read_bytes()
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            os.truncate(path, whole)
            return
        try:
            yield decoder.decode(with_current_kinds(line))
        except msgspec.DecodeError as error:
            raise InputError(
                f"{path} has a line that cannot be read ({error}); remove that line, and its run "
                "is judged again"
            ) from None
        whole += len(line)
