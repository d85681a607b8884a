"""failover: RPO and RTO in the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.scenario import Budgets
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import PartialFinding
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, Log, commit, poll, promoted, samples, send, view
from tests.unit.checks.round_trip import trip
from tests.unit.checks.verdicts import Rejected, anomalies, unjudged

DIED = 500 * SECOND


def costs(seen: PartitionView) -> list[tuple[object, object]]:
    return [
        (f.data["rpo_records"], f.data["first_write"])
        for f in REGISTRY["failover"].kernel(seen)
        if isinstance(f, PartialFinding)
    ]


A3 = Log("A").data(1, 2, 3)
ACKED = [send(1, 2, 3, acked=0)]


LATE = [*ACKED, send(9, acked=1, cluster="B", invoked=DIED + SECOND, returned=DIED + 4 * SECOND)]


def failed_over(budgets: Budgets) -> PartitionView:
    return view(
        [A3, Log("B").data(1).data(9)], sends=LATE, promotions=[promoted(1)], budgets=budgets
    )


REFUSED = FailoverRefused(
    link="A->B", mode="forced", error="INVALID_CLUSTER_MIRROR_STATES", code=145, seconds=60.0
)
REFUSED_ELSEWHERE = msgspec.structs.replace(REFUSED, link="C->B")
ACCEPTED = {
    "measured only": (failed_over(Budgets()), {"B/native": 1}),
    "within its budgets": (failed_over(Budgets(rpo_records=2, rto_seconds=4.0)), {"B/native": 1}),
    "deleted on B, and not lost": (
        view(
            [A3, Log("B", start=1).data(2, 3).data(9)],
            sends=[
                *ACKED,
                send(9, acked=3, cluster="B", invoked=DIED + SECOND, returned=DIED + 4 * SECOND),
            ],
            promotions=[promoted(3)],
            budgets=Budgets(rpo_records=0),
        ),
        {"B/native": 1},
    ),
    "refused on a link that this topic does not cross": (
        view(
            [A3, Log("B").data(1)], topology="A->B, C->B", sends=ACKED, refusals=[REFUSED_ELSEWHERE]
        ),
        {},
    ),
    "there and back": (trip(budgets=Budgets(rpo_records=1)), {"A/native": 1, "B/native": 1}),
}
REJECTS = {
    "rpo-over-budget": Rejected(failed_over(Budgets(rpo_records=1)), "B", 1),
    "rto-over-budget": Rejected(failed_over(Budgets(rto_seconds=3.0)), "B", 1),
    "failover-refused": Rejected(
        view([A3, Log("B").data(1)], sends=ACKED, refusals=[REFUSED]), "B", -1
    ),
}


def test_a_refused_failover_is_one_however_often_and_of_a_reversed_mirror_too() -> None:
    twice = [REFUSED, msgspec.structs.replace(REFUSED, link="B->A", mode="planned")]
    seen = view([A3, Log("B").data(1)], sends=ACKED, refusals=twice)
    assert anomalies("failover", seen) == [
        ("failover-refused", "B", -1),
        ("failover-refused", "A", -1),
    ]


def test_a_round_trip_loses_the_tail_of_the_forced_failover_and_nothing_on_the_way_back() -> None:
    assert costs(trip()) == [(1, 551 * SECOND), (0, 751 * SECOND)]
    assert anomalies("failover", trip(budgets=Budgets(rpo_records=0))) == [
        ("rpo-over-budget", "B", 2)
    ]


def test_without_the_capture_at_the_failover_the_tail_still_counts_as_lost() -> None:
    assert costs(trip(earlier=[]))[0] == (1, 551 * SECOND)


def test_a_chain_loses_what_the_middle_had_from_upstream() -> None:
    logs = [A3, Log("B").data(1, 2, 3), Log("C").data(1)]
    seen = view(
        logs,
        topology="A->B->C",
        mirror_kind="shadow",
        sends=ACKED,
        promotions=[promoted(1, source="B", cluster="C")],
    )
    assert costs(seen) == [(2, None)]


def test_failover_that_lost_nothing_costs_zero_records() -> None:
    assert costs(view([A3, Log("B").data(1, 2, 3)], sends=ACKED, promotions=[promoted(3)])) == [
        (0, None)
    ]


def test_the_tail_is_what_was_lost() -> None:
    assert costs(view([A3, Log("B").data(1)], sends=ACKED, promotions=[promoted(1)])) == [(2, None)]


def test_lost_writes_are_not_counted_again() -> None:
    seen = view(
        [A3, Log("B").data(1)],
        sends=ACKED,
        promotions=[promoted(3)],
        reads=[poll((1, 2), cluster="B")],
    )
    assert costs(seen) == [(1, None)]
    hole = view(
        [A3, Log("B").data(1, 3)],
        sends=ACKED,
        promotions=[promoted(2)],
        watermarks={"B": samples((2, 2))},
    )
    assert costs(hole) == [(0, None)]


def test_acknowledged_and_unmarked_when_the_source_died() -> None:
    seen = view(
        [Log("A").txn(1, pid=7, end=None), Log("B")],
        sends=[commit(1, acked=0)],
        promotions=[promoted(0)],
    )
    assert costs(seen) == [(1, None)]


def test_only_acknowledged_records_count() -> None:
    seen = view(
        [A3, Log("B").data(1)],
        sends=[send(1, acked=0), commit(2, acked=1, outcome="info")],
        promotions=[promoted(1)],
    )
    assert costs(seen) == [(0, None)]


def test_the_first_write_is_the_destinations_own_and_confirmed() -> None:
    sends = [
        commit(5, acked=1, cluster="B", outcome="info", returned=DIED + SECOND),
        commit(6, acked=2, cluster="B", ending="abort", returned=DIED + 2 * SECOND),
        commit(7, acked=3, cluster="B", returned=DIED + 4 * SECOND),
        send(8, acked=4, cluster="B", returned=DIED + 3 * SECOND),
    ]
    seen = view(
        [Log("A").data(1), Log("B").data(1, 5, 6, 7, 8)], sends=sends, promotions=[promoted(1)]
    )
    assert costs(seen) == [(0, DIED + 3 * SECOND)]


def test_failover_without_both_logs_is_unknown() -> None:
    assert unjudged("failover", view([Log("B")], promotions=[promoted(0)]))


def test_records_missing_in_a_torn_log_exceed_no_budget() -> None:
    seen = replace(
        REJECTS["rpo-over-budget"].view, replicas=[A3.replica(), Log("B").data(1).torn().replica()]
    )
    assert anomalies("failover", seen) == []
    assert "the log of B is torn" in unjudged("failover", seen)[0]
