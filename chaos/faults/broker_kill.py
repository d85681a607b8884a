"""broker-kill: a broker is killed (SIGKILL) with unflushed data, and started again at the heal.

Breaks    leadership, coordinators and open connections of that broker; an unclean start with log
          recovery follows.
Bite      the broker answered a round trip before and does not in the window.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds.
"""

from __future__ import annotations

from linkflap.chaos.faults.broker_parts import BrokerFault
from linkflap.harness.model.protocols import Broker


class BrokerKill(BrokerFault):
    """Kills a broker with SIGKILL, and starts it again at the end."""

    def take_down(self, broker: Broker) -> None:
        broker.kill()
