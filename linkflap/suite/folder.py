"""The suite directory. If its suite is killed, at most the last line of results.jsonl is torn, and
`--resume` continues.

suite.json                 Plan: its options, written before it starts and never changed
given.toml                 the scenario that every run repeats, if the user gave one
cases/                     the results of the cases that a suite plays too, as `linkflap case run`
                           stores them
results.jsonl              Result, one line for each verdict; fsync after each
scenarios/0007.toml        the scenario of run 7; written before the run starts, never changed
runs/0007/                 the run directory of run 7 until its verdict; kept if the run failed
passed/0007/               of a valid or pruned run: only verdict.json
failures/<name>/           of each failure: smallest.toml, tries.jsonl
rounds/0007.json           what the clusters of run 7 took, and why they were not used again
clusters/, clusters.log    the clusters that are kept, and what their processes print
summary.md, suite.html     the results, written whenever the suite ends
lock                       locked by the running suite
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypedDict, cast

import msgspec
from msgspec import Meta

from linkflap.chaos import scenario_file
from linkflap.chaos.cases import case_named
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Case
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.generator.coverage import check_pattern
from linkflap.harness.machine import untrusted_files
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Seconds
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import with_current_kinds, write_document, write_whole
from linkflap.harness.runtimes.kraft.configuration import refuse_comma
from linkflap.harness.version import VERSION
from linkflap.suite.observed import STATES

SUITE: Final = "suite.json"
RESULTS: Final = "results.jsonl"
GIVEN: Final = "given.toml"
CASES: Final = "cases"
_WRITTEN_BELOW: Final = 3
"""How deep a suite changes its directory: failures/<name>/<file>. Below are run directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of one run.

    `kinds` are its anomalies that were not allowed, as check:kind; `cause` is their cause in one
    sentence. `cells` are what it exercised (`chaos.generator.coverage`), and `missed` the triggers
    that never came true. `again` counts repeated recordings after failures of the environment.
    """

    number: Count
    verdict: str
    reason: str = ""
    cause: str = ""
    kinds: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds: Seconds = 0.0
    again: Count = 0
    ended: Seconds = 0.0
    """When the verdict was known: seconds that the suite had worked, earlier sessions included."""

    @property
    def failed(self) -> bool:
        return self.verdict != "valid"


class _Anomaly(TypedDict):
    check: str
    kind: str
    cluster: str
    topic: str
    partition: int
    offset: int
    allowed: bool
    evidence: dict[str, Any]


class _Era(TypedDict):
    cluster: str
    topic: str
    partition: int
    start: int
    end: int | None
    origin: str
    truncated: bool


class _RunVerdict(TypedDict, total=False):
    anomalies: list[_Anomaly]
    eras: list[_Era]


class SuiteFolder:
    """Reads and writes one suite directory. Not thread-safe."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self._whole, self._torn = 0, False
        self.results: list[RunResult] = list(self._read())

    @classmethod
    def create(cls, root: Path, plan: Plan) -> SuiteFolder:
        """A new suite directory. Raises InputError if `root` exists, or has a comma."""
        if os.path.lexists(root):
            raise InputError(
                f"{root} exists already; name a new folder, or resume its suite: linkflap suite "
                f"--resume {shlex.quote(str(root))}"
            )
        refuse_comma(root)
        root.mkdir(parents=True)
        for name in ("scenarios", "runs", "passed", "failures"):
            (root / name).mkdir()
        if plan.given:
            (root / GIVEN).write_text(plan.given)
        write_document(root / SUITE, plan)
        return cls(root, plan)

    @classmethod
    def open(cls, root: Path) -> SuiteFolder:
        """An existing suite directory. Raises InputError, with the reason, if it cannot be
        resumed."""
        try:
            content = untrusted_files.content(root / SUITE)
        except OSError:
            raise InputError(
                f"{root} is not a suite directory: it has no readable {SUITE}; give the folder "
                "that linkflap suite printed"
            ) from None
        try:
            plan = untrusted_files.decoded(content, Plan)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{root / SUITE} cannot be read ({error}): another version of linkflap wrote it, "
                "or it is damaged; begin a new suite"
            ) from None
        if plan.format != FORMAT:
            raise InputError(
                f"{root} has format {plan.format}, but this linkflap ({VERSION}) resumes format "
                f"{FORMAT}; use the version of linkflap that began the suite"
            )
        bounds, (part, of) = plan.bounds, plan.shard
        if not (
            part < of
            and bounds.topologies
            and bounds.kafka
            and set(bounds.mirrors) <= MIRRORS.keys()
        ):
            raise InputError(
                f"{root / SUITE} has a shard, topologies, mirrors or a Kafka that no suite has; "
                "begin a new suite"
            )
        folder = cls(root, plan)
        for path, what in untrusted_files.special_entries(root):
            if len(Path(path).parts) <= _WRITTEN_BELOW:
                raise InputError(
                    f"{root / path} {what}, and a suite writes, moves and deletes there; remove it"
                )
        return folder

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the directory against other processes of linkflap suite. Raises InputError if one
        of them holds the lock."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            lock = os.open(self.root / "lock", flags, 0o666)
        except OSError as error:
            raise InputError(
                f"{self.root}/lock cannot be opened ({error.strerror}); remove it"
            ) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another linkflap suite is working on {self.root}; wait until it ends"
                ) from None
            yield
        finally:
            os.close(lock)

    @property
    def coverage(self) -> Coverage:
        """The coverage of all runs so far and of the suites before this one (`--after`)."""
        coverage = Coverage(hits=self.plan.before)
        for result in self.results:
            coverage = coverage.with_run(result.cells)
        return coverage

    def scenario_path(self, number: int) -> Path:
        return self.root / "scenarios" / f"{number:04d}.toml"

    def run_path(self, number: int) -> Path:
        return self.root / "runs" / f"{number:04d}"

    def verdict(self, number: int) -> Mapping[str, Any] | None:
        """The anomalies and eras in the verdict.json of a run, also if the run was pruned; None if
        there is none that can be read."""
        for path in (self.run_path(number), self.root / "passed" / f"{number:04d}"):
            with suppress(OSError, msgspec.DecodeError):
                content = with_current_kinds(untrusted_files.content(path / "verdict.json"))
                return cast(Mapping[str, Any], untrusted_files.decoded(content, _RunVerdict))
        return None

    def numbers(self) -> list[int]:
        """The numbers of the runs that have a scenario file, in order."""
        return sorted(
            int(path.stem)
            for path in (self.root / "scenarios").glob("*.toml")
            if path.stem.isdecimal()
        )

    def write_scenario(self, number: int, scenario: Scenario) -> Path:
        """Writes the scenario of a run. Call it before the run starts: a resumed suite records
        the same scenario."""
        path = self.scenario_path(number)
        write_whole(path, scenario_file.render(scenario).encode())
        return path

    def scenario(self, number: int) -> Scenario:
        path = self.scenario_path(number)
        try:
            untrusted_files.opened(path).close()  # a FIFO would be waited for
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); put the scenario of run {number} there"
            ) from None
        return scenario_file.read(path, seed=0)

    def given(self, number: int) -> Scenario:
        """The scenario that the user gave, with the seed of run `number`."""
        return scenario_file.read(
            self.root / GIVEN, seed=(self.plan.seed + number) % (1 << 32), chosen=True
        )

    def append(self, result: RunResult) -> None:
        """Adds a result, synced to disk, in place of a torn line."""
        with (self.root / RESULTS).open("ab") as file:
            if self._torn:
                file.truncate(self._whole)
                self._torn = False
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.results.append(result)

    def prune(self, number: int) -> None:
        """Deletes the run directory, and keeps verdict.json. The scenario file and the line of
        results.jsonl stay as they are."""
        run, kept = self.run_path(number), self.root / "passed" / f"{number:04d}"
        kept.mkdir(exist_ok=True)
        if (run / "verdict.json").exists():
            (run / "verdict.json").replace(kept / "verdict.json")
        shutil.rmtree(run, ignore_errors=True)

    @property
    def kept(self) -> Sequence[int]:
        """The numbers of the runs whose run directories still exist."""
        return sorted(
            int(path.name) for path in (self.root / "runs").glob("*") if path.name.isdecimal()
        )

    def _read(self) -> Iterator[RunResult]:
        """The lines of the results file, without a torn last one: a suite that was killed left it,
        or one that runs is writing it."""
        path = self.root / RESULTS
        if not os.path.lexists(path):
            return
        try:
            with untrusted_files.opened(path) as file:
                yield from self._decoded(path, file)
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); put the suite's results there"
            ) from None

    def _decoded(self, path: Path, file: BinaryIO) -> Iterator[RunResult]:
        decoder = msgspec.json.Decoder(RunResult)
        for line in untrusted_files.lines(file):
            if not line.endswith(b"\n") and len(line) < untrusted_files.LONGEST_LINE:
                self._torn = True
                return
            try:
                result = untrusted_files.decoded(with_current_kinds(line), decoder)
                Verdict(result.verdict)
            except ValueError as error:
                raise InputError(
                    f"{path} has a line that cannot be read ({error}); remove that line and "
                    "resume: its run is judged again"
                ) from None
            yield result
            self._whole += len(line)


FORMAT: Final = 1
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Few = Annotated[int, Meta(ge=0, le=1000)]
RUN_MEBIBYTES: Final = 180
"""MiB of disk for one run directory while it is recorded and judged. The printed bound on disk
space is computed from it. Measured: of 127 generated runs half took 8 MiB or less, nine in ten 43,
and the largest 175."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The results of an earlier suite: runs by verdict, and how many cells of the coverage it hit.
    `new` counts the cells that no earlier suite had hit."""

    name: str
    linkflap: str
    verdicts: Mapping[str, int]
    per_hour: Seconds
    cells: Count
    new: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a suite.

    A suite records generated runs for `seconds`, at most `runs` of them (0: no limit). It then
    shrinks each new failure for `shrink_seconds`, at most `alike` failures of one kind.
    `until_fail` stops recording at the first invalid run. `shard` (k, n) selects the runs whose
    number modulo n is k. `fresh`: each run has new clusters. `keep` limits the failed runs that
    are kept in full.

    `given` is the text of a scenario file: each run repeats this scenario with another seed, and
    none is generated. `reach` has patterns of cells (`chaos.generator.coverage`), or of parts of
    cells; some run must hit each of them. A merged suite has the numbers of its shards in `merged`,
    and in `shards` how many there should be. `nights` are earlier suites, and `before` is their
    coverage: how many of their runs hit each cell. `cases` are the names of the cases that are
    played before the runs.
    """

    name: str
    seed: int
    seconds: Seconds
    runs: Count = 0
    jobs: Few = 2
    bounds: GeneratorBounds = field(default_factory=GeneratorBounds)
    shard: tuple[Count, Count] = (0, 1)
    guided: bool = True
    fresh: bool = False
    until_fail: bool = False
    keep: Count = 20
    replays: Few = 3
    shrink_seconds: Seconds = 0.0
    alike: Few = 3
    given: str = ""
    reach: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    merged: tuple[Count, ...] = ()
    shards: Count = 0
    before: Mapping[str, Count] = field(default_factory=dict)
    nights: tuple[Night, ...] = ()
    format: int = FORMAT
    linkflap: str = ""

    def check(self) -> None:
        """Raises InputError if the options contradict each other or allow no run."""
        part, of = self.shard
        if not 0 <= part < of:
            raise InputError(
                f"--shard {part + 1}/{of} is not a shard; give one from 1/{of} to {of}/{of}"
            )
        if self.jobs < 1 or self.seconds <= 0:
            raise InputError(
                "a suite needs at least one job and some time; give --jobs 1 or more, and --for 60 "
                "or more"
            )
        self.bounds.check()
        for wanted in self.reach:
            check_pattern(wanted, (*STATES, *self.bounds.mirrors))
        if not self.given:
            # Raises InputError if no scenario can be drawn: before the baseline, and not after it.
            generate(self.seed, 1, Coverage(), self.bounds, guided=False)

    @property
    def played_cases(self) -> list[tuple[Case, Variant]]:
        """The cases of this shard, each with the first Kafka of the bounds and the case's own first
        client and transaction protocol. Raises InputError for a case that does not exist."""
        part, of = self.shard
        return [
            (
                each,
                Variant(
                    kafka=self.bounds.kafka[0],
                    client=each.clients[0],
                    transactions=each.protocols[0],
                ),
            )
            for each in map(case_named, self.cases[part::of])
        ]

    @property
    def disk(self) -> int:
        """The most bytes that the suite directory may take: for runs being recorded, runs that
        wait for a verdict, and failed runs."""
        return (2 * self.jobs + self.batch + self.keep) * RUN_MEBIBYTES << 20

    @property
    def batch(self) -> int:
        """How many runs may wait for a Spark job. No run is started while so many wait."""
        return 8 * self.jobs


def usual_jobs() -> int:
    """The default of --jobs: the number of processors."""
    return max(1, os.cpu_count() or 1)


def shard(text: str) -> tuple[int, int]:
    """`2/4` as (1, 4). Raises InputError."""
    part, slash, of = text.partition("/")
    if not slash or not part.isdecimal() or not of.isdecimal() or not 1 <= int(part) <= int(of):
        raise InputError(
            f"--shard {text!r} is not of the form K/N with K from 1 to N, for example 2/4"
        )
    return int(part) - 1, int(of)


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "": 1}


def seconds(text: str, option: str = "--for", *, most: int = 14 * 86400) -> float:
    """`90`, `30s`, `20m` or `8h`, given as an option, as seconds. Raises InputError."""
    number = text.rstrip("smh")
    unit = text[len(number) :]
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(
            f"{option} {text!r} is not a time; give seconds, or a number with s, m or h, for "
            "example 8h"
        ) from None
    if not 1 <= value <= most:
        raise InputError(
            f"{option} {text} is out of range; give a time from 1 second to {most // 3600} hours"
        )
    return value
