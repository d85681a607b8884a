"""baseline: the same clients and mirror without a fault. A failure here was not caused by a
fault."""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, everyday_at_every_home
from linkflap.harness.model.scenario import Minimums, Scenario
from linkflap.topologies import parse


def build(wish: Wish) -> Scenario:
    """A->B with no fault."""
    topology = wish.topology or parse("A->B")
    return Scenario(
        name="baseline",
        about=f"{', '.join(link.name for link in topology.links)} with nothing broken",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=everyday_at_every_home(topology),
        schedule=(),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=wish.duration or 6.0,
    )
