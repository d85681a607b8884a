"""records-deleted: how much is deleted, what is refused. What leaders do is in tests/integration/test_topic_faults.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults.reached import reached
from linkflap.chaos.faults.records_deleted import RecordsDeleted, deleted_to
from linkflap.chaos.generator import Bounds, Coverage, generate
from linkflap.chaos.triggers import condition
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Option

WORLD = cast(World, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": None, "B": None}), topics={}))


def spec(target: str = "A", **options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault="records-deleted", target=target, at=0, duration=0, options=options)


def test_a_share_of_what_is_stable_goes_and_at_least_one_record() -> None:
    start = {("t", 0): 10, ("t", 1): 0, ("t", 2): 7, ("t", 3): 5}
    stable = {("t", 0): 110, ("t", 1): 1, ("t", 2): 7, ("t", 4): 9}
    assert deleted_to(start, stable, 0.5) == {("t", 0): 60, ("t", 1): 1}
    assert deleted_to(start, stable, 1.0) == {("t", 0): 110, ("t", 1): 1}


@pytest.mark.parametrize("share", [0, 1.01, 7])
def test_a_share_is_above_nothing_and_at_most_everything(share: float) -> None:
    with pytest.raises(InputError, match="must be above 0, and 1 at most"):
        RecordsDeleted(spec(share=share), WORLD)


def test_a_cluster_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="the clusters are A, B"):
        RecordsDeleted(spec("C"), WORLD)


def test_topics_reach_what_running_mirrors_lead_to() -> None:
    def mirror(source: str, destination: str, *, alive: bool = True) -> SimpleNamespace:
        return SimpleNamespace(link=SimpleNamespace(source=source, destination=destination), alive=alive)

    mirrors = {
        "A->B": mirror("A", "B"),
        "B->C": mirror("B", "C"),
        "C->A": mirror("C", "A"),
        "A->D": mirror("A", "D", alive=False),
    }
    assert reached("A", cast(World, SimpleNamespace(mirrors=mirrors))) == ["A", "B", "C"]


def test_it_is_drawn_also_during_a_cut_and_not_where_offsets_move() -> None:
    bounds = Bounds(faults=("records-deleted", "link-cut"), most=6)
    drawn = [
        f for n in range(60) for f in generate(3, n, Coverage(), bounds, guided=False).schedule if f.fault == "records-deleted"
    ]
    overtaking = [fault for fault in drawn if condition(fault.when).during]
    assert overtaking
    assert all(fault.options["share"] == 1.0 for fault in overtaking)
    assert len(overtaking) < len(drawn)
    moved = Bounds(mirrors=("mm2",), faults=("records-deleted", "link-cut"), most=6)
    made = [generate(3, n, Coverage(), moved, guided=False) for n in range(20)]
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {"link-cut"}
