"""poll-continuity: the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.checks.clients import poll, send
from tests.unit.checks.histories import samples, view
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.reading import BEYOND, STOOD, A, assigned, later
from tests.unit.checks.round_trip import trip
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

NAME = "poll-continuity"
GAPS = Log("A").txn(1, pid=7).txn(2, pid=7, end="abort").txn(3, pid=7)
"""1 at offset 0, its marker, 2 aborted at 2, its marker, 3 at 4."""


ACCEPTED = {
    "poll after poll": (view([A], reads=[poll((0, 1)), later((1, 2), (2, 3))]), {"A/native": 2}),
    "over markers and what was aborted": (
        view([GAPS], reads=[poll((0, 1)), later((4, 3))]),
        {"A/native": 2},
    ),
    "over markers in one poll": (view([GAPS], reads=[poll((0, 1), (4, 3))]), {"A/native": 1}),
    "uncommitted, over markers": (
        view([GAPS], reads=[poll((0, 1), (2, 2), (4, 3), isolation="read_uncommitted")]),
        {"A/native": 1},
    ),
    "an empty poll in between": (
        view([A], reads=[poll((0, 1)), later(at=150, position=1), later((1, 2))]),
        {"A/native": 2},
    ),
    "a commit in between": (
        view([A], reads=[poll((0, 1)), later(kind="commit", position=1, at=150), later((1, 2))]),
        {"A/native": 2},
    ),
    "assigned elsewhere": (
        view([A], reads=[poll((2, 3)), later(kind="assign", position=0, at=150), later((0, 1))]),
        {"A/native": 2},
    ),
    "a new consumer of that name": (
        view([A], reads=[poll((2, 3)), replace(later((0, 1)), process=9)]),
        {"A/native": 2},
    ),
    "two consumers": (view([A], reads=[poll((0, 1)), later((2, 3), reader="s")]), {"A/native": 2}),
    "two clusters": (
        view([A, Log("B").data(1, 2, 3)], reads=[poll((2, 3)), later((0, 1), cluster="B")]),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "a log that was truncated": (
        trip(reads=[poll((2, 3), at=400 * SECOND), poll((2, 4), at=650 * SECOND)]),
        {"A/native": 1, "A/mirrored": 1},
    ),
    "beyond a truncation, and aware of it": (
        trip(
            reads=[
                poll((2, 3), at=400 * SECOND),
                poll(at=620 * SECOND, kind="assign", position=2),
                poll((2, 4), (3, 5), at=650 * SECOND),
            ]
        ),
        {"A/native": 1, "A/mirrored": 1},
    ),
    "what was got while the log was being truncated": (
        trip(
            reads=[
                poll((2, 3), at=400 * SECOND),
                replace(poll((2, 4)), time=600 * SECOND, returned=602 * SECOND),
                BEYOND,
            ]
        ),
        {"A/native": 1, "A/mirrored": 2},
    ),
    "from where it was assigned to where it was drained": (
        view(
            [GAPS],
            reads=[
                assigned(0),
                poll((0, 1)),
                later((4, 3)),
                later(at=201, position=6),
                later(kind="drained", position=6),
            ],
        ),
        {"A/native": 2},
    ),
    "killed in the middle": (view([A], reads=[assigned(0), poll((0, 1))]), {"A/native": 1}),
    "nothing is known of where it began": (
        view([A], reads=[assigned(-1), later((2, 3))]),
        {"A/native": 1},
    ),
    "reset to the log start": (
        view(
            [Log("A", start=1).data(2, 3)],
            reads=[assigned(0), later((1, 2)), assigned(1, at=210), later((1, 2), (2, 3), at=220)],
        ),
        {"A/native": 2},
    ),
    "a member goes on where another had committed": (
        view(
            [A],
            reads=[
                assigned(0, group="g"),
                poll((0, 1), (1, 2), group="g"),
                later(kind="commit", position=1, group="g", at=150),
                later(kind="revoke", position=2, group="g", at=160),
                assigned(1, at=170, reader="s", group="g"),
                later((1, 2), (2, 3), at=180, reader="s", group="g"),
                later(kind="drained", position=3, at=200, reader="s", group="g"),
            ],
        ),
        {"A/native": 2},
    ),
    "a group that begins where a mirror has carried its offset": (
        view(
            [A, Log("B").data(1, 2, 3)],
            reads=[assigned(2, cluster="B", group="g"), later((2, 3), cluster="B", group="g")],
        ),
        {"B/mirrored": 1},
    ),
    "a mirror carried its offset on while it was away": (
        view(
            [A, Log("B").data(1, 2, 3)],
            reads=[
                assigned(0, at=10, cluster="B", group="g"),
                poll((0, 1), at=20 * SECOND, cluster="B", group="g"),
                later((0, 1), (1, 2), at=30, group="g", reader="s"),
                assigned(2, at=40, cluster="B", group="g"),
                later((2, 3), cluster="B", group="g"),
            ],
        ),
        {"A/native": 1, "B/mirrored": 2},
    ),
    "a cleaner took it perhaps": (
        view([A], reads=[assigned(0), later((2, 3))], compacted={"A": 2}),
        {"A/native": 1},
    ),
    "an open transaction at the end": (
        view(
            [Log("A").data(1).txn(2, pid=7, end=None)],
            sends=[send(1, acked=0, returned=20 * SECOND)],
            watermarks={"A": samples((1, 2))},
            reads=[assigned(0), poll((0, 1)), later(kind="drained", position=1)],
        ),
        {"A/native": 1},
    ),
    "what retention deleted since": (
        view([Log("A", start=2).data(3)], reads=[poll((0, 1)), later((2, 3))]),
        {"A/native": 2},
    ),
}
REJECTS = {
    "poll-skip": Rejected(
        view=view([A], reads=[poll((0, 1)), later((2, 3))]), cluster="A", offset=1
    ),
    "poll-regression": Rejected(
        view=view([A], reads=[poll((1, 2)), later((0, 1))]), cluster="A", offset=0
    ),
    "internal-skip": Rejected(view=view([A], reads=[poll((0, 1), (2, 3))]), cluster="A", offset=1),
    "internal-regression": Rejected(
        view=view([A], reads=[poll((1, 2), (0, 1))]), cluster="A", offset=0
    ),
    "skipped-by-truncation": Rejected(view=trip(reads=STOOD), cluster="A", offset=2),
    "passed-unread": Rejected(
        view=view(
            [Log("A").data(1, 2)],
            reads=[assigned(0), poll((0, 1)), later(kind="drained", position=2)],
        ),
        cluster="A",
        offset=1,
    ),
    "began-ahead": Rejected(
        view=view(
            [A],
            reads=[
                assigned(0, group="g"),
                poll((0, 1), group="g"),
                assigned(2, at=200, reader="s", group="g"),
                later((2, 3), at=201, reader="s", group="g"),
            ],
        ),
        cluster="A",
        offset=1,
    ),
    "drained-early": Rejected(
        view=view(
            [Log("A").data(1, 2)],
            sends=[send(1, 2, acked=0, returned=20 * SECOND)],
            watermarks={"A": samples((2, 2))},
            reads=[assigned(0), poll((0, 1)), later(kind="drained", position=1)],
        ),
        cluster="A",
        offset=1,
    ),
    "position-beyond-end": Rejected(
        view=view(
            [Log("A").data(1)], reads=[assigned(0), poll((0, 1)), later(kind="drained", position=5)]
        ),
        cluster="A",
        offset=1,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_the_same_record_again() -> None:
    assert anomalies(NAME, view([A], reads=[poll((0, 1)), later((0, 1))])) == [
        ("poll-regression", "A", 0)
    ]


def test_a_read_uncommitted_reader_gets_aborted_records() -> None:
    seen = view(
        [GAPS],
        reads=[
            poll((0, 1), isolation="read_uncommitted"),
            later((4, 3), isolation="read_uncommitted"),
        ],
    )
    assert anomalies(NAME, seen) == [("poll-skip", "A", 2)]


def test_only_read_uncommitted_readers_get_open_transactions() -> None:
    log = Log("A").data(1).txn(2, pid=7, end=None).data(3)
    for isolation, skips in (("read_committed", []), ("read_uncommitted", [("poll-skip", "A", 1)])):
        seen = view(
            [log], reads=[poll((0, 1), isolation=isolation), later((2, 3), isolation=isolation)]
        )
        assert anomalies(NAME, seen) == skips


def test_records_that_were_skipped_are_one_anomaly() -> None:
    (found,) = findings(
        NAME, view([Log("A").data(1, 2, 3, 4)], reads=[poll((0, 1)), later((3, 4))])
    )
    assert (found.offset, found.evidence["records"]) == (1, 2)
    assert (found.evidence["before"], found.evidence["then"]) == (
        {"offset": 0, "uid": 1},
        {"offset": 3, "uid": 4},
    )


def test_without_a_log_only_going_back_can_be_found() -> None:
    seen = view([], reads=[poll((0, 1), (2, 3)), later((0, 1))])
    assert anomalies(NAME, seen) == [("poll-regression", "A", 0)]
    assert unjudged(NAME, seen) == ["no log of A was captured for A.t-0"]
