"""planned-failover: clients stop, the mirror drains, B is promoted, clients continue on B. Nothing
may be lost.

A drained switchover has an RPO of zero by definition: any record acknowledged on A that B does not
have is a lost write.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import (
    WITH_TRANSACTIONS,
    ScenarioRequest,
    default_workloads_at_every_home,
    id_of,
)
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: a slow link, then a drained failover to B.

    In another topology every link slows, and clients of the first link's source fail over.
    """
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    at = round(request.rng.uniform(3.0, 5.0), 2)
    return Scenario(
        name="planned-failover",
        about=(
            f"{link.name} over a slow link; the mirror is drained and clients are moved to "
            f"{link.destination}"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads_at_every_home(topology),
        schedule=(
            *(
                FaultSpec(
                    id=id_of("slow", each, topology),
                    fault="link-latency",
                    target=each.name,
                    at=0.5,
                    duration=2.0,
                    options={"latency": 100, "jitter": 20},
                )
                for each in topology.links
            ),
            FaultSpec(
                id="failover",
                fault="failover-planned",
                target=link.name,
                at=at,
                duration=0.0,
                when=WITH_TRANSACTIONS,
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 9.0,
    )
