"""Steps of faults, in a schedule (`chaos.schedule`, `chaos.fault_window`) and in the Python API.

The steps of one fault have its id and this order: Trigger (if it waits for a condition),
FaultStart, FaultBite (exactly one), FaultHeal, FaultEnd. For a reversal found in copied logs,
`harness.capture` writes only a start and an end.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkflap.harness.model.events.base import Event
from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.scenario import Option


class OfFault(Event, frozen=True, kw_only=True):
    """A step of the fault `id`; `target` is what that breaks: a link, a client path, a broker, a
    cluster or a process."""

    target: str = msgspec.field(name="subject")
    id: str

    @property
    def on(self) -> Target:
        """What it is done to."""
        return Target.parse(self.target)


class Trigger(OfFault, frozen=True, kw_only=True):
    """It waited `seconds` for the condition `when`, which came true or did not."""

    when: str
    hit: bool
    seconds: float


class FaultStart(OfFault, frozen=True, kw_only=True):
    """It begins; nothing is broken yet. `restores`: False where it is never healed. `duration` is
    in seconds, as scheduled."""

    fault: str
    options: Mapping[str, Option] | None = None
    restores: bool | None = None
    duration: float | None = msgspec.field(name="for", default=None)

    @property
    def name(self) -> FaultName:
        """What the fault is."""
        return FaultName(self.fault)


class FaultBite(OfFault, frozen=True, kw_only=True):
    """Whether it took effect: what was measured on the faulted path within its window, and what was
    expected there."""

    bit: bool
    observable: str
    measured: object
    expected: object


class FaultHeal(OfFault, frozen=True, kw_only=True):
    """The fault was healed, or could not be. `checked` lists the checks of the heal, or why it
    failed."""

    healed: bool
    checked: tuple[str, ...]


class FaultEnd(OfFault, frozen=True, kw_only=True):
    """It is over. `fault` is written of copied logs only."""

    fault: str | None = None
