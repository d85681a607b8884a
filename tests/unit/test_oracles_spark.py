"""Small random runs, judged in one Spark job: the findings equal those of the kernels without
Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.finding_rows import FindingRow
from linkflap.spark_verify.spark import job
from tests.oracles import random_runs
from tests.oracles.agreement import findings
from tests.run_copy import views

pytestmark = pytest.mark.spark

RUNS = 24


def differences(spark: SparkSession, folder: Path, seeds: range) -> list[str]:
    """Judges all runs in one job; returns what is different without it."""
    whats = {folder / str(seed): random_runs.written(seed, folder / str(seed)) for seed in seeds}
    rows = job.findings(spark, list(whats), list(REGISTRY.values()))
    wrong: list[str] = []
    for root, what in whats.items():
        partitions = list(views(root))
        recorded = all(view.recorded for view in partitions)
        # Not every check is run on logs alone; the job runs the checks that it is given.
        for name in (name for name, check in REGISTRY.items() if recorded or check.from_bytes):
            mine = [row for row in rows if row.run == str(root) and row.check == name]
            direct = findings(REGISTRY[name], partitions)
            wrong += [
                f"seed {root.name}, {what}, {name}: {counted(mine)}, not {counted(direct)}"
                for counted in (examined, found)
                if counted(mine) != counted(direct)
            ]
    return wrong


def examined(rows: Iterable[FindingRow]) -> Counter[tuple[object, ...]]:
    """The counts of a check: the same in Spark and in a loop. A run that Spark lost would have no
    findings either."""
    return Counter(
        (r.topic, r.partition, r.cluster, r.origin, r.count)
        for r in rows
        if r.finding == "examined"
    )


def found(rows: Iterable[FindingRow]) -> Counter[tuple[object, ...]]:
    """The anomalies of a check, in any order."""
    return Counter(
        (r.kind, r.cluster, r.topic, r.partition, r.offset) for r in rows if r.finding == "found"
    )


def test_random_runs_through_spark_have_the_findings_of_the_kernels(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert differences(spark, tmp_path, range(RUNS)) == []


@pytest.mark.nightly
def test_very_many_random_runs_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    first = Random().randrange(10**6)
    assert differences(spark, tmp_path, range(first, first + 300)) == []
