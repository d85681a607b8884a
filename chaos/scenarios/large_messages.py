"""large-messages: records of more than a megabyte, above every default limit, in transactions,
mirrored, over a failover.

Guarantee at stake: whoever fetches gets the first batch in full, whatever its own limit (KIP-74),
and whoever writes has a limit that fits the topic's max.message.bytes. A violation looks like a
mirror or a replica that stops before a large batch, or that skips it.
"""

from __future__ import annotations

from dataclasses import replace

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads, one_failover
from linkflap.harness.model.scenario import Minimums, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import Topology

VALUE = 1_200_000
"""Bytes of a value: a batch of one record is above the defaults of brokers (1,048,588) and of
producers (1 MiB)."""


def build(request: ScenarioRequest) -> Scenario:
    """A->B: records of 1.2 MB; A is killed with transactions open, and clients continue on B."""
    return one_failover(
        request,
        name="large-messages",
        about="records of over a megabyte; {source} is killed, clients continue on {destination}",
        between=(4.0, 5.0),
        when="seen-on-both-sides:10 and open-transactions",
        clients=_clients,
        minimums=Minimums(committed=10, aborted=2, reads=40, afterwards=20),
        topics=TopicSpec(config={"max.message.bytes": str(4 << 20)}),
        duration=9.0,
    )


def _clients(topology: Topology, home: str) -> tuple[WorkloadSpec, ...]:
    """Few operations, as each is large; so more of them are aborted or stay open."""
    shares = {"abort_share": 0.2, "open_share": 0.1}
    clients = default_workloads(topology, home, value_size=VALUE, records=2, rate=1.5)
    return tuple(
        replace(w, options={**w.options, **shares}) if w.kind == "transactional" else w
        for w in clients
    )
