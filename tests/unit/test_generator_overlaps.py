"""Generated faults that follow one another, overlap, or wait for a state of the logs."""

from __future__ import annotations

import random

import pytest

from linkflap.chaos import generator
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.generator.packages import Draft, Wants
from linkflap.chaos.triggers import Condition, condition
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.topologies import parse
from tests.unit.generated import EVERY


def test_faults_that_want_the_same_follow_one_another_and_others_overlap() -> None:
    import random

    draft = Draft(topology=parse("A->B"), rng=random.Random(1))

    def holds(*names: str) -> Wants:
        return Wants(holds=frozenset(names))

    first = draft.add("link-cut", "A->B", holds("x"))
    other = draft.add("link-cut", "A->B", holds("y"))
    both = draft.add("link-cut", "A->B", holds("x", "y"))
    last = draft.add("link-cut", "A->B", Wants(needs=frozenset(["y"])))
    assert condition(first.when).after == condition(other.when).after == ()
    assert condition(both.when).after == (first.id, other.id)
    assert condition(last.when).after == (both.id,)  # what that one follows is implied


def test_an_overlapped_fault_follows_everything_that_its_overlap_follows() -> None:
    """Otherwise the overlapped fault may be over before the other ends, and this one could never
    begin."""
    both = 0
    for seed in range(300):
        made = generate(seed, 1, Coverage(), EVERY, guided=False)
        waits = {fault.id: condition(fault.when) for fault in made.schedule}

        def before(id_: str, waits: dict[str, Condition] = waits) -> set[str]:
            return {b for a in waits[id_].after for b in (a, *before(a))}

        for once in waits.values():
            for overlapped in once.during:
                both += bool(once.after)
                assert {*once.after} <= before(overlapped)
    assert both


@pytest.mark.parametrize(("mirrored", "waited_for"), [({"B->C"}, False), ({"A->B", "B->C"}, True)])
def test_no_trigger_waits_for_lag_of_an_idle_mirror(mirrored: set[str], waited_for: bool) -> None:
    """Clients have come back to A, and no mirror leads from there: a mirror from B to C has nothing
    to be behind of."""
    seen = set()
    for seed in range(60):
        draft = Draft(topology=parse("A->B->C"), rng=random.Random(seed))
        draft.up, draft.mirrored, draft.at = {"A", "B", "C"}, set(mirrored), {"A": "A"}
        seen |= {
            name
            for name, _ in generator.packages.moment(
                "link-latency", "B->C", draft, Wants()
            ).triggers
        }
    assert ("mirror-behind" in seen) == ("open-at-destination" in seen) == waited_for
    assert "transactions-ended" in seen


def test_a_failover_within_a_disturbance_finds_clients_that_have_begun_before_that() -> None:
    """A flap of two seconds is over before a busy machine has ended so many transactions."""
    within = 0
    for seed in range(200):
        made = generate(seed, 1, Coverage(), EVERY, guided=False)
        faults = {fault.id: fault for fault in made.schedule}
        first = next((fault for fault in made.schedule if fault.name.fails_over), None)
        if first is None:
            continue
        for id_ in condition(first.when).during:
            within += 1
            assert "transactions-ended" in dict(condition(faults[id_].when).triggers)
            assert "transactions-ended" not in dict(condition(first.when).triggers)
    assert within


def _forced(made: Scenario) -> list[tuple[FaultSpec, bool]]:
    """The forced failovers of a scenario, and whether a failback follows each."""
    behind = [made.schedule[n + 1 :] for n in range(len(made.schedule))]
    found = zip(made.schedule, behind, strict=True)
    return [
        (fault, any(other.name.reverses for other in later))
        for fault, later in found
        if fault.name.forced
    ]


def test_many_a_failback_has_something_to_truncate() -> None:
    drawn = [
        one
        for n in range(150)
        for one in _forced(generate(1, n, Coverage(), GeneratorBounds(), guided=False))
    ]
    during = [bool(condition(fault.when).during) for fault, back in drawn if back]
    assert sum(during) > len(during) / 3, (sum(during), len(during))
    alone = [bool(condition(fault.when).during) for fault, back in drawn if not back]
    assert sum(alone) < len(alone) / 3, "a cut is added for failbacks alone"


def test_nothing_is_truncated_that_another_mirror_copies() -> None:
    seen = 0
    bounds = GeneratorBounds(topologies=("A->B->C", "A->B,A->C"))
    for n in range(100):
        scenario = generate(3, n, Coverage(), bounds, guided=False)
        forced: dict[str, bool] = {}
        for fault in scenario.schedule:
            if fault.name.fails_over:
                forced[fault.target] = fault.name.forced
            if fault.name.reverses:
                copies = [
                    link.name
                    for link in scenario.topology.links
                    if link.source == fault.on.source and link.destination != fault.on.destination
                ]
                assert not (copies and forced[fault.target]), (n, fault, copies)
                seen += 1
    assert seen > 5


def test_no_link_cut_is_added_where_a_suite_does_not_name_it() -> None:
    bounds = GeneratorBounds(faults=("failover-forced", "mirror-reverse"))
    made = [generate(1, n, Coverage(), bounds, guided=False) for n in range(40)]
    assert any(back for scenario in made for _, back in _forced(scenario))
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {
        "failover-forced",
        "mirror-reverse",
    }


def test_partitions_are_added_only_while_every_link_is_mirrored() -> None:
    seen = 0
    faults = ("partitions-added", "failover-planned", "failover-forced", "mirror-reverse")
    bounds = GeneratorBounds(most=8, faults=faults)
    for n in range(400):
        mirrored = {"A->B"}
        for fault in generate(5, n, Coverage(), bounds, guided=False).schedule:
            if fault.name.fails_over:
                mirrored.discard(fault.target)
            elif fault.name.reverses:
                mirrored.add(f"{fault.on.destination}->{fault.on.source}")
            elif fault.fault == "partitions-added":
                assert "A->B" in mirrored, (n, fault)
                seen += 1
    assert seen > 5
