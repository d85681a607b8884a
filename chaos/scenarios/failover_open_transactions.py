"""failover-open-transactions: the source dies while several producers hold transactions open across
all partitions.

A transaction that is open at a failover has no coordinator on the destination: the mirror must end
it at the promotion, and no other transaction. At first (February 2026) KIP-1279 truncated the log
at its last stable offset. That removes records that the destination had shown, and the markers of
transactions that had begun before: those then hang forever. Its code of July 2026 appends ABORT
markers. Guarantee at stake: after the failover every open transaction belongs to a producer of B,
the last stable offset advances, and every record that readers of B saw is still there. A violation
is a hanging transaction, a high watermark that goes back, or a lost write.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, default_workloads
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, TopicSpec, WorkloadSpec
from linkflap.topologies import parse


def build(request: ScenarioRequest) -> Scenario:
    """A->B: A is killed while several transactions are open in every partition; B must end them."""
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    held = WorkloadSpec(
        kind="transactional",
        home=link.source,
        clients=5,
        options={
            "rate": 8.0,
            "records": 9,
            "partitions": 3,
            "open_share": 0.3,
            "abort_share": 0.1,
            "hold": 1.5,
        },
    )
    readers = tuple(w for w in default_workloads(topology, link.source) if w.kind == "readers")
    at = round(request.rng.uniform(4.0, 6.0), 2)
    return Scenario(
        name="failover-open-transactions",
        about=(
            f"{link.name}; {link.source} is killed with several transactions open in every "
            f"partition; {link.destination} ends them, and clients continue there"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=(held, *readers),
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
        minimums=Minimums(committed=20, aborted=4, reads=300, afterwards=600),
        topics=TopicSpec(partitions=3),
        duration=request.duration or 9.0,
    )
