"""The code that all faults share: reading a fault's options, and measuring its bite on the broken
object, never from the answer of the API that broke it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from confluent_kafka.admin import AdminClient

from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, Direction, FaultWorld
from linkflap.harness.model.scenario import FaultSpec, Option, Scenario
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import TopicPartition, Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import quiet

T = TypeVar("T")


class FaultBase(ABC):
    """One kind of fault: one class, and one line in the registry.

    The schedule calls `inject`, then `bite` (within the window), holds for the duration, then
    `heal`, in that order. It always calls `heal`, also when `inject` or `bite` raised. `reason`
    returns None for a legal target, else one sentence. `options` are those of the fault; a number's
    description has its unit.
    """

    restores = True
    """Whether `heal` restores everything."""
    options: ClassVar[Mapping[str, OptionAbout]] = {}
    reason: ClassVar[staticmethod[[str, Topology], str | None]]

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        """Raises InputError for an unknown option or value."""
        self._spec, self._world = spec, world
        self._values = settings(spec, self.options)

    def _admin(self, cluster: str) -> AdminClient:
        """A new client for each call, because a client's pending answers are lost when it is
        closed.
        """
        return AdminClient(quiet(self._world.deployment.clusters[cluster].bootstrap))

    @abstractmethod
    def inject(self) -> None: ...

    @abstractmethod
    def bite(self) -> Bite: ...

    @abstractmethod
    def heal(self) -> Sequence[str]:
        """Returns what it checked. Raises FaultError when the fault is not healed in time."""

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        """None, or one sentence why this fault cannot be applied to that target of that
        topology."""
        return cls.reason(target, topology)

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        """A need of this fault that the scenario does not meet, in words; None if it meets all."""
        del spec, scenario
        return None


def settings(spec: FaultSpec, options: Mapping[str, OptionAbout]) -> dict[str, Option]:
    """The values of a fault's options. Raises InputError."""
    if unknown := sorted(spec.options.keys() - options.keys()):
        known = ", ".join(sorted(options)) or "no options"
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) has no option "
            f"{unknown[0]!r}{nearest(unknown[0], options)}; it has {known}"
        )
    return {name: _checked_option(spec, name, about) for name, about in options.items()}


def _checked_option(spec: FaultSpec, name: str, about: OptionAbout) -> Option:
    if name not in spec.options:
        return about.default
    given = spec.options[name]
    try:
        return about.checked(given)
    except ValueError as error:
        raise InputError(
            f"option {name} of fault {spec.id!r} ({spec.fault}) is {given!r}; {error}"
        ) from None


def number(values: Mapping[str, Option], name: str) -> float:
    """An option that is a number."""
    return float(values[name])


def direction(values: Mapping[str, Option], name: str) -> Direction:
    """An option that is one of the two directions of a link."""
    return "requests" if values[name] == "requests" else "responses"


BITES_WITHIN: Final = 10.0

Measure = Callable[[], tuple[bool, object]]
"""(whether the fault bit, the measurement as plain JSON values)."""


def watch(
    world: FaultWorld,
    observable: str,
    expected: object,
    measure: Measure,
    *,
    within: float = BITES_WITHIN,
    falling: bool = False,
) -> Bite:
    """Measures until the fault bites, `within` seconds have passed, or the run ends. The last
    measurement is the evidence. `falling`: the measurement is a number that falls until the fault
    bites; the seconds count from the last time it fell (`until`)."""
    seen: tuple[bool, object] = (False, "nothing")

    def bites_or_ends() -> bool:
        nonlocal seen
        seen = measure()
        return seen[0] or world.stopping

    def remaining() -> float | None:
        return seen[1] if isinstance(seen[1], int | float) else None

    with contextlib.suppress(DeadlineExceeded):
        until(
            bites_or_ends,
            within=within,
            what=f"{observable} to show the fault",
            remaining=remaining if falling else None,
        )
    return Bite(bit=seen[0], observable=observable, measured=seen[1], expected=expected)


def wait(
    condition: Callable[[], T | None],
    *,
    within: float,
    what: str,
    every: float = 0.1,
    state: Callable[[], object] | None = None,
) -> T:
    """Like `until`, but raises FaultError when the deadline passes."""
    try:
        return until(condition, within=within, every=every, what=what, state=state)
    except DeadlineExceeded as error:
        raise FaultError(str(error)) from error


def milliseconds(seconds: float | None) -> float | None:
    """Milliseconds, rounded; None if there was no answer."""
    return None if seconds is None else round(seconds * 1000, 3)


class Answering:
    """A target that answers round trips. `before`: the seconds of one before the fault; None if it
    was not answered."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world
        self.before: float | None = None

    def bite(
        self, observable: str, expected: object, measure: Measure, *, within: float = BITES_WITHIN
    ) -> Bite:
        """As `watch`; but silence proves nothing of a target that did not answer before."""
        if self.before is None:
            measured = "no answer before the fault either"
            return Bite(bit=False, observable=observable, measured=measured, expected=expected)
        return watch(self._world, observable, expected, measure, within=within)


def data_partitions(world: FaultWorld, names: tuple[str, ...]) -> list[TopicPartition]:
    """The partitions of the run's data topics that are at home on clusters of these names."""
    return [
        (topic, number)
        for topic, count in dict(world.topics).items()
        if is_data_topic(topic, names)
        for number in range(count)
    ]
