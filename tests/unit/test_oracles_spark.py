"""Random small histories, written as run directories and judged in one Spark job: the findings
equal those of the kernels without Spark, and the references'."""

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
from tests.oracles import changes
from tests.oracles.agreement import REFERENCES, disagreement, findings
from tests.oracles.happenings import world
from tests.oracles.views import views
from tests.oracles.worlds import World
from tests.oracles.written import write

pytestmark = pytest.mark.spark

RUNS = 24
IN_MEMORY_ONLY = {"_change_promotion", "map_ids", "overlap"}
"""Changes that a run directory cannot represent: a failover that was forced in one partition and
planned in another; and a log in which a batch begins before the end of another, which the reader
takes for torn, as a world does not."""
OF_ONE_PARTITION = {"_change_send"}
"""A run directory has this once per operation."""


def changed(seed: int) -> tuple[World, list[str]]:
    random = Random(seed)
    made = world(random)
    kept = [c for c in changes.CHANGES if c.__name__ not in IN_MEMORY_ONLY]
    kept = [c for c in kept if len(made.partitions) == 1 or c.__name__ not in OF_ONE_PARTITION]
    done = [c.__name__ for c in random.choices(kept, k=seed % 4) if c(made)]
    return made, done


def judged(spark: SparkSession, folder: Path, seeds: range) -> list[str]:
    """Judges all runs in one job; returns the differences from the references."""
    worlds = [changed(seed) for seed in seeds]
    roots = [write(made, folder / str(seed)) for (made, _), seed in zip(worlds, seeds, strict=True)]
    rows = job.findings(spark, roots, list(REGISTRY.values()))
    wrong: list[str] = []
    for (made, done), root, seed in zip(worlds, roots, seeds, strict=True):
        seen = views(made, str(root))
        # Not every check is run on logs alone; the job runs the checks that it is given.
        for name in (name for name, check in REGISTRY.items() if made.recorded or check.from_bytes):
            mine = [row for row in rows if row.run == str(root) and row.check == name]
            direct = findings(REGISTRY[name], seen)
            said = disagreement(name, mine, seen) if name in REFERENCES else ""
            wrong += [f"seed {seed}, {name}, after {done}: {said}"] if said else []
            wrong += [
                f"seed {seed}, {name}, after {done}: {what(mine)}, not {what(direct)}"
                for what in (examined, found)
                if what(mine) != what(direct)
            ]
    return wrong


def examined(rows: Iterable[FindingRow]) -> Counter[tuple[object, ...]]:
    """What a check counted: the same in Spark and in a loop. A run that Spark lost would have no
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


def test_random_runs_through_spark_agree_with_the_references(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert judged(spark, tmp_path, range(RUNS)) == []


@pytest.mark.nightly
def test_very_many_random_runs_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    first = Random().randrange(10**6)
    assert judged(spark, tmp_path, range(first, first + 300)) == []
