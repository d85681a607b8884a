"""compacted-topic: tombstones and transactions in a topic that is compacted all the time, on both
sides of a failover.

Guarantee at stake: compaction neither moves nor changes a record, and removes none outside the
cleaned part (Kafka documentation, log compaction; KIP-534 for the removal of markers and
tombstones). Every broker cleans its own log, so replicas, and both ends of a mirror, have different
batches in the cleaned part. A violation is a missing record above it, a record at another offset,
or a record of an aborted transaction that became non-transactional.

A replica, or one end of the mirror, may lack a record of the cleaned part only if a cleaner removes
it: a superseded or aborted record, or an expired tombstone. All of them have the last record of
each key.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads, one_failover
from linkflap.harness.model.scenario import Scenario, TopicSpec


def build(request: ScenarioRequest) -> Scenario:
    """A->B: a compacted topic with tombstones; A is killed with transactions open, and clients go
    on at B.

    Some keys are written all the time and others once: many records are compacted, and some stay.
    """
    return one_failover(
        request,
        name="compacted-topic",
        about=(
            "a compacted topic with tombstones and transactions; {source} is killed, clients "
            "continue on {destination}"
        ),
        clients=lambda topology, home: default_workloads(
            topology, home, keys=2000, skew=4.0, tombstones=0.2
        ),
        between=(8.0, 9.0),
        topics=TopicSpec(
            # By time: from 4.0 on brokers refuse segments below 1 MiB (KIP-1030).
            config={
                "cleanup.policy": "compact",
                "segment.ms": "1000",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "1000",
            },
        ),
        duration=13.0,
    )
