"""ghost-ack: the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, Log, commit, promoted, send, view
from tests.unit.checks.round_trip import ACKED as TRIP
from tests.unit.checks.round_trip import on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "ghost-ack"
ACCEPTED = {
    "there": (view([Log("A").data(1, 2)], sends=[send(1, 2, acked=0)]), {"A/native": 2}),
    "aborted and there": (
        view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0, ending="abort")]),
        {"A/native": 1},
    ),
    "native on B": (
        view(
            [Log("B").data(1).data(8)],
            sends=[send(8, acked=1, cluster="B")],
            promotions=[promoted(1)],
        ),
        {"B/native": 1},
    ),
    "deleted since": (view([Log("A", start=3).data(9)], sends=[send(1, acked=0)]), {}),
}
REJECTS = {
    "ghost-ack": Rejected(view([Log("A").data(5)], sends=[send(7, acked=0)]), "A", 0),
}


REASONS = {
    "below the promotion offset": (
        view(
            [Log("B").data(1).data(8)],
            sends=[send(9, acked=0, cluster="B")],
            promotions=[promoted(1)],
        ),
        0,
    ),
    "acknowledged twice": (view([Log("A").data(1)], sends=[send(1, acked=0), send(2, acked=0)]), 0),
    "beyond the end of the log": (view([Log("A").data(1)], sends=[send(2, acked=1)]), 1),
    "no record there": (view([Log("A").txn(1, pid=7)], sends=[send(2, acked=1)]), 1),
    "another record there": (REJECTS["ghost-ack"].view, 0),
}


@pytest.mark.parametrize("why", REASONS)
def test_says_why(why: str) -> None:
    seen, offset = REASONS[why]
    assert [(f.offset, f.evidence["why"]) for f in findings(NAME, seen)] == [(offset, why)]


def _repeat(there: Send) -> PartitionView:
    """Records 1 and 2 of an operation are in the log; 3 and 4 of another are acknowledged at their
    offsets."""
    repeat = commit(3, 4, acked=0, producer_id=7, producer_epoch=0, invoked=2 * SECOND)
    return view([Log("A").txn(1, 2, pid=7, end="abort")], sends=[there, repeat])


ABORTED = commit(1, 2, ending="abort", producer_id=7, producer_epoch=0)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (ABORTED, "used their sequence numbers again"),
        (replace(ABORTED, producer_epoch=1), "another record there"),
        (replace(ABORTED, producer_id=8), "another record there"),
        (replace(ABORTED, process=2), "another record there"),
        (replace(ABORTED, ending="commit"), "another record there"),
        (replace(ABORTED, invoked=3 * SECOND), "another record there"),
    ],
    ids=["aborted", "another epoch", "another id", "another producer", "committed", "sent later"],
)
def test_says_that_an_aborted_transaction_has_the_offset(there: Send, why: str) -> None:
    found = [f for f in findings(NAME, _repeat(there)) if f.offset == 0]
    assert [why in str(f.evidence["why"]) for f in found] == [True]


def test_a_torn_log_is_not_judged_beyond_its_end() -> None:
    seen = view([Log("A").data(1).torn()], sends=[send(2, acked=1)])
    assert findings(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_records_missing_before_the_damage_were_never_there() -> None:
    seen = view([Log("A").data(1).skip(1).data(3).torn()], sends=[send(2, acked=1)])
    assert anomalies(NAME, seen) == [("ghost-ack", "A", 1)]
    assert (
        anomalies(NAME, view([Log("A").data(1).torn().skip(1).data(3)], sends=[send(2, acked=1)]))
        == []
    )


def test_writes_to_a_cluster_without_a_promotion_are_not_judged() -> None:
    assert (
        "no promotion"
        in unjudged(NAME, view([Log("B").data(1)], sends=[send(1, acked=0, cluster="B")]))[0]
    )


def test_an_acknowledgement_in_the_tail_is_compared_with_the_log_of_its_time() -> None:
    assert anomalies(NAME, trip()) == []
    assert anomalies(
        NAME, trip(earlier=[Log("A").data(1).data(2).data(9).taken("1-away", at=510)])
    ) == [("ghost-ack", "A", 2)]


def test_after_the_failback_the_same_offset_is_another_acknowledgement() -> None:
    late = send(8, acked=2, invoked=750 * SECOND, returned=751 * SECOND)
    assert anomalies(NAME, trip(sends=[*TRIP, late])) == [("ghost-ack", "A", 2)]


def test_an_offset_below_the_truncation_must_hold_its_record_for_ever() -> None:
    other = Log("A").data(1).data(9).data(4).data(5).data(6)
    assert anomalies(NAME, trip(logs=[other, on_b()])) == [("ghost-ack", "A", 1)]


def test_acknowledgements_above_the_truncation_are_reported_separately() -> None:
    """Below the truncation the next generation has the right record; above it, only this log can
    have it."""
    assert anomalies(
        NAME, trip(earlier=[Log("A").data(1).data(9).data(8).taken("1-away", at=510)])
    ) == [("ghost-ack", "A", 2)]


def test_says_nothing_of_sequence_numbers_where_no_producer_id_is_known() -> None:
    seen = _repeat(replace(ABORTED, producer_id=-1, producer_epoch=-1))
    nameless = [replace(each, producer_id=-1, producer_epoch=-1) for each in seen.sends]
    found = findings(NAME, replace(seen, sends=nameless))
    assert [f.evidence["why"] for f in found] == ["another record there"]
