"""records-deleted: what is deleted, what is refused, where it is generated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults import topics
from linkflap.chaos.faults.topics import RecordsDeletion, reached
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.triggers import condition
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec

WORLD = cast(
    World, SimpleNamespace(deployment=SimpleNamespace(clusters={"A": None, "B": None}), topics={})
)


def spec(target: str = "A") -> FaultSpec:
    return FaultSpec(id="f", fault="records-deleted", target=target, at=0, duration=0)


def test_all_below_the_last_stable_offset_goes_where_there_is_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = {
        "start": {("A.t", 0): 10, ("A.t", 1): 0, ("A.t", 2): 7, ("A.t", 3): 5},
        "stable": {("A.t", 0): 110, ("A.t", 1): 1, ("A.t", 2): 7, ("A.t", 4): 9},
    }
    asked: list[object] = []

    def answered(
        _admin: object, partitions: list[tuple[str, int]], which: str, *, within: float
    ) -> dict[tuple[str, int], int]:
        asked.append(partitions)
        return bounds[which]

    monkeypatch.setattr(topics, "answered_bounds", answered)
    world = SimpleNamespace(
        deployment=SimpleNamespace(clusters={"A": None}), topics={"A.t": 2, "B.t": 3}
    )
    fault = RecordsDeletion(spec(), cast(World, world))
    assert fault._choose(cast(AdminClient, None))
    assert fault._wanted == {("A.t", 0): 110, ("A.t", 1): 1}
    assert asked[0] == [("A.t", 0), ("A.t", 1)], "what is at home elsewhere is left alone"


def test_a_cluster_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="the clusters are A, B"):
        RecordsDeletion(spec("C"), WORLD)


def test_topics_include_the_destinations_of_running_mirrors() -> None:
    def mirror(source: str, destination: str, *, alive: bool = True) -> SimpleNamespace:
        return SimpleNamespace(
            link=SimpleNamespace(source=source, destination=destination), alive=alive
        )

    mirrors = {
        "A->B": mirror("A", "B"),
        "B->C": mirror("B", "C"),
        "C->A": mirror("C", "A"),
        "A->D": mirror("A", "D", alive=False),
    }
    assert reached("A", cast(World, SimpleNamespace(mirrors=mirrors))) == ["A", "B", "C"]


def test_it_is_drawn_also_while_a_link_is_down_and_not_where_offsets_move() -> None:
    bounds = GeneratorBounds(faults=("records-deleted", "link-cut"), most=6)
    drawn = [
        f
        for n in range(60)
        for f in generate(3, n, Coverage(), bounds, guided=False).schedule
        if f.fault == "records-deleted"
    ]
    overtaking = [fault for fault in drawn if condition(fault.when).during]
    assert overtaking
    assert len(overtaking) < len(drawn)
    moved = GeneratorBounds(mirrors=("mm2",), faults=("records-deleted", "link-cut"), most=6)
    made = [generate(3, n, Coverage(), moved, guided=False) for n in range(20)]
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {"link-cut"}
