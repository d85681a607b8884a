"""lost-write: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import NULL, PartitionView, Watermarks
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


def test_evidence_names_the_offsets_around_the_lost_write_on_the_destination() -> None:
    (found,) = findings(NAME, REJECTS["lost-write"].view)
    assert found.evidence["missing_on"] == "B"
    assert (found.evidence["after_offset"], found.evidence["before_offset"]) == (0, 1)


def test_acknowledged_write_is_lost_although_a_repeated_row_of_it_has_no_answer() -> None:
    seen = view(
        [A3, Log("B").data(1, 3)],
        sends=[commit(1, 2, 3, outcome="info"), *ACKED],
    )
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)]


def test_write_absent_from_its_own_log_is_lost() -> None:
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


def test_write_is_unknown_without_the_log_of_the_destination() -> None:
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
def test_a_transaction_that_was_open_when_truncated_was_not_promised(
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


@pytest.mark.parametrize(("isolation", "lost"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_record_aborted_by_the_failover_is_lost_if_read_committed_had_shown_it(
    isolation: str, lost: int
) -> None:
    b = Log("B").txn(1, 2, 3, pid=7, end="abort")
    got = poll((1, 2), cluster="B", isolation=isolation)
    seen = view([A3, b], mirror_kind="shadow", sends=ACKED, promotions=[promoted(3)], reads=[got])
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)] * lost


def written_later(at: int) -> Send:
    """B acknowledged its own 8 at offset 3, sent at this time; the promotion was at second 501."""
    return replace(send(8, acked=3, cluster="B"), invoked=at * SECOND)


SHORT, OWN = Log("B").data(1), Log("B").data(1).skip(2).data(8)


def tail(b: Log = SHORT, **given: Unpack[History]) -> PartitionView:
    """A has 1 2 3, of which B has 1; B's own record, if it has one, is at offset 3."""
    written = [written_later(505)] if b is OWN else []
    usual: History = {"sends": [*ACKED, *written], "promotions": [promoted(3)]}
    return view([A3, b], **(usual | given))


def shown(*marks: tuple[int, int], late: int = 0) -> dict[str, Watermarks]:
    """High watermarks of B, each with how many samples had it, which returned so many seconds
    later."""
    found = samples(*[(high, high) for high, times in marks for _ in range(times)])
    return {"B": replace(found, returned=found.returned + late * SECOND)}


TAILS = {
    "missing after a planned failover": (tail(promotions=[promoted(1, kind="planned")]), True),
    "got by a reader on the destination": (tail(reads=[poll((1, 2), cluster="B")]), True),
    "passed by a reader's position": (tail(reads=[poll(cluster="B", position=2)]), True),
    "passed by a reader's position once B had written": (
        tail(OWN, reads=[poll(cluster="B", position=4, at=600 * SECOND)]),
        False,
    ),
    "covered by a high watermark": (tail(watermarks=shown((2, 1))), True),
    "above every high watermark": (tail(watermarks=shown((1, 1))), False),
    "below a high watermark that was above the promotion offset": (
        tail(Log("B").data(1).data(8), promotions=[promoted(1)], watermarks=shown((2, 1))),
        False,
    ),
    "covered after the promotion, and B wrote nothing": (
        tail(watermarks=shown((1, 501), (3, 20))),
        True,
    ),
    "covered before B wrote": (tail(OWN, watermarks=shown((1, 501), (3, 20))), True),
    "covered after B had written": (tail(OWN, watermarks=shown((1, 509), (4, 20))), False),
    "covered by a sample that was under way when B wrote": (
        tail(OWN, watermarks=shown((1, 504), (3, 1), late=1)),
        False,
    ),
}


@pytest.mark.parametrize("case", TAILS)
def test_a_missing_tail_is_lost_where_the_destination_had_shown_it(case: str) -> None:
    seen, lost = TAILS[case]
    assert anomalies(NAME, seen) == [("lost-write", "A", 1)] * lost


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
def test_record_lost_by_a_dead_destination_is_not_taken_for_cleaned(
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
