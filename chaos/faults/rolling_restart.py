"""rolling-restart: the brokers of a cluster are restarted one after the other with a controlled
shutdown, as in an upgrade.

Breaks    every connection, every leadership and every coordinator role once, while the other
          brokers continue.
Bite      each broker answered a round trip before its restart, but not during it. Afterwards it was
          in the ISR of every partition that it holds.
Heal      every process runs, every listener answers, every broker is in the ISR of every partition
          that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from linkflap.chaos.faults.broker_parts import BrokerParts
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology

OBSERVABLE = "round trip at each broker's own listener"


class RollingRestart:
    """Restarts all brokers of a cluster, one after the other. Each one must be in sync before the
    next is restarted."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._world, self._target = world, spec.target
        self._parts = [
            BrokerParts(replace(spec, target=f"{spec.target}/{number}"), world)
            for number in cluster_of(spec, world).brokers
        ]
        self._begun: list[BrokerParts] = []
        self._seen: list[tuple[bool, object]] = []

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

    def inject(self) -> None:
        for parts in self._parts:
            if self._world.stopping:
                return
            parts.look()
            self._begun.append(parts)
            parts.broker.stop()
            gone, seen = parts.gone()
            self._seen.append((gone and parts.before is not None, seen))
            self.before_start(parts)
            parts.heal()

    def before_start(self, parts: BrokerParts) -> None:
        """A hook for subclasses: runs after a broker was shut down, before it is started again.
        Does nothing here."""

    def bite(self) -> Bite:
        bit = len(self._seen) == len(self._parts) and all(gone for gone, _ in self._seen)
        return Bite(
            bit=bit,
            observable=OBSERVABLE,
            measured=[seen for _, seen in self._seen],
            expected="each silent in its turn",
        )

    def heal(self) -> Sequence[str]:
        return [line for parts in self._begun for line in parts.heal()] or [
            "no broker was restarted"
        ]
