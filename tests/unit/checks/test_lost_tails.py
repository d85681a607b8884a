"""lost-write: the tail that was not mirrored before a failover, and the readers that had got it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import NULL
from tests.unit.checks.clients import commit, poll, send
from tests.unit.checks.histories import but, promoted, samples, view
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.verdicts import (
    anomalies,
)

NAME = "lost-write"
A3 = Log("A").txn(1, 2, 3, pid=7)
ACKED = [commit(1, 2, 3, acked=0)]


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
