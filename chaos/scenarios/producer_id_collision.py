"""producer-id-collision: producers draw ids on both clusters, then those of the source go to the
destination.

Both clusters assign producer ids from 0 on. A mirror that keeps offsets also copies the source's
ids. So after a failover the destination assigns ids that already have a producer state in its
partitions. It then refuses their first records as out of order, or takes them for repeats,
acknowledges them with old offsets and appends nothing (Redpanda PR 31659; KIP-1279,
MIRROR_PID_RESET). With ids that jump (the default) only producers of the destination that are older
than the mirror can collide; those here write to their own topics. Guarantee at stake: an
acknowledged record is there. A violation is a producer-id-collision, a ghost ack, a lost write.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, default_workloads
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, WorkloadSpec
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: producers on both sides draw ids; A is killed; its producers continue on B."""
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    # Each producer writes few batches, so that the first ones on the other side look like repeats
    # of them (a broker keeps the last five).
    seldom = {"rate": 0.6, "records": 2, "partitions": 2}
    at = round(request.rng.uniform(4.0, 5.5), 2)
    return Scenario(
        name="producer-id-collision",
        about=(
            f"{link.name}; producers draw ids on both clusters; {link.source} is killed, and its "
            f"producers continue on {link.destination}"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=(
            *default_workloads(topology, link.source),
            WorkloadSpec(kind="idempotent", home=link.source, clients=4, options=seldom),
            WorkloadSpec(
                kind="idempotent", home=link.destination, clients=2, options={"rate": 5.0}
            ),
            WorkloadSpec(
                kind="readers",
                home=link.destination,
                options={
                    "cluster": link.destination,
                    "isolation": "read_committed",
                    "assign": True,
                },
            ),
        ),
        schedule=(
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=at,
                duration=0.0,
                when=WITH_TRANSACTIONS_OPEN,
            ),
        ),
        minimums=Minimums(committed=15, aborted=2, reads=300, afterwards=1000),
        duration=request.duration or 9.0,
    )
