"""The windows of faults as a timeline draws them: when each began, was measured, and ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from linkflap.harness.model.events import (
    Event,
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    OfFault,
    of_kind,
)
from linkflap.harness.report.operations import NANO
from linkflap.harness.report.words import in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWindow:
    """A fault's window. `bit` is None if nothing was measured; `end` is that of the run if no heal
    was recorded.

    `bite` and `heal` are the times of their measurements. `lasting`: it is never healed, like a
    failover or a broker that stays dead.
    """

    id: str
    fault: str
    target: str
    start: float
    end: float
    ended: bool
    lasting: bool
    bit: bool | None
    observable: str
    measured: str
    expected: str
    healed: str
    bite: float | None = None
    heal: float | None = None


def windows(events: Sequence[Event], began: int, ended: int) -> list[DrawnWindow]:
    """Every fault that started, in order of its start."""
    steps: dict[str, list[OfFault]] = defaultdict(list)
    for event in of_kind(events, OfFault):
        steps[event.id].append(event)
    found = [
        _window(of_kind(each, FaultStart)[0], each, began, ended)
        for each in steps.values()
        if of_kind(each, FaultStart)
    ]
    return sorted(found, key=lambda window: window.start)


def _window(start: FaultStart, steps: Sequence[OfFault], began: int, ended: int) -> DrawnWindow:
    bite = next(iter(of_kind(steps, FaultBite)), None)
    heal = next(iter(of_kind(steps, FaultHeal)), None)
    end = next(iter(of_kind(steps, FaultEnd)), None) or heal
    return DrawnWindow(
        id=start.id,
        fault=start.fault,
        target=start.target,
        start=(start.time - began) / NANO,
        end=((end.time if end else ended) - began) / NANO,
        ended=end is not None,
        lasting=start.restores is False,
        bit=bite.bit if bite else None,
        observable=bite.observable if bite else "",
        measured=in_words(bite.measured) if bite else "",
        expected=in_words(bite.expected) if bite else "",
        healed=", ".join(heal.checked) if heal else "",
        bite=(bite.time - began) / NANO if bite else None,
        heal=(heal.time - began) / NANO if heal else None,
    )
