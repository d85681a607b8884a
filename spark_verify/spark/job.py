"""One Spark job from run directories to findings, for any number of runs at once.

    pieces.mapInArrow(read).groupBy(run, topic, partition)  ->  PartitionView  ->  kernels  ->
                                                            findings
    partial findings.groupBy(run, check, together)          ->  combine        ->  findings

The second step runs only if a selected check has a `combine`; logs without a history have none. The
first step receives the rows of a partition some MiB at a time. Columns of numbers in partial
findings cross Spark packed (`spark_verify.checks.finding_rows`). Only findings are collected.
Records are decoded only if a check asks for them: the other checks compare batch headers, whose
CRCs are recomputed, so that equal headers are equal bytes.

`JobWatch` tells the progress of a job in words, from Spark's own status tracker: a thread asks
twice a second, and ends with the job or with the JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import when
from pyspark.sql.pandas.types import from_arrow_schema

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import INTERNAL_TOPICS, ClusterSpec, Topology
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.checks.finding_rows import (
    FINDINGS,
    FindingRow,
    combined,
    crashed,
    damaged,
    examine,
    parsed,
    table,
)
from linkflap.spark_verify.facts.partition_facts import RunFacts
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.pieces import KEY, Piece, pieces, read, rows_of
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.rows import damage_in, damage_of

WARM_UP: Final = Check(
    name="warm-up",
    guarantee="",
    source="",
    inputs=frozenset(),
    anomalies=(),
    kernel=lambda _: [],
    combine=lambda _: [],
)


def findings(
    spark: SparkSession, runs: Sequence[Path], checks: Sequence[Check]
) -> list[FindingRow]:
    """The findings of the checks in the runs, in one Spark action; damage of the directories first.

    The session is one of `spark_verify.spark.session`. Raises InputError for a path that is no run
    directory.
    """
    return judged(spark, [plan(root) for root in runs], checks)


def judged(
    spark: SparkSession,
    plans: Sequence[RunPlan],
    checks: Sequence[Check],
    *,
    watched: AbstractContextManager[object] | None = None,
) -> list[FindingRow]:
    """`findings` for runs that were planned already; `watched` is entered while Spark works."""
    damage = [damaged(p.run, d.path, d.reason) for p in plans for d in p.damage]
    lean = [with_needed_records(p, checks) for p in plans]
    asked, cores = pieces(lean), spark.sparkContext.defaultParallelism
    keys = {(p.run, *c.key) for p in plans for c in p.replicas}
    # A task costs some ten milliseconds: a run that is read at once is judged by one task a core.
    spark.conf.set(
        "spark.sql.shuffle.partitions",
        str(max(2, min(len(keys), cores if len(asked) <= cores else 2 * cores))),
    )
    job = _job(spark, lean, asked, checks)
    with watched or nullcontext():
        return damage + [parsed(row) for row in job.toArrow().to_pylist()]


def with_needed_records(planned: RunPlan, checks: Sequence[Check]) -> RunPlan:
    """The plan with only the records to decode that these checks ask for; a check that does not
    declare its needs gets all."""
    asking = [
        c
        for c in checks
        if ("records" in c.inputs or not c.inputs)
        and c.runs_on(planned.facts.mirror.guarantee, recorded=planned.facts.recorded)
    ]
    every = planned.facts.recorded or not all(c.only_our_records for c in asking)
    records: Literal["every", "ours", "none"] = (
        "none" if not asking else "every" if every else "ours"
    )
    lean = [
        [replace(captured, records=records) for captured in some]
        for some in (planned.replicas, planned.earlier)
    ]
    return replace(planned, replicas=lean[0], earlier=lean[1])


def warm_up(spark: SparkSession) -> None:
    """Runs the job on a replica without files, to load JVM classes, start Python workers and
    import their modules."""
    bounds = Bounds(
        cluster="A", broker=1, topic="A.warm", partition=0, leader=True, alive=True,
        log_start=0, high_watermark=0, high_watermark_from="recomputed",
    )  # fmt: skip
    alone = Topology(clusters=(ClusterSpec(name="A"),), links=())
    nothing = RunPlan(
        facts=RunFacts(
            run="", topology=alone, mirror=declared(MirrorSpec(kind="none")), recorded=False
        ),
        replicas=[
            CapturedReplica(run="", moment="", canonical=True, bounds=bounds, paths=(), size=0)
        ],
    )
    _job(spark, [nothing], pieces([nothing]), [WARM_UP]).toArrow()


def _job(
    spark: SparkSession, plans: Sequence[RunPlan], asked: Sequence[Piece], checks: Sequence[Check]
) -> DataFrame:
    schema = from_arrow_schema(FINDINGS)
    found = read(spark, asked).groupBy(*KEY).applyInArrow(partition_judge(plans, checks), schema)
    if not any(check.combine for check in checks):
        return found
    # Partial findings by what belongs together; all others of a run are handed on as one group.
    of = when(found["finding"] == "partial", found["check"]).otherwise("").alias("of")
    return found.groupBy("run", of, "together").applyInArrow(combiner(checks), schema)


def partition_judge(
    plans: Sequence[RunPlan], checks: Sequence[Check]
) -> Callable[[tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The group's function: rows of one (run, topic, partition) in, some at a time; findings out,
    in one table: a table of each check would cost more than most kernels."""
    by_run = {p.run: p for p in plans}

    # Spark sees by the annotations that rows are to be handed over one batch after the other.
    def judge(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        run, topic, partition = (scalar.as_py() for scalar in key)
        rows = rows_of(batches)
        if not topic:
            yield from table(damaged(run, d.path, d.reason) for d in damage_in(rows)).to_batches()
            return
        if not (by_run[run].judges(topic) or topic in INTERNAL_TOPICS):
            return
        try:
            seen = view(by_run[run], topic, partition, rows)
        except Exception as error:  # noqa: BLE001 - what cannot be put together makes every check unknown, with the reason
            yield from table(
                crashed(run, topic, partition, check.name, error) for check in checks
            ).to_batches()
            return
        found = [damaged(run, d.path, d.reason) for d in damage_of(seen)]
        for check in checks:
            found += examine(check, seen)
        yield from table(found).to_batches()

    return judge


def combiner(
    checks: Sequence[Check],
) -> Callable[[tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The second group's function: partial findings of one check in one run that belong together
    become what `combine` makes; findings of no check are handed on, and so are partial ones of a
    check that measures failovers.
    """
    by_name = {check.name: check for check in checks}

    # As `judge`: the rows come one batch after the other.
    def combine(
        key: tuple[pa.Scalar, ...], rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        check = by_name.get(key[1].as_py())
        partials: list[FindingRow] = []
        for batch in rows:
            if check is None or check.combine is None or check.measure is not None:
                yield batch.cast(FINDINGS)
            if check is not None and check.combine is not None:
                partials += [parsed(row) for row in batch.to_pylist()]
        if partials and check is not None:
            yield from table(combined(check, key[0].as_py(), partials)).to_batches()

    return combine


EVERY: Final = 0.5
READ, JUDGED = "pieces of the logs read", "groups of partitions judged"
COMBINED = "groups of checks combined"


class JobWatch:
    """A context manager around one job: its first stage reads, the next judges, and another one may
    combine.

    `tell` gets (what, done, of), from a thread of its own, whenever that changed.
    """

    def __init__(self, context: SparkContext, tell: Callable[[str, int, int], None]) -> None:
        self._context, self._tell = context, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-progress", daemon=True)
        self._said: tuple[str, int, int] | None = None

    def __enter__(self) -> JobWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self) -> None:
        try:
            while not self._over.wait(EVERY):
                self.look()
        except (Py4JError, OSError):
            return  # the JVM is gone, and the caller of the job gets an error

    def look(self) -> None:
        """Asks once, and tells what the furthest stage is at."""
        tracker = self._context.statusTracker()
        for job in sorted(tracker.getActiveJobsIds()):
            info = tracker.getJobInfo(job)
            # Stages that have not begun have no tasks yet.
            stages = (
                [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)] if info else []
            )
            begun = [
                (n, s)
                for n, s in enumerate(stages)
                if s is not None and (s.numActiveTasks or s.numCompletedTasks)
            ]
            if not begun:
                continue
            number, stage = begun[-1]
            progress = (
                (READ, JUDGED, COMBINED)[min(number, 2)],
                stage.numCompletedTasks,
                stage.numTasks,
            )
            if progress != self._said:
                self._said = progress
                self._tell(*progress)
