"""share-groups: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import commit
from tests.unit.checks.histories import view
from tests.unit.checks.logs import SECOND, Log, ints
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

NAME = "share-groups"
LOG = Log("A").txn(1, pid=7)
ABORTED = Log("A").txn(1, pid=7, end="abort")


def row(
    kind: str,
    *uids: int,
    at: int,
    member: str = "m1",
    position: int = -1,
    offset: int = 0,
    cluster: str = "A",
    isolation: str = "read_committed",
) -> Read:
    """A step of a member that took one second, `at` seconds, with records from an offset on."""
    return Read(
        reader=member, process=1, cluster=cluster, isolation=isolation, kind=kind, group="g",
        time=at * SECOND,
        returned=(at + 1) * SECOND, position=position, uids=ints(*uids),
        offsets=ints(*range(offset, offset + len(uids))),
    )  # fmt: skip


def shared(*rows: Read, log: Log = LOG, sends: Sequence[Send] = ()) -> PartitionView:
    return replace(view([log], sends=sends), shares=rows)


GIVEN = row("acquire", 1, at=10, position=1)
ACCEPTED_ROWS = (GIVEN, row("accept", 1, at=12), row("accepted", 1, at=12))
DONE = row("settled", at=50, position=1)
ACCEPTED = {
    "given and accepted": (shared(*ACCEPTED_ROWS, DONE), {"A/native": 1}),
    "accepted, and the answer lost": (shared(*ACCEPTED_ROWS[:2], DONE), {"A/native": 1}),
    "rejected": (
        shared(GIVEN, row("reject", 1, at=12), row("rejected", 1, at=12), DONE),
        {"A/native": 1},
    ),
    "released, and given again": (
        shared(
            GIVEN,
            row("release", 1, at=12),
            row("released", 1, at=12),
            row("acquire", 1, at=14, member="m2", position=2),
            row("accept", 1, at=16, member="m2"),
            row("accepted", 1, at=16, member="m2"),
            DONE,
        ),
        {"A/native": 1},
    ),
    "renewed, and accepted after that": (
        shared(
            GIVEN,
            row("renew", 1, at=12),
            row("renewed", 1, at=12),
            row("acquire", 1, at=14, position=1),
            row("accept", 1, at=16),
            row("accepted", 1, at=16),
            DONE,
        ),
        {"A/native": 1},
    ),
    "handed over late by a member whose lock had run out": (
        shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=20, member="m2", position=1),
            row("accept", 1, at=22, member="m2"),
            DONE,
        ),
        {"A/native": 1},
    ),
    "given up after many deliveries": (
        shared(
            *(row("acquire", 1, at=10 * n, position=n) for n in range(1, 4)),
            row("settled", at=70, position=1),
        ),
        {"A/native": 1},
    ),
    "aborted, and the group reads uncommitted": (
        shared(
            row("acquire", 1, at=10, position=1, isolation="read_uncommitted"),
            row("accept", 1, at=12),
            DONE,
            log=ABORTED,
        ),
        {"A/native": 1},
    ),
    "the start offset lags behind what was accepted": (
        shared(*ACCEPTED_ROWS, row("settled", at=50, position=0)),
        {"A/native": 1},
    ),
}
REJECTS = {
    "aborted-delivery": Rejected(
        view=shared(*ACCEPTED_ROWS, DONE, log=ABORTED), cluster="A", offset=0
    ),
    "delivered-again": Rejected(
        view=shared(
            *ACCEPTED_ROWS,
            row("acquire", 1, at=20, position=2),
            row("accept", 1, at=22),
            row("accepted", 1, at=22),
            DONE,
        ),
        cluster="A",
        offset=0,
    ),
    "never-delivered": Rejected(view=shared(DONE), cluster="A", offset=0),
    "never-acknowledged": Rejected(
        view=shared(GIVEN, row("release", 1, at=12), row("released", 1, at=12), DONE),
        cluster="A",
        offset=0,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)
    assert unjudged(NAME, seen) == []


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_aborted_by_its_producer_and_no_marker_tells() -> None:
    seen = shared(
        *ACCEPTED_ROWS, DONE, log=Log("A").data(1), sends=[commit(1, acked=0, ending="abort")]
    )
    assert [(f.kind, f.evidence["witness"]) for f in findings(NAME, seen)] == [
        ("aborted-delivery", "client")
    ]


def test_a_redelivered_record_names_the_member_that_had_confirmed_it() -> None:
    again = (
        row("acquire", 1, at=20, member="m2", position=2),
        row("released", 1, at=22, member="m2"),
    )
    (found,) = findings(NAME, shared(*ACCEPTED_ROWS, *again, DONE))
    assert (found.kind, found.evidence["reader"], found.evidence["witness"]) == (
        "delivered-again",
        "m2",
        "m1",
    )


def test_a_group_without_reported_progress_leaves_its_partition_unjudged() -> None:
    assert unjudged(NAME, shared(*ACCEPTED_ROWS)) == [
        "no member of share group g reported how far it is done with A.t-0"
    ]


def test_a_committed_record_behind_the_start_offset_that_nobody_was_given_is_unknown() -> None:
    seen = shared(*ACCEPTED_ROWS, DONE, log=Log("A").txn(1, pid=7).data(2))
    assert unjudged(NAME, seen) == [
        "share group g was not given all of A.t-0 of A in time: first 2"
    ]
    assert anomalies(NAME, seen) == []


def test_where_a_group_begins_on_another_cluster_is_not_promised() -> None:
    """It is not asked for the records of the cluster that it left."""
    there = [
        row("acquire", 1, at=60, cluster="B", position=1),
        row("accept", 1, at=62, cluster="B"),
    ]
    seen = replace(
        view([Log("A").txn(1, pid=7).data(2), Log("B").txn(1, pid=7)]),
        shares=(*ACCEPTED_ROWS, *there, row("settled", at=70, position=1, cluster="B")),
    )
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == []
