"""Feeds run directories that were changed at random to all that reads them.

    python -m tests.fuzzing --count 1000000             what reads: logs, rows, documents
    python -m tests.fuzzing --count 5000 judging        all checks, the verdict and the reports too
    python -m tests.fuzzing --count 20000 suites        suite directories: results, resuming, merge
    python -m tests.fuzzing --count 20000 copied        Kafka log directories, recorded and planned
    python -m tests.fuzzing --count 5000 shapes         rows and batches by hypothesis: well formed,
                                                        and of extreme values (tests.extremes)

What comes out is a verdict or a LinkflapError, which is one sentence: no other exception, no wait
beyond seconds, and at most 2 GiB of memory. The changes are a function of the seed and the number:
`--seed S --first N --count 1` does one again. The run directories are small faithful stories
(`tests.faithful`), or those that are given with `--runs`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, cast

import click
import hypothesis
import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from linkflap.chaos import scenario_file
from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.cli import suite, suite_work
from linkflap.harness.capture import folders
from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.model.errors import InputError, LinkflapError
from linkflap.harness.model.topology import LinkSpec
from linkflap.judging import page
from linkflap.report import junit
from linkflap.report.table import show
from linkflap.spark_verify.checks.finding_rows import FINDINGS, FindingRow, damaged, parsed
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.pieces import KEY, PARTS, Piece, bundles, history_rows, pieces
from linkflap.spark_verify.read.plan import UNFORESEEN, RunPlan, plan
from linkflap.spark_verify.spark.job import combiner, partition_judge, with_needed_records
from linkflap.spark_verify.verdict.judge import Judgement, judge
from linkflap.spark_verify.verify import checks_of, keep, with_inputs
from linkflap.suite import regression, summary
from linkflap.suite.failures import REPORT, SMALLEST, FailureReport
from linkflap.suite.folder import Plan, RunResult, SuiteFolder
from linkflap.suite.triage import CHOSEN, triage
from linkflap.suite.work import Finished, Suite, Task, Workers
from tests import extremes
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.random_changes import Directory, change_of, seal

What = Literal["reading", "judging", "suites", "copied", "alone"]
WITHIN: Final = 30
"""Processor seconds for one input; ten times as many of the clock, for what waits."""
MOST_MEMORY: Final = 2 << 30


class TooSlow(BaseException):
    """One input took too long."""


# --- what reads ---------------------------------------------------------------------------------


def read_changed(root: Path, changed: Set[str]) -> RunPlan:
    """Plans a run, and reads the logs and rows of history that were changed, as Spark's tasks
    do."""
    planned = plan(root)
    parts = {name.split("/")[0] for name in changed}
    every = [
        Piece(
            replicas=[
                c for c in piece.replicas if changed & {os.path.relpath(p, root) for p in c.paths}
            ],
            parts=[part for part in piece.parts if part.part in parts],
        )
        for piece in pieces([planned])
    ]
    for piece in every:
        for _ in bundles(piece):
            pass
    return planned


def read_one(directory: Directory, planned: RunPlan, rng: random.Random) -> str:
    """Changes one file, and reads it alone: a log, rows of a history, or a document. What was
    done."""
    names = [name for name in directory.files if name != "manifest.json"]
    name = rng.choice(names)
    path = directory.root / name
    directory.touched.add(name)
    data = directory.files[name]
    path.write_bytes(change_of(name)(rng, data))
    part = name.split("/")[0]
    if part in PARTS:
        for _ in history_rows(directory.root, part):
            pass
    elif name.endswith(".log"):
        for _ in batch_rows([c for c in planned.replicas if str(path) in c.paths]):
            pass
    else:
        plan(directory.root)
    return name


def judged(root: Path) -> Judgement:
    """Does the work of `verify` in this process and without Spark."""
    checks = with_inputs(root, checks_of(root))
    planned = with_needed_records(plan(root), checks)
    groups: dict[tuple[Any, ...], list[pa.RecordBatch]] = defaultdict(list)
    for piece in pieces([planned]):
        for batch in bundles(piece):
            for row in range(len(batch)):
                key = tuple(batch[name][row].as_py() for name in KEY)
                groups[key].append(batch.slice(row, 1))
    kernels = partition_judge([planned], checks)
    rows = [damaged(planned.run, d.path, d.reason) for d in planned.damage]
    found: dict[tuple[Any, ...], list[pa.RecordBatch]] = defaultdict(list)
    for key, batches in groups.items():
        for batch in kernels(tuple(pa.scalar(part) for part in key), iter(batches)):
            for row in range(len(batch)):
                one = batch.slice(row, 1)
                run, check, together, finding = (
                    one[n][0].as_py() for n in ("run", "check", "together", "finding")
                )
                found[run, check if finding == "partial" else "", together].append(one)
    combine = combiner(checks)
    for key, batches in found.items():
        for batch in combine(tuple(pa.scalar(part) for part in key), iter(batches)):
            rows += [parsed(row) for row in pa.Table.from_batches([batch], FINDINGS).to_pylist()]
    return _kept(judge(root, rows, checks_of(root), planned=planned), rows, root)


SHARDS: Final = ("0-2", "1-2")


def suited(root: Path) -> None:
    """Reads the shards of a suite like `suite --resume`, `--after` and `suite merge`; a replay is a
    run without a verdict."""
    for name in SHARDS:
        with contextlib.suppress(InputError):
            folder = suite.resumed_plan(root / name, allow_commands=False)
            with folder.held():
                Suite(folder=folder, works=cast(Workers, NoWorkers()), say=_nothing)._left_over()
                if folder.plan.replays < 100:
                    triage(folder, cast(Workers, NoWorkers()), _nothing)
                suite_work._said(folder, suite_work._came_to(folder), root / "junit.xml", "")
                summary.following(Plan(name="nightly", seed=7, seconds=60), folder)
    merged = root.with_name(root.name + "-merged")
    shutil.rmtree(merged, ignore_errors=True)
    suite_work.merge([root / name for name in SHARDS], merged, root / "junit.xml")


class NoWorkers:
    """Record nothing: every run ends at once, without a verdict."""

    def __init__(self) -> None:
        self._queue: list[Task] = []
        self.start = self._queue.append

    @property
    def idle(self) -> bool:
        return not self._queue

    room = True

    def step(self, *, more: object, done: Callable[[Finished], None]) -> None:
        if self._queue:
            task = self._queue.pop()
            done(Finished(task=task, document=None, error="", seconds=1.0, again=0))


def _nothing(text: str) -> None:
    pass


def copied(root: Path) -> RunPlan:
    """Reads two copied log directories like `verify --logs`, up to the checks."""
    run = root.with_name(root.name + "-run")
    shutil.rmtree(run, ignore_errors=True)
    asked = LogsRequest(
        logs={name: root / name for name in "AB"},
        links=[LinkSpec(source="A", destination="B")],
        promotions={},
    )
    folders.record(run, asked, "linkflap verify --logs")
    planned = plan(run)
    for piece in pieces([planned]):
        for _ in bundles(piece):
            pass
    return planned


def _kept(judgement: Judgement, rows: Sequence[FindingRow], root: Path) -> Judgement:
    out = root.with_name(root.name + "-verdict")
    kept = keep(judgement, rows, out)
    page.write(kept)
    junit.write(out / "junit.xml", [kept.document])
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        show(kept.document, root, stream=nowhere)
    return kept


@dataclass(slots=True)
class Outcome:
    """The results of some inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def take(self, directory: Directory, what: What, rng: random.Random | None) -> None:
        """Reads or judges what was changed; `alone`: changes one file, and reads that."""
        match what:
            case "alone":
                assert directory.planned is not None
                assert rng is not None
                self.counts["alone"] += 1
                read_one(directory, directory.planned, rng)
            case "judging":
                result = judged(directory.root)
                self.counts[result.verdict.value] += 1
                self.crashed.update(
                    f"{check.name}: {check.reason}"[:150]
                    for check in result.judged.checks
                    if "Error" in check.reason
                )
            case "suites":
                with (
                    open(os.devnull, "w", encoding="utf-8") as nowhere,
                    contextlib.redirect_stdout(nowhere),
                    contextlib.redirect_stderr(nowhere),
                ):
                    suited(directory.root)
                self.counts["merged"] += 1
            case "copied":
                self.counts["damaged" if copied(directory.root).damage else "read"] += 1
            case _:
                found = read_changed(directory.root, directory.touched)
                self.counts["damaged" if found.damage else "read"] += 1


def once(
    directory: Directory, seed: int, number: int, outcome: Outcome, what: What = "reading"
) -> None:
    """One input: changes a directory, reads or judges it, and makes it good again."""
    rng = random.Random(f"{seed}/{number}")
    if what == "reading" and directory.planned is not None and number % 50:
        _tried(directory, outcome, f"{seed}/{number}", "alone", rng)
    else:
        did = directory.change(rng)
        _tried(directory, outcome, f"{seed}/{number} {did}", what)


def _tried(
    directory: Directory, outcome: Outcome, name: str, what: What, rng: random.Random | None = None
) -> None:
    """Reads or judges what was changed, and makes it good again."""
    signal.setitimer(signal.ITIMER_PROF, WITHIN)
    signal.setitimer(signal.ITIMER_REAL, 10 * WITHIN)
    try:
        outcome.take(directory, what, rng)
    except LinkflapError as error:
        outcome.counts["refused"] += 1
        if not isinstance(error, InputError) or UNFORESEEN in str(error):
            outcome.failures.append(f"{name}: {type(error).__name__}: {error}")
    except (Exception, TooSlow) as error:  # noqa: BLE001  (what this program looks for)
        trace = "".join(traceback.format_exception(error)[-4:])
        outcome.failures.append(f"{name}:\n{trace[-1800:]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        directory.restore()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if peak > MOST_MEMORY:
        outcome.failures.append(f"{name}: {peak >> 20} MiB")
        raise SystemExit("\n".join(outcome.failures))


def fuzz(
    roots: Sequence[Path], *, seed: int, numbers: Sequence[int], what: What = "reading",
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:  # fmt: skip
    """All inputs of these numbers."""
    outcome, directories = Outcome(), [Directory.of(root) for root in roots]
    for directory in directories if what == "reading" else ():
        directory.gone("manifest.json")
        directory.planned = plan(directory.root)
        directory.restore()
    _watch()
    began = time.monotonic()
    for done, number in enumerate(numbers, start=1):
        directory = directories[number % len(directories)]
        before = len(outcome.failures)
        once(directory, seed, number, outcome, what)
        for text in outcome.failures[before:]:
            say(text)
        if done % 1000 == 0 or (what != "reading" and done % 50 == 0):
            rate = done / (time.monotonic() - began)
            say(f"{done}: {rate:.0f}/s, {dict(outcome.counts)}, {len(outcome.failures)} failures")
    return outcome


def shapes(
    roots: Sequence[Path], *, seed: int, count: int, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """As many inputs that hypothesis makes (`tests.extremes`): one file of a run, which is read."""
    outcome, directories = Outcome(), [Directory.of(root) for root in roots]
    _watch()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck), print_blob=False,
    )  # fmt: skip
    @hypothesis.given(st.data())
    def one(data: st.DataObject) -> None:
        directory = data.draw(st.sampled_from(directories))
        run = json.loads(directory.files["run.json"])
        times = (
            run["started"],
            run["started"] + 1,
            (run["started"] + run["ended"]) // 2,
            run["ended"],
        )
        endings = (".log", ".jsonl", "run.json", "bounds.json")
        name = data.draw(st.sampled_from([n for n in directory.files if n.endswith(endings)]))
        made = data.draw(extremes.changes(name, directory.files[name], times))
        directory.touched.add(name)
        (directory.root / name).write_bytes(made)
        directory.touched.add("manifest.json")
        seal(directory.root)
        what: What = "judging" if data.draw(st.integers(0, 19)) == 0 else "reading"
        _tried(directory, outcome, f"{seed} {name} {made[-300:]!r}", what)
        done = sum(outcome.counts.values())
        if done % 500 == 0:
            say(f"{done}: {dict(outcome.counts)}, {len(outcome.failures)} failures")

    one()
    return outcome


def _watch() -> None:
    for each in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(each, _too_slow)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def stories(folder: Path, seeds: Sequence[int] = (8, 17, 26, 44, 45)) -> list[Path]:
    """Small faithful run directories."""
    return [story(spec(seed)).write(folder / str(seed)) for seed in seeds]


def shards(folder: Path) -> list[Path]:
    """Two shards of a suite, of a soak, and of a regression, with failures and reports of them."""
    return [_shards(folder / name, name) for name in ("nightly", "soak", "regression", "given")]


def _shards(root: Path, name: str) -> Path:
    given = scenario_file.render(baseline(7, GeneratorBounds())) if name == "given" else ""
    for shard in (0, 1):
        plan = Plan(
            name="file" if given else name, seed=7, seconds=60, jobs=2, shard=(shard, 2),
            given=given, replays=1, shrink_seconds=1.0, reach=("commit-in-flight",), alike=2,
        )  # fmt: skip
        made = SuiteFolder.create(root / SHARDS[shard], plan)
        for number in (shard, shard + 2, shard + 4):
            failed = number == shard + 2
            made.write_scenario(number, baseline(7, GeneratorBounds()))
            made.run_path(number).mkdir()
            (made.run_path(number) / "verdict.json").write_text(json.dumps(_VERDICT))
            made.append(
                RunResult(
                    number=number, verdict="invalid" if failed else "valid",
                    kinds=("lost-write:lost-write",) if failed else (),
                    cells=("strike/link-cut/plain", "on/shadow/A->B", "clients/shadow/librdkafka"),
                    missed=("cut: A->B behind",), outcomes={"link-cut": 1}, seconds=3.0, ended=9.0,
                )
            )  # fmt: skip
            if not failed:
                made.prune(number)
        _failure(made, shard + 2)
        if name == "soak":
            (made.root / "rounds").mkdir()
            size = {"round": 1, "age": 3.0, "disk": 1 << 20, "memory": 1 << 20}
            (made.root / "rounds" / f"{shard:04d}.json").write_text(json.dumps(size))
        if name == "regression":
            regression.write_entries(made)
    return root


_VERDICT: Final = {
    "verdict": "invalid", "reason": "lost", "cause": "", "causes": [],
    "checks": [
        {"name": "lost-write", "verdict": "invalid", "reason": "", "kinds": {"lost-write": 1}}
    ],
    "anomalies": [
        {"check": "lost-write", "kind": "lost-write", "cluster": "A", "topic": "A.t",
         "partition": 0, "offset": 3, "allowed": False, "evidence": {}}
    ],
    "eras": [
        {"cluster": "A", "topic": "A.t", "partition": 0, "start": 0, "end": None,
         "origin": "native", "truncated": False}
    ],
}  # fmt: skip


def _failure(made: SuiteFolder, number: int) -> None:
    own = made.root / "failures" / "lost-write-lost-write"
    own.mkdir()
    report = FailureReport(
        kind="lost-write:lost-write", found=(number,), reproduced=True, original="", era="native",
        replayed="1 of 1", faults=("link-cut on A->B",), rate="1 of 1", steps=1, command="",
        mirror="shadow",
    )  # fmt: skip
    if number % 2:  # the other shard's was being shrunk when it was killed
        (own / REPORT).write_bytes(msgspec.json.encode(report))
    (own / SMALLEST).write_text(scenario_file.render(made.scenario(number)))
    (own / CHOSEN).write_text(f"{number}\n")
    row = {"scenario": "0" * 12, "kinds": report.kind, "verdict": "invalid", "seconds": 1.0}
    (own / "tries.jsonl").write_text(json.dumps(row | {"kinds": [report.kind]}) + "\n")


def log_directories(folder: Path) -> list[Path]:
    """Kafka log directories of two clusters, with the notes of their brokers."""
    return [_log_directories(run, folder / f"{run.name}-logs") for run in stories(folder, (8, 44))]


def _log_directories(run: Path, root: Path) -> Path:
    for name in "AB":
        moment = sorted((run / "captures").glob(f"*/{name}"))[-1]
        shutil.copytree(moment, root / name)
        for broker in (root / name).iterdir():
            partitions = sorted(path.name for path in broker.iterdir() if path.is_dir())
            lines = [" ".join((*each.rsplit("-", 1), "0")) for each in partitions]
            for note in ("replication-offset", "log-start-offset", "cleaner-offset"):
                text = "\n".join(["0", str(len(lines)), *lines, ""])
                (broker / f"{note}-checkpoint").write_text(text)
            (broker / "meta.properties").write_text(
                f"version=1\ncluster.id={name}\nnode.id={broker.name}\n"
            )
    return root


_MADE: Final[dict[str, Callable[[Path], list[Path]]]] = {
    "reading": stories, "judging": stories, "suites": shards, "copied": log_directories,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("what", nargs="?", choices=[*_MADE, "shapes"], default="reading")
    parser.add_argument("--runs", nargs="+", type=Path, help="run directories: they are copied")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        if given.what == "shapes":
            outcome = shapes(stories(folder), seed=given.seed, count=given.count, say=click.echo)
        else:
            roots = [
                Path(shutil.copytree(run, folder / str(n)))
                for n, run in enumerate(given.runs or ())
            ]
            outcome = fuzz(
                roots or _MADE[given.what](folder), seed=given.seed, what=given.what,
                numbers=range(given.first, given.first + given.count), say=click.echo,
            )  # fmt: skip
    for text, count in outcome.crashed.most_common():
        click.echo(f"a check could not: {count} x {text}")
    click.echo("\n\n".join(outcome.failures[:50]))
    click.echo(f"{dict(outcome.counts)}, {len(outcome.failures)} failures")
    sys.exit(bool(outcome.failures))


if __name__ == "__main__":
    main()
