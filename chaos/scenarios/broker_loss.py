"""broker-loss: brokers of both clusters are killed, paused and restarted while the link works.

Guarantee at stake: replication in a cluster (acks=all, min.insync.replicas 2) and transactions
survive the loss of one broker (KIP-98, KIP-966). Afterwards replicas agree below the high
watermark.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse

_LEAST = 3


def build(request: ScenarioRequest) -> Scenario:
    """A:3->B:3: one broker of A is killed, one of B paused, one of A restarted."""
    rng = request.rng
    topology = request.topology or parse("A:3->B:3")
    link = topology.links[0]
    for name in (link.source, link.destination):
        if (brokers := topology.cluster(name).brokers) < _LEAST:
            raise InputError(
                f"broker-loss takes brokers of both clusters away while the others go on: {name} "
                f"needs {_LEAST} or more and has {brokers}; write --topology "
                f"'{link.source}:{_LEAST}->{link.destination}:{_LEAST}'"
            )
    killed = rng.choice([1, 2, 3])
    return Scenario(
        name="broker-loss",
        about=(
            f"{link.name}; a broker of {link.source} is killed, one of {link.destination} paused, "
            f"another of {link.source} restarted"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="kill",
                fault="broker-kill",
                target=f"{link.source}/{killed}",
                at=2.0,
                duration=5.0,
            ),
            FaultSpec(
                id="pause",
                fault="broker-pause",
                target=f"{link.destination}/{rng.choice([1, 2, 3])}",
                at=14.0,
                duration=5.0,
            ),
            FaultSpec(
                id="restart",
                fault="broker-restart",
                target=f"{link.source}/{killed % 3 + 1}",
                at=26.0,
                duration=1.0,
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 32.0,
    )
