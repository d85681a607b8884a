"""mirror-crash: the mirror's worker is killed in the middle of a write, and started again.

MirrorMaker 2 in at-least-once mode commits its source offsets after it has produced (KIP-382;
Connect's source tasks). After the kill it writes the records since its last commit again: these
repeats are allowed, and counted. In exactly-once mode (KIP-618) none may be visible. A violation is
a repeat outside that window, an inversion, or a hole.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads_at_every_home, id_of
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: the worker is killed while it is behind, and started again.

    In another topology this is done to the mirror of every link.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    return Scenario(
        name="mirror-crash",
        about=(
            f"{', '.join(link.name for link in topology.links)}; the mirror's worker is killed "
            "mid-write and started again"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads_at_every_home(topology),
        schedule=tuple(
            FaultSpec(
                id=id_of("crash", link, topology),
                fault="mirror-kill",
                target=link.name,
                at=round(rng.uniform(3.0, 5.0), 2),
                duration=1.0,
                when="mirror-behind",
            )
            for link in topology.links
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 12.0,
    )
