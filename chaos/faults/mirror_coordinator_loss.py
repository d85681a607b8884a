"""mirror-coordinator-loss: the broker that coordinates a mirror dies (SIGKILL), and is started
again at the heal.

Breaks    what that broker alone does for a mirror: it leads the partition of __mirror_state that
          the mirror's name has, keeps the states of partitions, finds new topics, syncs groups and
          settings; the next one reads that log first (KIP-1279).
Bite      the broker does not answer in the window, and the others (where they are a majority) have
          elected another leader.
Heal      its process runs, its listener answers, it is in the ISR of every partition that it holds;
          there is a coordinator.
"""

from __future__ import annotations

from linkflap.chaos.faults.administered import mirror_to
from linkflap.chaos.faults.elected import ElectedLoss


class MirrorCoordinatorLoss(ElectedLoss):
    """Kills the coordinator of the mirror that leads to a cluster, and starts it again at the
    end."""

    office = "mirror coordinator"

    def holder(self, address: str) -> int | None:
        """From the metadata of any broker of the cluster."""
        leader = mirror_to(self.cluster.name, self.world).coordinator()
        return leader if leader in self.cluster.brokers else None
