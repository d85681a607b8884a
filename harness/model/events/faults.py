"""Steps of faults, in a schedule (`chaos.schedule`) and in the Python API.

The steps of one fault have its id and this order: Trigger (if it waits for a condition),
FaultStart, FaultBite (exactly one), FaultHeal, FaultEnd. For a reversal found in copied logs,
`harness.capture` writes only a start and an end.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkflap.harness.model.events.base import Event
from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.history import Count, Offset, Time, Uid
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


class LostRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [start, end) of one partition that a lossy fault took away: what the deposed leader's
    log had there, when it was dead.

    `deposed_epoch` and `elected_epoch` are the leader epochs of that leader and of the next one,
    whose epoch begins at `start` (-1: not known). `elected` is the moment before which no new
    leader was elected: the request for the election. `records` are runs (payload id, offset, how
    many, producer id), payload ids rising by one or all -1; `markers` are (offset, producer id,
    producer epoch, whether it is a COMMIT).
    """

    topic: str
    partition: int
    start: Offset
    end: Offset
    deposed_epoch: int
    elected_epoch: int
    elected: Time
    records: tuple[tuple[Uid, Offset, Count, int], ...]
    markers: tuple[tuple[Offset, int, int, bool], ...]


class FaultBite(OfFault, frozen=True, kw_only=True):
    """Whether it took effect: what was measured on the faulted path within its window, and what was
    expected there. `lost` is exactly what a lossy fault took away; None: another fault, or a run of
    an older version."""

    bit: bool
    observable: str
    measured: object
    expected: object
    lost: tuple[LostRange, ...] | None = None


class FaultHeal(OfFault, frozen=True, kw_only=True):
    """The fault was healed, or could not be. `checked` lists the checks of the heal, or why it
    failed."""

    healed: bool
    checked: tuple[str, ...]


class FaultEnd(OfFault, frozen=True, kw_only=True):
    """It is over. `fault` is written of copied logs only."""

    fault: str | None = None
