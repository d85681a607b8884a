"""poll-continuity where a log was truncated below a reader's position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.partition_facts import MirrorStop
from linkflap.spark_verify.facts.sends_and_reads import Read
from tests.unit.checks.clients import poll
from tests.unit.checks.histories import promoted, reversed_, view
from tests.unit.checks.logs import SECOND, Log
from tests.unit.checks.reading import STOOD, A, assigned, later
from tests.unit.checks.round_trip import BACK, trip, truncation
from tests.unit.checks.verdicts import (
    anomalies,
    findings,
)

NAME = "poll-continuity"


def test_before_a_truncation_it_is_judged_by_the_log_of_that_time() -> None:
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
    stop = MirrorStop(
        link="A->B",
        cluster="B",
        time=501 * SECOND,
        mirrored=3,
        promoted=1,
        truncated=truncated,
        appended=(),
    )
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
    stop = MirrorStop(
        link="A->B",
        cluster="B",
        time=501 * SECOND,
        mirrored=3,
        promoted=1,
        truncated=[(3, 1)],
        appended=(),
    )
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
    stop = MirrorStop(
        link="A->B",
        cluster="B",
        time=501 * SECOND,
        mirrored=3,
        promoted=1,
        truncated=[(3, 1)],
        appended=(),
    )
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
