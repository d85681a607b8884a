"""Faults, and the world that a fault may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from linkflap.harness.model.events import LostRange
from linkflap.harness.model.protocols.clients import Clients
from linkflap.harness.model.protocols.deployments import Deployment
from linkflap.harness.model.protocols.mirrors import Mirror, Recorder
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology


class World(Protocol):
    """What a fault may touch."""

    @property
    def deployment(self) -> Deployment: ...
    @property
    def mirrors(self) -> Mapping[str, Mirror]: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def recorder(self) -> Recorder: ...
    def take_up(self, mirror: Mirror) -> None:
        """Makes `mirror`, a reversed one, the mirror of its link in `mirrors`."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> partitions of what the workloads write, as it was made or has grown."""

    def sampled_groups(self, cluster: str) -> frozenset[str]:
        """Consumer groups of which a committed offset on a cluster was sampled: how far they got
        there is known."""

    def grown(self, topic: str, partitions: int) -> None:
        """Announces a topic's new number of partitions: its writers, readers and waiters use it
        from now on."""

    @property
    def stopping(self) -> bool:
        """True once the run is ending: hold no fault open any longer."""

    def capture(self, moment: str, cluster: str) -> None:
        """Copies the raw logs of a cluster as they are now."""


class Bite:
    """What was measured on the faulted path within its window; `lost`: and what it took away for
    good."""

    __slots__ = ("bit", "expected", "lost", "measured", "observable")

    def __init__(
        self,
        *,
        bit: bool,
        observable: str,
        measured: object,
        expected: object,
        lost: tuple[LostRange, ...] | None = None,
    ) -> None:
        self.bit, self.observable, self.measured, self.expected, self.lost = (
            bit,
            observable,
            measured,
            expected,
            lost,
        )


class Fault(Protocol):
    """One kind of fault, made by `(spec, world)`; one file in chaos/faults and one line in its
    registry.

    The schedule calls inject, then bite (within the window), holds for the duration, then heal, in
    that order. heal is always called, also when inject or bite raised, and returns what it checked;
    it raises FaultError when it is not healed in time.
    """

    restores: bool

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        """None, or one sentence why this fault cannot be applied to that target of that
        topology."""

    def inject(self) -> None: ...
    def bite(self) -> Bite: ...
    def heal(self) -> Sequence[str]: ...


class FaultFactory(Protocol):
    restores: bool

    @property
    def defaults(self) -> Mapping[str, Option]:
        """Its options and what they are when not given; text lists the choices, the first is the
        default."""

    @property
    def abouts(self) -> Mapping[str, str]:
        """A description of each option, with the unit of a number."""

    def __call__(self, spec: FaultSpec, world: World) -> Fault: ...
    def applies_to(self, target: str, topology: Topology) -> str | None: ...
