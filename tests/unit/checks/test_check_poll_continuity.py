"""poll-continuity: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.read.payload_ids import named_on_the_wire
from tests.unit.checks.histories import (
    SECOND,
    Log,
    Polled,
    but,
    mirror_stop,
    poll,
    promoted,
    reversed_,
    samples,
    send,
    view,
)
from tests.unit.checks.round_trip import BACK, before, trip, truncation
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    findings,
    unjudged,
)

A = Log("A").data(1, 2, 3)


class Got(Polled, total=False):
    """Its position, or what it did instead of a poll."""

    position: int | None
    kind: str


def later(*pairs: tuple[int, int], at: int = 200, **rest: Unpack[Got]) -> Read:
    return poll(*pairs, at=at * SECOND, **rest)


def assigned(position: int, at: int = 50, **rest: Unpack[Polled]) -> Read:
    return poll(kind="assign", position=position, at=at * SECOND, **rest)


BEYOND = poll((3, 5), at=650 * SECOND)
"""A has been truncated at offset 2, and followed B."""


STOOD = [poll((2, 3), at=400 * SECOND), BEYOND]


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
    "poll-skip": Rejected(view([A], reads=[poll((0, 1)), later((2, 3))]), "A", 1),
    "poll-regression": Rejected(view([A], reads=[poll((1, 2)), later((0, 1))]), "A", 0),
    "internal-skip": Rejected(view([A], reads=[poll((0, 1), (2, 3))]), "A", 1),
    "internal-regression": Rejected(view([A], reads=[poll((1, 2), (0, 1))]), "A", 0),
    "skipped-by-truncation": Rejected(trip(reads=STOOD), "A", 2),
    "passed-unread": Rejected(
        view(
            [Log("A").data(1, 2)],
            reads=[assigned(0), poll((0, 1)), later(kind="drained", position=2)],
        ),
        "A",
        1,
    ),
    "began-ahead": Rejected(
        view(
            [A],
            reads=[
                assigned(0, group="g"),
                poll((0, 1), group="g"),
                assigned(2, at=200, reader="s", group="g"),
                later((2, 3), at=201, reader="s", group="g"),
            ],
        ),
        "A",
        1,
    ),
    "drained-early": Rejected(
        view(
            [Log("A").data(1, 2)],
            sends=[send(1, 2, acked=0, returned=20 * SECOND)],
            watermarks={"A": samples((2, 2))},
            reads=[assigned(0), poll((0, 1)), later(kind="drained", position=1)],
        ),
        "A",
        1,
    ),
    "position-beyond-end": Rejected(
        view(
            [Log("A").data(1)], reads=[assigned(0), poll((0, 1)), later(kind="drained", position=5)]
        ),
        "A",
        1,
    ),
}


def test_the_same_record_again() -> None:
    assert anomalies(NAME, view([A], reads=[poll((0, 1)), later((0, 1))])) == [
        ("poll-regression", "A", 0)
    ]


@pytest.mark.parametrize(("position", "found"), [(2, []), (3, [("poll-regression", "A", 2)])])
def test_a_consumer_gets_nothing_below_the_position_that_it_reported(
    position: int, found: list[tuple[str, str, int]]
) -> None:
    log = Log("A").data(1).marker("abort", pid=7).data(3)
    reads = [poll((0, 1), position=position), later((2, 3))]
    assert anomalies(NAME, view([log], reads=reads)) == found
    moved = [reads[0], assigned(2, at=150), reads[1]]
    assert "poll-regression" not in [kind for kind, *_ in anomalies(NAME, view([log], reads=moved))]


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


def test_poll_before_a_truncation_is_judged_by_the_log_of_that_time() -> None:
    assert anomalies(NAME, trip(reads=[poll((0, 1), (2, 3), at=400 * SECOND)])) == [
        ("internal-skip", "A", 1)
    ]
    (found,) = findings(
        NAME, trip(reads=[poll((2, 3), at=400 * SECOND), poll((2, 3), at=401 * SECOND)])
    )
    assert (found.kind, found.offset, found.evidence["capture"]) == ("poll-regression", 2, "1-away")


@pytest.mark.parametrize(
    ("truncated", "found"),
    [
        ([(3, 1)], []),
        # Nothing was truncated, so nothing explains how a reader got to 3.
        ([(3, 3)], [("poll-skip", "B", 1), ("position-beyond-end", "B", 2)]),
    ],
)
def test_the_tail_that_a_mirror_truncated_at_the_promotion_is_another_era(
    truncated: list[tuple[int, int]], found: list[tuple[str, str, int]]
) -> None:
    stop = mirror_stop(3, 1, time=501 * SECOND, truncated=truncated)
    got = [
        poll((0, 1), cluster="B"),
        later((2, 3), cluster="B"),
        poll((1, 8), cluster="B", at=600 * SECOND),
    ]
    seen = view(
        [A, Log("B").data(1, 8)],
        mirror_kind="shadow",
        promotions=[promoted(1)],
        stops=[stop],
        reads=got[:2] if found else got,
    )
    assert anomalies(NAME, seen) == found


@pytest.mark.parametrize(
    ("stands", "found"),
    [(3, []), (4, [("position-beyond-end", "B", 2)])],
    ids=["stays where it was", "moved further beyond"],
)
def test_a_consumer_that_nothing_moved_stands_beyond_a_log_that_was_truncated_below_it(
    stands: int, found: list[tuple[str, str, int]]
) -> None:
    stop = mirror_stop(3, 1, time=501 * SECOND, truncated=[(3, 1)])
    got = [
        poll((0, 1), (1, 2), (2, 3), cluster="B"),
        poll(kind="drained", position=stands, cluster="B", at=600 * SECOND),
    ]
    logs = [Log("A").data(1).data(2).data(3), Log("B").data(1, 8)]
    seen = view(logs, mirror_kind="shadow", promotions=[promoted(1)], stops=[stop], reads=got)
    assert [
        expected for expected in anomalies(NAME, seen) if expected[0] == "position-beyond-end"
    ] == found


def test_a_skip_has_the_truncation_and_the_readers_position() -> None:
    (found,) = findings(NAME, trip(reads=STOOD))
    evidence = {
        name: found.evidence[name]
        for name in ("records", "truncated_to", "stood_at", "then", "last_skipped")
    }
    assert evidence == {
        "records": 1,
        "truncated_to": 2,
        "stood_at": 3,
        "then": {"offset": 3, "uid": 5},
        "last_skipped": 2,
    }


def test_polls_of_what_came_from_b_in_the_fault_say_nothing_of_the_reader_s_position() -> None:
    late = replace(reversed_("A->B", at=600), end=640 * SECOND)
    got = [
        poll((2, 3), at=400 * SECOND),
        poll((3, 5), at=630 * SECOND),
        poll((4, 6), at=750 * SECOND),
    ]
    (found,) = findings(NAME, trip(windows=[late], reads=got))
    assert (found.offset, found.evidence["stood_at"], found.evidence["then"]) == (
        2,
        3,
        {"offset": 3, "uid": 5},
    )


def test_a_mirror_that_truncates_when_it_ends_may_leave_readers_beyond_it() -> None:
    stop = mirror_stop(3, 1, time=501 * SECOND, truncated=[(3, 1)])
    got = [poll((0, 1), (1, 2), cluster="B"), poll((2, 9), cluster="B", at=600 * SECOND)]
    seen = view(
        [A, Log("B").data(1, 8, 9)],
        mirror_kind="shadow",
        promotions=[promoted(1)],
        stops=[stop],
        reads=got,
    )
    assert anomalies(NAME, seen) == [("skipped-by-truncation", "B", 1)]


def test_above_a_truncation_a_reader_of_committed_records_skips_no_aborted_ones() -> None:
    after = Log("A").data(1).data(2).txn(4, pid=7, end="abort").data(5)
    got = [poll((2, 3), at=400 * SECOND), poll((4, 5), at=650 * SECOND)]
    for isolation, skips in (
        ("read_committed", []),
        ("read_uncommitted", [("skipped-by-truncation", "A", 2)]),
    ):
        seen = trip(logs=[after], reads=[replace(each, isolation=isolation) for each in got])
        assert anomalies(NAME, seen) == skips


def test_a_position_in_a_truncated_generation_is_compared_with_that_generation() -> None:
    stood = [assigned(0), poll((0, 1), (1, 2), (2, 3), at=400 * SECOND)]
    assert anomalies(NAME, trip(reads=[*stood, later(kind="revoke", position=3, at=401)])) == []
    assert anomalies(NAME, trip(reads=[*stood, later(kind="revoke", position=4, at=401)])) == [
        ("position-beyond-end", "A", 3)
    ]


@pytest.mark.parametrize(
    ("restarted", "passed_at", "found"),
    [
        (Log("A").data(1).data(2).marker("abort", pid=7), 598, []),
        (Log("A").data(1).data(2).marker("abort", pid=7), 450, [("passed-unread", "A", 2)]),
        (Log("A").data(1).data(2).data(3), 598, [("passed-unread", "A", 2)]),
    ],
    ids=["a marker in its place", "before the leader died", "the record is still there"],
)
def test_a_reader_passes_what_a_restarted_cluster_has_where_its_dead_leader_had_a_record(
    restarted: Log, passed_at: int, found: list[tuple[str, str, int]]
) -> None:
    """A died at second 500 with 3 at offset 2, and was truncated at second 600."""
    reads = [
        assigned(0),
        poll((0, 1), (1, 2), at=400 * SECOND),
        poll(position=3, at=passed_at * SECOND),
    ]
    earlier = [before(), restarted.taken("1-reverse-600", at=599)]
    assert anomalies(NAME, trip(earlier=earlier, reads=reads)) == found


@pytest.mark.parametrize(
    ("then", "found"),
    [
        (poll((2, 4), (3, 5), at=650 * SECOND), [("passed-unread", "A", 1)]),
        (poll((1, 2), (2, 4), at=650 * SECOND), []),
        (assigned(2, at=650), []),
        (later(kind="revoke", position=2, at=650), [("passed-unread", "A", 1)]),
    ],
    ids=[
        "skipped what is below the truncation",
        "went on where it stood",
        "was moved",
        "had moved before it was revoked",
    ],
)
def test_a_reader_below_a_truncation_continues_at_its_position(
    then: Read, found: list[tuple[str, str, int]]
) -> None:
    """A reader had got offset 0 when A died; 1 is below the truncation, and is still there."""
    assert anomalies(NAME, trip(reads=[assigned(0), poll((0, 1), at=400 * SECOND), then])) == found


@pytest.mark.parametrize(
    ("got", "found"),
    [
        ([(1, 2), (2, 4)], []),
        ([(2, 4)], [("passed-unread", "A", 1)]),
    ],
    ids=["all of it", "not what is below the truncation"],
)
def test_a_poll_over_an_unrecorded_truncation_continues_its_own_first_part(
    got: list[tuple[int, int]], found: list[tuple[str, str, int]]
) -> None:
    """A reader had got offset 0 when A died; the next poll began while the log was A's, and ended
    after that."""
    lasts = replace(BACK, end=640 * SECOND)
    spanning = replace(poll(*got, at=625 * SECOND), time=615 * SECOND)
    seen = trip(
        windows=[lasts],
        truncations=[],
        reads=[assigned(0), poll((0, 1), at=400 * SECOND), spanning],
    )
    assert anomalies(NAME, seen) == found


def test_the_position_of_a_poll_that_spans_a_truncation_may_be_of_either_log() -> None:
    """It had fetched its records before; its position afterwards may be the one in the new log."""
    spanning = replace(poll((2, 3), position=4), time=615 * SECOND, returned=625 * SECOND)
    lasts, truncated = replace(BACK, end=640 * SECOND), replace(truncation(), time=620 * SECOND)
    assert anomalies(NAME, trip(windows=[lasts], truncations=[truncated], reads=[spanning])) == []
    before = replace(spanning, returned=618 * SECOND)
    assert anomalies(NAME, trip(windows=[lasts], truncations=[truncated], reads=[before])) == [
        ("position-beyond-end", "A", 3)
    ]


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
        ([assigned(-1, at=90), poll(position=0, at=95 * SECOND), later((1, 2), (2, 3))], 0),
    ],
    ids=[
        "its first poll begins later",
        "over what an empty poll passed",
        "the position of a poll",
        "a revocation",
        "no poll at all",
        "an empty poll says where an assignment of unknown position led to",
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


@pytest.mark.parametrize(
    ("got", "returned", "found"),
    [
        ((0, 1, 3), 0, []),  # the old log, which has a marker at 2
        ((0, 1, 3), 2, []),  # handed over after the truncation: the new log has a record at 2
        ((0, 1, 2, 3), 2, []),  # the new log
        ((0, 3), 0, ["internal-skip"]),
    ],
)
def test_a_reader_of_a_program_s_topic_got_what_its_log_had_before_the_truncation(
    got: tuple[int, ...], returned: int, found: list[str]
) -> None:
    """Its records have no names of their own. A was captured at second 599, and truncated to offset
    2 a second later."""
    old = Log("A").data(1, pid=7).data(2, pid=7).marker("abort", pid=8).data(3, pid=7)
    both = [
        Log(name).data(1, pid=7).data(2, pid=7).data(4, pid=9).data(5, pid=9) for name in ("A", "B")
    ]
    sends = [
        replace(send(uid, acked=at, producer_id=pid, cluster=cluster), producer_epoch=0, sequence=n)
        for uid, at, cluster, pid, n in (
            (1, 0, "A", 7, 0), (2, 1, "A", 7, 1), (3, 3, "A", 7, 2),
            (4, 2, "B", 9, 0), (5, 3, "B", 9, 1),
        )
    ]  # fmt: skip
    read = poll(
        *((offset, -1) for offset in got),
        isolation="read_uncommitted",
        at=truncation().time + returned,
    )
    seen = trip(
        logs=both,
        earlier=[old.taken("1-reverse-600", at=599)],
        truncations=[truncation(2, 4)],
        sends=sends,
        reads=[read],
    )
    named = named_on_the_wire(but(seen, programs=frozenset({"A.t"}), wired=frozenset({"A.t"})))
    assert [kind for kind, *_ in anomalies(NAME, named)] == found
