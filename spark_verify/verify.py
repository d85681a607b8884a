"""The second half of linkflap on one page: run directories in, verdicts out.

    run directory -> plan -> Spark: tables -> partition views -> kernels -> findings -> judge -> verdict.json

`verify` needs nothing but the directories: it gives the same verdict on another machine, a year later, on a Spark cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from harness.model.errors import InputError
from harness.rundir import RunReader, write_whole
from spark_verify import session, tables
from spark_verify.checks import REGISTRY
from spark_verify.checks.base import Check
from spark_verify.judge import Judgement, judge
from spark_verify.plan import RunPlan, plan
from spark_verify.recording import NAMES

VERDICT_FILE = "verdict.json"


def verify(runs: Sequence[Path], *, spark: SparkSession | None = None) -> list[Judgement]:
    """Judges run directories in one Spark job, and writes a verdict.json into each.

    Raises InputError when one is no run directory, or names a check that there is not; SetupError when Spark does not start. When
    Spark fails during the job no check was made: all are unknown, and say so.
    """
    chosen = {run: checks_of(run) for run in runs}
    needed = {check.name: check for run, checks in chosen.items() for check in checks if made_of(run, check)}
    plans = [plan(run) for run in runs]
    found: dict[str, list[tables.FindingRow]] = defaultdict(list)
    for row in _findings(spark or session.session(), plans, list(needed.values())):
        found[row.run].append(row)
    judgements = [judge(run, found[str(run)], chosen[run]) for run in runs]
    for judgement in judgements:
        write_whole(judgement.folder / VERDICT_FILE, msgspec.json.format(msgspec.json.encode(judgement.document), indent=1))
    return judgements


def made_of(run: Path, check: Check) -> bool:
    """Whether a check can be made of what a run directory has: of logs without a history not every one."""
    return check.from_bytes or RunReader(run).run.recorded


def _findings(spark: SparkSession, plans: Sequence[RunPlan], checks: Sequence[Check]) -> list[tables.FindingRow]:
    try:
        return tables.judged(spark, plans, checks)
    except (Py4JError, PySparkException, pa.ArrowException, OSError, EOFError) as error:
        reason = f"Spark failed during the checks ({session.cause(str(error))}); verify the run again"
        session.close()
        return [tables.unjudged(p.run, check.name, reason) for p in plans for check in checks]


def checks_of(run: Path) -> list[Check]:
    """The checks that a run's scenario asks for: those it names, or all. The two of the run itself are always made."""
    names = [name for name in RunReader(run).run.scenario.checks if name not in NAMES]
    for name in names:
        if name not in REGISTRY:
            raise InputError(f"{run} asks for a check {name!r} that there is not; known are {', '.join((*REGISTRY, *NAMES))}")
    return [REGISTRY[name] for name in names] or list(REGISTRY.values())
