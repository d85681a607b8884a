"""byte-equality: the smallest histories."""

from dataclasses import replace

import pytest
from histories import Log, Rejected, assert_accepted, assert_rejected, places, promoted, unjudged, view

from harness.model.scenario import MirrorSpec

NAME = "byte-equality"


def kept(logs, *, options=None, **rest):
    """A history of a mirror that keeps offsets."""
    return replace(view(logs, **rest), mirror=MirrorSpec(kind="shadow", options=options or {}))


A = Log("A").data(1).data(2, 3)
ACCEPTED = {
    "same": (kept([A, Log("B").data(1).data(2, 3)]), {"B/mirrored": 2}),
    "another leader epoch": (kept([A, Log("B").data(1, leader_epoch=4).data(2, 3, leader_epoch=4)]), {"B/mirrored": 2}),
    "behind": (kept([A, Log("B").data(1)]), {"B/mirrored": 1}),
    "its own after a promotion": (kept([A, Log("B").data(1).data(9)], promotions=[promoted(1)]), {"B/mirrored": 1}),
    "a log that began to be mirrored late": (kept([A, Log("B", start=1).data(2, 3)]), {"B/mirrored": 1}),
    "ids mapped as declared": (
        kept([Log("A").data(1, pid=3), Log("B").data(1, pid=-5, epoch=0, crc=4, producer_epoch=0, base_sequence=0)],
             options={"producer_ids": "negate"}),
        {"B/mirrored": 1},
    ),
}  # fmt: skip
REJECTS = {
    "record-divergence": Rejected(
        view=kept(
            [Log("A").data(1, pid=3), Log("B").data(1, pid=-5, producer_epoch=0, base_sequence=0, digest={1: 5})],
            options={"producer_ids": "negate"},
        ),
        cluster="B",
        offset=0,
    ),
    "byte-divergence": Rejected(view=kept([Log("A").data(1), Log("B").data(1, crc=5)]), cluster="B", offset=0),
    "byte-hole": Rejected(view=kept([Log("A").data(1).data(2), Log("B").data(2, at=1)]), cluster="B", offset=0),
    "byte-stranger": Rejected(view=kept([Log("A").data(1, 2), Log("B").data(1, 2).data(2, at=1)]), cluster="B", offset=1),
}


def mapped(how, source, *pids):
    """One batch of producer `source` per id that it has on B."""
    a, b = Log("A"), Log("B")
    for n, pid in enumerate(pids):
        a.data(n, pid=source, producer_epoch=0, base_sequence=n)
        b.data(n, pid=pid, producer_epoch=0, base_sequence=n, crc=n)
    return kept([a, b], options={"producer_ids": how})


REGION = -(1 << 63) + (77 << 31)


@pytest.mark.parametrize(
    ("how", "source", "pids", "wrong"),
    [
        ("negate", 3, (-5, -5), []),
        ("negate", 3, (-5, -6), [1]),
        ("negate", -1, (-1, -1), []),
        ("complement", 3, (2**63 - 5, 3), [1]),
        ("region", 3, (REGION + 3, REGION + 3), []),
        ("region", 3, (REGION + 3, REGION + 4), [1]),
        ("region", 3, (REGION + 3, REGION + 3 + (1 << 31)), [0, 1]),
    ],
)
def test_each_id_is_what_the_mapping_gives(how, source, pids, wrong):
    assert places(NAME, mapped(how, source, *pids)) == [("byte-divergence", "B", offset) for offset in wrong]


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_mirror_that_moves_offsets_is_not_judged():
    assert places(NAME, view([Log("A").data(1), Log("B").data(1, crc=5)])) == []


def test_a_log_that_was_not_captured_is_unjudged():
    assert unjudged(NAME, kept([Log("A").data(1)])) == ["no log of B was captured for A.t-0"]
