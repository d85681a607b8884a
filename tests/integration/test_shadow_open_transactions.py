"""Transactions that are open at a failover, and what each rule leaves of them on stock brokers.

Runs of real clusters go the whole way: recorded, then judged.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.consequences import Seen, judged

pytestmark = pytest.mark.spark

RULES = (
    replace(
        scenario(
            "failover-open-transactions",
            ScenarioRequest(seed=7, mirror_options={"open_transactions": "truncate-once"}),
        ),
        name="truncate-once",
    ),
    scenario(
        "failover-open-transactions",
        ScenarioRequest(seed=7, mirror_options={"open_transactions": "write-txn-markers"}),
    ),
)


@pytest.fixture(scope="module")
def failed_over(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> dict[str, Judgement]:
    return judged(RULES, tmp_path_factory.mktemp("open-transactions"), spark)


@pytest.mark.nightly
def test_a_truncation_to_the_last_stable_offset_leaves_transactions_that_nobody_can_end(
    failed_over: dict[str, Judgement],
) -> None:
    seen = Seen(failed_over["truncate-once"])
    assert seen.judgement.verdict is Verdict.INVALID
    truncations = {row["partition"]: row["truncated"] for row in seen.journal()}
    assert {n: steps[-1][1] for n, steps in truncations.items()} == seen.promoted()
    hanging = seen.of_kind("hanging-transaction")
    assert hanging
    for anomaly in hanging:
        number, at = anomaly.partition, anomaly.offset
        there, here = seen.log("A", number), seen.log("B", number)
        producer = seen.batch("B", number, at)["producer_id"]
        ended = (there.producer_id == producer) & (there.control >= 0) & (there.base_offset > at)
        assert there.base_offset[ended][0] >= seen.promoted()[number], (
            "A has its marker, behind the truncation"
        )
        assert not (
            (here.producer_id == producer) & (here.control >= 0) & (here.base_offset > at)
        ).any()
        last = seen.last_sample("B", number)
        assert last.last_stable <= at < last.high_watermark, "the LSO stands still for ever"
    assert {"high-watermark-regression"} <= seen.kinds()


@pytest.mark.nightly
def test_markers_of_the_new_leaders_are_accounted_for(failed_over: dict[str, Judgement]) -> None:
    seen = Seen(failed_over["failover-open-transactions"])
    assert seen.judgement.verdict is Verdict.VALID, seen.judgement.document["reason"]
    rows = seen.journal()
    assert sum(len(row["appended"]) for row in rows) > 1
    for row in rows:
        assert row["promoted"] == row["mirrored"] == seen.promoted()[row["partition"]]
        for offset, _ in row["appended"]:
            assert offset >= row["promoted"]
            assert seen.batch("B", row["partition"], offset)["control"] == 0
