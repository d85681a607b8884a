"""program-copies: the smallest histories. Two topics: A.t, which the program reads, and A.out,
which it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Copying, LogPromotion, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles.agreement import findings
from tests.scenarios import scenario_of
from tests.unit.checks.histories import SECOND, Log, but, promoted, view
from tests.unit.checks.verdicts import due_at

NAME = "program-copies"
PROGRAM = Copying(
    name="command-1", home="A", group="g", reads=frozenset({"A.t"}), writes=frozenset({"A.out"})
)


def committed(offset: int, *, cluster: str = "A", at: int = 300) -> GroupOffset:
    return GroupOffset(
        cluster=cluster, group="g", topic="A.t", partition=0, offset=offset, time=at * SECOND
    )


class Away(TypedDict):
    """A failover of a mirror."""

    promotions: Sequence[LogPromotion]
    mirror_kind: str


def run(
    inputs: list[Log],
    outputs: list[Log],
    groups: list[GroupOffset],
    *,
    promotions: Sequence[LogPromotion] = (),
    mirror_kind: str = "mm2",
) -> list[PartitionView]:
    """Views of both topics. The payloads of an output are those of its inputs."""
    reads = view(inputs, groups=groups, promotions=promotions, mirror_kind=mirror_kind)
    writes = view(outputs, topic="A.out", promotions=promotions, mirror_kind=mirror_kind)
    writes = replace(
        writes,
        replicas=[
            replace(
                r,
                made_from=r.records.uid,
                records=replace(r.records, uid=np.full(len(r.records), -1, np.int64)),
            )
            for r in writes.replicas
        ],
    )
    return [
        but(each, copying=(PROGRAM,), programs=frozenset({"A.out"})) for each in (reads, writes)
    ]


@dataclass(frozen=True)
class Rejected:
    """Both topics of a run, and where the one error is: cluster, topic, offset."""

    views: list[PartitionView]
    at: tuple[str, str, int]

    @property
    def view(self) -> PartitionView:
        return self.views[0]


def found(views: list[PartitionView]) -> list[tuple[str, str, str, int]]:
    rows = findings(REGISTRY[NAME], views)
    return sorted(
        (row.kind, row.cluster, row.topic, row.offset) for row in rows if row.finding == "found"
    )


def unjudged(views: list[PartitionView]) -> list[object]:
    return [
        row.data["reason"] for row in findings(REGISTRY[NAME], views) if row.finding == "unjudged"
    ]


BOTH = Log("A").data(1, 2)
ON_B = [Log("A").data(1, 2), Log("B").data(1, 2)]
AWAY: Away = {"promotions": [promoted(2)], "mirror_kind": "shadow"}
REPEATED = Log("B").data(1, 1)
BEGAN, GOT_ON = committed(0, cluster="B"), committed(2, cluster="B", at=600)
ACCEPTED = {
    "each once": run([BOTH], [Log("A").data(2, 1)], [committed(2)]),
    "not passed yet": run([BOTH], [Log("A").data(1)], [committed(1)]),
    "aborted, not passed on": run([Log("A").txn(1, pid=7, end="abort").data(2)], [Log("A").data(2)],
        [committed(3)]),
    "made again of what was aborted": run(
        [BOTH], [Log("A").txn(1, 2, pid=7, end="abort").txn(1, 2, pid=7, end="commit")],
        [committed(2)]
    ),
    "deleted outputs": run([BOTH], [Log("A", start=1).data(2)], [committed(2)]),
    "deleted inputs": run([Log("A", start=1).data(2)], [Log("A").data(1, 2)], [committed(2)]),
    "goes on after a failover": run(ON_B, [Log("A").data(1), Log("B").data(1, 2)],
    [committed(1, cluster="B"), GOT_ON],
                                    promotions=[promoted(1)], mirror_kind="shadow"),
    "an input that the mirror repeated is copied as often": run(
        [BOTH, REPEATED], [Log("A").data(2), Log("B").data(2, 1, 1)], [BEGAN, GOT_ON],
        promotions=[promoted(1)]
    ),
    "what a mirror repeats": run(
        [BOTH, Log("B").data(1, 2)], [Log("A").data(1, 2), Log("B").data(1, 1, 2)], [BEGAN, GOT_ON],
        promotions=[promoted(3)]
    ),
}  # fmt: skip
REJECTS = {
    "input-not-copied": Rejected(
        run([BOTH], [Log("A").data(2)], [committed(2)]), ("A", "A.t", 0)),
    "input-copied-twice": Rejected(
        run([BOTH], [Log("A").data(1, 1, 2)], [committed(2)]), ("A", "A.out", 1)),
    "copy-without-input": Rejected(
        run([Log("A").txn(1, pid=7, end="abort").data(2)], [Log("A").data(1, 2)], [committed(3)]),
        ("A", "A.out", 0),
    ),
    "copy-repeated-by-failover": Rejected(
        run(ON_B, [Log("A").data(1, 2), Log("B").data(1, 2, 1)], [BEGAN, GOT_ON], **AWAY),
        ("B", "A.out", 2),
    ),
    "copy-lost-by-failover": Rejected(
        run(ON_B, [Log("A").data(1, 2), Log("B").data(1)], [committed(2, cluster="B"), GOT_ON],
            **AWAY), ("B", "A.t", 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    assert found(ACCEPTED[case]) == []


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    rejected = REJECTS[kind]
    assert found(rejected.views) == [(kind, *rejected.at)]


def test_an_input_that_the_mirror_repeated_is_copied_more_often_than_it_came() -> None:
    outputs = [Log("A").data(2), Log("B").data(2, 1, 1, 1)]
    views = run([BOTH, REPEATED], outputs, [BEGAN, GOT_ON], promotions=[promoted(1)])
    assert found(views) == [("input-copied-twice", "B", "A.out", 3)]


def test_an_input_that_the_mirror_repeated_before_the_group_began_is_not_to_pass_again() -> None:
    outputs = [Log("A").data(2), Log("B").data(2, 1, 1)]
    began = committed(1, cluster="B")
    views = run([BOTH, REPEATED], outputs, [began, GOT_ON], promotions=[promoted(1)])
    assert found(views) == [("input-copied-twice", "B", "A.out", 2)]


def test_an_input_whose_output_was_lost_on_neither_side_of_a_failover_is_lost_by_the_program() -> (
    None
):
    views = run(
        ON_B, [Log("A").data(1), Log("B").data(1)], [committed(2, cluster="B"), GOT_ON], **AWAY
    )
    assert found(views) == [("input-not-copied", "B", "A.t", 1)]


def test_outputs_of_other_partitions_count() -> None:
    views = run([BOTH], [Log("A").data(1)], [committed(2)])
    other = run([], [Log("A").data(2)], [])[1]
    assert found([*views, but(other, partition=1)]) == []


def test_unknown_outputs_are_reported() -> None:
    without = run([BOTH], [Log("A").data(1, 2)], [committed(2)])
    unlabelled = replace(
        without[1], replicas=[replace(r, made_from=np.array([1, -1])) for r in without[1].replicas]
    )
    assert unjudged([without[0], unlabelled]) == [
        "program command-1 wrote A.out-0@1 on A without the header 'linkflap' of what it was made "
        "from"
    ]
    assert unjudged(run([BOTH], [Log("A").data(1, 2)], [])) == [
        "no committed offset of group g was ever sampled on A"
    ]
    deleted = (
        "outputs of program command-1 below 1 of A.out-0 on A are deleted, so what has none is "
        "unknown"
    )
    assert unjudged(ACCEPTED["deleted outputs"]) == [deleted]
    moved = run(
        ON_B, [Log("A").data(1), Log("B").data(1)], [committed(1, cluster="B"), GOT_ON], **AWAY
    )
    mirrored = replace(
        moved[1], replicas=[replace(r, made_from=np.array([-1])) for r in moved[1].replicas]
    )
    assert unjudged([moved[0], mirrored]) == [
        "program command-1 wrote A.out-0@0 on B without the header 'linkflap' of what it was made "
        "from"
    ]
    torn = run([Log("A").data(1, 2).torn()], [Log("A").data(1)], [committed(2)])
    assert unjudged(torn) == ["the log of A.t-0 on A is torn, so not all of it could be judged"]
    assert found(torn) == []


@pytest.mark.parametrize("mirror", ["shadow", "mm2", "cluster-mirroring"])
def test_mirrors_allow_what_a_failover_costs_and_nothing_else(mirror: str) -> None:
    allowed = {line.kind for line in declared(MirrorSpec(kind=mirror)).guarantee.allowed}
    assert {kind.name for kind in REGISTRY[NAME].anomalies} & allowed == {
        "copy-repeated-by-failover",
        "copy-lost-by-failover",
    }


def test_repeats_are_compared_with_the_inputs_above_the_groups_offset() -> None:
    views = REJECTS["copy-repeated-by-failover"].views
    (row,) = [row for row in findings(REGISTRY[NAME], views) if row.finding == "found"]
    assert (row.data["records"], row.data["bound"], row.data["failover"]) == (1, 2, "forced")


@pytest.mark.parametrize(
    ("promotions", "due"),
    [
        ([], {("A", "native"), ("A", "checkpoints")}),
        ([promoted(1)], {("B", "mirrored"), ("B", "checkpoints")}),
    ],
)
def test_due_where_an_exactly_once_program_is_at_the_end(
    promotions: list[LogPromotion], due: set[tuple[str, str]]
) -> None:
    program = WorkloadSpec(
        kind="command", home="A", command=("x",), reads=("t",), writes=("out",), exactly_once=True
    )
    scenario = scenario_of(mirror="shadow", workloads=(program,))
    assert due_at(NAME, scenario, promotions) == due
    assert (
        due_at(
            NAME, replace(scenario, workloads=(replace(program, exactly_once=False),)), promotions
        )
        == set()
    )


@pytest.mark.parametrize(
    ("began", "fault", "bound"),
    [([0], "", 2), ([1], "", 0), ([0, 1], "", 0), ([0, 1], "B/1", 2), ([0, 1], "A->B", 0)],
    ids=["from there", "below", "the last", "a coordinator reloaded", "another fault"],
)
def test_repeats_of_inputs_below_the_group_offset_have_no_bound(
    began: list[int], fault: str, bound: int
) -> None:
    windows = [Window(id="f", fault="it", target=fault, start=0, end=1)] if fault else []
    views = run(
        ON_B,
        [Log("A").data(1, 2), Log("B").data(1, 2, 1)],
        [*(committed(n, cluster="B") for n in began), GOT_ON],
        **AWAY,
    )
    views = [but(each, windows=windows) for each in views]
    (row,) = [row for row in findings(REGISTRY[NAME], views) if row.finding == "found"]
    assert (row.data["records"], row.data["bound"]) == (1, bound)


@pytest.mark.parametrize(
    ("samples", "fault", "kinds"),
    [
        ([(2, 300), (2, 600)], "", {"copy-lost-by-failover"}),
        ([(0, 300), (2, 600)], "", {"copy-lost-by-failover"}),
        ([(0, 300), (0, 590), (2, 600)], "", {"input-not-copied"}),
        ([(0, 590), (2, 600)], "", {"input-not-copied"}),
        ([(0, 300), (0, 590), (2, 600)], "B/1", {"copy-lost-by-failover"}),
        ([(0, 300), (0, 590), (2, 600)], "A->B", {"input-not-copied"}),
        ([(1, 300), (1, 590), (2, 600)], "", {"copy-lost-by-failover", "input-not-copied"}),
    ],
    ids=[
        "begins behind them",
        "may have begun behind them",
        "began before them",
        "was first seen after the failover",
        "a coordinator reloaded",
        "another fault",
        "began between them",
    ],
)
def test_a_failover_loses_no_output_of_what_the_program_passed_afterwards(
    samples: Sequence[tuple[int, int]], fault: str, kinds: set[str]
) -> None:
    """A has the outputs of 1 and 2, which were not mirrored; the program on B passed both, or what
    was left, and made nothing of them. The failover is at second 500."""
    windows = [Window(id="f", fault="it", target=fault, start=0, end=1)] if fault else []
    views = run(
        ON_B,
        [Log("A").data(1, 2), Log("B")],
        [committed(offset, cluster="B", at=at) for offset, at in samples],
        **AWAY,
    )
    assert {kind for kind, *_ in found([but(each, windows=windows) for each in views])} == kinds


@pytest.mark.parametrize("mirror", ["shadow", "mm2"])
def test_outputs_that_were_compacted_before_they_were_mirrored_are_unknown(mirror: str) -> None:
    """Both logs lack the output of 1, and only the first one was ever compacted."""
    outputs = [Log(n).skip(1).data(2) for n in "AB"]
    reads, writes = run(
        ON_B, outputs, [BEGAN, GOT_ON], promotions=[promoted(2)], mirror_kind=mirror
    )
    assert [kind for kind, *_ in found([reads, writes])] == ["input-not-copied"]
    seen = [reads, but(writes, compacted={"A": 1})]
    assert found(seen) == []
    assert any("below 1 of A.out-0 on B are deleted" in str(reason) for reason in unjudged(seen))
