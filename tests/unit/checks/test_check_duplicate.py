"""duplicate: the smallest histories."""

from __future__ import annotations

from tests.unit.checks.histories import SECOND, Log, promoted, samples, view
from tests.unit.checks.verdicts import Rejected, anomalies, findings

NAME = "duplicate"
ACCEPTED = {
    "once each": (
        view([Log("A").data(1, 2), Log("B").data(1, 2)]),
        {"A/native": 2, "B/mirrored": 2},
    ),
    "not ours": (view([Log("A").data(-1, -1)]), {}),
    "aborted, and sent again": (
        view([Log("A").txn(1, pid=7, end="abort").txn(1, pid=7, epoch=1)]),
        {"A/native": 1},
    ),
    "mirrored, and still open": (
        view([Log("B").data(1).txn(1, pid=7, end=None)]),
        {"B/mirrored": 1},
    ),
    "mirror's own abort": (
        view([Log("B").txn(1, pid=5, end="abort").txn(1, pid=5, epoch=1)]),
        {"B/mirrored": 1},
    ),
}
REJECTS = {
    "duplicate": Rejected(
        view([Log("B").data(1).data(7, pid=3).data(7, pid=3)], promotions=[promoted(1)]), "B", 2
    ),
    "mirrored-duplicate": Rejected(view([Log("B").data(1).data(1)]), "B", 1),
}


def test_an_open_copy_at_the_end_of_a_native_log_is_one_too_many() -> None:
    seen = view([Log("A").txn(1, 2, pid=7).data(1, 2, pid=7, sequence=0, transactional=True)])
    assert anomalies(NAME, seen) == [("duplicate", "A", 3)]


def test_a_replayed_range_is_one_anomaly_whoever_wrote_it() -> None:
    seen = view([Log("B").data(5, 1, 9).data(5, 1, 9).data(7)])
    assert [(f.offset, f.evidence["records"]) for f in findings(NAME, seen)] == [(3, 3)]


def test_a_mirrored_repeat_has_the_times_of_both_copies() -> None:
    seen = view(
        [Log("B").data(1).data(1)], watermarks={"B": samples((0, 0), (1, 1), (1, 1), (2, 2))}
    )
    (found,) = findings(NAME, seen)
    assert found.evidence["first_written"] == [SECOND, 2 * SECOND + 1000]
    assert found.evidence["written"] == [3 * SECOND, 4 * SECOND + 1000]
    assert (found.evidence["copy"], found.evidence["first_offset"]) == (1, 0)


def test_a_repeat_that_the_source_has_as_well_was_mirrored_faithfully() -> None:
    logs = [Log("A").data(1, 2), Log("B").data(1, 2, 2), Log("C").data(1, 2, 2)]
    assert anomalies(NAME, view(logs, topology="A->B->C")) == [("mirrored-duplicate", "B", 2)]


def test_repeats_by_clients_after_repeats_by_a_mirror_are_another_anomaly() -> None:
    seen = view([Log("A").data(1, 2), Log("B").data(1, 2, 1).data(2)], promotions=[promoted(3)])
    assert anomalies(NAME, seen) == [("mirrored-duplicate", "B", 2), ("duplicate", "B", 3)]


def test_a_record_that_came_back_over_the_other_direction_is_one_too_many() -> None:
    """Active-active mirrors that copy each other's copies: A's record comes back from B."""
    seen = view([Log("A").data(1).data(2).data(1), Log("B").data(1, 2)], topology="A<->B")
    assert anomalies(NAME, seen) == [("duplicate", "A", 2)]
