"""Anomalies that a mirror's guarantee allows: within its window and up to its bound, and nothing
else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from linkflap.harness.guarantees import ALLOWED, mm2, of_copied_logs, shadow
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.verdict.allowances import why_allowed, within_budgets
from tests.unit.checks.histories import SECOND

AT_LEAST_ONCE = mm2.guarantee({"delivery": "at-least-once"})
EXACTLY_ONCE = mm2.guarantee({"delivery": "exactly-once"})
SHADOW = shadow.guarantee({})
COPIED = of_copied_logs({})
LINK = "A->B"
UNDATED = Anomaly(
    check="duplicate", kind="mirrored-duplicate", cluster="B", topic="A.t", partition=0, offset=5
)


def killed(
    target: str = LINK,
    start: int = 100,
    end: int = 105,
    name: str = "f",
    fault: str = "mirror-kill",
) -> Window:
    return Window(id=name, fault=fault, target=target, start=start * SECOND, end=end * SECOND)


def repeat(
    *, first: int = 98, again: int = 110, copy: int = 1, kind: str = "mirrored-duplicate"
) -> Anomaly:
    evidence = {
        "copy": copy,
        "first_written": [(first - 1) * SECOND, first * SECOND],
        "written": [again * SECOND, (again + 1) * SECOND],
    }
    return Anomaly(
        check="duplicate",
        kind=kind,
        cluster="B",
        topic="A.t",
        partition=0,
        offset=5,
        evidence=evidence,
    )


def test_a_repeat_around_a_killed_worker() -> None:
    assert (
        why_allowed(repeat(), AT_LEAST_ONCE, LINK, [killed()])
        == "at-least-once: mirrored again around mirror-kill (f)"
    )


def test_at_least_once_is_the_mirrors_default() -> None:
    assert why_allowed(repeat(), mm2.guarantee({}), LINK, [killed()])


@pytest.mark.parametrize("target", [LINK, "A/1", "B/2"])
def test_clusters_that_count(target: str) -> None:
    assert why_allowed(repeat(), AT_LEAST_ONCE, LINK, [killed(target)])


def test_new_partitions_for_which_the_worker_starts_its_tasks_again() -> None:
    added = killed("A", fault="partitions-added")
    assert why_allowed(repeat(), AT_LEAST_ONCE, LINK, [added])
    late = repeat()
    alone = replace(late, evidence={**late.evidence, "alone": True})
    on_b = killed("B", fault="partitions-added")
    assert why_allowed(alone, AT_LEAST_ONCE, LINK, [on_b]) is None


@pytest.mark.parametrize(
    ("anomaly", "mirror", "windows"),
    [
        (repeat(), EXACTLY_ONCE, [killed()]),
        (repeat(), SHADOW, [killed()]),
        (repeat(), AT_LEAST_ONCE, []),
        (repeat(), AT_LEAST_ONCE, [killed("B->C")]),
        (repeat(), AT_LEAST_ONCE, [killed("*->A")]),
        (repeat(), AT_LEAST_ONCE, [killed("A", fault="client-kill")]),
        (repeat(), AT_LEAST_ONCE, [killed("B", fault="program-pause")]),
        (repeat(), AT_LEAST_ONCE, [killed("A", fault="records-deleted")]),
        (repeat(first=80), AT_LEAST_ONCE, [killed()]),
        (repeat(again=140), AT_LEAST_ONCE, [killed()]),
        (repeat(again=98), AT_LEAST_ONCE, [killed()]),
        (repeat(copy=2), AT_LEAST_ONCE, [killed()]),
        (repeat(kind="mirror-hole"), AT_LEAST_ONCE, [killed()]),
        (repeat(kind="duplicate"), AT_LEAST_ONCE, [killed()]),
        (UNDATED, AT_LEAST_ONCE, [killed()]),
    ],
    ids=[
        "exactly-once", "another mirror", "no fault", "another link", "clients' path",
        "a client of the source", "a program at the destination",
        "deleted records",
        "first copy too old",
        "long after the heal", "before the fault", "more copies than faults", "holes", "native",
        "undated",
    ],
)  # fmt: skip
def test_anomaly_outside_its_allowance_is_not_allowed(
    anomaly: Anomaly, mirror: Guarantee, windows: list[Window]
) -> None:
    assert why_allowed(anomaly, mirror, LINK, windows) is None


@pytest.mark.parametrize(("target", "allowed"), [(LINK, False), ("A/1", False), ("B/1", True)])
def test_a_repeat_that_stands_alone_is_a_late_request_to_the_destination(
    target: str, *, allowed: bool
) -> None:
    found = repeat()
    alone = replace(found, evidence={**found.evidence, "alone": True})
    why = why_allowed(alone, AT_LEAST_ONCE, LINK, [killed(target)])
    assert (why is not None) is allowed


def test_two_faults_allow_two_copies() -> None:
    windows = [killed(), killed(name="g", start=106, end=107)]
    assert why_allowed(repeat(copy=2), AT_LEAST_ONCE, LINK, windows)


def replay(records: int, bound: int) -> Anomaly:
    evidence = {"records": records, "bound": bound}
    return Anomaly(
        check="group-offsets",
        kind="group-replay",
        cluster="B",
        topic="A.t",
        partition=0,
        offset=0,
        evidence=evidence,
    )


def test_a_groups_replay_up_to_its_bound() -> None:
    assert (
        why_allowed(replay(100, 100), AT_LEAST_ONCE, LINK, [])
        == "the synced offset of the group was behind: 100 records; the limit is 100"
    )
    assert why_allowed(replay(101, 100), AT_LEAST_ONCE, LINK, []) is None


@pytest.mark.parametrize(
    ("kind", "evidence", "what"),
    [
        ("torn-by-failover", {"failover": "forced", "records": 1}, "1 record"),
        ("torn-by-failover", {"failover": "forced", "records": 2}, "2 records"),
        (
            "outcome-split",
            {"failover": "forced", "not_arrived": "COMMIT at offset 7 of A"},
            "COMMIT at offset 7 of A",
        ),
        (
            "outcome-split",
            {"failover": "run-end", "not_arrived": "COMMIT at offset 7 of A"},
            "COMMIT at offset 7 of A",
        ),
        ("outcome-split", {"failover": "planned", "not_arrived": "COMMIT at offset 7 of A"}, None),
        ("outcome-split", {}, None),
    ],
)
def test_records_not_mirrored_before_a_forced_failover(
    kind: str, evidence: Mapping[str, object], what: str | None
) -> None:
    found = Anomaly(
        check="", kind=kind, cluster="B", topic="A.t", partition=0, offset=5, evidence=evidence
    )
    why = why_allowed(found, SHADOW, LINK, [])
    assert (
        why is None
        if what is None
        else why is not None and why.endswith(f": {what} had not arrived")
    )


@pytest.mark.parametrize(
    ("stood", "last", "allowed"), [(1383, 1382, True), (1383, 1383, False), (900, 950, False)]
)
def test_records_that_a_reader_above_a_truncation_skips(
    stood: int, last: int, allowed: bool
) -> None:
    evidence = {"records": 5, "truncated_to": 900, "stood_at": stood, "last_skipped": last}
    found = Anomaly(
        check="poll-continuity",
        kind="skipped-by-truncation",
        cluster="A",
        topic="A.t",
        partition=0,
        offset=900,
        evidence=evidence,
    )
    assert (why_allowed(found, SHADOW, "B->A", []) is not None) == allowed
    assert why_allowed(found, AT_LEAST_ONCE, "B->A", []) is None


def test_the_table_names_kinds_that_exist_and_says_where_it_is_written() -> None:
    kinds = {kind.name for check in REGISTRY.values() for kind in check.anomalies}
    for line in (line for lines in ALLOWED.values() for line in lines):
        assert line.kind in kinds
        assert all((line.window, line.bound, line.citation))


KEPT = {
    "send-inversion": (
        "KIP-382: one task per partition, in order; at-least-once repeats records and swaps none"
    ),
    "internal-inversion": "the same",
    "mirror-inversion": "the same",
    "inconsistent-offset": "an offset is written once, whoever writes it",
    "record-divergence": "KIP-1279: offsets are kept, and with them the records",
    "record-hole": "the same",
    "record-stranger": "the same",
    "poll-skip": "what a consumer is given of a log is no mirror's affair",
    "poll-regression": "the same",
    "internal-skip": "the same",
    "internal-regression": "the same",
    "uncommitted-read": "the same",
    "unseen-write": "a record that did not arrive is not due on the destination, one that did is",
    "write-cycle": (
        "a mirror reads what is committed (isolation.level of MirrorMaker 2 here), and no circle "
        "closes over it"
    ),
    "circular-mirror": "KIP-1279 refuses it; KIP-382: topics keep away from where they came from",
}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize(
    "mirror",
    [AT_LEAST_ONCE, EXACTLY_ONCE, SHADOW, COPIED],
    ids=["mm2", "mm2 exactly-once", "shadow", "copied"],
)
def test_kinds_that_no_guarantee_allows_are_not_allowed_around_a_fault(
    kind: str, mirror: Guarantee
) -> None:
    assert kind in {each.name for check in REGISTRY.values() for each in check.anomalies}
    evidence = {**repeat().evidence, "records": 1, "bound": 9, "failover": "forced"}
    anomaly = Anomaly(
        check="", kind=kind, cluster="B", topic="A.t", partition=0, offset=5, evidence=evidence
    )
    assert why_allowed(anomaly, mirror, LINK, [killed()]) is None


REPLAYS = [
    Anomaly(
        check="group-offsets",
        kind="group-replay",
        cluster=cluster,
        topic="A.t",
        partition=partition,
        offset=5,
        evidence={"records": records},
        allowed=allowed,
    )
    for cluster, partition, records, allowed in (
        ("B", 0, 30, True),
        ("B", 1, 20, True),
        ("C", 0, 50, True),
        ("C", 1, 7, False),
    )
]


@pytest.mark.parametrize(
    ("most", "over"),
    [
        ({}, set()),
        ({"group-replay": 50}, set()),
        ({"group-replay": 49}, {("B", 0), ("B", 1), ("C", 0)}),
        ({"group-skip": 0}, set()),
    ],
)
def test_more_than_the_budget_on_one_cluster_is_not_allowed_there(
    most: Mapping[str, int], over: set[tuple[str, int]]
) -> None:
    judged = within_budgets(REGISTRY["group-offsets"], REPLAYS, most)
    assert len(judged) == len(REPLAYS)
    assert {(a.cluster, a.partition) for a in judged if not a.allowed} == {("C", 1), *over}
    budgets = {a.evidence["allowed_at_most"] for a in judged if "in_all" in a.evidence}
    assert budgets == ({49} if over else set())


def test_a_budget_of_one_cluster_is_not_used_up_by_another() -> None:
    judged = within_budgets(REGISTRY["group-offsets"], REPLAYS[1:], {"group-replay": 20})
    assert [(a.cluster, a.partition) for a in judged if a.allowed] == [("B", 1)]
