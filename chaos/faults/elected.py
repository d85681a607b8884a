"""The broker that a cluster elected to a role, for the faults that kill its holder.

Promises: the cluster is asked for the holder when the fault begins. Bitten means that this broker
does not answer any more. If the others are a majority, it also means that they have elected another
of them. The heal is that of any broker fault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from linkflap.chaos.faults.bites import milliseconds
from linkflap.chaos.faults.broker_parts import HEALS_WITHIN, UNANSWERED_WITHIN, BrokerParts
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, Cluster, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until

ELECTED_WITHIN: Final = 60.0


class ElectedLoss(ABC):
    """Kills the holder of a role. `office` is the name of the role."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}
    office: ClassVar[str]

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self.values = settings(spec, self.defaults)
        self._spec, self.world = spec, world
        self.cluster: Cluster = cluster_of(spec, world)
        self._parts: BrokerParts | None = None

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

    @abstractmethod
    def holder(self, address: str) -> int | None:
        """The broker that holds the role, as the broker at `address` reports. None while there is
        none."""

    def inject(self) -> None:
        held = until(
            self._elected,
            within=ELECTED_WITHIN,
            what=f"the {self.office} of {self.cluster.name} to be elected",
        )
        self._parts = BrokerParts(
            replace(self._spec, target=f"{self.cluster.name}/{held}"), self.world
        )
        self._parts.look()
        self._parts.broker.kill()

    def _elected(self, besides: int = -1) -> int | None:
        """The holder, as a running broker reports it. Brokers are numbered from 1."""
        for number, broker in self.cluster.brokers.items():
            if (
                number != besides
                and broker.state == "running"
                and (found := self.holder(broker.client_address)) is not None
            ):
                return found
        return None

    def bite(self) -> Bite:
        expected = "silence of its holder" + (
            ", and another broker elected" if self._others_can_elect else ""
        )
        if self._parts is None:
            return Bite(
                bit=False, observable=self.office, measured="nobody held it", expected=expected
            )
        return self._parts.bite(
            f"the {self.office} of {self.cluster.name}",
            expected,
            self._measure,
            within=ELECTED_WITHIN,
        )

    @property
    def _others_can_elect(self) -> bool:
        return 2 * sum(broker.state == "running" for broker in self.cluster.brokers.values()) > len(
            self.cluster.brokers
        )

    def _measure(self) -> tuple[bool, object]:
        assert self._parts is not None
        lost = self._parts.broker.id
        seconds = self._parts.answers(within=UNANSWERED_WITHIN)
        successor = self._elected(besides=lost)
        elected = successor not in (None, lost) if self._others_can_elect else True
        return seconds is None and elected, {
            "lost": lost,
            "round_trip_ms": milliseconds(seconds),
            "successor": successor,
        }

    def heal(self) -> Sequence[str]:
        if self._parts is None:
            return ["nobody was taken away"]
        checked = self._parts.heal()
        try:
            holder = until(
                self._elected, within=HEALS_WITHIN, what=f"a {self.office} of {self.cluster.name}"
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; see {self._parts.broker.log}") from error
        return [*checked, f"{self.office}: {self.cluster.name}/{holder}"]
