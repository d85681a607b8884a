"""marker-pairing: the smallest histories."""

from __future__ import annotations

from typing import Unpack

import pytest

from tests.unit.checks.histories import but, promoted, view
from tests.unit.checks.logs import Header, Log
from tests.unit.checks.promoted_pair import LEFT, SPLIT, pair
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

NAME = "marker-pairing"
ACCEPTED = {
    "transactions v1": (view([Log("A").txn(1, pid=7).txn(2, pid=7)]), {"A/native": 2}),
    "transactions v2": (
        view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, epoch=1, marker_epoch=2)]),
        {"A/native": 2},
    ),
    "transactions v2, the epochs used up: another id from then on": (
        view(
            [Log("A").txn(1, pid=7, epoch=32766, marker_epoch=32767).txn(2, pid=8, marker_epoch=1)]
        ),
        {"A/native": 2},
    ),
    "fenced": (
        view([Log("A").txn(1, pid=7, end="abort", marker_epoch=3).txn(2, pid=7, epoch=4)]),
        {"A/native": 2},
    ),
    "empty markers": (
        view([Log("A").marker("commit", pid=7).txn(1, pid=7).marker("abort", pid=7)]),
        {"A/native": 1},
    ),
    "open at the end": (view([Log("A").txn(1, pid=7, end=None)]), {"A/native": 1}),
    "others in between": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .txn(2, pid=8)
                .data(3, pid=7, transactional=True, operation=1)
                .marker("commit", pid=7)
            ]
        ),
        {"A/native": 2},
    ),
    "no transactions": (view([Log("A").data(1, pid=7).data(2, pid=7)]), {}),
    "not ours": (view([Log("A").txn(-1, pid=7, end=None).txn(-1, -1, pid=7)]), {"A/native": 1}),
    "a mirror's own": (
        view(
            [Log("A"), Log("B").txn(1, pid=5, end=None).txn(2, pid=5).data(3)],
            promotions=[promoted(3)],
        ),
        {"B/mirrored": 1},
    ),
    "left open, fenced by a successor": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .marker("abort", pid=7, epoch=1)
                .txn(2, pid=7, epoch=2, end=None)
            ]
        ),
        {"A/native": 2},
    ),
    "begun anew after a reset (KIP-1279)": (
        view([Log("A").txn(1, pid=7, epoch=1).marker("reset", pid=-1, epoch=-1).txn(2, pid=7)]),
        {"A/native": 2},
    ),
    "open where it is still mirrored": (
        view(
            [Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None)],
            mirror_kind="shadow",
        ),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "aborted by the mirror that ended": (
        view(
            [
                Log("A").txn(1, pid=7, end=None),
                Log("B").txn(1, pid=7, end="abort").marker("reset", pid=-1).txn(2, pid=7, end=None),
            ],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"A/native": 1, "B/mirrored": 1, "B/native": 1},
    ),
    "aborted on both": (
        view(
            [
                Log("A").txn(1, pid=7, end="abort"),
                Log("B").txn(1, pid=7, end="abort", marker_epoch=1),
            ],
            mirror_kind="shadow",
        ),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "stable up to what is open": (
        view([Log("A").txn(1, pid=7).txn(2, pid=8, end=None).data(3).answered(2, above=4)]),
        {"A/native": 2},
    ),
    "ended after it was asked": (
        view([Log("A").txn(1, pid=7).answered(0, above=1)]),
        {"A/native": 1},
    ),
    "asked when there was more": (
        view([Log("A").txn(1, pid=7).answered(9, above=2)]),
        {"A/native": 1},
    ),
    "coordinators in turn": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .marker("commit", pid=7, coordinator_epoch=4)
                .txn(2, pid=8)
            ]
        ),
        {"A/native": 2},
    ),
    "coordinators of two clusters": (
        view(
            [
                Log("A").txn(1, pid=7, end=None),
                Log("B").txn(1, pid=7, end=None).marker("abort", pid=7).txn(2, pid=7, end=None),
            ],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"A/native": 1, "B/mirrored": 1, "B/native": 1},
    ),
    "ids that clash over a promotion": (
        view(
            [Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"B/mirrored": 1},
    ),
}


REJECTS = {
    "marker-epoch": Rejected(
        view=view([Log("A").txn(1, pid=7, epoch=2, marker_epoch=1)]), cluster="A", offset=1
    ),
    "marker-missing": Rejected(
        view=view([Log("A").txn(9, pid=7).txn(1, pid=7, end=None).txn(2, pid=7)]),
        cluster="A",
        offset=2,
    ),
    "transaction-left-open": Rejected(view=LEFT, cluster="B", offset=0),
    "stable-offset-stuck": Rejected(
        view=view([Log("A").txn(1, pid=7).answered(0, above=2)]), cluster="A", offset=0
    ),
    "outcome-split": Rejected(view=SPLIT, cluster="B", offset=1),
    "impossible-header": Rejected(
        view=view([Log("A").data(1, transactional=True)]), cluster="A", offset=0
    ),
    "not-transactional": Rejected(
        view=view([Log("A").data(1, pid=7).marker("commit", pid=7)]), cluster="A", offset=0
    ),
    "coordinator-epoch-regression": Rejected(
        view=view(
            [
                Log("A")
                .data(1, pid=7, transactional=True)
                .marker("commit", pid=7, coordinator_epoch=4)
                .txn(2, pid=7)
            ]
        ),
        cluster="A",
        offset=3,
    ),
    "stale-data": Rejected(
        view=view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, end=None)]),
        cluster="A",
        offset=2,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_new_epoch_without_a_marker() -> None:
    seen = view([Log("A").txn(1, pid=7, end=None).txn(2, pid=7, epoch=1, end=None)])
    assert anomalies(NAME, seen) == [("marker-missing", "A", 0)]


def test_each_operation_without_a_marker_is_one_anomaly_that_names_the_next() -> None:
    log = (
        Log("A")
        .txn(1, 2, pid=7, end=None)
        .txn(20, pid=8)
        .data(3, pid=7, transactional=True, operation=1)
    )
    log.txn(4, pid=7, end=None).txn(5, pid=7, end=None)
    found = findings(NAME, view([log]))
    assert [(f.kind, f.offset) for f in found] == [("marker-missing", 0), ("marker-missing", 5)]
    assert [f.evidence for f in found] == [
        {"producer_id": 7, "records": 3, "operations": [1, 4], "next_offset": 5},
        {"producer_id": 7, "records": 1, "operations": [4, 5], "next_offset": 6},
    ]


def test_a_mirror_that_keeps_bytes_keeps_markers() -> None:
    seen = view([Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)], mirror_kind="shadow")
    assert anomalies(NAME, seen) == [("marker-missing", "B", 0)]


def test_natively_on_a_promoted_cluster() -> None:
    seen = view(
        [Log("A"), Log("B").data(9).txn(1, pid=7, end=None).txn(2, pid=7)], promotions=[promoted(1)]
    )
    assert anomalies(NAME, seen) == [("marker-missing", "B", 1)]


def test_what_is_left_open_is_seen_in_the_log_of_one_cluster_too() -> None:
    seen = view(
        [Log("B").txn(1, pid=7, end=None).marker("reset", pid=-1)], topology="B->C", topic="B.t"
    )
    assert anomalies(NAME, seen) == [("transaction-left-open", "B", 0)]


def test_a_marker_behind_the_reset_ends_nothing_before_it() -> None:
    """B hands the id out again: its own producer's transaction is committed, and A's stays open."""
    b = (
        Log("B")
        .txn(1, pid=7, end=None)
        .marker("reset", pid=-1)
        .data(2, pid=7, sequence=0, transactional=True)
    )
    seen = pair(Log("A").txn(1, pid=7, end=None), b.marker("commit", pid=7))
    assert anomalies(NAME, seen) == [("transaction-left-open", "B", 0)]
    assert findings(NAME, seen)[0].evidence == {
        "producer_id": 7, "producer_epoch": 0, "last_offset": 0, "reset_offset": 1, "log_end": 4,
    }  # fmt: skip


def test_of_copied_logs_without_a_reset_the_marker_may_be_to_come() -> None:
    seen = but(
        pair(Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).data(2)),
        recorded=False,
    )
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == [
        "1 transactions were open where B was promoted, and have no marker: it may be on its way"
    ]


def test_a_mirrors_abort_is_of_no_coordinator_where_no_promotion_is_known() -> None:
    def log(**header: Unpack[Header]) -> Log:
        log = (
            Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7, coordinator_epoch=4)
        )
        return log.data(2, pid=7, transactional=True).marker("abort", pid=7, **header)

    raised = view([log(leader_epoch=9)])
    assert anomalies(NAME, raised) == [("coordinator-epoch-regression", "A", 3)]
    assert anomalies(NAME, but(raised, recorded=False)) == []
    assert anomalies(NAME, but(view([log()]), recorded=False)) == [
        ("coordinator-epoch-regression", "A", 3)
    ]


@pytest.mark.parametrize(("copied", "forced"), [(0, True), (3, False)])
def test_a_split_is_a_failovers_only_if_the_commit_was_behind_all_that_was_mirrored(
    copied: int, forced: bool
) -> None:
    theirs, ours = Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end=None)
    for each in range(copied):
        theirs = theirs.data(10 + each)
        ours = (ours if each else ours.skip(1)).data(10 + each)
    promotions = [promoted(ours.end)]
    (found,) = [
        each
        for each in findings(NAME, pair(theirs, ours.marker("abort", pid=7), promotions=promotions))
        if each.kind == "outcome-split"
    ]
    assert ("failover" in found.evidence) == forced
