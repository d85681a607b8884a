"""Made-up runs with several eras, through Spark to the verdict: faithful ones are valid, each
change is found as its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from linkflap.harness.model.scenario import Budgets
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verify import verify
from tests import hand_written
from tests.hand_written import Made, operation
from tests.kafka_log import ABORT
from tests.rounds import END, HOME, LOST, OF_B, PARTED, TAIL, chain, round_trip

pytestmark = pytest.mark.spark


def tail_not_truncated() -> Made:
    made = round_trip()
    kept = [
        entry
        for entry in made.logs[END, "A"]
        if entry.offset < PARTED or entry.offset > TAIL[-1].offset
    ]
    made.logs[END, "A"] = sorted([*kept, *TAIL], key=lambda entry: entry.offset)
    return made


def truncated_too_deep() -> Made:
    made = round_trip()
    for event in made.events:
        if event.kind == "truncation":
            cast(dict[str, object], event.data)["offset"] = 8
    return made


def hole_in_what_came_back() -> Made:
    made = round_trip()
    made.remove(END, "A", 12)
    return made


def marker_that_is_not_there() -> Made:
    made = round_trip()
    for cluster in "AB":
        made.remove(END, cluster, PARTED)
    return made


def write_to_a_standby() -> Made:
    made = round_trip()
    made.operations.append(operation(499, "B", 5, 8, pid=1002))
    return made


def epoch_that_goes_back() -> Made:
    made = round_trip()
    made.change(END, "A", HOME, leader_epoch=1)
    return made


def id_of_b_on_a_again() -> Made:
    made = round_trip()
    for offset in (HOME, HOME + 3):
        made.change(END, "A", offset, pid=1001)
    return made


def over_budget() -> Made:
    made = round_trip()
    made.budgets = Budgets(rpo_records=LOST - 1)
    return made


def far_end_differs() -> Made:
    made = chain()
    made.change(END, "C", 0, number=399)
    return made


def aborted_at_the_far_end() -> Made:
    made = chain()
    made.change(END, "C", 15, ends=ABORT)
    return made


NAMED = {
    tail_not_truncated: ("tail-not-truncated", "A", PARTED),
    truncated_too_deep: ("truncation-too-deep", "A", 8),
    hole_in_what_came_back: ("byte-hole", "A", 12),
    marker_that_is_not_there: ("marker-not-appended", "B", PARTED),
    write_to_a_standby: ("standby-write", "B", 8),
    epoch_that_goes_back: ("leader-epoch-regression", "A", HOME),
    id_of_b_on_a_again: ("producer-id-collision", "A", HOME),
    over_budget: ("rpo-over-budget", "B", PARTED),
    far_end_differs: ("byte-divergence", "C", 0),
    aborted_at_the_far_end: ("byte-divergence", "C", 15),
}
FAITHFUL = {"round-trip": round_trip, "chain": chain}


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> dict[str, dict[str, Any]]:
    """All runs in one Spark job: name -> document."""
    folder = tmp_path_factory.mktemp("rounds")
    runs = [make().write(folder / name) for name, make in FAITHFUL.items()]
    runs += [change().write(folder / change.__name__) for change in NAMED]
    return {
        judgement.folder.name: dict(judgement.document) for judgement in verify(runs, spark=spark)
    }


@pytest.mark.parametrize("name", FAITHFUL)
def test_what_is_faithful_is_valid(judged: dict[str, dict[str, Any]], name: str) -> None:
    """A had committed what B's mirror had to abort: the price of a forced failover, which is
    counted and allowed."""
    document = judged[name]
    assert document["verdict"] == Verdict.VALID, document["reason"]
    found = [(a["kind"], a["cluster"], a["offset"], a["allowed"]) for a in document["anomalies"]]
    assert found == [("outcome-split", "B", PARTED, True)]


@pytest.mark.parametrize("change", NAMED, ids=lambda change: change.__name__)
def test_every_change_is_called_what_it_is(
    judged: dict[str, dict[str, Any]], change: Callable[[], Made]
) -> None:
    document = judged[change.__name__]
    assert document["verdict"] == Verdict.INVALID, document["reason"]
    assert NAMED[change] in [
        (a["kind"], a["cluster"], a["offset"]) for a in document["anomalies"]
    ], document["reason"]


def test_the_tail_is_the_recovery_point_exactly(judged: dict[str, dict[str, Any]]) -> None:
    costs = [
        (f["link"], f["kind"], f["rpo_records"], f["rto_seconds"])
        for f in judged["round-trip"]["failovers"]
    ]
    assert costs == [("A->B", "forced", LOST, 3.5), ("B->A", "planned", 0, 3.5)]
    assert judged["chain"]["failovers"][0]["rpo_records"] == LOST


def test_the_document_tells_every_era_and_the_tail_that_was_truncated(
    judged: dict[str, dict[str, Any]],
) -> None:
    shown = [
        (e["cluster"], e["origin"], e["source"], e["start"], e["end"], e["truncated"], e["verdict"])
        for e in judged["round-trip"]["eras"]
    ]
    assert shown == [
        ("A", "native", "", PARTED, None, True, "valid"),
        ("A", "native", "", 0, PARTED, False, "valid"),
        ("A", "mirrored", "B", PARTED, HOME, False, "valid"),
        ("A", "native", "", HOME, None, False, "valid"),
        ("B", "mirrored", "A", 0, PARTED, False, "valid"),
        ("B", "native", "", PARTED, None, False, "valid"),
    ]
    assert len(OF_B) == 5
    mirrored = judged["round-trip"]["eras"][2]
    assert mirrored["compared"]["batches"] == len(OF_B)
    assert mirrored["compared"]["records"] == hand_written.SIZE * 2


def test_what_is_not_due_where_nobody_reads_in_a_group_to_the_end_or_in_a_transaction(
    judged: dict[str, dict[str, Any]],
) -> None:
    verdicts = {c["name"]: c["verdict"] for c in judged["round-trip"]["checks"]}
    idle = {name for name, verdict in verdicts.items() if verdict == Verdict.NOT_DUE}
    assert idle >= {"group-offsets", "unseen", "write-cycles"}
    assert {verdict for name, verdict in verdicts.items() if name not in idle} == {Verdict.VALID}
