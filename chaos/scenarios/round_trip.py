"""round-trip: A is killed, clients continue on B, B's new records are copied back to A, and clients
return there.

Guarantee at stake: a failback leaves one log (KIP-1279, failback). A loses the records that were
never mirrored, and nothing else; B's records are on A at the same offsets; the way back is planned,
so it loses nothing. A violation looks like an offset at which A and B have different records, a
record acknowledged on B that A does not have, or two writers under one producer id, now that each
cluster has ids of the other's in its log.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, default_workloads
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: A dies with transactions open; clients fail over to B; the mirror is reversed; a
    planned failover back to A."""
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    back = f"{link.destination}->{link.source}"
    away_at = round(rng.uniform(3.5, 5.0), 2)
    return Scenario(
        name="round-trip",
        about=(
            f"{link.name}; {link.source} is killed, clients continue on {link.destination}, and "
            "come back by a planned failover"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="away",
                fault="failover-forced",
                target=link.name,
                at=away_at,
                duration=0.0,
                when=WITH_TRANSACTIONS_OPEN,
            ),
            FaultSpec(
                id="reverse",
                fault="mirror-reverse",
                target=link.name,
                at=round(rng.uniform(1.5, 2.5), 2),
                duration=0.0,
                when="after:away",
            ),
            FaultSpec(
                id="home",
                fault="failover-planned",
                target=back,
                at=round(rng.uniform(1.5, 2.5), 2),
                duration=0.0,
                when="after:reverse",
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 12.0,
    )
