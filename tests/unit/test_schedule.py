"""The schedule refuses what cannot be played, and plays the rest in order, whatever a fault does;
faults are started, measured, healed and ended."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.chaos import schedule, triggers
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.chaos.schedule import Player
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import Event
from linkflap.harness.model.protocols import Bite
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.wait import now, pause
from linkflap.topologies import parse

# Faults of a schedule that is built by hand.


CUT = FaultSpec(id="cut", fault="link-cut", target="A->B", at=0.0, duration=0.0)


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
        == "at  1.0 s             mirror-reverse on A->B when away has ended"
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


class Events:
    """A recorder and a watcher that keep what they get."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Any]] = []
        self.started: dict[str, list[str]] = {}
        """The events that were written when a fault was reported to be under way."""
        self.lock = threading.Lock()

    def write(self, event: Event) -> Event:
        with self.lock:
            self.events.append((event.kind, event.subject, event.row.data))
        return event

    def fault_started(self, *_: object) -> None:
        pass

    def fault_ended(self, *_: object) -> None:
        pass

    def of(self, kind: str) -> list[Any]:
        return [data for known, _, data in self.events if known == kind]


def playable(events: Events, *, stopping: bool = False, ended: bool = False) -> Any:
    """The part of a run that a player needs."""

    def start_in(fault: str) -> None:
        events.started[fault] = [kind for kind, _, _ in events.events]

    return SimpleNamespace(
        recorder=events,
        stopping=stopping,
        clients=SimpleNamespace(all_ended=ended, start_in=start_in),
    )


def played(
    monkeypatch: pytest.MonkeyPatch,
    fault_class: type[Obedient],
    *,
    when: str = "always",
    stopping: bool = False,
    ended: bool = False,
) -> tuple[Events, Player]:
    events = Events()
    monkeypatch.setattr(schedule, "FAULTS", {"link-cut": fault_class})
    world = playable(events, stopping=stopping, ended=ended)
    player = schedule.Player([replace(CUT, when=when)], world, events)
    player.start()
    player.join(within=30, tick=lambda: None)
    return events, player


class Obedient:
    restores = True

    def __init__(self, spec: FaultSpec, world: object) -> None:
        pass

    def inject(self) -> None:
        pass

    def bite(self) -> Bite:
        return Bite(bit=True, observable="it", measured=1, expected=1)

    def heal(self) -> list[str]:
        return ["well"]


class Slow(Obedient):
    """A fault that takes effect only after a while."""

    def bite(self) -> Bite:
        pause(0.3, lambda: False)
        return super().bite()


class Blunt(Obedient):
    def inject(self) -> None:
        raise FaultError("the knife is blunt")


class Incurable(Obedient):
    def heal(self) -> list[str]:
        raise FaultError("cannot be healed")


class Defective(Obedient):
    def bite(self) -> Bite:
        raise ZeroDivisionError


def test_a_fault_is_started_measured_healed_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    events, _ = played(monkeypatch, Obedient)
    assert [kind for kind, _, _ in events.events] == [
        "fault-start",
        "fault-bite",
        "fault-heal",
        "fault-end",
    ]
    assert events.of("fault-bite") == [
        {"id": "cut", "bit": True, "observable": "it", "measured": 1, "expected": 1}
    ]


@pytest.mark.parametrize(
    ("fault", "duration", "before"),
    [
        ("link-cut", 0.0, ["fault-start"]),
        ("link-cut", 0.05, ["fault-start", "fault-bite"]),
        ("program-refused", 0.05, ["fault-start"]),
    ],
)
def test_programs_start_while_a_fault_is_under_way(
    monkeypatch: pytest.MonkeyPatch, fault: str, duration: float, before: list[str]
) -> None:
    """One that lasts has been measured then; a failover has begun; one that waits for requests may
    wait for theirs."""
    events = Events()
    monkeypatch.setattr(schedule, "FAULTS", {fault: Obedient})
    spec = replace(CUT, fault=fault, duration=duration)
    player = schedule.Player([spec], playable(events), events)
    player.start()
    player.join(within=30, tick=lambda: None)
    assert events.started == {"cut": before}


def test_the_last_fault_has_ended_when_it_was_healed_and_not_when_the_run_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = now()
    events, player = played(monkeypatch, Obedient)
    looked = now()
    assert player.last_ended is not None
    assert began < player.last_ended < looked
    assert schedule.Player([], playable(events), events).last_ended is None


def test_a_fault_that_cannot_be_applied_did_not_bite_and_is_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, _ = played(monkeypatch, Blunt)
    assert events.of("fault-bite")[0]["bit"] is False
    assert events.of("fault-heal") == [{"id": "cut", "healed": True, "checked": ["well"]}]


def test_a_fault_that_cannot_be_healed_is_written_down_and_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, player = played(monkeypatch, Incurable)
    assert events.of("fault-heal") == [
        {"id": "cut", "healed": False, "checked": ["cannot be healed"]}
    ]
    assert [str(failure) for failure in player.failures] == ["cannot be healed"]


def test_a_defect_of_a_fault_reaches_the_run_after_the_heal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ZeroDivisionError):
        played(monkeypatch, Defective)


def test_a_fault_is_not_played_once_all_programs_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, _ = played(monkeypatch, Obedient, ended=True)
    ((kind, _, data),) = events.events
    assert (kind, data["bit"]) == ("fault-bite", False)
    assert data["measured"] == "every writing program had exited before the fault began"


def test_a_run_that_ends_before_a_fault_is_due_leaves_no_bite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, _ = played(monkeypatch, Obedient, stopping=True)
    assert events.events == []


def two_played(monkeypatch: pytest.MonkeyPatch, first: type[Obedient]) -> Events:
    """The first fault is of this class; the second follows it."""
    events = Events()
    monkeypatch.setattr(schedule, "FAULTS", {"link-cut": first, "link-reset": Obedient})
    specs = [
        replace(CUT, id="second", fault="link-reset", when="after:cut"),
        replace(CUT, duration=0.2),
    ]
    player = schedule.Player(specs, playable(events), events)
    player.start()
    player.join(within=30, tick=lambda: None)
    return events


def test_a_fault_begins_after_the_one_it_follows_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    events = two_played(monkeypatch, Obedient)
    kinds = [(kind, data["id"]) for kind, _, data in events.events]
    assert kinds.index(("fault-end", "cut")) < kinds.index(("fault-start", "second"))
    assert kinds[-1] == ("fault-end", "second")


def test_a_fault_is_not_played_after_one_that_was_not_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = two_played(monkeypatch, Incurable)
    (bite,) = [data for data in events.of("fault-bite") if data["id"] == "second"]
    assert (bite["bit"], bite["measured"]) == (
        False,
        "fault cut, which it follows, was not played or not healed",
    )
    assert [data["id"] for data in events.of("fault-start")] == ["cut"]


def test_a_condition_that_never_comes_true_is_a_fault_that_did_not_bite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "TRIGGER_DEADLINE", 0.05)
    monkeypatch.setattr(triggers, "TRIGGERS", {"never": lambda spec, world: False})
    events, _ = played(monkeypatch, Obedient, when="never")
    assert events.of("fault-bite")[0]["bit"] is False
    assert events.of("fault-start") == []
    assert events.of("trigger")[0]["hit"] is False


@pytest.mark.parametrize(
    ("when", "beside", "alive", "given_up"),
    [
        ("mirror-holds", [], False, True),
        ("seen-on-both-sides", [], False, True),
        ("seen-on-both-sides", [], True, False),
        ("open-transactions", [], False, False),
        ("seen-on-both-sides", ["mirror-kill"], False, False),
        ("mirror-holds", ["failover-forced"], False, False),
    ],
)
def test_a_fault_is_given_up_when_only_a_dead_mirror_could_let_it_begin(
    monkeypatch: pytest.MonkeyPatch, when: str, beside: list[str], *, alive: bool, given_up: bool
) -> None:
    """Not if another fault ends that mirror: it may start it again."""
    deadline = 30.0 if given_up else 0.05
    monkeypatch.setattr(schedule, "TRIGGER_DEADLINE", deadline)
    monkeypatch.setattr(schedule, "ARRIVES_WITHIN", 0.05)
    monkeypatch.setattr(schedule, "FAULTS", dict.fromkeys(["link-cut", *beside], Obedient))
    monkeypatch.setattr(triggers, "TRIGGERS", {when: lambda spec, world: False})
    events = Events()
    world = playable(events)
    world.mirrors = {"A->B": SimpleNamespace(alive=alive)}
    others = [replace(CUT, id=name, fault=name, when="after:cut") for name in beside]
    player = schedule.Player([replace(CUT, when=when), *others], world, events)
    player.start()
    player.join(within=60, tick=lambda: None)
    (why,) = (data["measured"] for data in events.of("fault-bite") if data["id"] == "cut")
    dead = f"the mirror of A->B has died and nothing starts it again, so {when} cannot come true"
    assert (why == dead) is given_up, why


def overlapped(
    monkeypatch: pytest.MonkeyPatch,
    fault_class: type[Obedient],
    when: str,
    *,
    late_after: float = 0.0,
) -> list[tuple[str, str]]:
    """A cut of 0.3 s, and a fault that begins during it; `late`: seconds from the first look until
    its trigger is true."""
    events, asked = Events(), list[float]()

    def late(*_: object) -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] >= late_after

    monkeypatch.setattr(triggers, "TRIGGERS", {"late": late})
    monkeypatch.setattr(schedule, "FAULTS", {"link-cut": fault_class})
    world = playable(events)
    specs = [
        replace(CUT, duration=0.3),
        replace(CUT, id="second", when=when, duration=0.0),
    ]
    player = schedule.Player(specs, world, events)
    player.start()
    player.join(within=30, tick=lambda: None)
    return [
        (kind, data["id"])
        for kind, _, data in events.events
        if kind in ("fault-start", "fault-bite", "fault-end", "trigger")
    ]


def test_a_fault_begins_during_another(monkeypatch: pytest.MonkeyPatch) -> None:
    played = overlapped(monkeypatch, Obedient, "during:cut")
    assert played.index(("fault-start", "second")) < played.index(("fault-end", "cut"))
    assert ("trigger", "second") in played


def test_a_fault_that_lasts_is_measured_before_another_begins_during_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = overlapped(monkeypatch, Slow, "during:cut")
    assert played.index(("fault-bite", "cut")) < played.index(("fault-start", "second"))
    assert played.index(("fault-start", "second")) < played.index(("fault-end", "cut"))


def test_a_fault_is_held_open_until_those_that_are_to_begin_during_it_have_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = overlapped(monkeypatch, Obedient, "during:cut and late", late_after=1.0)
    assert played.index(("fault-start", "second")) < played.index(("fault-end", "cut"))


def test_a_fault_is_not_played_when_the_one_that_it_is_to_overlap_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "HELD_FOR", 0.05)
    played = overlapped(monkeypatch, Obedient, "during:cut and late", late_after=3600.0)
    assert ("fault-start", "second") not in played
    assert ("fault-end", "cut") in played
