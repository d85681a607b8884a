"""inconsistent-offset: the smallest histories."""

from __future__ import annotations

import pytest

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, Log, commit, mirror_stop, poll, promoted, send, view
from tests.unit.checks.round_trip import before, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "inconsistent-offset"
A = Log("A").data(1)
ACCEPTED = {
    "log, client and readers": (
        view([A], sends=[send(1, acked=0)],
            reads=[poll((0, 1)), poll((0, 1), reader="s", isolation="read_uncommitted")]),
        {"A/native": 1},
    ),
    "no log": (view([], sends=[send(1, acked=0)], reads=[poll((0, 1))]), {"A/native": 1}),
    "one observer sees nothing twice": (view([A]), {}),
    "twice the same": (view([], reads=[poll((0, 1)), poll((0, 1), at=200 * SECOND)]), {}),
    "another cluster's": (
        view([A, Log("B").data(2)], reads=[poll((0, 1)), poll((0, 2), cluster="B")]),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "not ours, twice": (view([Log("A").data(-1)], reads=[poll((0, -1))]), {"A/native": 1}),
    "behind a truncation": (
        trip(reads=[poll((2, 3), at=400 * SECOND), poll((2, 4), at=650 * SECOND)]),
        {"A/native": 4, "A/mirrored": 1, "B/native": 2},
    ),
}  # fmt: skip
REJECTS = {
    "inconsistent-offset": Rejected(
        view([A], reads=[poll((0, 1)), poll((0, 2), reader="s")]), "A", 0
    ),
}


@pytest.mark.parametrize(
    "seen",
    [
        view([A], reads=[poll((0, 2))]),
        view([A], reads=[poll((0, 2), isolation="read_uncommitted")]),
        view([A], sends=[commit(2, acked=0, ending="abort")]),
        view([], sends=[send(1, acked=0), send(2, acked=0)]),
        view([], sends=[send(1, acked=0)], reads=[poll((0, 2))]),
        view([], reads=[poll((0, 1)), poll((0, 2), at=200 * SECOND)]),
        view([], reads=[poll((0, 1)), poll((0, -1), reader="s")]),
    ],
    ids=[
        "log and reader",
        "log and uncommitted",
        "log and client",
        "clients",
        "client and reader",
        "one reader",
        "not ours",
    ],
)
def test_two_observers_of_any_kind_that_disagree_are_inconsistent(seen: PartitionView) -> None:
    assert anomalies(NAME, seen) == [("inconsistent-offset", "A", 0)]


def test_neighbours_are_one_anomaly_and_all_observers_are_named() -> None:
    seen = view([Log("A").data(1, 2)], sends=[send(1, 2, acked=0)], reads=[poll((0, 8), (1, 9))])
    (found,) = findings(NAME, seen)
    assert found.evidence == {
        "records": 2,
        "seen": [{"uid": 1, "by": ["log", "client"]}, {"uid": 8, "by": ["r"]}],
    }


def test_offsets_apart_are_two_anomalies() -> None:
    seen = view([Log("A").data(1, 2, 3, 4)], reads=[poll((0, 7), (2, 8), (3, 9))])
    assert [(f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [(0, 1), (2, 2)]


def test_record_seen_below_a_truncation_still_binds() -> None:
    assert anomalies(NAME, trip(reads=[poll((1, 9), at=400 * SECOND)])) == [
        ("inconsistent-offset", "A", 1)
    ]


def test_reads_in_the_tail_are_compared_with_the_tail() -> None:
    (found,) = findings(NAME, trip(reads=[poll((2, 4), at=400 * SECOND)]))
    assert (found.cluster, found.offset, found.evidence["capture"]) == ("A", 2, "1-away")


def test_a_reader_that_still_gets_the_tail_after_the_truncation() -> None:
    assert anomalies(NAME, trip(reads=[poll((2, 3), at=650 * SECOND)])) == [
        ("inconsistent-offset", "A", 2)
    ]


def test_a_tail_that_was_not_captured_is_compared_with_its_clients() -> None:
    assert anomalies(NAME, trip(earlier=[], reads=[poll((2, 4), at=400 * SECOND)])) == [
        ("inconsistent-offset", "A", 2)
    ]
    assert anomalies(NAME, trip(earlier=[before()])) == []


@pytest.mark.parametrize(
    ("truncated", "found"), [([(2, 1)], []), ([(2, 2)], [("inconsistent-offset", "B", 1)])]
)
def test_the_tail_that_a_mirror_truncated_at_the_promotion_is_another_era(
    truncated: list[tuple[int, int]], found: list[tuple[str, str, int]]
) -> None:
    stop = mirror_stop(2, 1, time=501 * SECOND, truncated=truncated)
    b = Log("B").data(1).data(8)
    got = [
        poll((1, 2), cluster="B", isolation="read_uncommitted"),
        poll((1, 8), cluster="B", at=600 * SECOND),
    ]
    seen = view(
        [Log("A").data(1, 2), b],
        mirror_kind="shadow",
        promotions=[promoted(1)],
        stops=[stop],
        reads=got,
    )
    assert anomalies(NAME, seen) == found


def test_torn_log_leaves_nothing_unjudged() -> None:
    assert unjudged(NAME, view([Log("A").data(1).torn()], reads=[poll((0, 1))])) == []


@pytest.mark.parametrize(("at", "found"), [(1, []), (2 * SECOND, [(NAME, "A", 2)])])
def test_a_capture_from_before_a_truncation_that_is_torn_below_it(
    at: int, found: list[tuple[str, str, int]]
) -> None:
    """The poll before it had the dead leader's tail; the one after it must not have it."""
    torn = Log("A").skip(1).data(2).data(3).torn().taken("1-away", at=510)
    got = poll((0, 1), (1, 2), (2, 3), at=600 * SECOND + at)
    assert anomalies(NAME, trip(earlier=[torn], reads=[got])) == found
