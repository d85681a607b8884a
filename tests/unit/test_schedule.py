"""The schedule refuses what cannot be played, and plays the rest in order, whatever a fault
does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from linkflap.chaos import schedule
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import FaultSpec
from linkflap.topologies import parse
from tests.unit.scheduled import CUT

AWAY = FaultSpec(id="away", fault="failover-forced", target="A->B", at=1.0, duration=0.0)
REVERSE = FaultSpec(
    id="reverse", fault="mirror-reverse", target="A->B", at=1.0, duration=0.0, when="after:away"
)
CRASH = FaultSpec(id="crash", fault="mirror-kill", target="B->A", at=0.0, duration=1.0)
HOME = FaultSpec(
    id="home", fault="failover-planned", target="B->A", at=1.0, duration=0.0, when="after:reverse"
)


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([CUT, CUT], "two faults of the schedule have the id 'cut'"),
        (
            [replace(CUT, fault="link-snip")],
            "unknown kind 'link-snip' (did you mean 'link-flap'?); known: broker-",
        ),
        (
            [replace(CUT, when="full-moon")],
            "waits for an unknown trigger: 'full-moon'; known: always",
        ),
        ([replace(CUT, target="A->C")], "cannot be applied to 'A->C'"),
        ([replace(CUT, options={"rate": 3})], "no option 'rate'"),
        (
            [
                FaultSpec(id="crash", fault="mirror-kill", target="A->B", at=1.0, duration=5.0),
                FaultSpec(id="away", fault="failover-planned", target="A->B", at=3.0, duration=0.0),
            ],
            "would start A->B again at 6 s, after failover 'away'",
        ),
        (
            [
                FaultSpec(id="kill", fault="broker-kill", target="A/1", at=4.0, duration=1.0),
                FaultSpec(id="away", fault="failover-forced", target="A->B", at=3.0, duration=0.0),
            ],
            "would start A/1 again",
        ),
        ([replace(CUT, when="after:noon")], "follows unknown fault 'noon'; known: cut"),
        ([replace(CUT, when="after:cut")], "follows itself"),
        (
            [replace(CUT, when="after:b"), replace(CUT, id="b", when="after:cut")],
            "follows itself through",
        ),
        (
            [CUT, replace(CUT, id="b", when="after:cut,noon")],
            "follows unknown fault 'noon'",
        ),
        (
            [CUT, replace(CUT, id="b", when="after:cut and full-moon")],
            "waits for an unknown trigger: 'after:cut and full-moon'",
        ),
        (
            [replace(HOME, when="always")],
            (
                "fails over B->A, which has no mirror at that time; let it follow a mirror-reverse "
                "of A->B"
            ),
        ),
        ([AWAY, replace(HOME, when="after:away")], "which has no mirror at that time"),
        ([AWAY, replace(AWAY, id="again", when="after:away")], "which has no mirror at that time"),
        (
            [CRASH],
            (
                "kills the mirror of B->A, which has no mirror at that time; let it follow a "
                "mirror-reverse of A->B"
            ),
        ),
        (
            [AWAY, replace(CRASH, when="after:away")],
            "kills the mirror of B->A, which has no mirror at that time",
        ),
        (
            [AWAY, REVERSE, replace(CRASH, target="A->B", when="after:reverse")],
            "kills the mirror of A->B, which has no mirror",
        ),
        ([AWAY, REVERSE, HOME, replace(CRASH, when="after:reverse")], "would start B->A again"),
        ([replace(REVERSE, when="always")], "which has not failed over at that time"),
        (
            [AWAY, REVERSE, replace(REVERSE, id="again", when="after:reverse")],
            "which has not failed over at that time",
        ),
        (
            [
                AWAY,
                FaultSpec(
                    id="kill",
                    fault="broker-kill",
                    target="A/1",
                    at=0,
                    duration=1,
                    when="after:away",
                ),
            ],
            "would start A/1",
        ),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused(specs: list[FaultSpec], says: str) -> None:
    with pytest.raises(InputError, match="fault") as refused:
        schedule.check(specs, parse("A->B"))
    assert says in str(refused.value)


def test_rounds_of_ping_pong_can_be_played_and_what_was_reversed_may_be_broken_again() -> None:
    again = [
        FaultSpec(
            id="reverse-2",
            fault="mirror-reverse",
            target="B->A",
            at=1.0,
            duration=0.0,
            when="after:home",
        ),
        FaultSpec(
            id="away-2",
            fault="failover-forced",
            target="A->B",
            at=1.0,
            duration=0.0,
            when="after:reverse-2",
        ),
        FaultSpec(
            id="kill", fault="broker-kill", target="A/1", at=0.0, duration=1.0, when="after:reverse"
        ),
        FaultSpec(id="crash", fault="mirror-kill", target="A->B", at=0.0, duration=1.0),
    ]
    schedule.check([AWAY, REVERSE, HOME, *again[:2]], parse("A->B"))
    schedule.check([AWAY, REVERSE, HOME, again[2]], parse("A->B"))
    schedule.check([replace(AWAY, when="after:crash"), again[3]], parse("A->B"))
    reverse_dies = [replace(CRASH, when="after:reverse"), replace(HOME, when="after:crash")]
    schedule.check([AWAY, REVERSE, *reverse_dies], parse("A->B"))


def test_a_fault_that_follows_another_is_described_so() -> None:
    assert (
        schedule.describe([REVERSE])["reverse"]
        == "at  1.0 s for  0.0 s  mirror-reverse on A->B from the end of away on"
    )


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", range(20))
def test_every_scenario_is_a_pure_function_of_its_seed_and_can_be_played(
    name: str, seed: int
) -> None:
    once = scenario(name, ScenarioRequest(seed=seed))
    assert once == scenario(name, ScenarioRequest(seed=seed))
    schedule.check(once.schedule, once.topology)


def test_different_seeds_give_different_schedules() -> None:
    assert (
        len({str(scenario("link-flap", ScenarioRequest(seed=seed)).schedule) for seed in range(20)})
        == 20
    )
