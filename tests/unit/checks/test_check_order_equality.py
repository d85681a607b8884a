"""order-equality: the smallest histories."""

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, findings, places, promoted, send, unjudged, view

NAME = "order-equality"
ACCEPTED = {
    "same": (view([Log("A").txn(1, 2, pid=7), Log("B").data(1, 2)]), {"B/mirrored": 2}),
    "aborted dropped": (view([Log("A").txn(9, pid=7, end="abort").txn(1, pid=7), Log("B").data(1)]), {"B/mirrored": 1}),
    "other batches": (view([Log("A").data(1, 2, 3), Log("B").data(1).data(2, 3)]), {"B/mirrored": 3}),
    "tail lost with A": (view([Log("A").data(1, 2), Log("B").data(1)], promotions=[promoted(1)]), {"B/mirrored": 1}),
    "native after": (view([Log("A").data(1), Log("B").data(1).data(8, pid=3)], promotions=[promoted(1)]), {"B/mirrored": 1}),
    "mirror's own abort": (
        view([Log("A").data(1, 2), Log("B").txn(1, 2, pid=5, end="abort").txn(1, 2, pid=5, epoch=1)]),
        {"B/mirrored": 2},
    ),
    "held back by an open transaction": (
        view([Log("A").data(1).txn(9, pid=7, end=None).data(2), Log("B").data(1)]),
        {"B/mirrored": 1},
    ),
    "not ours": (view([Log("A").data(-1, 1), Log("B").data(-1, -1, 1)]), {"B/mirrored": 1}),
    "repeated at the source": (view([Log("A").data(1, 1), Log("B").data(1, 1)]), {"B/mirrored": 2}),
}
REJECTS = {
    "mirror-hole": Rejected(view=view([Log("A").data(1, 2, 3), Log("B").data(1, 3)]), cluster="B", offset=1),
    "mirror-inversion": Rejected(view=view([Log("A").data(1, 2), Log("B").data(2, 1)]), cluster="B", offset=1),
    "mirror-divergence": Rejected(view=view([Log("A").data(1), Log("B").data(1, digest={1: 5})]), cluster="B", offset=0),
    "mirror-phantom": Rejected(view=view([Log("A").data(1), Log("B").data(1, 9)]), cluster="B", offset=1),
    "mirrored-duplicate": Rejected(view=view([Log("A").data(1, 2), Log("B").data(1, 1, 2)]), cluster="B", offset=1),
    "mirrored-aborted": Rejected(view=view([Log("A").txn(1, pid=7, end="abort"), Log("B").data(1)]), cluster="B", offset=0),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_batch_repeated_after_a_rewind_is_one_duplicate_and_keeps_the_order():
    seen = view([Log("A").data(1, 2, 3, 4), Log("B").data(1, 2, 3).data(2, 3, 4)])
    assert places(NAME, seen) == [("mirrored-duplicate", "B", 3)]


def test_an_open_transaction_mirrored_by_an_uncommitted_reader_is_found():
    assert places(NAME, view([Log("A").txn(1, pid=7, end=None), Log("B").data(1)])) == [("mirrored-aborted", "B", 0)]


def test_a_tail_at_the_end_of_a_run_without_failover_is_not_judged():
    seen = view([Log("A").data(1, 2), Log("B").data(1)])
    assert places(NAME, seen) == []
    assert "1 committed records of A not yet on B" in unjudged(NAME, seen)[0]


def test_a_torn_log_is_not_judged():
    seen = view([Log("A").data(1, 2, 3), Log("B").data(1).torn()])
    assert places(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_a_deleted_log_start_makes_strangers_unjudged():
    seen = view([Log("A", start=1).data(2), Log("B").data(1, 2)])
    assert places(NAME, seen) == []
    assert unjudged(NAME, seen)


def test_a_chain_is_compared_hop_by_hop():
    seen = view([Log("A").data(1, 2, 3), Log("B").data(1, 2, 3), Log("C").data(1, 3)], topology="A->B->C")
    assert places(NAME, seen) == [("mirror-hole", "C", 1)]


def test_a_missing_log_is_not_judged():
    assert "no log of B" in unjudged(NAME, view([Log("A").data(1)]))[0]


def test_neighbours_that_diverge_are_one_anomaly():
    seen = view([Log("A").data(1, 2, 3, 4, 5), Log("B").data(1, 2, 3, 4, 5, digest={1: 5, 2: 5, 4: 5})])
    assert [(f.kind, f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [
        ("mirror-divergence", 0, 2),
        ("mirror-divergence", 3, 1),
    ]


def test_clients_on_a_cluster_that_nobody_promoted_are_not_taken_for_a_mirror():
    logs, sends = [Log("A").data(1), Log("B").data(1).data(8)], [send(1), send(8, cluster="B")]
    assert places(NAME, view(logs, sends=sends)) == []
    assert "no promotion was recorded" in unjudged(NAME, view(logs, sends=sends))[0]
    assert places(NAME, view(logs, sends=sends[:1])) == [("mirror-phantom", "B", 1)]
    assert unjudged(NAME, view(logs, sends=sends, promotions=[promoted(1)])) == []


def test_a_commit_that_did_not_cross_takes_its_records_along_and_makes_no_hole():
    """A's marker is behind what B has: B must abort what it has of the transaction, though later records are there."""
    begun = Log("A").data(1, pid=7, transactional=True).data(2)
    a = begun.marker("commit", pid=7)
    b = Log("B").data(1, pid=7, transactional=True).data(2).marker("abort", pid=7)
    assert places(NAME, view([a, b], promotions=[promoted(2)], mirror_kind="shadow")) == []
    crossed = Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7).data(2)
    lost = Log("B").data(1, pid=7, transactional=True).marker("abort", pid=7).data(2)
    assert places(NAME, view([crossed, lost], promotions=[promoted(3)], mirror_kind="shadow")) == [("mirror-hole", "B", 2)]
