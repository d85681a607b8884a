"""aborted-read: the smallest histories."""

from __future__ import annotations

import pytest

from tests.unit.checks.histories import SECOND, Log, commit, poll, send, view
from tests.unit.checks.round_trip import trip
from tests.unit.checks.verdicts import Rejected, anomalies, examined, findings

NAME = "aborted-read"
A = Log("A").txn(1, pid=7)
ABORTED = Log("A").txn(1, pid=7, end="abort")
ACCEPTED = {
    "committed": (view([A], sends=[commit(1, acked=0)], reads=[poll((0, 1))]), {"A/native": 1}),
    "commit of unknown outcome": (
        view([A], sends=[commit(1, outcome="info")], reads=[poll((0, 1))]),
        {"A/native": 1},
    ),
    "too early, and committed later": (
        view(
            [A], sends=[commit(1, acked=0, asked=6 * SECOND)], reads=[poll((0, 1), at=5 * SECOND)]
        ),
        {"A/native": 1},
    ),
    "sent alone": (
        view([Log("A").data(1)], sends=[send(1, acked=0)], reads=[poll((0, 1))]),
        {"A/native": 1},
    ),
    "given up in flight, which may have been written": (
        view([Log("A").data(1)], sends=[send(1, outcome="info")], reads=[poll((0, 1))]),
        {"A/native": 1},
    ),
    "refused, and the next was not": (
        view(
            [Log("A").data(2)],
            sends=[send(1, 2, offsets=[-1, 0], outcome="info", refused=(1,))],
            reads=[poll((0, 2))],
        ),
        {"A/native": 1},
    ),
    "uncommitted reader": (view([ABORTED], reads=[poll((0, 1), isolation="read_uncommitted")]), {}),
}
REJECTS = {
    "refused-read": Rejected(
        view(
            [Log("A").data(1)], sends=[send(1, outcome="fail", refused=(1,))], reads=[poll((0, 1))]
        ),
        "A",
        0,
    ),
    "aborted-read": Rejected(view([ABORTED], reads=[poll((0, 1))]), "A", 0),
}


def test_plain_on_the_destination_and_aborted_by_its_producer() -> None:
    seen = view(
        [ABORTED, Log("B").data(1)],
        sends=[commit(1, acked=0, ending="abort")],
        reads=[poll((0, 1), cluster="B")],
    )
    assert [(f.kind, f.cluster, f.offset, f.evidence["witness"]) for f in findings(NAME, seen)] == [
        ("aborted-read", "B", 0, "client")
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_refused_records_of_a_committed_transaction_were_read_on_a_mirror_too(
    isolation: str,
) -> None:
    sent = commit(1, 2, 3, offsets=[0, -1, 2], refused=(2,))
    seen = view(
        [Log("A").txn(1, 2, 3, pid=7), Log("B").txn(1, 2, 3, pid=7)],
        sends=[sent],
        reads=[
            poll((0, 1), (1, 2), (2, 3), cluster=cluster, isolation=isolation) for cluster in "AB"
        ],
    )
    assert anomalies(NAME, seen) == [("refused-read", "A", 1), ("refused-read", "B", 1)]


def test_a_send_that_failed_for_certain_refused_all_of_its_records() -> None:
    seen = view(
        [Log("A").data(1, 2)], sends=[send(1, 2, outcome="fail")], reads=[poll((0, 1), (1, 2))]
    )
    assert [(f.kind, f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [
        ("refused-read", 0, 2)
    ]


def test_a_commit_refused_for_certain() -> None:
    seen = view([A], sends=[commit(1, acked=0, outcome="fail")], reads=[poll((0, 1))])
    assert anomalies(NAME, seen) == [("aborted-read", "A", 0)]


def test_reads_before_a_truncation_are_judged_by_the_log_of_that_time() -> None:
    before = Log("A").txn(9, pid=7, end="abort").data(3).taken("1-away", at=510)
    got = [poll((0, 9), at=400 * SECOND), poll((2, 3), at=401 * SECOND)]
    seen = trip(earlier=[before], reads=got)
    assert anomalies(NAME, seen) == [("aborted-read", "A", 0)]
    assert examined(NAME, seen) == {"A/native": 2}
