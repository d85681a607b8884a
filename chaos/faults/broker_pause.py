"""broker-pause: a broker stands still (SIGSTOP) with its sockets open, and goes on at the heal with an old view of the world.

Breaks    everyone who waits for it; past its session timeout it is fenced without knowing, and may answer old requests later: a
          produce that timed out can be written after the pause.
Bite      the broker answered a round trip before; in the window a connection to it is accepted and stays silent.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from chaos.faults.broker_parts import UNANSWERED_WITHIN, BrokerParts, broker_reason
from chaos.faults.settings import settings
from harness.model.protocols import Bite, World
from harness.model.scenario import FaultSpec, Option
from harness.model.topology import Topology


class BrokerPause:
    """Stops a broker's process without ending it, and lets it go on at the end."""

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
        self._parts.broker.pause()

    def bite(self) -> Bite:
        return self._parts.bite("round trip at the broker's own listener", "accepted and silent", self._measure)

    def _measure(self) -> tuple[bool, object]:
        start = time.monotonic()
        unanswered, seen = self._parts.gone()
        silent = unanswered and time.monotonic() - start >= 0.9 * UNANSWERED_WITHIN
        return silent, {"silent": silent, "round_trip": seen}

    def heal(self) -> Sequence[str]:
        return self._parts.heal()
