"""producer-id-uniqueness: the smallest histories."""

from __future__ import annotations

from functools import partial
from typing import TypedDict, Unpack

import pytest

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import Log, commit, promoted, send, uid, view
from tests.unit.checks.verdicts import Rejected, anomalies, findings

NAME = "producer-id-uniqueness"
P1, P2 = (partial(uid, process) for process in (1, 2))
ACCEPTED = {
    "one each": (view([Log("A").data(P1(1), pid=7).data(P2(1), pid=8)]), {"A/native": 2}),
    "fenced by a higher epoch": (
        view([Log("A").txn(P1(1), pid=7, epoch=0).txn(P2(1), pid=7, epoch=1)]),
        {"A/native": 2},
    ),
    "one producer with two ids in turn, the epochs of the first used up": (
        view(
            [
                Log("A")
                .txn(P1(1), pid=7, epoch=32766, marker_epoch=32767)
                .txn(P1(2), pid=8, marker_epoch=1)
            ],
            sends=[
                commit(P1(1), acked=0, producer_id=7, producer_epoch=32766),
                commit(P1(2), acked=2, producer_id=8, producer_epoch=0),
            ],
        ),
        {"A/native": 2},
    ),
    "same id on another cluster": (
        view(
            [Log("A").data(P1(1), pid=7), Log("B").data(1).data(P2(1), pid=7)],
            promotions=[promoted(1)],
        ),
        {"A/native": 1, "B/native": 1},
    ),
    "reset in between": (
        view(
            [Log("B").data(P1(1), pid=7).marker("reset", pid=-1).data(P2(1), pid=7, sequence=0)],
            promotions=[promoted(1)],
        ),
        {"B/mirrored": 1, "B/native": 1},
    ),
    "epochs in turn as reported": (
        view(
            [Log("A").data(P1(1), pid=7)],
            sends=[
                commit(P1(1), acked=0, producer_id=7, producer_epoch=0),
                commit(P2(1), process=2, producer_id=7, producer_epoch=1),
            ],
        ),
        {"A/native": 1},
    ),
}
REJECTS = {
    "producer-id-collision": Rejected(
        view([Log("A").data(P1(1), pid=7).data(P2(1), pid=7)]), "A", 1
    ),
}


def test_the_intruder_is_the_one_with_fewer_batches() -> None:
    seen = view([Log("A").data(P2(1), pid=7).data(P1(1), pid=7).data(P1(2), pid=7)])
    assert anomalies(NAME, seen) == [("producer-id-collision", "A", 0)]


def test_a_native_id_that_the_mirror_had_written_with() -> None:
    seen = view([Log("B").data(P1(1), pid=7).data(P2(1), pid=7, epoch=3)], promotions=[promoted(1)])
    assert anomalies(NAME, seen) == [("producer-id-collision", "B", 1)]


def test_two_transactional_ids_with_one_producer_id() -> None:
    sends = [
        commit(P1(1), acked=0, producer_id=7, producer_epoch=0, transactional_id="t"),
        commit(P2(1), acked=1, producer_id=7, producer_epoch=1, transactional_id="u", process=2),
    ]
    assert anomalies(NAME, view([Log("A")], sends=sends)) == [("producer-id-collision", "A", 1)]


def test_a_collision_that_never_reached_a_log_is_found_in_the_clients_records() -> None:
    sends = [
        send(P1(1), acked=0, producer_id=7, producer_epoch=0),
        send(P2(1), acked=0, producer_id=7, producer_epoch=0, process=2),
    ]
    found = anomalies(NAME, view([Log("A").data(P1(1), pid=7)], sends=sends))
    assert [(kind, cluster) for kind, cluster, _ in found] == [("producer-id-collision", "A")]


def test_interleaved_epochs_collide() -> None:
    seen = view(
        [Log("A").txn(P1(1), pid=7, epoch=0).txn(P2(1), pid=7, epoch=1).txn(P1(2), pid=7, epoch=2)]
    )
    assert anomalies(NAME, seen) == [("producer-id-collision", "A", 2)]


def test_the_intruder_is_the_one_whose_client_never_had_that_id() -> None:
    sends = [
        send(P2(1), acked=1, producer_id=7, producer_epoch=0, process=2),
        send(P1(1), acked=0, producer_id=6, producer_epoch=0),
    ]
    seen = view([Log("A").data(P1(1), pid=7).data(P2(1), pid=7)], sends=sends)
    assert anomalies(NAME, seen) == [("producer-id-collision", "A", 0)]


@pytest.mark.parametrize(
    ("acked", "reset", "found"), [(-1, False, -1), (0, False, 0), (-1, True, None)]
)
def test_a_mirrored_id_reallocated_to_a_producer_that_was_refused_or_falsely_acknowledged(
    acked: int, reset: bool, found: int | None
) -> None:
    b = Log("B").data(P1(1), pid=7)
    if reset:
        b = b.marker("reset", pid=-1)
    sends = [
        send(
            P2(1),
            acked=acked,
            cluster="B",
            outcome="info",
            producer_id=7,
            producer_epoch=0,
            process=2,
        )
    ]
    seen = view([b], promotions=[promoted(1)], sends=sends)
    assert anomalies(NAME, seen) == (
        [] if found is None else [("producer-id-collision", "B", found)]
    )


class Batch(TypedDict, total=False):
    """The producer of a batch."""

    pid: int
    epoch: int
    sequence: int


def behind_a_reset(**second: Unpack[Batch]) -> PartitionView:
    log = Log("B").data(P1(1), pid=7).marker("reset", pid=-1).data(P2(1), **second)
    return view([Log("A").data(P1(1), pid=7), log], mirror_kind="exact", promotions=[promoted(1)])


def test_an_id_that_continues_the_mirrored_sequence_after_a_reset() -> None:
    seen = behind_a_reset(pid=7, sequence=1)
    assert anomalies(NAME, seen) == [("producer-id-collision", "B", 2)]
    assert findings(NAME, seen)[0].evidence == {
        "producer_id": 7, "producer_epoch": 0, "mirrored_offset": 0, "handed_out_by": ["A", "B"],
        "processes": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize(
    "second",
    [{"pid": 7, "sequence": 2}, {"pid": 7, "epoch": 1, "sequence": 1}, {"pid": 8, "sequence": 1}],
)
def test_an_id_that_begins_elsewhere_behind_a_reset_is_another_one(second: dict[str, int]) -> None:
    assert anomalies(NAME, behind_a_reset(**second)) == []
