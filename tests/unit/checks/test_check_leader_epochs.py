"""leader-epochs: the smallest histories."""

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, examined, places, samples, view
from round_trip import before, on_b, trip

NAME = "leader-epochs"
KEEP = {"leader_epochs": "keep"}


def sampled(epoch, *, options=KEEP):
    log = Log("B").data(1, leader_epoch=5)
    return view([log], mirror_kind="shadow", mirror=options, watermarks={"B": samples((1, 1), epochs=[epoch])})


ACCEPTED = {
    "rising": (view([Log("A").data(1).data(2, leader_epoch=3)]), {"A/native": 2}),
    "replicas agree": (view([Log("A").data(1), Log("A", broker=2, canonical=False).data(1)]), {"A/native": 1}),
    "cut and written in a later epoch": (trip(), {"A/native": 4, "A/mirrored": 2, "B/mirrored": 2, "B/native": 2}),
    "a leader of the batches' epoch": (sampled(5), {"B/mirrored": 1}),
    "a mirror that writes epochs of its own": (sampled(3, options={"leader_epochs": "rewrite"}), {"B/mirrored": 1}),
}
AGAIN = Log("A").data(1).data(2).data(4, crc=44).data(5, crc=55, leader_epoch=3)
REJECTS = {
    "leader-epoch-regression": Rejected(
        view=view([Log("A").data(1, leader_epoch=2).data(2, leader_epoch=1)]), cluster="A", offset=1
    ),
    "epoch-reuse": Rejected(view=trip(logs=[AGAIN, on_b()]), cluster="A", offset=2),
    "epoch-behind": Rejected(view=sampled(3), cluster="B", offset=0),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_an_earlier_capture_is_looked_at_too():
    fell = before().data(9, leader_epoch=-1)
    assert places(NAME, trip(earlier=[fell])) == [("leader-epoch-regression", "A", 3)]


def test_of_what_was_cut_only_the_tail_is_counted():
    assert examined(NAME, trip())["A/native"] == 2 + 1 + 1
