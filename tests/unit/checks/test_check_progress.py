"""progress: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import PartialFinding, Unjudged
from linkflap.spark_verify.facts.partition_facts import Awaited, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from tests.unit.checks.histories import (
    SECOND,
    Log,
    but,
    commit,
    ints,
    poll,
    promoted,
    send,
    view,
)
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
)

NAME = "progress"
SINCE, UNTIL = 10, 100


def marks(
    *ends: tuple[int, int], missing: tuple[int, int] = (0, 0), last: int = 130
) -> dict[str, Watermarks]:
    """Samples of A each second: the last stable offset, which grows at these (second, end);
    nobody answered between the seconds of `missing`."""
    seconds = [s for s in range(1, last + 1) if not missing[0] < s < missing[1]]
    stable = [max([end for at, end in ends if at <= s], default=0) for s in seconds]
    time = np.array(seconds, np.int64) * SECOND
    n = len(seconds)
    return {
        "A": Watermarks(
            time=time, returned=time + 1000, leader=np.full(n, 3, np.int64),
            log_start=np.zeros(n, np.int64), last_stable=ints(*stable),
            high_watermark=ints(*stable), leader_epoch=np.zeros(n, np.int64),
        )
    }  # fmt: skip


def awaited(kind: Any, **fields: Any) -> Awaited:
    return replace(
        Awaited(
            client="c", kind="reader", cluster="A", home="A", since=SINCE * SECOND,
            until=UNTIL * SECOND, within=60 * SECOND,
        ),
        kind=kind, **fields,
    )  # fmt: skip


def seen(
    client: Awaited,
    *,
    sampled: dict[str, Watermarks] | None = None,
    log: Log | None = None,
    windows: tuple[Window, ...] = (),
    **rows: Any,
) -> PartitionView:
    made = view(
        [log or Log("A").data(1, 2), Log("B").data(1, 2)],
        watermarks=sampled if sampled is not None else marks((5, 2)),
        windows=windows,
        **rows,
    )
    return but(made, awaited=(client,))


def group_at(*samples: tuple[int, int]) -> list[GroupOffset]:
    """A group's committed offset, sampled at seconds."""
    return [
        GroupOffset(
            time=at * SECOND, cluster="A", group="g", topic="A.t", partition=0, offset=offset
        )
        for at, offset in samples
    ]


def read_to(*steps: tuple[int, int], kind: str = "poll", **rest: Any) -> list[Read]:
    """A reader's polls, which returned the record below a position at a second."""
    return [
        poll((position - 1, position), at=at * SECOND, reader="c", kind=kind, **rest)
        for at, position in steps
    ]


def by(at: int, *, outcome: str = "ok", error: str = "", process: int = 1, **rest: Any) -> Send:
    """A transaction of the producer that returned at a second."""
    made = commit(
        at, acked=0 if outcome == "ok" else -1, outcome=outcome, process=process,
        invoked=(at - 1) * SECOND, returned=at * SECOND, **rest,
    )  # fmt: skip
    return replace(made, client="c", error=error)


GROUP = awaited("group", group="g", topics=frozenset({"A.t"}))
OWN_GROUP = awaited("group", group="g")
READER = awaited("reader")
PRODUCER = awaited("producer", produces=True, timeout=10 * SECOND)
PROGRAM = awaited("program", outputs=frozenset({"A.t"}), broken=8 * SECOND)
BOTH = replace(PROGRAM, topics=frozenset({"A.t"}))
GROWS = marks(*((at, at) for at in range(1, 130)))
OPEN = Log("A").txn(1, 2, pid=7, end=None)

ACCEPTED = {
    "a group that goes on": (seen(GROUP, groups=group_at((9, 0), (20, 1), (60, 2))), 1),
    "a group at the end": (seen(GROUP, groups=group_at((9, 2))), 1),
    "slow, but in time": (seen(GROUP, groups=group_at((9, 0), (69, 1), (99, 2))), 1),
    "what it stands before is aborted": (
        seen(GROUP, groups=group_at((9, 0)), log=Log("A").txn(1, 2, pid=7, end="abort")), 1,
    ),
    "what it stands before is open": (
        seen(GROUP, groups=group_at((9, 0)), log=OPEN, sampled=marks((5, 0))), 1,
    ),
    "work that came late": (seen(GROUP, groups=group_at((9, 1)), sampled=marks((97, 2))), 0),
    "it never was in this partition": (seen(OWN_GROUP, groups=group_at((9, 0))), 0),
    "another cluster's group": (seen(replace(GROUP, cluster="B"), groups=group_at((9, 0))), 0),
    "a program that ended by itself, and went on": (
        seen(replace(GROUP, exits=(50 * SECOND,)), groups=group_at((9, 0), (95, 2))), 1,
    ),
    "a group that is sampled until shortly before it is stopped": (
        seen(replace(GROUP, within=87 * SECOND), groups=group_at((9, 0), (11, 1)),
             sampled=marks((5, 2), last=97)), 1,
    ),
    "a reader that goes on": (seen(READER, reads=read_to((9, 1), (50, 2))), 1),
    "a reader of another cluster": (seen(READER, reads=read_to((9, 1), cluster="B")), 0),
    "a producer that goes on": (seen(PRODUCER, sends=[by(20), by(60), by(99)]), 1),
    "a program that goes on": (seen(PROGRAM, sampled=GROWS), 1),
    "a program that had ended its work": (seen(PROGRAM, sampled=marks((-70, 1))), 0),
    "a program without new input": (seen(BOTH, sampled=marks((7, 2))), 0),
    "nothing is promised": (seen(replace(PRODUCER, until=SINCE * SECOND), sends=[]), 0),
    "fenced by its coordinator, in the end": (
        seen(
            PRODUCER,
            sends=[replace(by(30, error="_FENCED", outcome="info"), invoked=19 * SECOND),
                   by(60, process=2), by(99, process=2)],
        ), 1,
    ),
    "a fatal error's name, and it went on": (
        seen(PRODUCER, sends=[by(30, error="_FENCED"), by(60), by(99)]), 1,
    ),
    "a zombie": (
        seen(replace(PRODUCER, produces=False),
             sends=[by(30, error="_FENCED"), by(60, process=2), by(99, process=2)]), 1,
    ),
    "an unclean election": (
        seen(
            PRODUCER,
            windows=(
                Window(id="u", fault="unclean-election", target="A", start=SECOND, end=2 * SECOND),
            ),
            sends=[by(30, error="_FENCED"), by(60, process=2), by(99, process=2)],
        ), 1,
    ),
}  # fmt: skip
FENCED = [by(30, error="_FENCED", outcome="info"), by(60, process=2), by(99, process=2)]
REJECTS = {
    "stalled": Rejected(seen(GROUP, groups=group_at((9, 1))), "A", 1),
    "client-unusable": Rejected(seen(PRODUCER, sends=FENCED), "A", -1),
}


@pytest.mark.parametrize(("cluster", "second"), [("B", 1), ("A", 31)])
def test_an_unclean_election_elsewhere_or_later_excuses_no_fatal_error(
    cluster: str, second: int
) -> None:
    start = second * SECOND
    there = Window(id="u", fault="unclean-election", target=cluster, start=start, end=start + 1)
    found = anomalies(NAME, seen(PRODUCER, windows=(there,), sends=FENCED))
    assert found == [("client-unusable", "A", -1)]


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    history, counted = ACCEPTED[case]
    assert_accepted(NAME, history, counted={"A/native": counted} if counted else {})


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


STALLED = {
    "a group that never committed": (seen(GROUP, sampled=marks((5, 1), (20, 2))), 1),
    "a group that went on for a while": (seen(GROUP, groups=group_at((9, 0), (30, 1))), 1),
    "a reader": (seen(READER, reads=read_to((9, 1))), 1),
    "an uncommitted reader before an open transaction": (
        seen(
            replace(READER, isolation="read_uncommitted"),
            reads=read_to((9, 1), isolation="read_uncommitted"), log=OPEN,
        ), 1,
    ),
    "a producer": (seen(PRODUCER, sends=[by(9)]), -1),
    "a producer without any operation": (seen(PRODUCER), -1),
    "a producer all of whose commits fail": (
        seen(PRODUCER, sends=[by(at, outcome="info") for at in range(11, 99)]), -1,
    ),
    "a program that wrote until the fault": (seen(PROGRAM, sampled=marks((3, 1), (7, 2))), -1),
}  # fmt: skip


@pytest.mark.parametrize("case", STALLED)
def test_each_kind_of_client_can_stall(case: str) -> None:
    history, offset = STALLED[case]
    assert anomalies(NAME, history) == [("stalled", "A", offset)]


@pytest.mark.parametrize(
    ("exits", "since"), [((20, 30), 30), ((95,), 10), ((5,), 10), ((100,), 10)]
)
def test_a_program_that_ended_by_itself_may_stand_still_before_and_from_its_next_start_on(
    exits: Sequence[int], since: int
) -> None:
    client = replace(GROUP, exits=tuple(second * SECOND for second in exits))
    (found,) = findings(NAME, seen(client, groups=group_at((9, 1))))
    over = 95 if exits == (95,) else UNTIL
    assert (found.kind, found.evidence["seconds"]) == ("stalled", over - since)
    writes = replace(PROGRAM, exits=client.exits)
    (found,) = findings(NAME, seen(writes, sampled=marks((3, 1), (7, 2))))
    assert (found.kind, found.evidence["seconds"]) == ("stalled", over - since)


def test_progress_of_a_program_that_ends_repeatedly_is_unknown() -> None:
    (combined,) = _combined(seen(replace(GROUP, exits=(50 * SECOND,)), groups=group_at((9, 0))))
    assert isinstance(combined, Unjudged)


@pytest.mark.parametrize(
    ("tried", "found"), [((11, 50, 71), [("stalled", "A", -1)]), ((11, 50, 70), []), ((11,), [])]
)
def test_a_producer_can_stall_in_one_partition(
    tried: Sequence[int], found: list[tuple[str, str, int]]
) -> None:
    here = seen(PRODUCER, sends=[by(at + 1, outcome="info") for at in tried])
    there = but(seen(PRODUCER, sends=[by(at) for at in range(11, 99, 2)]), partition=1)
    assert anomalies(NAME, here, there) == found


def test_a_share_group_stalls_at_the_end_of_what_it_acquired() -> None:
    client = awaited("share", client="group s", group="s")
    acquired = replace(poll((0, 1), at=9 * SECOND, kind="acquire"), group="s")
    history = replace(seen(client), shares=(acquired,))
    assert anomalies(NAME, history) == [("stalled", "A", 1)]


def test_a_share_group_that_was_given_nothing_stalls_at_the_beginning_of_its_homes_log() -> None:
    client = awaited("share", client="group s", group="s")
    assert anomalies(NAME, seen(client)) == [("stalled", "A", 0)]
    assert anomalies(NAME, seen(replace(client, home="B", topics=frozenset({"A.t"})))) == []
    assert anomalies(NAME, seen(replace(client, topics=frozenset({"A.other"})))) == []


def test_an_idempotent_producer_goes_on_by_a_single_acknowledged_record() -> None:
    some = [
        replace(send(at, acked=0, outcome="info", returned=at * SECOND), client="c")
        for at in (20, 60, 99)
    ]
    assert anomalies(NAME, seen(PRODUCER, sends=some)) == []


def test_stalled_client_has_its_position_group_and_last_words() -> None:
    client = replace(GROUP, said="group g is STABLE", last_words=("poll", "and nothing"))
    (found,) = findings(NAME, seen(client, groups=group_at((9, 1))))
    assert found.evidence["waited_for"] == (
        "A.t-0 at 1 of 2, led by broker 3; group g is STABLE; its log ends with "
        "'poll | and nothing'"
    )


def test_while_the_leader_does_not_answer_nothing_is_known() -> None:
    silent = marks((5, 2), missing=(30, 40))
    history = seen(GROUP, groups=group_at((9, 1)), sampled=silent)
    assert anomalies(NAME, history) == []
    (combined,) = _combined(history)
    assert isinstance(combined, Unjudged)
    assert "its leader did not answer all the time" in combined.reason


def without(bound: str, *seconds: int, of: Watermarks) -> Watermarks:
    """The samples; in those of these seconds, the leader did not report one of its bounds."""
    values = np.where(np.isin(of.time, np.array(seconds) * SECOND), -1, getattr(of, bound))
    return replace(of, **{bound: values})


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_end_that_was_not_reported_is_no_end(isolation: str) -> None:
    """A group without a commit need not read what was there before; it need read what came."""
    bound = "last_stable" if isolation == "read_committed" else "high_watermark"
    client = replace(GROUP, isolation=isolation)
    for grows, wrong in (([(5, 2)], False), ([(5, 1), (20, 2)], True)):
        there = without(bound, SINCE, of=marks(*grows)["A"])
        assert bool(anomalies(NAME, seen(client, sampled={"A": there}))) == wrong


def test_an_end_that_is_reported_again_has_not_grown() -> None:
    history = mirrored()
    gap = without("high_watermark", 90, of=history.watermarks["B"])
    assert anomalies(NAME, replace(history, watermarks={**history.watermarks, "B": gap})) == STUCK


def test_progress_of_a_run_that_ended_too_soon_is_unknown() -> None:
    soon = replace(GROUP, until=30 * SECOND)
    (combined,) = _combined(seen(soon, groups=group_at((9, 1))))
    assert isinstance(combined, Unjudged)
    assert "whether it stalled is unknown before 60 s" in combined.reason
    (combined,) = _combined(seen(replace(PRODUCER, until=30 * SECOND)))
    assert isinstance(combined, Unjudged)
    assert "before 60.0 s had passed" in combined.reason


def test_a_slow_consumer_reads_its_partitions_one_after_the_other() -> None:
    def partition(number: int, *samples: tuple[int, int]) -> PartitionView:
        one = seen(GROUP, groups=group_at(*samples))
        return but(one, partition=number)

    stands = partition(0, (9, 1))
    assert anomalies(NAME, stands, partition(1, (9, 0), (60, 1))) == []
    assert anomalies(NAME, stands, partition(1, (9, 0), (60, 2))) == [("stalled", "A", 1)]


def test_commits_on_another_cluster_are_no_progress_here() -> None:
    here, there = group_at((9, 1)), group_at((9, 0), (60, 1))
    both = marks((5, 2))
    history = seen(
        GROUP,
        sampled=both | {"B": both["A"]},
        groups=[*here, *(replace(each, cluster="B") for each in there)],
    )
    moved = but(history, awaited=(GROUP, replace(GROUP, cluster="B")))
    assert anomalies(NAME, moved) == [("stalled", "A", 1)]


def test_a_fatal_error_of_several_partitions_is_one() -> None:
    here = seen(PRODUCER, sends=FENCED)
    there = but(here, partition=1)
    assert anomalies(NAME, here, there) == [("client-unusable", "A", -1)]


def _combined(history: PartitionView) -> list[object]:
    check = REGISTRY[NAME]
    assert check.combine is not None
    partials = [f for f in check.kernel(history) if isinstance(f, PartialFinding)]
    return [each.found for each in check.combine(partials)]


MIRROR = awaited("mirror", client="the mirror A->B", cluster="B", home="A")


def mirrored(
    *,
    on_a: tuple[int, int] = (5, 2),
    on_b: tuple[int, int] = (5, 1),
    until: int = 130,
    client: Awaited = MIRROR,
    **rows: Any,
) -> PartitionView:
    """A's stable end, and B's, since these seconds; A has 1 2, and B has 1."""
    there = {"A": marks(on_a)["A"], "B": marks(on_b, last=until)["A"]}
    made = view([Log("A").data(1, 2), Log("B").data(1)], watermarks=there, **rows)
    return but(made, awaited=(client,))


STUCK = [("stalled", "B", -1)]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        (mirrored(), STUCK),
        (mirrored(on_a=(39, 2)), STUCK),
        (mirrored(on_b=(39, 1)), STUCK),
        (mirrored(on_a=(41, 2)), []),
        (mirrored(on_b=(41, 1)), []),
        (mirrored(on_a=(5, 1)), []),
        (mirrored(until=69), []),
        (mirrored(client=replace(MIRROR, until=69 * SECOND)), []),
        (mirrored(client=replace(MIRROR, cluster="A", home="B")), []),
        (mirrored(promotions=[promoted(1)]), []),
    ],
    ids=[
        "for 90 s", "sent after 29 s", "copied until 29 s after the faults",
        "sent too late", "still copying", "never readable", "sampled for 59 s", "stopped",
        "the other direction", "failed over",
    ],
)  # fmt: skip
def test_a_mirror_that_copies_no_more(
    history: PartitionView, found: list[tuple[str, str, int]]
) -> None:
    assert anomalies(NAME, history) == found


def test_a_mirror_that_stands_still_names_what_its_destination_lacks() -> None:
    (one,) = findings(NAME, mirrored())
    assert one.evidence["waited_for"] == "A.t-0 at 1 of A, to be written by broker 3"
    silent = {"A": marks((5, 2))["A"], "B": marks((5, 1), missing=(30, 50))["A"]}
    assert anomalies(NAME, replace(mirrored(), watermarks=silent)) == []
