"""The second half of linkflap on one page: run directories in, verdicts out.

    run directory -> plan -> Spark: tables -> partition views -> kernels -> findings -> judge ->
    verdict.json, *.parquet

`verify` needs only the directories: it gives the same verdict on another machine, a year later, or
on a Spark cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.rundir import NOT_WRITABLE, RunReader, write_document
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_CHECKS, Check
from linkflap.spark_verify.checks.finding_rows import FindingRow, unjudged
from linkflap.spark_verify.read.pieces import UNSEEN
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.spark import job, session
from linkflap.spark_verify.spark.job import JobWatch
from linkflap.spark_verify.spark.masters import LOCAL
from linkflap.spark_verify.verdict import parquet
from linkflap.spark_verify.verdict.judge import Judgement, judge

VERDICT_FILE = "verdict.json"
ShowsProgress = Callable[[str, int, int], None]
"""Called with (what, done, total)."""


class _SparkFailed(Exception):
    """Spark ended, or gave up, during the checks: the sentence that every check of the run then has
    for a reason."""


def verify(
    runs: Sequence[Path],
    *,
    spark: SparkSession | None = None,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    tell: ShowsProgress = lambda *_: None,
    out: Mapping[Path, Path] | None = None,
) -> list[Judgement]:
    """Judges run directories in one Spark job, and writes a verdict.json and two Parquet files into
    each.

    `out` names other folders to write into, by run directory. Files that this user cannot write
    there are left out, and `Judgement.kept` is then None: the verdict is still returned.

    Raises InputError if one is not a run directory, or names an unknown check; SetupError if Spark
    does not start, or an executor cannot see the directories. If Spark fails in the job, each
    directory is judged alone. If that fails too, no check ran: all are unknown, with that reason.
    """
    chosen = {run: checks_of(run) for run in runs}
    needed = {
        check.name: check for run, checks in chosen.items() for check in with_inputs(run, checks)
    }
    # Executors have working directories of their own.
    plans = {run: plan(run.absolute()) for run in runs}
    found: dict[str, list[FindingRow]] = defaultdict(list)
    some, checks = list(plans.values()), list(needed.values())
    rows: Iterable[FindingRow]
    try:
        rows = _findings(spark or session.session(master, settings), some, checks, tell)
    except _SparkFailed as failed:
        # Spark may not survive one run of several: that run must not spoil the verdicts of others.
        alone = spark is None and len(some) > 1
        rows = (
            _each_alone(some, checks, tell, master, settings)
            if alone
            else _unjudged(some, checks, failed)
        )
    for row in rows:
        found[row.run].append(row)
    judgements = [
        judge(run, found[plans[run].run], chosen[run], planned=plans[run]) for run in runs
    ]
    return [
        keep(j, found[plans[j.folder].run], (out or {}).get(j.folder, j.folder)) for j in judgements
    ]


def keep(judgement: Judgement, rows: Sequence[FindingRow], folder: Path) -> Judgement:
    """Writes a judgement into a folder, where this user may write there, and says whether it
    did."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write(folder, judgement.anomalies, rows, run=str(judgement.folder))
        write_document(folder / VERDICT_FILE, judgement.document)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        return judgement
    return replace(judgement, kept=folder)


def with_inputs(run: Path, checks: Sequence[Check]) -> list[Check]:
    """The checks that can be made with the content of a run directory: of logs without a history
    not every one."""
    of = RunReader(run).run
    guarantee = of.scenario.mirror.guarantee
    return [check for check in checks if check.runs_on(guarantee, recorded=of.recorded)]


def _findings(
    spark: SparkSession, plans: Sequence[RunPlan], checks: Sequence[Check], tell: ShowsProgress
) -> list[FindingRow]:
    try:
        with session.ended_if_stopped():
            rows = job.judged(spark, plans, checks, watched=JobWatch(spark.sparkContext, tell))
            session.keep_classes()
            return rows
    except (Py4JError, PySparkException, pa.ArrowException, OSError, EOFError) as error:
        if interrupts.asked():
            # the signal went to the whole group: Spark died of it, and no verdict is due
            raise KeyboardInterrupt from None
        if UNSEEN in str(error):
            raise SetupError(f"Spark could not read everything: {_sentence(str(error))}") from None
        failure = session.reason_of_failure(error)
        reason = f"Spark failed during the checks ({failure}); verify the run again"
        session.close()
        raise _SparkFailed(reason) from None


def _each_alone(
    plans: Sequence[RunPlan],
    checks: Sequence[Check],
    tell: ShowsProgress,
    master: str,
    settings: Mapping[str, str] | None,
) -> Iterator[FindingRow]:
    for each in plans:
        try:
            yield from _findings(session.session(master, settings), [each], checks, tell)
        except _SparkFailed as failed:
            yield from _unjudged([each], checks, failed)


def _unjudged(
    plans: Sequence[RunPlan], checks: Sequence[Check], failed: _SparkFailed
) -> list[FindingRow]:
    return [unjudged(p.run, check.name, str(failed)) for p in plans for check in checks]


def _sentence(trace: str) -> str:
    """The executor's message, without its trace."""
    prefix = f"{UNSEEN}: "
    return next(
        (line.partition(prefix)[2].strip() for line in trace.splitlines() if prefix in line), trace
    )


def checks_of(run: Path) -> list[Check]:
    """The checks that a run's scenario asks for: those it names, or all. The two of the run itself
    are always made."""
    names = [name for name in RunReader(run).run.scenario.checks if name not in RUN_CHECKS]
    for name in names:
        if name not in REGISTRY:
            known = ", ".join((*REGISTRY, *RUN_CHECKS))
            raise InputError(f"{run} asks for an unknown check {name!r}; known: {known}")
    return [REGISTRY[name] for name in names] or list(REGISTRY.values())
