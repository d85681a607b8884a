"""poll-continuity: records that a reader's own positions passed, even if other readers got them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Read
from tests.unit.checks.clients import poll
from tests.unit.checks.histories import view
from tests.unit.checks.logs import SECOND
from tests.unit.checks.reading import A, assigned, later
from tests.unit.checks.verdicts import (
    anomalies,
    findings,
)

NAME = "poll-continuity"


def test_a_poll_with_a_rebalance_proves_nothing() -> None:
    # The consumer's row of it, and the row of the rebalance, which the poll served: the poll had
    # begun before.
    assigned = later(kind="assign", position=0, at=150)
    around = replace(poll((2, 3), (0, 1)), time=149 * SECOND, returned=151 * SECOND)
    seen = view([A], reads=[poll((0, 1)), assigned, around, later((1, 2), (2, 3))])
    assert anomalies(NAME, seen) == []
    # Its assignment counts all the same: it never got 2.
    assert anomalies(NAME, view([A], reads=[poll((0, 1)), assigned, around, later((2, 3))])) == [
        ("passed-unread", "A", 1)
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([assigned(0), later((1, 2), (2, 3))], 0),
        ([assigned(0), later(at=150, position=2), later((2, 3))], 0),
        ([assigned(0), poll((0, 1), position=3)], 1),
        ([assigned(0), poll((0, 1)), later(kind="revoke", position=3)], 1),
        ([assigned(0), later(kind="drained", position=3)], 0),
    ],
    ids=[
        "its first poll begins later",
        "over what an empty poll passed",
        "the position of a poll",
        "a revocation",
        "no poll at all",
    ],
)
def test_a_consumer_got_every_record_that_its_own_positions_passed(
    rows: list[Read], expected: int
) -> None:
    other = [assigned(0, reader="s"), poll((0, 1), (1, 2), (2, 3), reader="s")]
    assert anomalies(NAME, view([A], reads=[*rows, *other])) == [("passed-unread", "A", expected)]
    alike = [replace(row, group="g") for row in [*rows, *other]]
    assert ("passed-unread", "A", expected) in anomalies(NAME, view([A], reads=alike))


def test_a_commit_beyond_the_position_loses_the_records_between() -> None:
    reads = [
        assigned(0, group="g"),
        poll((0, 1), group="g"),
        later(kind="commit", position=2, at=150, group="g"),
        assigned(2, at=170, reader="s", group="g"),
        later((2, 3), reader="s", group="g"),
    ]
    (found,) = findings(NAME, view([A], reads=reads))
    assert (found.kind, found.offset, found.evidence["group_at"], found.evidence["began_at"]) == (
        "began-ahead",
        1,
        1,
        2,
    )


def test_a_skip_that_polls_show_is_not_reported_again_for_positions() -> None:
    """Assigned ahead of its former position, it got the records before and after one record, but
    not that record."""
    moved = [assigned(0), later(kind="revoke", position=0, at=60), assigned(2, at=70)]
    assert anomalies(NAME, view([A], reads=[*moved, poll((0, 1), (2, 3))])) == [
        ("internal-skip", "A", 1)
    ]
    assert anomalies(NAME, view([A], reads=[*moved, poll((2, 3))])) == [("began-ahead", "A", 0)]
