"""record-equality: the smallest histories."""

from __future__ import annotations

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from tests.kafka_log import crc_with_id
from tests.scenarios import scenario_of
from tests.unit.checks.histories import SECOND, Log, kept, mirror_stop, promoted, view
from tests.unit.checks.round_trip import on_a, on_b, trip
from tests.unit.checks.verdicts import Rejected, anomalies, due_at, findings, unjudged

NAME = "record-equality"


A = Log("A").data(1).data(2, 3)
ACCEPTED = {
    "the same bytes": (kept([A, Log("B").data(1).data(2, 3)]), {"B/mirrored": 3}),
    "compressed otherwise": (
        kept([A, Log("B").data(1, crc=5, length=50).data(2, 3, crc=6, length=60)]),
        {"B/mirrored": 3},
    ),
    "in other batches": (kept([A, Log("B").data(1, 2, crc=5).data(3, crc=6)]), {"B/mirrored": 3}),
    "behind": (kept([A, Log("B").data(1)]), {"B/mirrored": 1}),
    "a log that began to be mirrored late": (
        kept([A, Log("B", start=1).data(2, 3)]),
        {"B/mirrored": 2},
    ),
    "its own after a promotion": (
        kept([A, Log("B").data(1).data(9, crc=5)], promotions=[promoted(1)]),
        {"B/mirrored": 1},
    ),
    "nothing but markers": (
        kept([Log("A").marker("abort", pid=7), Log("B").marker("abort", pid=7)]),
        {},
    ),
    "ids mapped as declared, and so another CRC": (
        kept(
            [Log("A").data(1, pid=3), Log("B").data(1, pid=-5, crc=crc_with_id(1000, 71, 3, -5))],
            options={"producer_ids": "negate"},
        ),
        {"B/mirrored": 1},
    ),
    "there and back": (trip(), {"A/mirrored": 2, "B/mirrored": 2}),
}
REJECTS = {
    "record-divergence": Rejected(
        kept([Log("A").data(1), Log("B").data(1, crc=5, digest={1: 5})]), "B", 0
    ),
    "record-hole": Rejected(kept([Log("A").data(1).data(2), Log("B").data(2, at=1)]), "B", 0),
    "record-stranger": Rejected(
        kept([Log("A").marker("abort", pid=7).data(2), Log("B").data(1, 2, crc=5)]), "B", 0
    ),
}


def test_records_that_headers_prove_equal_are_not_decoded() -> None:
    same = kept([Log("A").data(1), Log("B").data(1, digest={1: 5})])
    assert anomalies(NAME, same) == []
    wrong_crc = kept([Log("A").data(1), Log("B").data(1, digest={1: 5}, crc_ok=False)])
    assert anomalies(NAME, wrong_crc) == [("record-divergence", "B", 0)]


def test_aborted_records_and_those_that_are_not_ours_count_too() -> None:
    a, b = (
        Log("A").txn(1, pid=7, end="abort").data(-1),
        Log("B").txn(1, pid=7, end="abort").data(-1, crc=5, digest={-1: 5}),
    )
    assert anomalies(NAME, kept([a, b])) == [("record-divergence", "B", 2)]
    other = (
        Log("B")
        .data(1, pid=7, transactional=True, crc=4, digest={1: 5})
        .marker("abort", pid=7)
        .data(-1)
    )
    assert anomalies(NAME, kept([a, other])) == [("record-divergence", "B", 0)]


def test_records_that_were_swapped() -> None:
    assert anomalies(NAME, kept([Log("A").data(1, 2), Log("B").data(2, 1, crc=5)])) == [
        ("record-divergence", "B", 0)
    ]


def test_neighbours_are_one_anomaly() -> None:
    b = Log("B").data(1, 2, 3, 4, crc=5, digest={2: 5, 3: 6})
    (found,) = findings(NAME, kept([Log("A").data(1, 2, 3, 4), b]))
    assert (found.offset, found.evidence) == (1, {"records": 2, "uid": 2, "source": "A"})


def test_a_mirror_that_moves_offsets_is_not_judged() -> None:
    assert anomalies(NAME, view([Log("A").data(1), Log("B").data(1, crc=5, digest={1: 5})])) == []


def test_records_mirrored_back_are_compared_with_their_owner() -> None:
    a = Log("A").data(1).data(2).data(4, crc=9, digest={4: 1}).data(5, crc=55).data(6)
    assert anomalies(NAME, trip(logs=[a, on_b()])) == [("record-divergence", "A", 2)]
    hole = Log("A").data(1).data(2).data(5, at=3, crc=55, leader_epoch=3).data(6, leader_epoch=4)
    assert anomalies(NAME, trip(logs=[hole, on_b()])) == [("record-hole", "A", 2)]
    assert anomalies(NAME, trip(logs=[on_a(), on_b()])) == []


def test_the_end_of_a_chain_is_compared_with_its_owner() -> None:
    logs = [Log("A").data(1), Log("B").data(1, crc=5), Log("C").data(1, crc=6, digest={1: 5})]
    assert anomalies(NAME, kept(logs, topology="A->B->C")) == [("record-divergence", "C", 0)] * 2


def test_a_log_that_is_torn_or_was_not_captured_is_unjudged() -> None:
    assert unjudged(NAME, kept([Log("A").data(1)])) == ["no log of B was captured for A.t-0"]
    assert unjudged(NAME, kept([Log("A").data(1), Log("B").torn()]))
    behind = kept([Log("A").data(1), Log("B").torn().data(1, crc=5, digest={1: 5})])
    assert anomalies(NAME, behind) == []
    assert unjudged(NAME, behind)


def test_mapped_ids_prove_no_record() -> None:
    """The CRC is not the one that follows from the id, so the records are looked into."""
    logs = [Log("A").data(1, pid=3), Log("B").data(1, pid=-5, digest={1: 5})]
    seen = kept(logs, options={"producer_ids": "negate"})
    assert anomalies(NAME, seen) == [("record-divergence", "B", 0)]


def test_records_before_the_damage_are_compared() -> None:
    seen = kept([Log("A").data(1).data(2), Log("B").data(1, crc=5, digest={1: 5}).torn()])
    assert anomalies(NAME, seen) == [("record-divergence", "B", 0)]
    assert unjudged(NAME, seen)


@pytest.mark.parametrize(
    ("mirror", "due"),
    [
        (declared(MirrorSpec(kind="shadow")), {("B", "mirrored")}),
        (
            declared(MirrorSpec(kind="shadow", options={"producer_ids": "negate"})),
            {("B", "mirrored")},
        ),
        (declared(MirrorSpec(kind="mm2")), set()),
    ],
    ids=str,
)
def test_due_where_the_mirror_keeps_offsets(mirror: MirrorSpec, due: set[tuple[str, str]]) -> None:
    scenario = scenario_of(
        mirror=declared(mirror), workloads=(WorkloadSpec(kind="transactional", home="A"),)
    )
    assert set(due_at(NAME, scenario, [])) == due


def test_a_mirrors_truncation_and_reset_at_the_end_of_the_run_are_its_own() -> None:
    """A has 1 and an open transaction; no failover: at the end of the run the mirror truncates B
    there, and writes a reset."""
    truncated, appended = [(2, 1)], [(1, "reset")]
    stop = mirror_stop(2, 2, *appended, time=900 * SECOND, truncated=truncated)  # fmt: skip
    logs = [
        Log("A").data(1).data(2, pid=7, transactional=True, crc=5),
        Log("B").data(1).marker("reset", pid=-1),
    ]
    assert anomalies(NAME, kept(logs, stops=[stop])) == []
    assert anomalies(NAME, kept(logs)) == [("record-hole", "B", 1)]
