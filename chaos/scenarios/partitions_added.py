"""partitions-added: the topic gets more partitions under load; readers, mirrors and group offsets take them in; then a failover.

Guarantee at stake: every promise holds of a partition from its first record on, whenever it came to be (KIP-195). A violation
looks like a new partition whose head the group or the mirror never got: who finds it late must begin at its log start.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B: the topic grows by two partitions; A is killed with transactions open, and clients go on at B."""
    dice = wish.dice
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    return Scenario(
        name="partitions-added",
        about="the topic gets two more partitions under load; A is killed, clients go on at B",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=everyday(topology, link.source),
        schedule=(
            FaultSpec(
                id="grow",
                fault="partitions-added",
                target=link.source,
                at=round(dice.uniform(2.0, 3.0), 2),
                duration=0.0,
                when="under-way",
                options={"add": 2},
            ),
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=round(dice.uniform(3.0, 4.0), 2),
                duration=0.0,
                when="after:grow and open-transactions",
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=wish.duration or 11.0,
    )
