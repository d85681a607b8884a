"""write-cycles: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import PartialFinding
from linkflap.spark_verify.checks.write_cycles import components
from linkflap.spark_verify.facts.sends_and_reads import Send
from tests.scenarios import scenario_of
from tests.unit.checks.histories import Committed, Log, commit, ints, view
from tests.unit.checks.verdicts import Rejected, anomalies, due_at, findings, found_in

NAME = "write-cycles"
NEEDS_NO_EVENTS = "it follows what clients sent and what they got, wherever that was"
"""Why a missing event cannot cause an anomaly of a check that uses eras."""
A = Log("A").data(1, 2, 3, 4)


def made(*uids: int, of: Sequence[int], **rest: Unpack[Committed]) -> Send:
    """A transaction that wrote some records, each made from one that it read."""
    return replace(commit(*uids, **rest), input_uids=ints(*of))


ACCEPTED = {
    "a relay": (
        view([A], sends=[commit(1, acked=0), made(2, of=[1], acked=1), made(3, of=[2], acked=2)]),
        {"A/native": 2},
    ),
    "two that read the same": (
        view([A], sends=[made(2, of=[1]), made(3, of=[1])]),
        {"A/native": 2},
    ),
    "made from two of a third": (
        view([A], sends=[made(1, of=[8]), made(2, of=[1]), made(3, 4, of=[1, 2])]),
        {"A/native": 3},
    ),
    "a circle of which one never was": (
        view([A], sends=[made(1, of=[2]), made(2, of=[1], ending="abort")]),
        {"A/native": 1},
    ),
    "nobody reads": (view([A], sends=[commit(1, acked=0)]), {}),
}
REJECTS = {
    "write-cycle": Rejected(
        view([A], sends=[made(1, of=[2], acked=0), made(2, of=[1], acked=1)]), "A", 0
    ),
}


def test_a_circle_is_reported_step_by_step() -> None:
    chain = [
        made(1, of=[3], acked=0),
        made(2, of=[1], acked=1),
        made(3, of=[2], acked=2),
        made(4, of=[3, 3], acked=3),
    ]
    (found,) = findings(NAME, view([A], sends=chain))
    assert found.evidence == {
        "transactions": 3,
        "operation": 1,
        "circle": [
            {"wrote": 1, "uid": 1, "read_by": 2},
            {"wrote": 2, "uid": 2, "read_by": 3},
            {"wrote": 3, "uid": 3, "read_by": 1},
        ],
    }


def test_a_transaction_that_read_what_it_wrote_itself() -> None:
    (found,) = findings(NAME, view([A], sends=[made(1, 2, of=[9, 1], acked=0)]))
    assert (found.offset, found.evidence["circle"]) == (0, [{"wrote": 1, "uid": 1, "read_by": 1}])


def test_transaction_of_unknown_outcome_counts_in_a_cycle() -> None:
    assert anomalies(
        NAME, view([A], sends=[made(1, of=[2], acked=0, outcome="info"), made(2, of=[1])])
    ) == [("write-cycle", "A", 0)]


def test_circles_are_closed_over_partitions_and_clusters() -> None:
    check = REGISTRY[NAME]
    one = check.kernel(view([A], sends=[made(1, of=[2], acked=5)]))
    other = check.kernel(view([A], topic="A.u", sends=[made(2, of=[1], cluster="B")]))
    partials = [
        replace(f, topic=topic, partition=1)
        for topic, found in (("A.t", one), ("A.u", other))
        for f in found
        if isinstance(f, PartialFinding)
    ]
    assert check.combine is not None
    combined = [(c.topic, c.partition, found_in(c)) for c in check.combine(partials)]
    assert [(topic, number, f.cluster, f.offset) for topic, number, f in combined] == [
        ("A.t", 1, "A", 5)
    ]


def test_a_long_chain_is_no_circle_and_its_end_may_be_in_one() -> None:
    """A chain leads into the circle, and another out of it."""
    chain = [made(n, of=[n - 1], acked=0) for n in range(1, 200)]
    assert findings(NAME, view([A], sends=chain)) == []
    both = [
        *chain,
        made(301, of=[199, 302], acked=1),
        made(302, of=[301], acked=2),
        made(400, of=[302]),
    ]
    (found,) = findings(NAME, view([A], sends=both))
    assert (found.offset, found.evidence["operation"], found.evidence["transactions"]) == (
        1,
        301,
        2,
    )


def test_components() -> None:
    edges = {1: {2: 0}, 2: {3: 0, 4: 0}, 3: {1: 0}, 4: {5: 0}, 5: {4: 0, 6: 0}, 6: {}}
    assert sorted(sorted(c) for c in components(edges)) == [[1, 2, 3], [4, 5], [6]]
    long = {n: {n + 1: 0} for n in range(20_000)} | {20_000: {0: 0}}
    assert [len(c) for c in components(long)] == [20_001]


@pytest.mark.parametrize(
    ("kinds", "due"), [(["relay"], {("A", "native")}), (["transactional", "readers"], set())]
)
def test_due_where_a_workload_reads_inside_transactions(
    kinds: list[str], due: set[tuple[str, str]]
) -> None:
    scenario = scenario_of(
        mirror=declared(MirrorSpec(kind="mm2")),
        workloads=tuple(WorkloadSpec(kind=kind, home="A") for kind in kinds),
    )
    assert due_at(NAME, scenario, []) == due
