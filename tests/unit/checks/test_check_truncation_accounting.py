"""truncation-accounting: the smallest histories."""

from dataclasses import replace

import pytest
from histories import SECOND, Log, Rejected, assert_accepted, assert_rejected, places, promoted, send, unjudged, view
from round_trip import AWAY, TOLD, before, cut, home_again, on_a, on_b, trip

from spark_verify.view import Stop

NAME = "truncation-accounting"


def stop(mirrored, at, *appended):
    return Stop(link="A->B", cluster="B", time=500 * SECOND, mirrored=mirrored, promoted=at, truncated=(), appended=appended)


def ended(told, *, offset=1):
    """A has an open transaction, B its ABORT at offset 1."""
    a = Log("A").txn(1, pid=7, end=None)
    b = Log("B").txn(1, pid=7, end="abort")
    return view([a, b], mirror_kind="shadow", promotions=[promoted(offset)], stops=[told])


SAID = (1, "ABORT of producer 7, epoch 0")
LOST = Log("A").data(2, at=1).data(4, crc=44, leader_epoch=3).data(5, crc=55, leader_epoch=3).data(6, leader_epoch=4)
KEPT = Log("A").data(1).data(2).data(3).data(5, crc=55, leader_epoch=3).data(6, leader_epoch=4)
WHOLE = Log("A").data(1).data(2).taken("1-reverse-600", at=605)
PLANNED = [replace(AWAY, kind="planned"), home_again()]
ACCEPTED = {
    "no failback": (view([Log("A"), Log("B")], mirror_kind="shadow"), {}),
    "there and back": (trip(), {"A/native": 3}),
    "nothing to cut": (trip(earlier=[WHOLE], sends=[], truncations=[]), {"A/native": 2}),
    "an ABORT as it was written down": (ended(stop(1, 2, SAID)), {"B/native": 2}),
    "nothing to end": (
        view([Log("A").data(1), Log("B").data(1)], mirror_kind="shadow", promotions=[promoted(1)], stops=[stop(1, 1)]),
        {"B/native": 1},
    ),
    "a mirror that was never failed over": (view([Log("A"), Log("B")], mirror_kind="shadow", stops=[stop(-1, -1)]), {}),
}  # fmt: skip
REJECTS = {
    "truncation-too-deep": Rejected(view=trip(truncations=[cut(offset=1)]), cluster="A", offset=1),
    "truncation-unrecorded": Rejected(view=trip(truncations=[]), cluster="A", offset=2),
    "history-changed": Rejected(view=trip(logs=[LOST, on_b()]), cluster="A", offset=0),
    "tail-not-cut": Rejected(view=trip(logs=[KEPT, on_b()]), cluster="A", offset=2),
    "truncated-write": Rejected(view=trip(promotions=PLANNED), cluster="A", offset=2),
    "marker-not-appended": Rejected(
        view=view(
            [Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).data(9)],
            mirror_kind="shadow", promotions=[promoted(1)], stops=[stop(1, 2, SAID)],
        ),
        cluster="B", offset=1,
    ),
    "marker-unannounced": Rejected(view=ended(stop(1, 2)), cluster="B", offset=1),
    "promotion-mismatch": Rejected(view=ended(stop(1, 2, SAID), offset=0), cluster="B", offset=0),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_leader_epoch_below_the_cut_that_changed():
    other = Log("A").data(1).data(2, leader_epoch=1).data(4, crc=44, leader_epoch=3).data(5, crc=55, leader_epoch=3)
    assert places(NAME, trip(logs=[other, on_b()])) == [("history-changed", "A", 1)]


def test_what_was_written_after_the_failover_was_lost_by_the_cut():
    late = send(7, acked=3, invoked=560 * SECOND, returned=561 * SECOND)
    assert places(NAME, trip(earlier=[before().data(7)], sends=[*TOLD, late])) == [("truncated-write", "A", 3)]


def test_a_marker_of_another_producer():
    seen = ended(stop(1, 2, (1, "ABORT of producer 8, epoch 0")))
    assert places(NAME, seen) == [("marker-not-appended", "B", 1)]


def test_without_a_capture_from_before_the_cut_it_cannot_be_told():
    (reason,) = unjudged(NAME, trip(earlier=[]))
    assert "no log of it from before and after that was captured" in reason
    assert places(NAME, trip(logs=[on_a(), on_b()])) == []
