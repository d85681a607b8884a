"""read-committed-visibility: the smallest histories."""

from __future__ import annotations

import pytest

from tests.unit.checks.histories import SECOND, Log, poll, view
from tests.unit.checks.round_trip import before, trip
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

NAME = "read-committed-visibility"
A = Log("A").txn(1, pid=7).txn(9, pid=7, end="abort").txn(2, pid=7)
ACCEPTED = {
    "gaps of markers and aborts": (view([A], reads=[poll((0, 1), (4, 2))]), {"A/native": 2}),
    "began later": (view([A], reads=[poll((4, 2))]), {"A/native": 1}),
    "in two polls": (
        view([A], reads=[poll((0, 1)), poll((4, 2), at=101 * SECOND)]),
        {"A/native": 2},
    ),
    "shared by a group": (
        view(
            [Log("A").data(1, 2, 3)],
            reads=[
                poll((0, 1), reader="x", group="g"),
                poll((1, 2), reader="y", group="g", at=101 * SECOND),
                poll((2, 3), reader="x", group="g", at=102 * SECOND),
            ],
        ),
        {"A/native": 3},
    ),
    "an assignment between": (
        view(
            [Log("A").data(1, 2, 3)],
            reads=[
                poll((0, 1)),
                poll(kind="assign", at=101 * SECOND),
                poll((2, 3), at=102 * SECOND),
            ],
        ),
        {"A/native": 2},
    ),
    "uncommitted readers are others": (
        view([A], reads=[poll((2, 9), isolation="read_uncommitted")]),
        {},
    ),
}
REJECTS = {
    "hidden-committed": Rejected(
        view([Log("A").data(1, 2, 3)], reads=[poll((0, 1), (2, 3))]), "A", 1
    ),
    "phantom-read": Rejected(
        view([Log("A").data(1)], reads=[poll((0, 9))]), "A", 0, only=("hidden-committed",)
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    if not counted:
        assert anomalies(NAME, seen) == []
        return
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_an_aborted_record_that_was_read_is_a_phantom() -> None:
    assert anomalies(NAME, view([A], reads=[poll((2, 9))])) == [("phantom-read", "A", 2)]


def test_a_record_that_was_read_beyond_the_end_of_a_whole_log_is_a_phantom() -> None:
    seen = view([Log("A").data(1)], reads=[poll((5, 9))])
    assert anomalies(NAME, seen) == [("phantom-read", "A", 5)]


def test_hidden_between_two_polls_of_one_assignment() -> None:
    seen = view([Log("A").data(1, 2, 3)], reads=[poll((0, 1)), poll((2, 3), at=101 * SECOND)])
    assert anomalies(NAME, seen) == [("hidden-committed", "A", 1)]


def test_records_that_another_group_got_do_not_count() -> None:
    seen = view(
        [Log("A").data(1, 2, 3)],
        reads=[poll((0, 1), (2, 3), reader="x", group="g"), poll((1, 2), reader="y", group="h")],
    )
    assert anomalies(NAME, seen) == [("hidden-committed", "A", 1)]


def test_a_torn_log_does_not_show_which_records_were_read() -> None:
    seen = view([Log("A").data(1).torn()], reads=[poll((0, 1), (1, 2))])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_a_step_back_starts_a_new_sequence() -> None:
    seen = view([Log("A").data(1, 2)], reads=[poll((0, 1), (1, 2)), poll((1, 2), at=101 * SECOND)])
    assert anomalies(NAME, seen) == []


def test_readers_of_a_log_that_was_truncated_are_judged_wherever_they_were() -> None:
    below, behind = poll((0, 9), at=400 * SECOND), poll((2, 9), at=401 * SECOND)
    found = [f for f in findings(NAME, trip(reads=[below, behind])) if f.kind == "phantom-read"]
    assert [(f.cluster, f.offset, f.evidence.get("capture", "")) for f in found] == [
        ("A", 0, ""),
        ("A", 2, "1-away"),
    ]


@pytest.mark.parametrize(
    ("restarted", "passed_at", "found"),
    [
        (Log("A").data(1).data(2).marker("abort", pid=7), 598, []),
        (Log("A").data(1).data(2).marker("abort", pid=7), 450, [("hidden-committed", "A", 2)]),
        (Log("A").data(1).data(2).data(3), 598, [("hidden-committed", "A", 2)]),
    ],
    ids=["a marker in its place", "before the leader died", "the record is still there"],
)
def test_a_reader_passes_what_a_restarted_cluster_has_where_its_dead_leader_had_a_record(
    restarted: Log, passed_at: int, found: list[tuple[str, str, int]]
) -> None:
    """A died at second 500 with 3 at offset 2, and was truncated at second 600."""
    reads = [poll((0, 1), (1, 2), position=3, at=passed_at * SECOND)]
    earlier = [before(), restarted.taken("1-reverse-600", at=599)]
    assert anomalies(NAME, trip(earlier=earlier, reads=reads)) == found
