"""broker-pause: a broker is suspended (SIGSTOP) with its sockets open, and continues at the heal
with an old view of the cluster.

Breaks    everyone who waits for it. Past its session timeout it is fenced without knowing it, and
          may answer old requests later: a produce that timed out can be written after the pause.
Bite      the broker answered a round trip before; in the window a connection to it is accepted and
          stays silent.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

import time

from linkflap.chaos.faults.broker_parts import UNANSWERED_WITHIN, BrokerFault
from linkflap.harness.model.protocols import Broker


class BrokerPause(BrokerFault):
    """Suspends a broker's process, and resumes it at the end."""

    expected = "accepted and silent"

    def take_down(self, broker: Broker) -> None:
        broker.pause()

    def measure(self) -> tuple[bool, object]:
        start = time.monotonic()
        unanswered, seen = super().measure()
        silent = unanswered and time.monotonic() - start >= 0.9 * UNANSWERED_WITHIN
        return silent, {"silent": silent, "round_trip": seen}
