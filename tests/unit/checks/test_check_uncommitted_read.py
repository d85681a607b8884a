"""uncommitted-read: the smallest histories."""

from __future__ import annotations

import pytest

from tests.unit.checks.histories import (
    SECOND,
    Log,
    commit,
    mirror_stop,
    poll,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.round_trip import trip
from tests.unit.checks.verdicts import Rejected, anomalies, examined, findings

NAME = "uncommitted-read"
A = Log("A").txn(1, pid=7)
LATE = commit(1, acked=0, asked=6 * SECOND)
ACCEPTED = {
    "committed": (view([A], sends=[commit(1, acked=0)], reads=[poll((0, 1))]), {"A/native": 1}),
    "commit of unknown outcome": (
        view([A], sends=[commit(1, outcome="info")], reads=[poll((0, 1))]),
        {"A/native": 1},
    ),
    "commit that never returned": (
        view(
            [A],
            sends=[commit(1, outcome="info", asked=0, returned=-1)],
            reads=[poll((0, 1), at=5 * SECOND)],
        ),
        {"A/native": 1},
    ),
    "sent alone": (
        view([Log("A").data(1)], sends=[send(1, acked=0)], reads=[poll((0, 1), at=0)]),
        {"A/native": 1},
    ),
    "uncommitted reader": (
        view([A], sends=[LATE], reads=[poll((0, 1), at=5 * SECOND, isolation="read_uncommitted")]),
        {},
    ),
    "LSO above": (
        view(
            [A],
            sends=[commit(1, acked=0)],
            reads=[poll((0, 1), at=25 * SECOND)],
            watermarks={"A": samples(*[(2, 2)] * 40)},
        ),
        {"A/native": 1},
    ),
    "read when the commit was requested": (
        view([A], sends=[LATE], reads=[poll((0, 1), at=6 * SECOND)]),
        {"A/native": 1},
    ),
    "read before the first sample": (
        view(
            [A],
            sends=[commit(1, acked=0, asked=1)],
            reads=[poll((0, 1), at=SECOND // 2)],
            watermarks={"A": samples(*[(0, 2)] * 40)},
        ),
        {"A/native": 1},
    ),
    "read after the last sample": (
        view(
            [A],
            sends=[commit(1, acked=0)],
            reads=[poll((0, 1), at=50 * SECOND)],
            watermarks={"A": samples(*[(0, 2)] * 40)},
        ),
        {"A/native": 1},
    ),
    "LSO unknown": (
        view(
            [A],
            sends=[commit(1, acked=0)],
            reads=[poll((0, 1), at=25 * SECOND)],
            watermarks={"A": samples(*[(-1, 2)] * 40)},
        ),
        {"A/native": 1},
    ),
    "aborted in the end": (
        view([A], sends=[commit(1, acked=0, ending="abort")], reads=[poll((0, 1), at=5 * SECOND)]),
        {"A/native": 1},
    ),
}
AT_25 = [poll((0, 1), at=25 * SECOND)]
WENT_BACK = {"A": samples(*[(1, 2)] * 24, *[(0, 2)] * 16)}
ACCEPTED["committed, and then the LSO went back"] = (
    view([A], sends=[commit(1, acked=0)], reads=AT_25, watermarks=WENT_BACK),
    {"A/native": 1},
)
REJECTS = {
    "uncommitted-read": Rejected(
        view([A], sends=[LATE], reads=[poll((0, 1), at=5 * SECOND)]), "A", 0
    ),
}


def test_the_producer_knows_on_every_cluster() -> None:
    seen = view(
        [A, Log("B").data(1)], sends=[LATE], reads=[poll((0, 1), cluster="B", at=5 * SECOND)]
    )
    assert [(f.cluster, f.offset, f.evidence["witness"]) for f in findings(NAME, seen)] == [
        ("B", 0, "producer")
    ]


def test_a_transaction_left_open() -> None:
    seen = view([A], sends=[commit(1, acked=0, ending="open", asked=0)], reads=[poll((0, 1))])
    assert anomalies(NAME, seen) == [("uncommitted-read", "A", 0)]


def test_read_while_the_last_stable_offset_was_still_below() -> None:
    seen = view(
        [Log("A").data(5).txn(1, pid=7)],
        sends=[commit(1, acked=1)],
        reads=[poll((1, 1), at=25 * SECOND)],
        watermarks={"A": samples(*[(1, 3)] * 40)},
    )
    assert [(f.offset, f.evidence["witness"]) for f in findings(NAME, seen)] == [
        (1, "last stable offset")
    ]


def test_a_new_leaders_lower_offset_proves_nothing() -> None:
    epochs = [0] * 25 + [1] * 15
    seen = view(
        [A],
        sends=[commit(1, acked=0)],
        reads=[poll((0, 1), at=25 * SECOND + 1)],
        watermarks={"A": samples(*[(2, 2)] * 25, *[(0, 2)] * 15, epochs=epochs)},
    )
    assert anomalies(NAME, seen) == []


def test_read_before_an_operation_that_never_returned_was_invoked() -> None:
    seen = view(
        [A],
        sends=[commit(1, outcome="info", asked=0, returned=-1)],
        reads=[poll((0, 1), at=SECOND - 1)],
    )
    assert anomalies(NAME, seen) == [("uncommitted-read", "A", 0)]


def test_an_operation_that_returned_without_asking_for_its_commit() -> None:
    seen = view([A], sends=[commit(1, outcome="info", asked=0)], reads=[poll((0, 1))])
    assert anomalies(NAME, seen) == [("uncommitted-read", "A", 0)]


def test_an_operation_that_was_to_stay_open_and_never_returned() -> None:
    seen = view(
        [A],
        sends=[commit(1, ending="open", outcome="info", asked=0, returned=-1)],
        reads=[poll((0, 1))],
    )
    assert anomalies(NAME, seen) == [("uncommitted-read", "A", 0)]


def test_before_a_truncation_too() -> None:
    early = commit(
        4, acked=2, cluster="B", invoked=550 * SECOND, asked=700 * SECOND, returned=701 * SECOND
    )
    got = [poll((0, 1), at=400 * SECOND), poll((2, 4), at=650 * SECOND)]
    seen = trip(sends=[commit(1, acked=0, asked=450 * SECOND), early], reads=got)
    assert anomalies(NAME, seen) == [("uncommitted-read", "A", 0), ("uncommitted-read", "A", 2)]
    assert examined(NAME, seen) == {"A/native": 1, "A/mirrored": 1}


@pytest.mark.parametrize(
    ("later", "found"),
    [([], []), ([(0, 2)], [("uncommitted-read", "B", 0)])],
    ids=["the LSO went back with a truncation", "the LSO was below before the truncation"],
)
def test_a_mirror_that_truncated_its_destination_took_the_last_stable_offset_back(
    later: list[tuple[int, int]], found: list[tuple[str, str, int]]
) -> None:
    """B had 1 and its marker, and a reader got 1; then the mirror ended, and truncated B to offset
    0, where the transaction began."""
    stop = mirror_stop(2, 0, time=501 * SECOND, truncated=[(2, 1), (1, 0)])
    marks = [*[(0, 0)] * 20, *later, *[(0, 0)] * 9]
    seen = view(
        [A, Log("B").data(8)],
        mirror_kind="shadow",
        promotions=[promoted(0)],
        stops=[stop],
        sends=[commit(1, acked=0)],
        reads=[poll((0, 1), cluster="B", at=20 * SECOND + 1)],
        watermarks={"B": samples(*marks)},
    )
    assert anomalies(NAME, seen) == found
