"""Records that were never acknowledged with an offset, in logs whose start was deleted: certainly
deleted, lost, or unknown.

The history is that of a client that is killed while its commit is in flight: a reader got the
commit, and nobody was given the records' offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import commit, poll, send
from tests.unit.checks.histories import view
from tests.unit.checks.logs import Log
from tests.unit.checks.verdicts import anomalies, unjudged

KILLED = commit(2, outcome="info")
GOT = poll((1, 2))


def of(start: int, *, sends: Sequence[Send] = (), reads: Sequence[Read] = (GOT,)) -> PartitionView:
    """A's log begins at `start`, with payload 9 there; B has it too."""
    logs = [Log("A", start=start).data(9), Log("B", start=start).data(9)]
    return view(logs, sends=[KILLED, *sends], reads=reads)


def test_records_read_below_the_log_start_were_deleted() -> None:
    seen = of(2)
    for check in ("lost-write", "torn-transaction"):
        assert anomalies(check, seen) == []
        assert not unjudged(check, seen)


def test_records_read_at_the_log_start_or_above_are_lost() -> None:
    assert anomalies("lost-write", of(1)) == [("lost-write", "A", -1)]


TWO = commit(2, 3, outcome="info")
"""Nobody read 3: 2 shows that it was committed."""


@pytest.mark.parametrize(
    ("later", "lost", "known"),
    [
        ([send(5, acked=2)], [], True),
        ([send(5, acked=3)], [], True),
        ([send(5, acked=4)], [], False),
        ([], [], False),
    ],
    ids=["before the start", "at the start", "behind it", "nothing"],
)
def test_a_record_is_before_the_next_of_its_producer(
    later: list[Send], lost: list[tuple[str, str, int]], known: bool
) -> None:
    logs = [Log(cluster, start=3).data(8, 5) for cluster in "AB"]
    seen = view(logs, sends=[TWO, *later], reads=[poll((1, 2))])
    assert anomalies("lost-write", seen) == lost
    assert bool(unjudged("lost-write", seen)) is not known
    assert anomalies("torn-transaction", seen) == []


def test_a_record_behind_one_that_is_still_there_was_not_deleted() -> None:
    logs = [Log("A", start=3).data(2), Log("B", start=3).data(2)]
    seen = view(logs, sends=[TWO], reads=[poll((3, 2))])
    assert anomalies("lost-write", seen) == [("lost-write", "A", -1)]


def test_another_producers_records_say_nothing() -> None:
    other = 1 << 40
    logs = [Log("A", start=3).data(other), Log("B", start=3).data(other)]
    seen = view(logs, sends=[TWO, send(other, acked=3)], reads=[poll((1, 2))])
    assert anomalies("lost-write", seen) == []
    assert unjudged("lost-write", seen)


def test_where_nothing_was_deleted_it_is_lost() -> None:
    seen = view([Log("A").data(9), Log("B").data(9)], sends=[KILLED], reads=[GOT])
    assert anomalies("lost-write", seen) == [("lost-write", "A", -1)]
