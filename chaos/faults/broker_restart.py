"""broker-restart: a broker is shut down (SIGTERM) for the window, and started again at the heal.

Breaks    leadership moves first, connections end afterwards, as in a rolling upgrade.
Bite      the broker answered a round trip before and does not in the window.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.harness.model.protocols import Broker


class BrokerRestart(BrokerFault):
    """Shuts a broker down gracefully, and starts it again at the end."""

    def take_down(self, broker: Broker) -> None:
        broker.stop()
