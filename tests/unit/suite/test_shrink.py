"""Shrinking with predicates as oracles: the result is minimal, within the allowed number of
runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.chaos import schedule
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.generator.bounds import ALL
from linkflap.chaos.triggers import condition
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.suite.shrink import PASSES, Rate, Shrinker, followers, without

EVERY = GeneratorBounds(topologies=ALL, mirrors=("shadow", "mm2"), most=8)


@dataclass
class Predicate:
    """Fails always, or with a probability, where the predicate is true."""

    holds: Callable[[Scenario], bool]
    share: float = 1.0
    budget: int = 2000
    width: int = 2
    rng: random.Random = field(default_factory=lambda: random.Random(4))
    asked: int = 0

    @property
    def spent(self) -> bool:
        return self.asked >= self.budget

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]:
        self.asked += times * len(candidates)
        return [
            Rate(
                failed=sum(
                    self.holds(made) and self.rng.random() < self.share for _ in range(times)
                ),
                tries=times,
            )
            for made in candidates
        ]


def kinds(made: Scenario) -> list[str]:
    return [fault.fault for fault in made.schedule]


def with_faults(*wanted: str) -> Scenario:
    """A generated scenario that has all of these faults, and others."""
    for number in range(3000):
        made = generate(1, number, Coverage(), EVERY, guided=False)
        if set(wanted) <= set(kinds(made)) and len(made.schedule) >= len(wanted) + 3:
            return made
    raise AssertionError(wanted)


@pytest.mark.parametrize(
    "needed",
    [
        ("mirror-kill",),
        ("link-cut", "broker-kill"),
        ("failover-forced", "client-kill"),
        ("mirror-kill", "mirror-reverse"),
    ],
)
def test_the_result_has_only_what_the_failure_needs(needed: tuple[str, ...]) -> None:
    found = with_faults(*needed)
    shrunk = Shrinker(fails=Predicate(lambda made: set(needed) <= set(kinds(made)))).shrink(found)
    # A reversal needs its failover.
    assert set(kinds(shrunk.scenario)) - {"failover-planned", "failover-forced"} == set(needed) - {
        "failover-forced"
    }
    assert len(shrunk.scenario.schedule) <= len(needed) + 1
    assert not shrunk.scenario.mirror.options
    assert not shrunk.scenario.topics.config
    assert all(not fault.options for fault in shrunk.scenario.schedule)
    assert all(cluster.brokers == 1 for cluster in shrunk.scenario.topology.clusters)
    assert shrunk.rate.share == 1.0


def test_the_order_of_faults_is_kept() -> None:
    def holds(made: Scenario) -> bool:
        names = kinds(made)
        return "broker-kill" in names and "link-cut" in names[names.index("broker-kill") :]

    found = next(
        made
        for n in range(3000)
        if holds(made := generate(2, n, Coverage(), EVERY, guided=False)) and len(made.schedule) > 4
    )
    assert kinds(Shrinker(fails=Predicate(holds)).shrink(found).scenario) == [
        "broker-kill",
        "link-cut",
    ]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_step_can_be_played_and_is_smaller(seed: int) -> None:
    made = generate(seed, 1, Coverage(), EVERY, guided=False)
    for reduce in PASSES:
        for smaller in reduce(made):
            assert smaller != made
            assert len(smaller.schedule) <= len(made.schedule)
    steps: list[Scenario] = []
    Shrinker(fails=Predicate(lambda candidate: True, budget=40), accepted=steps.append).shrink(made)
    for step in steps:
        schedule.check(step.schedule, step.topology)


def test_a_failure_that_comes_and_goes_is_shrunk_to_one_that_comes_often() -> None:
    found = with_faults("mirror-kill", "link-cut")
    oracle = Predicate(lambda made: "mirror-kill" in kinds(made), share=0.8)
    shrunk = Shrinker(fails=oracle).shrink(found)
    assert "mirror-kill" in kinds(shrunk.scenario)
    assert len(shrunk.scenario.schedule) <= 3
    assert shrunk.rate.share >= 0.5


def test_a_step_that_fails_too_rarely_is_undone() -> None:
    """The first tries of the smaller ones fail by chance; measured again, only the original fails
    often enough."""
    found = with_faults("mirror-kill", "link-cut")
    seen: dict[int, int] = {}

    def holds(made: Scenario) -> bool:
        seen[len(made.schedule)] = seen.get(len(made.schedule), 0) + 1
        return made == found or seen[len(made.schedule)] <= 2

    assert Shrinker(fails=Predicate(holds)).shrink(found).scenario == found


def test_the_budget_ends_it_with_what_was_found_so_far() -> None:
    found = with_faults("mirror-kill", "link-cut")
    oracle = Predicate(lambda made: "mirror-kill" in kinds(made), budget=4)
    shrunk = Shrinker(fails=oracle).shrink(found)
    assert "mirror-kill" in kinds(shrunk.scenario)
    assert oracle.asked <= 4 + 2 + 4 * 3  # a group that was begun, and the measuring of few steps


def test_the_rate_without_the_last_fault_is_known() -> None:
    found = with_faults("mirror-kill", "link-cut")
    shrunk = Shrinker(
        fails=Predicate(lambda made: {"mirror-kill", "link-cut"} <= set(kinds(made)))
    ).shrink(found)
    assert len(shrunk.scenario.schedule) == 2
    assert shrunk.without_last == Rate(failed=0, tries=2)


def fault(id_: str, when: str = "always") -> FaultSpec:
    return FaultSpec(id=id_, fault="link-cut", target="A->B", at=1.0, duration=1.0, when=when)


def test_a_fault_after_a_removed_fault_takes_over_its_trigger() -> None:
    chain = [
        fault("a"),
        fault("b", "after:a"),
        fault("c", "after:b and open-transactions:2"),
        fault("d", "during:b and after:c"),
    ]
    assert [(f.id, f.when) for f in without(chain, ["b"])] == [
        ("a", "always"),
        ("c", "after:a and open-transactions:2"),
        ("d", "after:c"),
    ]
    assert [(f.id, f.when) for f in without(chain, ["a", "b"])] == [
        ("c", "open-transactions:2"),
        ("d", "after:c"),
    ]
    assert followers(chain, "b") == {"b", "c", "d"}
    assert condition(without(chain, ["c"])[2].when).during == ("b",)


def test_rates_have_an_interval() -> None:
    assert str(Rate(failed=3, tries=4)) == "3 of 4 (30 to 95 %)"
    assert Rate(failed=0, tries=0).interval == (0.0, 1.0)
    low, high = Rate(failed=50, tries=100).interval
    assert low < 0.5 < high
    assert replace(Rate(failed=1, tries=2)) + Rate(failed=1, tries=2) == Rate(failed=2, tries=4)
