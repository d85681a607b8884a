"""commit-aborted: the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.partition_facts import Window
from tests.unit.checks.histories import SECOND, Log, commit, promoted, view
from tests.unit.checks.verdicts import Rejected, anomalies, unjudged

NAME = "commit-aborted"
DIES = 500 * SECOND
OPEN = Log("A").txn(1, pid=7, end=None)


def paused(start: int, end: int) -> Window:
    """A broker of A is paused from one second to another."""
    return Window(
        id="f", fault="broker-pause", target="A/1", start=start * SECOND, end=end * SECOND
    )


ACCEPTED = {
    "committed": (view([Log("A").txn(1, pid=7)], sends=[commit(1, acked=0)]), {"A/native": 1}),
    "aborted as asked": (
        view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0, ending="abort")]),
        {},
    ),
    "unknown": (
        view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0, outcome="info")]),
        {},
    ),
    "two of one producer": (
        view(
            [Log("A").txn(1, pid=7).txn(2, pid=7)], sends=[commit(1, acked=0), commit(2, acked=2)]
        ),
        {"A/native": 2},
    ),
    "unknown, and then another": (
        view(
            [Log("A").txn(1, pid=7, end=None).txn(2, pid=7)],
            sends=[commit(1, outcome="info"), commit(2, acked=1)],
        ),
        {"A/native": 1},
    ),
    "A died before the marker": (
        view(
            [OPEN], sends=[commit(1, acked=0, returned=DIES - 1)], promotions=[promoted(0, at=DIES)]
        ),
        {"A/native": 1},
    ),
    "A was broken when it died": (
        view(
            [OPEN],
            sends=[commit(1, acked=0, returned=100 * SECOND)],
            promotions=[promoted(0, at=DIES)],
            windows=[paused(90, 110), paused(112, DIES // SECOND - 1)],
        ),
        {"A/native": 1},
    ),
}
REJECTS = {
    "abort-committed": Rejected(
        view([Log("A").txn(1, pid=7)], sends=[commit(1, acked=0, ending="abort")]), "A", 1
    ),
    "commit-aborted": Rejected(
        view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0)]), "A", 1
    ),
    "commit-unmarked": Rejected(view([OPEN], sends=[commit(1, acked=0)]), "A", 0),
}


def test_a_commit_that_was_certainly_never_requested_and_took_effect() -> None:
    seen = view([Log("A").txn(1, pid=7)], sends=[commit(1, acked=0, outcome="fail")])
    assert anomalies(NAME, seen) == [("abort-committed", "A", 1)]
    assert (
        anomalies(
            NAME,
            view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0, outcome="fail")]),
        )
        == []
    )


def test_a_marker_that_was_due_long_before_the_cluster_died() -> None:
    seen = view(
        [OPEN],
        sends=[commit(1, acked=0, returned=DIES - 60 * SECOND)],
        promotions=[promoted(0, at=DIES)],
    )
    assert anomalies(NAME, seen) == [("commit-unmarked", "A", 0)]


def test_a_torn_log_without_the_marker_is_not_judged() -> None:
    seen = view([Log("A").txn(1, pid=7, end=None).torn()], sends=[commit(1, acked=0)])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_one_anomaly_per_transaction() -> None:
    seen = view([Log("A").txn(1, 2, 3, pid=7, end="abort")], sends=[commit(1, 2, 3, acked=0)])
    assert anomalies(NAME, seen) == [("commit-aborted", "A", 3)]


MERGED = Log("A").txn(1, 2, pid=7, end=None).txn(3, pid=7)
ACKED = [commit(1, 2, acked=0, returned=DIES - 1), commit(3, acked=2, returned=DIES - 1)]


def test_the_marker_of_the_next_transaction_is_not_its_own() -> None:
    assert anomalies(NAME, view([MERGED], sends=ACKED)) == [("commit-unmarked", "A", 0)]


def test_a_cluster_that_died_is_no_excuse_once_the_next_transaction_has_begun() -> None:
    assert anomalies(NAME, view([MERGED], sends=ACKED, promotions=[promoted(0, at=DIES)])) == [
        ("commit-unmarked", "A", 0)
    ]
    still_open = Log("A").txn(1, 2, pid=7, end=None).txn(3, pid=7, end=None)
    assert anomalies(NAME, view([still_open], sends=ACKED, promotions=[promoted(0, at=DIES)])) == [
        ("commit-unmarked", "A", 0)
    ]


def test_a_missing_marker_before_an_abort_aborts() -> None:
    seen = view(
        [Log("A").txn(1, pid=7, end=None).txn(2, pid=7, end="abort")], sends=[commit(1, acked=0)]
    )
    assert anomalies(NAME, seen) == [("commit-aborted", "A", 2)]


@pytest.mark.parametrize(
    ("returned", "windows"),
    [
        (DIES - 6 * SECOND, []),
        (100 * SECOND, [paused(90, 110)]),
        (100 * SECOND, [paused(400, DIES // SECOND)]),
        (100 * SECOND, [paused(90, 110), paused(120, DIES // SECOND)]),
        (100 * SECOND, [replace(paused(90, DIES // SECOND), target="B/1")]),
    ],
    ids=["long before", "healed since", "broken later", "healthy in between", "another cluster"],
)
def test_a_marker_is_due_if_its_cluster_was_healthy_after_the_commit(
    returned: int, windows: list[Window]
) -> None:
    seen = view(
        [OPEN],
        sends=[commit(1, acked=0, returned=returned)],
        promotions=[promoted(0, at=DIES)],
        windows=windows,
    )
    assert anomalies(NAME, seen) == [("commit-unmarked", "A", 0)]
