"""failback-divergence: A continues to write for a second after the link was cut, then dies; the two
logs diverge there.

Guarantee at stake: the failback truncates A's log exactly where the two diverge, no more and no
less (KIP-1279, failback: the last mirrored offset in its draft, the last mirror epoch since; option
failback_point). The tail that was never mirrored is on A until then, as its capture before the
truncation shows, and on neither cluster afterwards. A violation looks like a record of that tail
behind the truncation, or like a missing record before it.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, default_workloads
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: the link is cut, A takes more writes and dies; clients fail over to B; the mirror is
    reversed; clients come back."""
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    back = f"{link.destination}->{link.source}"
    cut_at = round(rng.uniform(3.0, 4.5), 2)
    return Scenario(
        name="failback-divergence",
        about=(
            f"{link.name}; the link is cut, {link.source} takes more writes and dies; the "
            "failback truncates what was never mirrored"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=default_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="cut",
                fault="link-cut",
                target=link.name,
                at=cut_at,
                duration=round(rng.uniform(3.0, 4.0), 2),
            ),
            FaultSpec(
                id="away",
                fault="failover-forced",
                target=link.name,
                at=round(cut_at + rng.uniform(1.0, 1.5), 2),
                duration=0.0,
                when=WITH_TRANSACTIONS_OPEN,
            ),
            FaultSpec(
                id="reverse",
                fault="mirror-reverse",
                target=link.name,
                at=round(rng.uniform(2.0, 3.0), 2),
                duration=0.0,
                when="after:away",
            ),
            # Only then may A's coordinator abort the open transactions of its dead clients: it
            # appends its own markers.
            FaultSpec(
                id="home",
                fault="failover-planned",
                target=back,
                at=1.0,
                duration=0.0,
                when="after:reverse",
            ),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or 12.0,
    )
