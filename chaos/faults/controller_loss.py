"""controller-loss: the active controller of a cluster is killed (SIGKILL), and started again at the
heal.

Breaks    everything that needs the controller (elections, ISR changes, new topics, registrations)
          until the quorum elects another.
Bite      the broker does not answer in the window, and the others (where they are a majority) have
          another active controller.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds;
          the quorum has a leader.
"""

from __future__ import annotations

from linkflap.chaos.faults.elected import ElectedLoss
from linkflap.harness.runtimes.kraft.readiness import quorum


class ControllerLoss(ElectedLoss):
    """Kills the active controller of a cluster, and starts it again at the end."""

    office = "active controller"

    def holder(self, address: str) -> int | None:
        found = quorum(address)
        return found.leader if found is not None and found.leader in self.cluster.brokers else None
