"""Transactions that nothing ends: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FORGOTTEN,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import PartialFinding, Unjudged
from linkflap.spark_verify.facts.partition_facts import Refusal, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.coordinator_logs import TOPIC_PARTITION, set_to, state, states
from tests.unit.checks.histories import History, promoted, samples, view
from tests.unit.checks.logs import ENDED, SECOND, Log
from tests.unit.checks.verdicts import anomalies, findings

NAME = "last-stable-offset"


class Last(TypedDict, total=False):
    """What a state has beside its kind."""

    pid: int
    epoch: int
    timeout: int
    started: int


BEGAN = ENDED // 1_000_000
"""When the transactions here began, in milliseconds."""
LONG = 900_000


def open_for(seconds: int, **rest: Unpack[History]) -> PartitionView:
    """A has a transaction of producer 7 in epoch 2 that is open at the end, so long after it was
    written."""
    given: History = {"watermarks": {"A": samples((0, 1))}, "ended": ENDED + seconds * SECOND}
    return view([Log("A").txn(1, pid=7, epoch=2, end=None)], **(given | rest))


def last(
    kind: int, *, at: int = BEGAN, log: Log | None = None, **rest: Unpack[Last]
) -> PartitionView:
    """The coordinator's last state of a transactional id: of that transaction, unless the rest says
    otherwise. `at` is when it was written."""
    given: Last = {"pid": 7, "epoch": 2, "timeout": LONG, "started": BEGAN}
    partitions = () if kind in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT) else (TOPIC_PARTITION,)
    return states(state(kind, *partitions, updated=at, **(given | rest)), log=log)


HANGS, LINGERS = [("hanging-transaction", "A", 0)], [("lingering-transaction", "A", 0)]


@pytest.mark.parametrize(
    ("state_", "seconds", "found"),
    [
        (last(ONGOING), 80, LINGERS),
        (last(ONGOING), 899, LINGERS),
        # Behind the timeout are the coordinator's interval, and 5 s.
        (last(ONGOING), 915, LINGERS),
        (last(ONGOING), 916, HANGS),
        (last(ONGOING, timeout=10_000), 25, LINGERS),
        (last(ONGOING, timeout=10_000), 26, HANGS),
        (last(ONGOING, started=BEGAN - 600_000), 400, HANGS),
        # It has only begun.
        (last(ONGOING), 9, []),
        (last(PREPARE_COMMIT, epoch=3), 13, LINGERS),
        (last(PREPARE_COMMIT), 13, LINGERS),
        (last(PREPARE_ABORT, epoch=3), 16, HANGS),
        # At once: nobody will end it.
        (last(EMPTY), 1, HANGS),
        (last(COMPLETE_COMMIT), 4, HANGS),
        (last(COMPLETE_ABORT, epoch=3), 4, HANGS),
        (last(FORGOTTEN), 1, HANGS),
        (last(ONGOING, pid=8), 1, HANGS),
        (last(ONGOING, epoch=3), 1, HANGS),
        (last(ONGOING, epoch=1), 1, HANGS),
        (last(PREPARE_COMMIT, epoch=1), 1, HANGS),
        (states(state(ONGOING, ("A.t", 1), pid=7, epoch=2, timeout=LONG)), 1, HANGS),
    ],
)  # fmt: skip
def test_the_coordinator_decides_where_its_log_is_there(
    state_: PartitionView, seconds: int, found: list[tuple[str, str, int]]
) -> None:
    assert anomalies(NAME, open_for(seconds), state_) == found


def test_the_last_state_of_an_id_counts() -> None:
    began = state(ONGOING, TOPIC_PARTITION, pid=7, epoch=2, timeout=LONG, started=BEGAN)
    ended = state(COMPLETE_COMMIT, pid=7, epoch=2, timeout=LONG, started=BEGAN)
    assert anomalies(NAME, open_for(80), states(began, ended)) == HANGS
    assert anomalies(NAME, open_for(80), states(ended, began)) == LINGERS
    other = replace(ended, transactional_id="u", producer_id=8)
    assert anomalies(NAME, open_for(80), states(began, other)) == LINGERS


def test_without_the_coordinators_log_the_brokers_longest_timeout_decides() -> None:
    assert anomalies(NAME, open_for(80)) == LINGERS
    assert anomalies(NAME, open_for(914)) == LINGERS
    assert anomalies(NAME, open_for(916)) == HANGS
    short = set_to(open_for(80), "transaction.max.timeout.ms", 60_000)
    assert anomalies(NAME, short) == HANGS
    swept = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    assert anomalies(NAME, set_to(open_for(916), swept, 60_000)) == LINGERS
    elsewhere = replace(last(COMPLETE_COMMIT), replicas=[])
    assert anomalies(NAME, open_for(80), elsewhere) == LINGERS


def test_a_coordinator_that_was_down_looks_again_once_it_is_back() -> None:
    until = ENDED + 950 * SECOND
    down = Window(id="f", fault="broker-kill", target="A/1", start=ENDED, end=until)
    assert anomalies(NAME, open_for(960, windows=[down]), last(ONGOING)) == LINGERS
    assert anomalies(NAME, open_for(970, windows=[down]), last(ONGOING)) == HANGS


def test_a_coordinators_log_with_a_hole_does_not_decide() -> None:
    hole = last(COMPLETE_COMMIT, log=Log("A").skip(1).data(-1))
    hole = replace(hole, replicas=[replace(r, log_start=0) for r in hole.replicas])
    assert anomalies(NAME, open_for(80), hole) == []
    check = REGISTRY[NAME]
    partials = [
        replace(f, topic=seen.topic, partition=seen.partition)
        for seen in (open_for(80), hole)
        for f in check.kernel(seen)
        if isinstance(f, PartialFinding)
    ]
    assert check.combine is not None
    (one,) = check.combine(partials)
    assert isinstance(one.found, Unjudged)
    assert anomalies(NAME, open_for(916), hole) == HANGS


def test_what_was_aborted_while_it_was_captured_is_unknown() -> None:
    """Its coordinator does that by itself; clients have finished by then."""
    now = (ENDED + 80 * SECOND) // 1_000_000
    assert anomalies(NAME, open_for(80), last(COMPLETE_ABORT, at=now - 1000)) == []
    assert anomalies(NAME, open_for(80), last(COMPLETE_ABORT, at=now - 3000)) == HANGS
    assert anomalies(NAME, open_for(80), last(COMPLETE_COMMIT, at=now - 1000)) == HANGS


def test_a_lingering_transaction_says_until_when() -> None:
    (one,) = findings(NAME, open_for(80), last(ONGOING))
    assert one.evidence["open_seconds"] == 80
    assert one.evidence["timeout_seconds"] == 900
    assert one.evidence["why"] == (
        "its coordinator ends it: t is Ongoing; at most 900 s after it began"
    )


@pytest.mark.parametrize(
    ("kind", "found"), [("shadow", [("hanging-transaction", "B", 1)]), ("mm2", [])]
)
def test_a_transaction_left_open_by_an_offset_keeping_mirror_hangs(
    kind: str, found: list[tuple[str, str, int]]
) -> None:
    """MirrorMaker 2 writes its own transactions, which a coordinator on B ends."""
    b = Log("B").data(1).txn(2, pid=7, end=None)
    seen = view([b], promotions=[promoted(2)], watermarks={"B": samples((1, 2))}, mirror_kind=kind)
    assert anomalies(NAME, seen) == found


@pytest.mark.parametrize(
    ("kind", "mirror", "dead", "found"),
    [
        ("forced", "shadow", "A", [("hanging-transaction", "B", 0)]),
        ("planned", "shadow", "", []),
        ("forced", "shadow", "", []),
        ("forced", "mm2", "A", []),
    ],
    ids=["source dead", "source alive", "source alive again", "the transaction is the mirror's"],
)
def test_a_refused_failover_leaves_the_dead_sources_transactions_open(
    kind: str, mirror: str, dead: str, found: list[tuple[str, str, int]]
) -> None:
    """At once, not only after the timeout: no coordinator is left that could end it."""
    refusal = Refusal(link="A->B", kind=kind, error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end=None)]
    seen = view(
        logs,
        watermarks={"B": samples((0, 1))},
        mirror_kind=mirror,
        refusals=[refusal],
        deaths={dead: ENDED} if dead else {},
    )
    assert anomalies(NAME, seen) == found
    for each in findings(NAME, seen):
        assert each.evidence["refused_over"] == "A->B"
        assert each.evidence["mirrored"]


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("A->B", [("hanging-transaction", "B", 0), ("hanging-transaction", "C", 0)]),
        ("B->C", [("hanging-transaction", "C", 0)]),
        ("C->D", []),
    ],
)
def test_down_the_chain_nothing_ends_it_either(
    link: str, found: list[tuple[str, str, int]]
) -> None:
    refusal = Refusal(link=link, kind="forced", error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), *(Log(name).txn(1, pid=7, end=None) for name in "BC")]
    marks = {name: samples((0, 1)) for name in "BC"}
    seen = view(
        logs,
        watermarks=marks,
        mirror_kind="shadow",
        refusals=[refusal],
        deaths={link[0]: ENDED},
        topology="A->B->C",
    )
    assert sorted(anomalies(NAME, seen)) == found
