"""Runs in which only programs wrote that record no history get a verdict by bytes, also after a
failover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.harness.model.scenario import Budgets, WorkloadSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.finding_rows import combined, examine
from linkflap.spark_verify.verdict.judge import Judgement, judge
from tests.faithful.made import Made
from tests.faithful.mutations.base import data
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.run_copy import views

PROGRAM = WorkloadSpec(kind="command", home="A", command=("python3", "it.py"), writes=("orders",))
BUDGETS = {"records": Budgets(rpo_records=9), "seconds": Budgets(rto_seconds=9.0)}


def alone(seed: int, shape: str, mirror: str) -> Made:
    """A story whose clients were a program's, beside linkflap's readers."""
    calm = {"relay": False, "shares": False, "deaths": False, "outlives": False, "forced": True}
    made = story(spec(seed, shape=shape, mirror=mirror, **calm))
    readers = [each for each in made.scenario.workloads if each.kind == "readers"]
    made.operations = []
    made.scenario = replace(made.scenario, workloads=(PROGRAM, *readers))
    return made


def judged(made: Made, root: Path) -> Judgement:
    made.write(root)
    seen, rows = list(views(root)), []
    for check in REGISTRY.values():
        mine = [row for view in seen for row in examine(check, view)]
        partials = [row for row in mine if row.finding == "partial"]
        rows += [*mine, *combined(check, str(root), partials)]
    return judge(root, rows, list(REGISTRY.values()))


SHAPES = [
    *((shape, "shadow") for shape in ("pair", "failover", "round-trip", "chain")),
    *((shape, "mm2") for shape in ("pair", "failover", "chain")),
]


@pytest.mark.parametrize(("shape", "mirror"), SHAPES)
def test_run_without_client_history_is_judged_by_bytes(
    shape: str, mirror: str, tmp_path: Path
) -> None:
    made = alone(10, shape, mirror)
    judgement = judged(made, tmp_path / "run")
    assert judgement.verdict is Verdict.VALID, judgement.judged.reason
    assert judgement.judged.by_bytes
    costs = {(each.rpo_records, each.rto_seconds) for each in judgement.failovers}
    assert costs == (set() if shape == "pair" else {(None, None)})
    lacking = data(made, "B", native=False)[1]
    made.change("B", 0, lambda log: [entry for entry in log if entry != lacking])
    hole = "byte-equality" if mirror == "shadow" else "order-equality"
    one = judged(made, tmp_path / "without a batch")
    assert hole in {check.name for check in one.checks if check.verdict is Verdict.INVALID}


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_budget_asks_for_a_count_that_was_not_recorded(budget: str, tmp_path: Path) -> None:
    made = alone(2, "failover", "shadow")
    made.scenario = replace(made.scenario, budgets=BUDGETS[budget])
    judgement = judged(made, tmp_path / "run")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "acknowledgements were not recorded" in judgement.judged.reason
