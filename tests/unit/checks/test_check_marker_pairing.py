"""marker-pairing: the smallest histories."""

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, view

NAME = "marker-pairing"
ACCEPTED = {
    "transactions v1": (view([Log("A").txn(1, pid=7).txn(2, pid=7)]), {"A/native": 2}),
    "transactions v2": (view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, epoch=1, marker_epoch=2)]), {"A/native": 2}),
    "fenced": (view([Log("A").txn(1, pid=7, end="abort", marker_epoch=3).txn(2, pid=7, epoch=4)]), {"A/native": 2}),
    "empty markers": (view([Log("A").marker("commit", pid=7).txn(1, pid=7).marker("abort", pid=7)]), {"A/native": 1}),
    "open at the end": (view([Log("A").txn(1, pid=7, end=None)]), {"A/native": 1}),
    "others in between": (
        view([Log("A").txn(1, pid=7, end=None).txn(2, pid=8).data(3, pid=7, transactional=True).marker("commit", pid=7)]),
        {"A/native": 2},
    ),
}
REJECTS = {
    "marker-epoch": Rejected(view=view([Log("A").txn(1, pid=7, epoch=2, marker_epoch=1)]), cluster="A", offset=1),
    "marker-missing": Rejected(
        view=view([Log("A").txn(1, pid=7, end=None).txn(2, pid=7, epoch=1, end=None)]), cluster="A", offset=0
    ),
    "stale-data": Rejected(view=view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, end=None)]), cluster="A", offset=2),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])
