"""baseline: the same clients and mirror with nothing broken. What fails here is not the fault's doing."""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B with no fault."""
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    return Scenario(
        name="baseline",
        about="A->B with nothing broken",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=everyday(topology, link.source),
        schedule=(),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=wish.duration or 6.0,
    )
