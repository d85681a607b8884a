"""lost-write: the smallest histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import NULL
from tests.unit.checks.histories import (
    SECOND,
    History,
    Log,
    but,
    commit,
    mirror_stop,
    poll,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.round_trip import ACKED as TRIP
from tests.unit.checks.round_trip import AWAY, home_again, on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "lost-write"
A3 = Log("A").txn(1, 2, 3, pid=7)
ACKED = [commit(1, 2, 3, acked=0)]
ACCEPTED = {
    "there": (view([A3, Log("B").data(1, 2, 3)], sends=ACKED), {"A/native": 3}),
    "aborted need not be": (
        view([Log("A"), Log("B")], sends=[commit(1, acked=0, ending="abort")]),
        {},
    ),
    "info that nobody saw": (view([Log("A"), Log("B")], sends=[commit(1, outcome="info")]), {}),
    "tail lost with A": (
        view([A3, Log("B").data(1)], sends=ACKED, promotions=[promoted(1)]),
        {"A/native": 3},
    ),
    "unmarked when A died": (
        view(
            [Log("A").txn(1, pid=7, end=None), Log("B")],
            sends=[commit(1, acked=0)],
            promotions=[promoted(0)],
        ),
        {"A/native": 1},
    ),
    "unmarked when A died by itself": (
        view(
            [Log("A").txn(1, pid=7, end=None), Log("B")],
            sends=[commit(1, acked=0)],
            deaths={"A": SECOND},
        ),
        {"A/native": 1},
    ),
    "deleted on B": (view([A3, Log("B", start=1).data(2, 3)], sends=ACKED), {"A/native": 3}),
    "written natively on B": (
        view(
            [Log("A"), Log("B").data(8, pid=3)],
            sends=[send(8, acked=0, cluster="B")],
            promotions=[promoted(0)],
        ),
        {"B/native": 1},
    ),
}
ACCEPTED["there and back"] = (trip(), {"A/native": 4, "B/native": 2})
REJECTS = {
    "lost-write": Rejected(view([A3, Log("B").data(1, 3)], sends=ACKED), "A", 1),
}


def test_the_evidence_says_where_it_belongs_on_the_destination() -> None:
    (found,) = findings(NAME, REJECTS["lost-write"].view)
    assert found.evidence["missing_on"] == "B"
    assert (found.evidence["after_offset"], found.evidence["before_offset"]) == (0, 1)


def test_absent_where_it_was_acknowledged() -> None:
    seen = view(
        [Log("A").data(1).skip(1).data(3), Log("B").data(1, 3)], sends=[send(1, 2, 3, acked=0)]
    )
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)]


@pytest.mark.parametrize("died", [False, True])
def test_acknowledged_one_by_one_in_an_operation_of_unknown_outcome(died: bool) -> None:
    """The planted bug `purged-is-acknowledged` makes this of a send that the end of its producer
    interrupted."""
    after = [promoted(1)] if died else []
    seen = view(
        [Log("A").data(1), Log("B").data(1)],
        sends=[send(1, 2, 3, acked=0, outcome="info")],
        promotions=after,
    )
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)], "both, as one run of offsets"


def test_an_acknowledged_commit_that_the_bytes_aborted_is_not_visible() -> None:
    seen = view([Log("A").txn(1, pid=7, end="abort"), Log("B")], sends=[commit(1, acked=0)])
    assert [(f.kind, f.offset, f.evidence["how"]) for f in findings(NAME, seen)] == [
        ("lost-write", 0, "not visible")
    ]


def test_an_unknown_commit_that_a_reader_saw_must_be_there() -> None:
    seen = view([Log("A"), Log("B")], sends=[commit(1, outcome="info")], reads=[poll((0, 1))])
    assert anomalies(NAME, seen) == [("lost-write", "A", -1)]


def test_without_the_destinations_log_it_is_unknown() -> None:
    assert unjudged(NAME, view([A3], sends=ACKED))


def test_a_tail_that_was_truncated_is_no_lost_write_of_the_log_that_came_after_it() -> None:
    assert anomalies(NAME, trip()) == []


def test_acknowledged_records_below_the_truncation_must_remain() -> None:
    lost = Log("A").data(1).data(4, at=2, crc=44).data(5, crc=55).data(6)
    assert anomalies(NAME, trip(logs=[lost, on_b()])) == [("lost-write", "A", 1)]


def test_a_hole_in_the_records_mirrored_back() -> None:
    hole = Log("A").data(1).data(2).data(5, at=3, crc=55).data(6)
    assert ("lost-write", "B", 2) in anomalies(NAME, trip(logs=[hole, on_b()]))


def test_a_commit_whose_marker_was_in_the_tail_is_the_next_owners_to_end() -> None:
    before = (
        Log("A")
        .data(1)
        .data(2, pid=7, transactional=True)
        .marker("commit", pid=7)
        .taken("1-away", at=510)
    )
    b = Log("B").data(1).data(2, pid=7, transactional=True).marker("abort", pid=7).data(4).data(5)
    a = (
        Log("A")
        .data(1)
        .data(2, pid=7, transactional=True)
        .marker("abort", pid=7)
        .data(4)
        .data(5)
        .data(6)
    )
    sends = [send(1, acked=0), commit(2, acked=1), *TRIP[2:]]
    ends = [AWAY, home_again(5)]
    seen = trip(
        logs=[a, b],
        earlier=[before],
        promotions=ends,
        sends=[replace(s, offsets=s.offsets + (s.number > 3)) for s in sends],
    )
    assert anomalies(NAME, seen) == []
    assert anomalies("commit-aborted", seen) == []


def test_neighbours_are_one_anomaly() -> None:
    sent, left = [send(1, 2, 3, 4, 5, 6, acked=0)], Log("B").data(1, 4, 6)
    never = Log("A").data(1).data(4, at=3).data(6, at=5)
    for log in (Log("A").data(1, 2, 3, 4, 5, 6), never):
        found = findings(NAME, view([log, left], sends=sent))
        assert [(f.offset, f.evidence["records"]) for f in found] == [(1, 2), (4, 1)]


def test_a_torn_log_is_not_judged() -> None:
    seen = view([Log("A").torn(), Log("B")], sends=[send(1, acked=0)])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_an_unknown_leader_with_replicas_missing_is_not_judged() -> None:
    seen = view([Log("A", leader=False), Log("B")], topology="A:3->B:3", sends=[send(1, acked=0)])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_records_deleted_by_retention_are_not_lost() -> None:
    assert (
        anomalies(
            NAME, view([Log("A", start=5).data(9), Log("B").data(9)], sends=[send(1, acked=0)])
        )
        == []
    )


def test_records_mirrored_before_a_restart_may_be_deleted_before_their_repeats() -> None:
    """B had 1 2 3 1 when A was given up, and has deleted all but the last: a reader had got 3
    there."""
    flap = Window(id="flap", fault="link-flap", target="A->B", start=SECOND, end=2 * SECOND)
    logs, sends = [Log("A").data(1, 2, 3), Log("B", start=3).data(1)], [send(1, 2, 3, acked=0)]
    story: History = {
        "sends": sends,
        "promotions": [promoted(4)],
        "reads": [poll((2, 3), cluster="B")],
    }
    flapped: History = {**story, "windows": [flap]}
    assert anomalies(NAME, view(logs, **flapped)) == []
    assert anomalies(NAME, view(logs, **story)) == [("lost-write", "A", 2)]
    assert anomalies(NAME, view([logs[0], Log("B", start=2).data(1)], **flapped)) == [
        ("lost-write", "A", 2)
    ]


def test_losses_above_a_truncation_are_reported_separately() -> None:
    assert anomalies(NAME, trip(earlier=[Log("A").data(1).taken("1-away", at=510)])) == [
        ("lost-write", "A", 2)
    ]


@pytest.mark.parametrize(
    ("mirrored", "found"), [(1, []), (2, [("lost-write", "A", 0)])], ids=["open", "committed"]
)
def test_a_transaction_that_was_open_when_truncated_was_promised_to_nobody(
    mirrored: int, found: list[tuple[str, str, int]]
) -> None:
    """B had 1, and perhaps its COMMIT, and a read_uncommitted reader had got it; the mirror ended,
    and truncated B to 0."""
    truncated = [(mirrored, 0)]
    stop = mirror_stop(mirrored, 0, truncated=truncated)
    seen = view(
        [Log("A").txn(1, pid=7), Log("B").data(9)],
        mirror_kind="shadow",
        promotions=[promoted(0)],
        stops=[stop],
        sends=[commit(1, acked=0)],
        reads=[poll((0, 1), cluster="B", isolation="read_uncommitted")],
    )
    assert anomalies(NAME, seen) == found


def test_a_tail_missing_after_a_planned_failover() -> None:
    seen = view([A3, Log("B").data(1)], sends=ACKED, promotions=[promoted(1, kind="planned")])
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)]


def test_a_tail_that_a_reader_on_the_destination_had_got() -> None:
    lost = view(
        [A3, Log("B").data(1)],
        sends=ACKED,
        promotions=[promoted(3)],
        reads=[poll((1, 2), cluster="B")],
    )
    assert anomalies(NAME, lost) == [("lost-write", "A", 1)]


@pytest.mark.parametrize(("isolation", "lost"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_what_the_failover_aborted_had_been_shown_to_those_alone_who_read_committed(
    isolation: str, lost: int
) -> None:
    b = Log("B").txn(1, 2, 3, pid=7, end="abort")
    got = poll((1, 2), cluster="B", isolation=isolation)
    seen = view([A3, b], mirror_kind="shadow", sends=ACKED, promotions=[promoted(3)], reads=[got])
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)] * lost


def test_a_tail_that_a_high_watermark_of_the_destination_had_covered() -> None:
    lost = view(
        [A3, Log("B").data(1)],
        sends=ACKED,
        promotions=[promoted(3)],
        watermarks={"B": samples((2, 2))},
    )
    assert anomalies(NAME, lost) == [("lost-write", "A", 1)]


def test_a_truncated_tail_that_no_reader_got_is_not_a_lost_write() -> None:
    lost = view(
        [A3, Log("B").data(1)],
        sends=ACKED,
        promotions=[promoted(3)],
        watermarks={"B": samples((1, 1))},
    )
    assert anomalies(NAME, lost) == []


def test_a_high_watermark_above_the_promotion_offset_proves_nothing_about_the_mirrored_era() -> (
    None
):
    seen = view(
        [A3, Log("B").data(1).data(8)],
        sends=ACKED,
        promotions=[promoted(1)],
        watermarks={"B": samples((2, 2))},
    )
    assert anomalies(NAME, seen) == []


def written_later(at: int) -> Send:
    """B acknowledged its own 8 at offset 3, sent at this time; the promotion was at second 501."""
    return replace(send(8, acked=3, cluster="B"), invoked=at * SECOND)


GAP = [A3, Log("B").data(1).skip(2).data(8)]


def test_after_the_first_native_write_a_high_watermark_proves_nothing() -> None:
    marks = {"B": samples(*[(1, 1)] * 509, *[(4, 4)] * 20)}
    seen = view(GAP, sends=[*ACKED, written_later(505)], promotions=[promoted(3)], watermarks=marks)
    assert anomalies(NAME, seen) == []


def test_until_the_first_native_write_a_high_watermark_speaks_of_the_mirrored_tail() -> None:
    marks = {"B": samples(*[(1, 1)] * 501, *[(3, 3)] * 20)}
    seen = view(GAP, sends=[*ACKED, written_later(505)], promotions=[promoted(3)], watermarks=marks)
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)]
    unwritten = view(
        [A3, Log("B").data(1)], sends=ACKED, promotions=[promoted(3)], watermarks=marks
    )
    assert anomalies(NAME, unwritten) == [("lost-write", "A", 1)]


def test_a_sample_that_was_under_way_at_the_first_native_write_proves_nothing() -> None:
    marks = {"B": samples(*[(1, 1)] * 504, (3, 3))}
    late = replace(marks["B"], returned=marks["B"].returned + SECOND)
    seen = view(
        GAP, sends=[*ACKED, written_later(505)], promotions=[promoted(3)], watermarks={"B": late}
    )
    assert anomalies(NAME, seen) == []


def test_a_tail_that_a_readers_position_had_passed() -> None:
    passed = poll(cluster="B", position=2, at=100 * SECOND)
    lost = view([A3, Log("B").data(1)], sends=ACKED, promotions=[promoted(3)], reads=[passed])
    assert anomalies(NAME, lost) == [("lost-write", "A", 1)]
    later = poll(cluster="B", position=4, at=600 * SECOND)
    seen = view(GAP, sends=[*ACKED, written_later(505)], promotions=[promoted(3)], reads=[later])
    assert anomalies(NAME, seen) == []


DIED = 50 * SECOND


@pytest.mark.parametrize(
    ("on_a", "reads", "covered", "lost"),
    [
        ((1,), (), 1, []),
        ((1, 3), (), 1, [("lost-write", "B", 1)]),
        ((1,), (poll((1, 2), cluster="A", at=DIED - SECOND),), 1, [("lost-write", "B", 1)]),
        ((1,), (), 2, [("lost-write", "B", 1)]),
        ((1, 2, 3), (poll((1, 2), cluster="A", at=DIED - SECOND),), 3, []),
    ],
)
def test_a_dead_destination_must_have_what_it_had_shown_and_no_more(
    on_a: tuple[int, ...], reads: tuple[Read, ...], covered: int, lost: list[tuple[str, str, int]]
) -> None:
    seen = view(
        [Log("B").txn(1, 2, 3, pid=7), Log("A").data(*on_a)],
        topology="A<->B",
        topic="B.t",
        deaths={"A": DIED},
        sends=[commit(1, 2, 3, acked=0, cluster="B")],
        reads=reads,
        watermarks={"A": samples(*[(covered, covered)] * 10)},
    )
    assert anomalies(NAME, seen) == lost


@pytest.mark.parametrize(("covered", "lost"), [(2, []), (3, [("lost-write", "B", 2)])])
def test_what_a_cleaner_took_is_not_the_record_that_a_dead_destination_lost(
    covered: int, lost: list[tuple[str, str, int]]
) -> None:
    """2 was a tombstone, and had expired."""
    seen = view(
        [Log("B").data(1, 2, 3, digest={2: NULL}), Log("A").data(1)],
        topology="A<->B",
        topic="B.t",
        deaths={"A": DIED},
        compacted={"A": 2},
        sends=[send(1, 2, 3, acked=0, cluster="B")],
        watermarks={"A": samples(*[(covered, covered)] * 10)},
    )
    seen = but(seen, topic_config={"delete.retention.ms": "0"})
    assert anomalies(NAME, seen) == lost
