"""broker-restart: a broker is shut down in good order for the window, and started again at the heal.

Breaks    leadership moves first, connections end after: what a rolling upgrade does.
Bite      the broker answered a round trip before and does not in the window.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from chaos.faults.broker_parts import BrokerParts, broker_reason
from chaos.faults.settings import settings
from harness.model.protocols import Bite, World
from harness.model.scenario import FaultSpec, Option
from harness.model.topology import Topology


class BrokerRestart:
    """Shuts a broker down in good order, and starts it again at the end."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._parts = BrokerParts(spec, world)

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return broker_reason(target, topology)

    def inject(self) -> None:
        self._parts.look()
        self._parts.broker.stop()

    def bite(self) -> Bite:
        return self._parts.bite("round trip at the broker's own listener", "no answer", self._parts.gone)

    def heal(self) -> Sequence[str]:
        return self._parts.heal()
