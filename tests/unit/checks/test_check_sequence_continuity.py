"""sequence-continuity: the smallest histories."""

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, view

NAME = "sequence-continuity"
ACCEPTED = {
    "in turn": (view([Log("A").data(1, 2, pid=7).data(3, pid=8).data(4, pid=7)]), {"A/native": 3}),
    "from 0 in a new epoch": (view([Log("A").data(1, pid=7).data(2, pid=7, epoch=1)]), {"A/native": 2}),
    "wraps": (
        view([Log("A", start=5).data(1, pid=7, sequence=2**31 - 1).data(2, pid=7, sequence=0)]),
        {"A/native": 2},
    ),
    "a deleted start": (view([Log("A", start=5).data(1, pid=7, sequence=9)]), {"A/native": 1}),
    "after a reset": (view([Log("A").marker("reset", pid=-1).data(1, pid=7, sequence=9)]), {"A/native": 1}),
    "plain": (view([Log("A").data(1).data(2)]), {}),
}
REJECTS = {
    "sequence-gap": Rejected(view=view([Log("A").data(1, 2, pid=7).data(3, pid=7, sequence=3)]), cluster="A", offset=2),
    "sequence-repeat": Rejected(view=view([Log("A").data(1, 2, pid=7).data(1, 2, pid=7, sequence=0)]), cluster="A", offset=2),
    "sequence-start": Rejected(view=view([Log("A").data(1, pid=7, sequence=3)]), cluster="A", offset=0),
    "no-sequence": Rejected(view=view([Log("A").data(1, pid=7, sequence=-1)]), cluster="A", offset=0),
    "epoch-regression": Rejected(view=view([Log("A").data(1, pid=7, epoch=1).data(2, pid=7, epoch=0)]), cluster="A", offset=1),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_new_epoch_that_does_not_begin_at_zero():
    seen = view([Log("A").data(1, pid=7).data(2, pid=7, epoch=1, sequence=4)])
    assert_rejected(NAME, "sequence-start", Rejected(view=seen, cluster="A", offset=1))
