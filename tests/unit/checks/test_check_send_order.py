"""send-order: the smallest histories."""

from __future__ import annotations

from linkflap.spark_verify.facts.partition_facts import Window
from tests.unit.checks.histories import Log, but, promoted, uid, view
from tests.unit.checks.round_trip import on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, findings

NAME = "send-order"
ACCEPTED = {
    "in turn": (view([Log("A").data(1).data(2)]), {"A/native": 2}),
    "two producers, interleaved": (
        view([Log("A").data(uid(2, 1)).data(uid(1, 1)).data(uid(2, 2))]),
        {"A/native": 3},
    ),
    "aborted, and then the next": (
        view([Log("A").txn(1, pid=7, end="abort").txn(2, pid=7)]),
        {"A/native": 2},
    ),
    "mirrored again": (
        view([Log("A").data(1, 2), Log("B").data(1, 2).data(1, 2)]),
        {"A/native": 2, "B/mirrored": 2},
    ),
    "aborted by the mirror, and again": (
        view([Log("B").txn(2, 3, pid=7, end="abort").txn(1, 2, pid=7)]),
        {"B/mirrored": 2},
    ),
    "not ours": (view([Log("A").data(-1, -1)]), {}),
    "repeated, and the first copies deleted": (
        view([Log("A"), Log("B", start=2).data(3).data(2)]),
        {"B/mirrored": 1},
    ),
    "a program's, and known on B by their contents": (
        but(
            view([Log("A").data(1, 2, 3), Log("B").data(1, 2, 3)]),
            programs=frozenset({"A.t"}),
        ),
        {"A/native": 3, "B/mirrored": 3},
    ),
    "there and back": (trip(), {"A/native": 4, "A/mirrored": 2, "B/mirrored": 2, "B/native": 2}),
}
REJECTS = {
    "send-inversion": Rejected(view([Log("A").data(2).data(1)]), "A", 1),
    "internal-inversion": Rejected(view([Log("A").txn(2, 1, pid=7)]), "A", 1),
}


def test_a_mirror_that_turned_two_transactions_round() -> None:
    seen = view([Log("A").data(1).data(2), Log("B").data(2).data(1)])
    assert anomalies(NAME, seen) == [("send-inversion", "B", 1)]


def test_a_native_order_counts_aborted_records_too() -> None:
    seen = view([Log("A").txn(2, pid=7, end="abort").txn(1, pid=7)])
    assert anomalies(NAME, seen) == [("send-inversion", "A", 2)]


def test_adjacent_records_are_one_anomaly_that_names_the_record_before_them() -> None:
    (found,) = findings(NAME, view([Log("A").data(4, 5).data(1, 2).data(6)]))
    assert (found.offset, found.evidence["records"], found.evidence["uid"]) == (2, 2, 1)
    assert (found.evidence["after_uid"], found.evidence["after_offset"]) == (5, 1)


def test_neighbours_of_two_kinds_are_two_anomalies() -> None:
    seen = view([Log("A").data(3, operation=2).data(1).data(2, operation=2)])
    assert anomalies(NAME, seen) == [("send-inversion", "A", 1), ("internal-inversion", "A", 2)]


def test_an_order_that_was_lost_before_the_truncation_is_named_with_its_capture() -> None:
    turned = Log("A").data(1).data(2).data(uid(1, 9)).data(uid(1, 8)).taken("1-away", at=510)
    (found,) = findings(NAME, trip(earlier=[turned]))
    assert (found.kind, found.offset, found.evidence["capture"]) == ("send-inversion", 3, "1-away")


def test_another_cluster_s_records_have_an_order_of_their_own() -> None:
    seen = view([Log("A").data(5), on_b()], mirror_kind="shadow", promotions=[promoted(2)])
    assert anomalies(NAME, seen) == []


def test_equal_contents_behind_a_mirror_do_not_tell_which_was_sent_first() -> None:
    """A program wrote 1 2 3, of which 3 has the contents of 1; the mirror wrote 1 twice."""
    flap = Window(id="flap", fault="link-flap", target="A->B", start=1, end=2)
    same = {1: 5, 3: 5}
    for b, wrong in (
        (Log("B").data(1, 3, 2, 3, digest=same), []),
        (Log("B").data(1, 3, 2), [("internal-inversion", "B", 2)]),
    ):
        a = Log("A").data(1, 2, 3, digest=same if not wrong else {})
        seen = but(view([a, b], windows=[flap]), programs=frozenset({"A.t"}))
        assert anomalies(NAME, seen) == wrong
