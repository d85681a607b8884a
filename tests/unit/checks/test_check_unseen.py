"""unseen: the smallest histories."""

from __future__ import annotations

from typing import TypedDict, Unpack

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from tests.scenarios import scenario_of
from tests.unit.checks.histories import SECOND, Log, commit, poll, promoted, samples, send, view
from tests.unit.checks.round_trip import ACKED, trip
from tests.unit.checks.verdicts import Rejected, anomalies, due_at, examined, findings

NAME = "unseen"
A = Log("A").data(1, 2)
SENT = [send(1, 2, acked=0)]


class Reader(TypedDict, total=False):
    """A reader."""

    reader: str
    group: str
    isolation: str


def drained(
    *pairs: tuple[int, int],
    begin: int = 0,
    end: int | None = None,
    cluster: str = "A",
    at: int = 100,
    **rest: Unpack[Reader],
) -> list[Read]:
    """A reader that was assigned an offset, got some records in one poll, and read to the end."""
    reached = (pairs[-1][0] + 1 if pairs else begin) if end is None else end
    return [
        poll(kind="assign", position=begin, cluster=cluster, at=(at - 1) * SECOND, **rest),
        *([poll(*pairs, cluster=cluster, at=at * SECOND, **rest)] if pairs else []),
        poll(kind="drained", position=reached, cluster=cluster, at=(at + 1) * SECOND, **rest),
    ]


def by(*readers: list[Read]) -> list[Read]:
    return [row for rows in readers for row in rows]


ACCEPTED = {
    "all": (view([A], sends=SENT, reads=drained((0, 1), (1, 2))), {"A/native": 2}),
    "all, and a poll that returned nothing": (
        view([A], sends=SENT, reads=[*drained((0, 1), (1, 2)), poll(at=200 * SECOND)]),
        {"A/native": 2},
    ),
    "shared by two": (
        view([A], sends=SENT,
            reads=by(drained((0, 1), end=2), drained((1, 2), begin=1, reader="s"))),
        {"A/native": 2},
    ),
    "shared by a group": (
        view([A], sends=SENT,
            reads=by(drained((0, 1), group="g"), drained((1, 2), begin=1, reader="s", group="g"))),
        {"A/native": 2},
    ),
    "began later": (view([A], sends=SENT, reads=drained((1, 2), begin=1)), {"A/native": 1}),
    "ended earlier": (view([A], sends=SENT, reads=drained((0, 1), end=1)), {"A/native": 1}),
    "never drained": (view([A], sends=SENT, reads=[poll((0, 1))]), {}),
    "uncommitted readers are not asked": (view([A], sends=SENT,
        reads=drained((0, 1), end=2, isolation="read_uncommitted")), {}),
    "aborted": (
        view([Log("A").txn(1, pid=7, end="abort")], sends=[commit(1, acked=0, ending="abort")],
            reads=drained(end=2)),
        {},
    ),
    "of unknown outcome": (view([Log("A")], sends=[commit(1, acked=0, outcome="info")],
        reads=drained(end=2)), {}),
    "mirrored": (
        view([A, Log("B").data(1, 2)], sends=SENT, reads=drained((0, 1), (1, 2), cluster="B")),
        {"B/mirrored": 2},
    ),
    "a tail lost with A": (
        view([A, Log("B").data(1)], sends=SENT, promotions=[promoted(1)],
            reads=drained((0, 1), cluster="B", end=1)),
        {"B/mirrored": 1},
    ),
    "deleted before anybody came": (
        view([Log("A", start=1).data(2)], sends=SENT, reads=drained((1, 2))),
        {"A/native": 1},
    ),
    "home again": (
        trip(reads=by(drained((2, 4), (3, 5), (4, 6), begin=2, at=800),
            drained((0, 1), (1, 2), (2, 3), at=300))),
        {"A/native": 1, "A/mirrored": 2},
    ),
}  # fmt: skip
REJECTS = {
    "unseen-write": Rejected(view([A], sends=SENT, reads=drained((0, 1), end=2)), "A", 1),
}


def test_native_records_need_no_log_bytes() -> None:
    (found,) = findings(
        NAME, view([], sends=[send(1, 2, 3, acked=0)], reads=drained((0, 1), end=3))
    )
    assert (found.offset, found.evidence["records"], found.evidence["acknowledged_at"]) == (1, 2, 1)


def test_mirrored_and_not_seen_there() -> None:
    seen = view([A, Log("B").data(9, 1, 2)], sends=SENT, reads=drained((1, 1), end=3, cluster="B"))
    assert [(f.cluster, f.offset, f.evidence["acknowledged_by"]) for f in findings(NAME, seen)] == [
        ("B", 2, "A")
    ]


def test_a_reader_that_saw_it_on_another_cluster_does_not_count() -> None:
    seen = view(
        [A, Log("B").data(1, 2)],
        sends=SENT,
        reads=by(drained((0, 1), (1, 2)), drained((0, 1), cluster="B", end=2)),
    )
    assert anomalies(NAME, seen) == [("unseen-write", "B", 1)]


def test_records_read_before_a_truncation_count_as_seen() -> None:
    early, late = (
        poll((0, 1), (1, 2), at=300 * SECOND),
        drained((2, 4), (3, 5), (4, 6), begin=0, at=800),
    )
    assert anomalies(NAME, trip(reads=[early, *late])) == []
    assert anomalies(NAME, trip(reads=late)) == [("unseen-write", "A", 0)]
    assert examined(NAME, trip(reads=late)) == {"A/native": 3, "A/mirrored": 2}
    assert len(ACKED) == 4


def test_a_member_that_kept_its_position_over_a_truncation_reads_on_by_itself() -> None:
    before = [poll((0, 1), (1, 2), (2, 3), group="g", at=400 * SECOND)]
    kept = [
        poll((4, 6), group="g", at=800 * SECOND),
        poll(kind="drained", position=5, group="g", at=802 * SECOND),
    ]
    assigned = drained((0, 1), (1, 2), end=2, reader="s", group="g", at=790)[:2]
    assert anomalies(NAME, trip(reads=[*before, *assigned, *kept])) == []
    both_assigned = drained((4, 6), begin=4, group="g", at=801)
    assert anomalies(NAME, trip(reads=[*before, *assigned, *both_assigned])) == [
        ("unseen-write", "A", 2)
    ]


def test_records_deleted_before_a_sample_need_not_be_seen() -> None:
    marks = samples((2, 2))
    marks.log_start[:] = 1
    seen = view([], sends=SENT, reads=drained((1, 2), begin=0), watermarks={"A": marks})
    assert anomalies(NAME, seen) == []


GROUP = WorkloadSpec(kind="readers", home="A", options={"group": "g"})
FIXED = {
    c: WorkloadSpec(kind="readers", home="A", options={"cluster": c, "assign": True}) for c in "AB"
}
UNCOMMITTED = WorkloadSpec(
    kind="readers",
    home="A",
    options={"cluster": "B", "isolation": "read_uncommitted", "assign": True},
)
HOME_AGAIN = promoted(4, kind="planned", source="B", cluster="A")


@pytest.mark.parametrize(
    ("readers", "promotions", "due"),
    [
        ([GROUP], [], {("A", "native")}),
        ([GROUP], [promoted(1)], {("B", "native")}),
        ([GROUP], [promoted(1), HOME_AGAIN], {("A", "native")}),
        ([FIXED["B"]], [], {("B", "mirrored")}),
        ([FIXED["B"]], [promoted(1)], {("B", "native"), ("B", "mirrored")}),
        ([FIXED["A"]], [promoted(1)], set()),
        ([FIXED["A"]], [promoted(1, kind="planned")], {("A", "native")}),
        ([UNCOMMITTED], [promoted(1)], set()),
    ],
)
def test_due_where_readers_are_at_the_end(
    readers: list[WorkloadSpec], promotions: list[LogPromotion], due: set[tuple[str, str]]
) -> None:
    scenario = scenario_of(
        mirror=declared(MirrorSpec(kind="shadow")),
        workloads=(WorkloadSpec(kind="transactional", home="A"), *readers),
    )
    assert due_at(NAME, scenario, promotions) == due


def test_a_reader_of_another_homes_topics_does_not_get_native_records() -> None:
    """A<->B: A's clients have moved to B; a reader that stayed on A reads what is mirrored from
    B."""
    scenario = scenario_of(
        "A<->B",
        declared(MirrorSpec(kind="shadow")),
        workloads=(
            *(WorkloadSpec(kind="transactional", home=home) for home in "AB"),
            GROUP,
            WorkloadSpec(kind="readers", home="B", options={"cluster": "A", "assign": True}),
        ),
    )
    assert due_at(NAME, scenario, [promoted(1, kind="planned")]) == {
        ("B", "native"),
        ("A", "mirrored"),
    }
