"""marker-pairing: the smallest histories."""

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, findings, places, promoted, view

NAME = "marker-pairing"
ACCEPTED = {
    "transactions v1": (view([Log("A").txn(1, pid=7).txn(2, pid=7)]), {"A/native": 2}),
    "transactions v2": (view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, epoch=1, marker_epoch=2)]), {"A/native": 2}),
    "fenced": (view([Log("A").txn(1, pid=7, end="abort", marker_epoch=3).txn(2, pid=7, epoch=4)]), {"A/native": 2}),
    "empty markers": (view([Log("A").marker("commit", pid=7).txn(1, pid=7).marker("abort", pid=7)]), {"A/native": 1}),
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
        view([Log("A"), Log("B").txn(1, pid=5, end=None).txn(2, pid=5).data(3)], promotions=[promoted(3)]),
        {"B/mirrored": 1},
    ),
    "left open, fenced by a successor": (
        view([Log("A").txn(1, pid=7, end=None).marker("abort", pid=7, epoch=1).txn(2, pid=7, epoch=2, end=None)]),
        {"A/native": 2},
    ),
    "begun anew after a reset (KIP-1279)": (
        view([Log("A").txn(1, pid=7, epoch=1).marker("reset", pid=-1, epoch=-1).txn(2, pid=7)]),
        {"A/native": 2},
    ),
    "ids that clash over a promotion": (
        view([Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)], mirror_kind="shadow", promotions=[promoted(1)]),
        {"B/mirrored": 1},
    ),
}
REJECTS = {
    "marker-epoch": Rejected(view=view([Log("A").txn(1, pid=7, epoch=2, marker_epoch=1)]), cluster="A", offset=1),
    "marker-missing": Rejected(view=view([Log("A").txn(9, pid=7).txn(1, pid=7, end=None).txn(2, pid=7)]), cluster="A", offset=2),
    "stale-data": Rejected(view=view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, end=None)]), cluster="A", offset=2),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_new_epoch_without_a_marker():
    seen = view([Log("A").txn(1, pid=7, end=None).txn(2, pid=7, epoch=1, end=None)])
    assert places(NAME, seen) == [("marker-missing", "A", 0)]


def test_each_operation_without_a_marker_is_one_anomaly_that_says_what_came_next():
    log = Log("A").txn(1, 2, pid=7, end=None).txn(20, pid=8).data(3, pid=7, transactional=True, operation=1)
    log.txn(4, pid=7, end=None).txn(5, pid=7, end=None)
    found = findings(NAME, view([log]))
    assert [(f.kind, f.offset) for f in found] == [("marker-missing", 0), ("marker-missing", 5)]
    assert [f.evidence for f in found] == [
        {"producer_id": 7, "records": 3, "operations": [1, 4], "next_offset": 5},
        {"producer_id": 7, "records": 1, "operations": [4, 5], "next_offset": 6},
    ]


def test_a_mirror_that_keeps_bytes_keeps_markers():
    seen = view([Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)], mirror_kind="shadow")
    assert places(NAME, seen) == [("marker-missing", "B", 0)]


def test_natively_on_a_promoted_cluster():
    seen = view([Log("A"), Log("B").data(9).txn(1, pid=7, end=None).txn(2, pid=7)], promotions=[promoted(1)])
    assert places(NAME, seen) == [("marker-missing", "B", 1)]


def test_a_batch_that_rotted_may_have_been_another_producers():
    """Of 2 and 3 only the bytes are wrong: what they say of their producer's epoch proves nothing."""
    rotten = Log("A").txn(1, pid=7, epoch=1, end=None).data(2, pid=7, epoch=9, transactional=True, crc_ok=False)
    rotten.marker("commit", pid=7, epoch=1).data(3, pid=7, epoch=0, crc_ok=False)
    assert places(NAME, view([rotten])) == []
    whole = Log("A").txn(1, pid=7, epoch=1, end=None).data(2, pid=7, epoch=9, transactional=True).marker("commit", pid=7, epoch=1)
    found = {kind for kind, *_ in places(NAME, view([whole.data(3, pid=7, epoch=0)]))}
    assert found >= {"marker-epoch", "stale-data"}
