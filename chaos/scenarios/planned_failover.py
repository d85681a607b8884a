"""planned-failover: clients stop, the mirror drains, B is promoted, clients go on at B. Nothing may be lost.

A drained switchover has an RPO of zero by definition: any record acknowledged on A that B does not have is a lost write.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B: a slow link, then a drained failover to B."""
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    at = round(wish.dice.uniform(3.0, 5.0), 2)
    return Scenario(
        name="planned-failover",
        about="A->B over a slow link; the mirror is drained and clients are moved to B",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=everyday(topology, link.source),
        schedule=(
            FaultSpec(
                id="slow", fault="link-latency", target=link.name, at=0.5, duration=2.0, options={"latency": 100, "jitter": 20}
            ),
            FaultSpec(id="failover", fault="failover-planned", target=link.name, at=at, duration=0.0, when="seen-on-both-sides"),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=wish.duration or 9.0,
    )
