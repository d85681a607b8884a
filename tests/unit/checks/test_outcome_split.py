"""marker-pairing: one transaction with two outcomes."""

from __future__ import annotations

import pytest

from linkflap.spark_verify.facts.partition_facts import MirrorStop
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import but, promoted
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.promoted_pair import SPLIT, pair
from tests.unit.checks.verdicts import (
    anomalies,
    findings,
)

NAME = "marker-pairing"


def test_a_split_outcome_names_both_markers() -> None:
    assert findings(NAME, SPLIT)[0].evidence == {
        "producer_id": 7, "producer_epoch": 0, "first_offset": 0, "source": "A", "source_marker": 1,
        "outcomes": ["COMMIT", "ABORT"], "failover": "forced",
        "not_arrived": "COMMIT at offset 1 of A",
    }  # fmt: skip


def stopped(mirrored: int) -> MirrorStop:
    """The mirror ended with the run, and aborted open transactions."""
    appended = ((1, "ABORT of producer 7, epoch 0"),)
    return MirrorStop(
        link="A->B",
        cluster="B",
        time=900 * SECOND,
        mirrored=mirrored,
        promoted=2,
        truncated=(),
        appended=appended,
    )


@pytest.mark.parametrize(
    ("seen", "failover"),
    [
        (but(SPLIT, recorded=False), None),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[promoted(1, kind="planned")],
            ),
            "planned",
        ),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[promoted(2)],
            ),
            None,
        ),
        (pair(Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end="abort"), promotions=[]), None),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[],
                stops=[stopped(1)],
            ),
            "run-end",
        ),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[],
                stops=[stopped(2)],
            ),
            None,
        ),
        (pair(Log("A").txn(1, pid=7, end="abort"), Log("B").txn(1, pid=7)), None),
    ],
    ids=[
        "copied",
        "planned",
        "mirrored marker",
        "no promotion",
        "behind at the end",
        "not behind at the end",
        "committed there",
    ],
)
def test_only_transactions_open_at_the_end_of_a_lagging_mirror_are_allowed(
    seen: PartitionView, failover: str | None
) -> None:
    assert anomalies(NAME, seen) == [("outcome-split", "B", 1)]
    assert findings(NAME, seen)[0].evidence.get("failover") == failover


@pytest.mark.parametrize(
    "other",
    [
        Log("B").txn(2, pid=8, end="abort"),
        Log("B").txn(1, pid=7, epoch=1, end="abort"),
        Log("B").data(0).txn(1, pid=7),
    ],
)
def test_another_transaction_may_have_another_outcome(other: Log) -> None:
    assert anomalies(NAME, pair(Log("A").txn(1, pid=7), other)) == []


def test_ids_that_a_mirror_maps_are_of_one_transaction() -> None:
    seen = pair(
        Log("A").txn(1, pid=7),
        Log("B").txn(1, pid=2**63 - 9, end="abort"),
        mirror={"producer_ids": "complement"},
    )
    assert anomalies(NAME, seen) == [("outcome-split", "B", 1)]
