"""retention: segments are deleted while they are written, read and mirrored; then a failover.

Guarantee at stake: retention moves the log start, deletes whole segments below it, and nothing else
(Kafka documentation, log.retention.bytes). A reader or a mirror misses only the records that it had
not got by then. A violation looks like a missing record at or above the log start, or a log that
begins below a reported log start.

B's log start follows A's while B mirrors. After that B deletes by its own limit, which is several
times A's, as on a recovery cluster: the mirrored records are still there at the end, however long
clients continue, so they can be compared.
"""

from __future__ import annotations

from dataclasses import replace

from linkflap.chaos.scenarios.base import WITH_TRANSACTIONS_OPEN, ScenarioRequest, one_failover
from linkflap.harness.model.scenario import Minimums, Scenario, TopicSpec
from linkflap.harness.model.topology import Topology
from linkflap.topologies import parse

KEPT = 300_000
"""Bytes of a partition on the source. Retention is by size, not by time, so that it depends only on
the records that were written."""
KEPT_ELSEWHERE = 5 * KEPT
MIRRORED = 500
"""Offsets of every partition that are on both sides before the failover, above the source's log
start."""


def build(request: ScenarioRequest) -> Scenario:
    """A->B: brokers of A keep some hundred KB of each partition; once they have deleted segments A
    is killed."""
    topology = request.topology or parse("A->B")
    return one_failover(
        replace(request, topology=_deleting(topology, topology.links[0].source)),
        name="retention",
        about=(
            "brokers of {source} delete segments all the time; {source} is killed, clients "
            "continue on {destination}"
        ),
        between=(4.0, 5.0),
        when=f"segments-deleted and mirrored:{MIRRORED} and {WITH_TRANSACTIONS_OPEN}",
        minimums=Minimums(committed=60, aborted=5, reads=500, afterwards=500),
        topics=TopicSpec(config={"segment.ms": "1000"}),
        duration=6.0,
    )


def _deleting(topology: Topology, source: str) -> Topology:
    """The same clusters with limits for their logs, where the user gave none."""

    def limit(cluster: str) -> dict[str, str]:
        return {"log.retention.bytes": str(KEPT if cluster == source else KEPT_ELSEWHERE)}

    return replace(
        topology,
        clusters=tuple(replace(c, config=limit(c.name) | {**c.config}) for c in topology.clusters),
    )
