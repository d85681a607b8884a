"""large-messages: records of more than a megabyte, above every default limit, in transactions, mirrored, over a failover.

Guarantee at stake: whoever fetches gets the first batch in full, whatever its own limit (KIP-74), and whoever writes has a limit
that fits the topic's max.message.bytes. A violation looks like a mirror or a replica that stands still before a large batch, or
that went on behind it.
"""

from __future__ import annotations

from dataclasses import replace

from linkflap.chaos.scenarios.base import Wish, everyday
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import Topology
from linkflap.topologies import parse

VALUE = 1_200_000
"""Bytes of a value: a batch of one record is above the defaults of brokers (1,048,588) and of producers (1 MiB)."""


def build(wish: Wish) -> Scenario:
    """A->B: records of 1.2 MB; A is killed with transactions open, and clients go on at B."""
    topology = wish.topology or parse("A->B")
    link = topology.links[0]
    return Scenario(
        name="large-messages",
        about="records of more than a megabyte; A is killed, clients go on at B",
        seed=wish.seed,
        topology=topology,
        mirror=wish.mirrored_by(),
        workloads=_workloads(topology, link.source),
        schedule=(
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=round(wish.dice.uniform(4.0, 5.0), 2),
                duration=0.0,
                when="open-transactions",
            ),
        ),
        minimums=Minimums(committed=10, aborted=2, reads=40, afterwards=20),
        topics=TopicSpec(config={"max.message.bytes": str(4 << 20)}),
        duration=wish.duration or 9.0,
    )


def _workloads(topology: Topology, home: str) -> tuple[WorkloadSpec, ...]:
    """Few operations, as each is large; so more of them are aborted or stay open."""
    shares = {"abort_share": 0.2, "open_share": 0.1}
    clients = everyday(topology, home, value_size=VALUE, records=2, rate=1.5)
    return tuple(replace(w, options={**w.options, **shares}) if w.kind == "transactional" else w for w in clients)
