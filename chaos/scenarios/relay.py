"""relay: consume, transform, produce, through a broker's restart and a failover: every input makes
one output.

Guarantee at stake: a relay's outputs and its group's offsets are one transaction (KIP-98, KIP-447),
on each cluster, whatever happens to it. No mirror promises that across the failover: partitions and
group offsets are mirrored independently (KIP-382, KIP-545, KIP-1279). So outputs may be repeated,
and those of the last moments may be missing; both are counted and reported. A violation looks like
an input that the group has passed without an output, or one with two outputs on the cluster where
both were made.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, WorkloadSpec
from linkflap.topologies import parse

GROUP = "linkflap.relay"


def build(request: ScenarioRequest) -> Scenario:
    """A->B: two relays on A. Their broker restarts, then A is killed with transactions open, and
    they continue on B."""
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    home, there = link.source, link.destination
    restart_at = round(rng.uniform(2.0, 3.0), 2)
    kill_at = round(rng.uniform(4.0, 5.0), 2)

    def reader(cluster: str, isolation: str) -> WorkloadSpec:
        return WorkloadSpec(
            kind="readers",
            home=home,
            options={"cluster": cluster, "isolation": isolation, "assign": True},
        )

    return Scenario(
        name="relay",
        about=(
            "relays read a topic and write another, exactly once; their broker restarts, then they "
            f"fail over and continue on {there}"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=(
            WorkloadSpec(
                kind="transactional",
                home=home,
                clients=2,
                options={"rate": 12.0, "open_share": 0.01, "hold": 0.5},
            ),
            WorkloadSpec(
                kind="relay",
                home=home,
                clients=2,
                options={"rate": 10.0, "group": GROUP, "abort_share": 0.1},
            ),
            reader(home, "read_committed"),
            *(reader(there, isolation) for isolation in ("read_committed", "read_uncommitted")),
        ),
        schedule=(
            FaultSpec(
                id="restart",
                fault="broker-restart",
                target=f"{home}/1",
                at=restart_at,
                duration=2.0,
                when="under-way",
            ),
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=kill_at,
                duration=0.0,
                when="after:restart and seen-on-both-sides and open-transactions",
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 14.0,
    )
