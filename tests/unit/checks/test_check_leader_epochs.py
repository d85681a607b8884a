"""leader-epochs: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import pytest

from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import (
    SECOND,
    Header,
    History,
    Log,
    mirror_stop,
    promoted,
    samples,
    view,
)
from tests.unit.checks.round_trip import before, emptied, on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, examined

NAME = "leader-epochs"
KEEP = {"leader_epochs": "keep"}


REWRITE = {"leader_epochs": "rewrite"}


def sampled(
    *epochs: int, options: dict[str, str] = KEEP, high_watermark: int = 1, **rest: Unpack[History]
) -> PartitionView:
    log = Log("B").data(1, leader_epoch=5)
    marks = samples(*((high_watermark, high_watermark) for _ in epochs), epochs=epochs)
    given: History = {"mirror_kind": "shadow", "mirror": options, "watermarks": {"B": marks}}
    return view([log], **(given | rest))


def promoted_in(epoch: int, **rest: Unpack[History]) -> PartitionView:
    """1 was mirrored in epoch 2; 2 was written to B after its promotion."""
    log = Log("B").data(1, leader_epoch=2).data(2, leader_epoch=epoch)
    given: History = {"mirror_kind": "shadow", "promotions": [promoted(1)]}
    return view([log], **(given | rest))


def truncated_off(*, reported: bool) -> PartitionView:
    """B had an open transaction at offset 0 in epoch 3, which the mirror truncated when it
    ended."""
    stop = mirror_stop(1, 0, time=5 * SECOND, truncated=[(1, 0)] if reported else [])
    return sampled(3, stops=[stop])


def mirrored_in(
    epoch: int, *, options: dict[str, str] = KEEP, **rest: Unpack[History]
) -> PartitionView:
    """A has 1 in epoch 2; B got it in `epoch`."""
    logs = [Log("A").data(1, leader_epoch=2), Log("B").data(1, leader_epoch=epoch)]
    given: History = {"mirror_kind": "shadow", "mirror": options}
    return view(logs, **(given | rest))


def cleaned_twice(*, below: int = 2, **header: Unpack[Header]) -> PartitionView:
    """A's second broker has a marker to which its cleaner gave a delete horizon, or that differs in
    something else."""
    one, other = (
        Log("A", broker=n, canonical=n == 1, leader=n == 1).data(1, pid=7, transactional=True)
        for n in (1, 2)
    )
    horizon: Header = {"length": 80, "crc": 9}
    logs = [one.marker("commit", pid=7), other.marker("commit", pid=7, **horizon | header)]
    return view(logs, topology="A:3->B", compacted={"A": below})


def reported(*epochs: int, windows: Sequence[Window] = ()) -> PartitionView:
    """A has 1 in epoch 0, and its leaders reported these epochs, a second apart."""
    return view(
        [Log("A").data(1)],
        watermarks={"A": samples(*((1, 1) for _ in epochs), epochs=epochs)},
        windows=windows,
    )


def election(start: int, end: int) -> Window:
    return Window(id="1", fault="broker-stop", target="A/1", start=start * SECOND, end=end * SECOND)


ACCEPTED = {
    "epochs that rose": (reported(0, 2, 3), {"A/native": 1}),
    "a deposed leader that did not know it yet": (reported(0, 3, 0, 3), {"A/native": 1}),
    "a deposed leader, the last that was asked, while a broker is stopped": (
        reported(0, 3, 0, windows=[election(2, 4)]),
        {"A/native": 1},
    ),
    "leaders that did not say their epoch": (reported(0, 3, -1), {"A/native": 1}),
    "the epoch of the source, kept": (mirrored_in(2), {"A/native": 1, "B/mirrored": 1}),
    "an epoch of its own, which nobody promised to keep": (
        mirrored_in(3, options=REWRITE),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "MirrorMaker's own epoch": (
        mirrored_in(3, mirror_kind="mm2", options={}),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "a delete horizon of one broker's cleaner": (cleaned_twice(), {"A/native": 2}),
    "rising": (view([Log("A").data(1).data(2, leader_epoch=3)]), {"A/native": 2}),
    "replicas agree": (
        view([Log("A").data(1), Log("A", broker=2, canonical=False).data(1)]),
        {"A/native": 1},
    ),
    "truncated and written in a later epoch": (
        trip(),
        {"A/native": 4, "A/mirrored": 2, "B/mirrored": 2, "B/native": 2},
    ),
    "a leader of the batches' epoch": (sampled(5), {"B/mirrored": 1}),
    "a leader of the batches' epoch, rewritten": (sampled(5, options=REWRITE), {"B/mirrored": 1}),
    "truncated and written again between samples": (
        sampled(3, 5, options=REWRITE),
        {"B/mirrored": 1},
    ),
    "written after the last sample": (
        sampled(3, options=REWRITE, high_watermark=0),
        {"B/mirrored": 1},
    ),
    "the last sample knows no epoch": (sampled(5, -1, options=REWRITE), {"B/mirrored": 1}),
    "what a sample saw was truncated when the mirror ended": (
        truncated_off(reported=True),
        {"B/mirrored": 1},
    ),
    "a hand-over that raised the epoch": (promoted_in(3), {"B/mirrored": 1, "B/native": 1}),
    "MirrorMaker writes in the epochs of the leader": (
        promoted_in(2, mirror_kind="mm2"),
        {"B/mirrored": 1, "B/native": 1},
    ),
}
AGAIN = Log("A").data(1).data(2).data(4, crc=44).data(5, crc=55, leader_epoch=3)
REJECTS = {
    "leader-epoch-regression": Rejected(
        view([Log("A").data(1, leader_epoch=2).data(2, leader_epoch=1)]), "A", 1
    ),
    "epoch-reuse": Rejected(trip(logs=[AGAIN, on_b()]), "A", 2),
    "epoch-behind": Rejected(sampled(3, options=REWRITE), "B", 0),
    "sampled-epoch-regression": Rejected(reported(0, 1000, 3), "A", 1),
    "epoch-not-kept": Rejected(mirrored_in(3), "B", 0),
    "epoch-not-raised": Rejected(promoted_in(2), "B", 1),
}
BEHIND = {
    "kept, in a sample that is not the last": sampled(3, 5),
    "of a mirror that is none of ours": sampled(3, mirror_kind="mm2", options={}),
    "before a last sample without an answer": sampled(3, -1, options=REWRITE),
    "and nothing was truncated": truncated_off(reported=False),
}


@pytest.mark.parametrize("case", BEHIND)
def test_no_leader_epoch_is_below_those_of_its_records(case: str) -> None:
    assert anomalies(NAME, BEHIND[case]) == [("epoch-behind", "B", 0)]


def test_difference_that_no_cleaner_makes_is_epoch_reuse_below_its_checkpoint() -> None:
    reused = [("epoch-reuse", "A", 1)]
    assert anomalies(NAME, cleaned_twice(below=1)) == reused
    assert anomalies(NAME, cleaned_twice(producer_epoch=1)) == reused
    assert anomalies(NAME, cleaned_twice(producer_id=8)) == reused
    assert anomalies(NAME, cleaned_twice(last_offset=2)) == reused


def test_the_first_of_each_range_of_batches_in_another_epoch_is_reported_once() -> None:
    source = [Log("A")]
    mine = Log("B")
    for uid, epoch in enumerate((2, 3, 3, 2, 3), start=1):
        source[0].data(uid, leader_epoch=2)
        mine.data(uid, leader_epoch=epoch)
    seen = view([*source, mine], mirror_kind="shadow", mirror=KEEP)
    assert [p for p in anomalies(NAME, seen) if p[0] == "epoch-not-kept"] == [
        ("epoch-not-kept", "B", 1),
        ("epoch-not-kept", "B", 4),
    ]


def test_an_earlier_capture_is_looked_at_too() -> None:
    fell = before().data(9, leader_epoch=-1)
    assert anomalies(NAME, trip(earlier=[fell])) == [("leader-epoch-regression", "A", 3)]


def test_only_the_tail_of_a_truncation_is_counted() -> None:
    assert examined(NAME, trip())["A/native"] == 2 + 1 + 1


def test_a_sampled_epoch_is_above_the_last_one_before_and_after_a_fault() -> None:
    regression = [("sampled-epoch-regression", "A", 1)]
    assert anomalies(NAME, reported(4, 3)) == regression
    assert anomalies(NAME, reported(0, 1000, 1001, 3, 3)) == regression
    assert anomalies(NAME, reported(0, 1000, 3, windows=[election(1, 2)])) == regression
    assert anomalies(NAME, reported(0, 1000, -1, 3, -1)) == regression


def test_epochs_begin_anew_in_a_log_that_was_emptied_and_not_within_it() -> None:
    early, late = [(3, 3)] * 5, [(0, 0), (3, 3), (3, 3)]
    for epochs, found in (
        ([4] * 5 + [0, 1, 1], []),
        ([4] * 5 + [0, 2, 1], [("sampled-epoch-regression", "A", 3)]),
    ):
        marks = samples(*early, *late, epochs=epochs, every=110 * SECOND)
        assert anomalies(NAME, emptied(1, 2, 8, watermarks={"A": marks})) == found
