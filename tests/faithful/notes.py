"""The history of a story while it goes on, and the clock that times it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from linkflap.harness.model.history import (
    EventRow,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.values import Values
from tests.faithful.clusters import Spot

MS = 1_000_000


SECOND = 1000 * MS


@dataclass(slots=True)
class Clock:
    """The harness' clock, in nanoseconds."""

    rng: Random
    now: int

    def tick(self, low: int = 1, high: int = 9) -> int:
        """Advances by some milliseconds, and returns the time."""
        self.now += self.rng.randint(low * MS, high * MS)
        return self.now

    @property
    def ms(self) -> int:
        return self.now // MS


@dataclass(slots=True)
class Notes:
    """The rows of the history so far. `values` are the keys and tombstones that clients write;
    where it is None they choose any."""

    values: Values | None = None
    operations: list[Operation] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    marks: list[Watermark] = field(default_factory=list)
    groups: list[GroupOffset] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    processes: int = 0

    def event(self, time: int, kind: str, subject: str, /, **data: object) -> None:
        self.events.append(EventRow(time=time, kind=kind, subject=subject, data=data))


@dataclass(slots=True)
class Writing:
    """An operation that has been invoked: the records to send, and the acknowledgements so far."""

    row: Operation
    left: list[tuple[Spot, int, int]]
    acks: dict[tuple[Spot, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    refused: dict[tuple[Spot, int], list[tuple[int, int]]] = field(default_factory=dict)

    def sends(self) -> tuple[SendGroup, ...]:
        def answered(group: SendGroup) -> SendGroup:
            key = ((group.topic, group.partition), group.first_uid)
            return replace(
                group, acks=tuple(self.acks.get(key, ())), refused=tuple(self.refused.get(key, ()))
            )

        return tuple(map(answered, self.row.sends))
