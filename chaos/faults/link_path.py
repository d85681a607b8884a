"""A link as one fault has it, and what all link faults share: its own toxics and cuts, how the path
was before, the heal.

Promises: what one fault puts on a link carries its id, so that its heal takes away that and nothing
else. A path that did not answer before the fault proves nothing when it does not answer during it:
then the fault has not bitten.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.bites import BITES_WITHIN, Measure, milliseconds, watch
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, Direction, World, is_running
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until

ANSWERS_WITHIN: Final = 10.0
LOOKS: Final = 10
HEALS_WITHIN: Final = 30.0
NORMAL_WITHIN: Final = ANSWERS_WITHIN
"""Seconds for connecting and one round trip: on a busy machine, TLS and a login alone may take
seconds."""
ENDED_WITHIN: Final = 2.0


def link_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a link of the topology, the reverse of one, or the proxied client path
    `*->X` of a cluster; otherwise the reason."""
    on = Target.parse(target)
    if on.is_client_path and on.destination in {cluster.name for cluster in topology.clusters}:
        return None
    if on.link and {on.link, on.link.reverse} & set(topology.links):
        return None
    known = [link.name for link in topology.links] + [
        f"*->{cluster.name}" for cluster in topology.clusters
    ]
    return f"{target!r} is not a link; this topology has {', '.join(known)}"


class LinkPath:
    """One link as the target of one fault."""

    def __init__(self, spec: FaultSpec, world: World) -> None:
        try:
            self.link = world.deployment.links[spec.target]
        except KeyError:
            known = ", ".join(sorted(world.deployment.links))
            raise InputError(
                f"fault {spec.id!r} targets {spec.target!r}, but the links are {known}"
            ) from None
        self._owner, self._world = spec.id, world
        self.before: float | None = None

    def look(self, *, quick: float = math.inf) -> None:
        """Measures the round trip before the fault: again, ten times at most, until one took no
        longer than `quick` seconds.

        A path that another fault just cuts is given some time for the first.
        """
        with contextlib.suppress(DeadlineExceeded):
            self.before = until(
                lambda: self.link.round_trip(within=ANSWERS_WITHIN) if self._source_runs else None,
                within=ANSWERS_WITHIN,
                what=f"{self.link.name} to answer before the fault",
            )
        for _ in range(LOOKS - 1):
            if self.before is None or self.before <= quick:
                break
            again = self.link.round_trip(within=ANSWERS_WITHIN)
            self.before = min(self.before, math.inf if again is None else again)

    @property
    def _source_runs(self) -> bool:
        return is_running(self._world.deployment.clusters[self.link.source])

    def cut(self) -> None:
        self.link.cut(owner=self._owner)

    def restore(self) -> None:
        self.link.restore(owner=self._owner)

    def add(self, kind: str, direction: Direction, **attributes: int) -> None:
        self.link.add_toxic(kind, direction, attributes, owner=self._owner)

    def answers(self, *, within: float) -> bool | None:
        """Whether bytes come back on a new connection (True), or it is refused or ended at once
        (False).

        None if neither happened: a busy machine, or a link that stalls. It does not wait for
        the login (TLS, SASL), which takes more round trips, and may take longer than the link is
        up.
        """
        began = time.monotonic()
        if self.link.first_answer(within=within) is not None:
            return True
        return False if time.monotonic() - began < within / 2 else None

    def ends_at_once(self, *, within: float) -> tuple[bool, object]:
        """Whether a round trip ended without an answer long before its `within` seconds. A stalled
        link or a busy machine gives no answer either, but only when the time is up."""
        began = time.monotonic()
        seconds = self.link.round_trip(within=within)
        took = time.monotonic() - began
        seen = {
            "before_ms": milliseconds(self.before),
            "during_ms": milliseconds(seconds),
            "ended_after_ms": milliseconds(took),
        }
        return seconds is None and took < within / 2, seen

    def bite(
        self, observable: str, expected: object, measure: Measure, *, within: float = BITES_WITHIN
    ) -> Bite:
        """The same as `bites.watch`. Without an answer before the fault, there is no bite."""
        if self.before is None:
            return Bite(
                bit=False,
                observable=observable,
                measured="no answer before the fault either",
                expected=expected,
            )
        return watch(self._world, observable, expected, measure, within=within)

    def heal(self) -> list[str]:
        """Takes the fault's own cut and toxics off the link and sees that they are gone. Safe to
        call again.

        Raises FaultError when the link is not normal in time. While another fault holds the link,
        its round trip is that one's to check; while the source is down, nobody can.
        """
        self.link.restore(owner=self._owner)
        try:
            return until(
                self._healed,
                within=HEALS_WITHIN,
                what=f"link {self.link.name} to be normal after fault {self._owner}",
                state=lambda: f"toxics {list(self.link.toxics())}, enabled {self.link.enabled}",
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; see the log of its toxiproxy-server") from error

    def _healed(self) -> list[str] | None:
        if self.link.toxics(owner=self._owner):
            return None
        checked = [f"no toxic of {self._owner} left on {self.link.name}"]
        if others := sorted(self.link.holders()):
            return [*checked, f"{self.link.name} is still held by {', '.join(others)}"]
        if self.link.toxics() or not self.link.enabled:
            return None
        checked.append(f"every proxy of {self.link.name} enabled and without toxics")
        if not self._source_runs:
            return [*checked, f"no broker of {self.link.source} runs: round trip not asked"]
        seconds = self.link.round_trip(within=NORMAL_WITHIN)
        if seconds is None or seconds > self._normal:
            return None
        return [*checked, f"round trip {seconds * 1000:.1f} ms"]

    @property
    def _normal(self) -> float:
        """The most seconds that a round trip may take after the heal: the seconds before the fault,
        with a margin for a busy machine."""
        return max(0.25, 5 * (self.before or 0.0))


class LinkFault(ABC):
    """A fault of one link. `_values` are its options."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._values = settings(spec, self.defaults)
        self._path = LinkPath(spec, world)

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return link_reason(target, topology)

    @abstractmethod
    def inject(self) -> None: ...
    @abstractmethod
    def bite(self) -> Bite: ...
    def heal(self) -> Sequence[str]:
        return self._path.heal()


class EndedLink(LinkFault):
    """A fault that ends connections at once; they do not stall."""

    @abstractmethod
    def end(self) -> None:
        """Breaks the link."""

    def inject(self) -> None:
        self._path.look()
        self.end()

    def bite(self) -> Bite:
        return self._path.bite(
            "round trip over the link", "ended at once without an answer", self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        return self._path.ends_at_once(within=ENDED_WITHIN)
