"""How links' bites are measured where everything is slow: entering a secured cluster takes longer
than a link is up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS
from linkflap.chaos.faults.links import LinkHalfOpen
from linkflap.harness.model.protocols import Fault, World
from linkflap.harness.model.scenario import FaultSpec, Option


class SlowLink:
    """During a fault no login succeeds (it takes too long); the first bytes are answered as
    `answers` says."""

    name, source, enabled = "A->B", "A", True

    def __init__(self, answers: Iterable[float | None], *, delivers: bool = True) -> None:
        """`delivers`: whether requests still take effect during the fault."""
        self._answers, self._delivers, self._broken = iter(answers), delivers, False

    def round_trip(self, *, within: float) -> float | None:
        return None if self._broken else 0.001

    def first_answer(self, *, within: float) -> float | None:
        seconds = next(self._answers)
        return seconds if seconds is not None and seconds <= within else None

    def delivers_requests(self, *, within: float) -> bool:
        return self._delivers or not self._broken

    def add_toxic(self, *_: object, **__: object) -> None:
        self._broken = True

    def cut(self, *, owner: str) -> None:
        self._broken = True

    def restore(self, *, owner: str) -> None:
        pass

    def toxics(self, *, owner: str | None = None) -> list[str]:
        return []

    def holders(self) -> frozenset[str]:
        return frozenset(["another fault"])


def fault(name: str, link: SlowLink, **options: Option) -> Fault:
    broker = SimpleNamespace(brokers={1: SimpleNamespace(state="running")})
    deployment = SimpleNamespace(links={"A->B": link}, clusters={"A": broker})
    world = cast(World, SimpleNamespace(deployment=deployment, stopping=False))
    return FAULTS[name](
        FaultSpec(id="f", fault=name, target="A->B", at=0, duration=2, options=options), world
    )


def test_a_flap_bites_even_if_no_login_succeeds_in_between() -> None:
    flap = fault("link-flap", SlowLink(itertools.cycle([0.01, None])), down=0.01, up=0.01)
    flap.inject()
    assert flap.bite().bit
    flap.heal()


@pytest.mark.parametrize("stalled", ["responses", "requests"])
def test_a_link_that_is_as_slow_as_before_is_not_silent(stalled: str) -> None:
    """0.5 s before, 0.9 s with the fault: the machine is busy."""
    slow = SlowLink(itertools.chain([0.5], itertools.repeat(0.9)), delivers=stalled == "responses")
    half_open = cast(LinkHalfOpen, fault("link-half-open", slow, stalled=stalled))
    half_open.inject()
    bit, measured = half_open._measure()
    seen = cast(dict[str, object], measured)
    assert not bit
    assert (seen["answered"], seen["took_effect_before"]) == (True, True)


@pytest.mark.parametrize("stalled", ["responses", "requests"])
def test_a_link_without_any_answer_for_longer_than_that_is_silent(
    stalled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = SlowLink(
        itertools.chain([0.01], itertools.repeat(None)), delivers=stalled == "responses"
    )
    half_open = cast(LinkHalfOpen, fault("link-half-open", silence, stalled=stalled))
    half_open.inject()
    clock = itertools.count(step=10)
    monkeypatch.setattr(
        "linkflap.chaos.faults.links.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    assert half_open._measure()[0]
