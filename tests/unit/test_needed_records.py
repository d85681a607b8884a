"""Which records are decoded for which checks: all that any check may need, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.read.log_rows import batch_rows
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.spark import job
from tests.copied_logs import KIP_1279, asked, judged, sound
from tests.run_views import views
from tests.synthetic import write_run

EVERY = list(REGISTRY.values())


def check(name: str, *inputs: str, from_bytes: bool = True) -> Check:
    return Check(
        name=name, guarantee="", source="", inputs=frozenset(inputs), # type: ignore[arg-type]
        anomalies=(), kernel=lambda _: [],
        from_bytes=from_bytes,
    )  # fmt: skip


def records(planned: RunPlan, checks: list[Check]) -> str:
    lean = job.with_needed_records(planned, checks)
    (found,) = {captured.records for captured in (*lean.replicas, *lean.earlier)}
    return found


@pytest.fixture
def copied(tmp_path: Path) -> RunPlan:
    for cluster in "AB":
        sound(tmp_path / cluster / "orders-0")
    judged(tmp_path / "run", asked({n: tmp_path / n for n in "AB"}, "A->B"))
    return plan(tmp_path / "run")


def test_a_recorded_run_is_decoded_whole(tmp_path: Path) -> None:
    assert records(plan(write_run(tmp_path / "run")), EVERY) == "every"


def test_only_copied_logs_with_linkflaps_records_are_decoded(copied: RunPlan) -> None:
    assert records(copied, EVERY) == "ours"
    assert records(copied, [REGISTRY["leader-epochs"], REGISTRY["byte-equality"]]) == "none"


@pytest.mark.parametrize(
    "asking", [check("new", "batches", "records"), check("says-nothing")], ids=lambda c: c.name
)
def test_an_unknown_check_gets_every_record(copied: RunPlan, asking: Check) -> None:
    assert records(copied, [*EVERY, asking]) == "every"


def test_a_check_that_is_not_made_of_logs_alone_asks_for_nothing(copied: RunPlan) -> None:
    assert records(copied, [check("history", "records", "sends", from_bytes=False)]) == "none"


@pytest.mark.parametrize("how", ["negate", "complement", "region"])
def test_mapped_producer_ids_ask_for_no_more_records(copied: RunPlan, how: str) -> None:
    mapped = replace(
        copied,
        facts=replace(
            copied.facts, mirror=declared(MirrorSpec(kind="exact", options={"producer_ids": how}))
        ),
    )
    assert records(mapped, EVERY) == "ours"


@pytest.mark.parametrize("moment", ["2-after-stop", "3-diverged"])
def test_the_kernels_of_logs_alone_find_the_same_without_them(tmp_path: Path, moment: str) -> None:
    root = tmp_path / "run"
    judged(root, asked({n: KIP_1279 / moment / n for n in "AB"}, "B->A"))
    whole = list(views(root))
    planned = plan(root)
    assert sum(len(r.records) for view in whole for r in view.replicas) > 0
    bare = list(views(root, job.with_needed_records(planned, EVERY)))
    assert sum(len(r.records) for view in bare for r in view.replicas) == 0
    assert sum(1 for _ in batch_rows(job.with_needed_records(planned, EVERY).replicas)) >= 1
    for one, other in zip(whole, bare, strict=True):
        for each in EVERY:
            if each.from_bytes:
                assert job.examine(each, one) == job.examine(each, other), each.name
