"""broker-pause: a broker stands still (SIGSTOP) with its sockets open, and goes on at the heal with
an old view of the world.

Breaks    everyone who waits for it; past its session timeout it is fenced without knowing, and may
          answer old requests later: a produce that timed out can be written after the pause.
Bite      the broker answered a round trip before; in the window a connection to it is accepted and
          stays silent.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

import time

from linkflap.chaos.faults.broker_parts import UNANSWERED_WITHIN, BrokerFault
from linkflap.harness.model.protocols import Broker


class BrokerPause(BrokerFault):
    """Stops a broker's process without ending it, and lets it go on at the end."""

    expected = "accepted and silent"

    def take_down(self, broker: Broker) -> None:
        broker.pause()

    def measure(self) -> tuple[bool, object]:
        start = time.monotonic()
        unanswered, seen = super().measure()
        silent = unanswered and time.monotonic() - start >= 0.9 * UNANSWERED_WITHIN
        return silent, {"silent": silent, "round_trip": seen}
