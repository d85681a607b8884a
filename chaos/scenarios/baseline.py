"""baseline: the same clients and mirror without a fault. A failure here was not caused by a
fault."""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads_at_every_home
from linkflap.harness.model.scenario import Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B with no fault."""
    topology = request.topology or parse("A->B")
    return Scenario(
        name="baseline",
        about=f"{', '.join(link.name for link in topology.links)} with nothing broken",
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads_at_every_home(topology),
        schedule=(),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 6.0,
    )
