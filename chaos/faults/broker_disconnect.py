"""broker-disconnect: a broker's container is taken off its network for the window, as if its cable
were pulled.

Breaks    every connection of the broker: to its peers, to its clients, over its links. Its process
          sees only silence.
Bite      the broker answered a round trip before and does not in the window, and is on no network.
Heal      it is on its network again with its address, its listener answers, it is in the ISR of
          every partition that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.chaos.faults.confined import ConfinedFault
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.protocols import Broker


class BrokerDisconnect(ConfinedFault):
    """Takes a broker's container off its network, and puts it back at the end."""

    expected = "no answer, and on no network"

    def take_down(self, broker: Broker) -> None:
        self.confines.disconnect()

    def measure(self) -> tuple[bool, object]:
        silent, seen = super().measure()
        connected = self.confines.connected
        return silent and not connected, {"on_network": connected, "round_trip": seen}

    def let_go(self) -> Sequence[str]:
        self.confines.reconnect()
        if not self.confines.connected:
            raise FaultError(
                "it is not on its network after it was connected; see docker network inspect"
            )
        return ["on its network again"]
