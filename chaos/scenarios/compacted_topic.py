"""compacted-topic: tombstones and transactions in a topic that is compacted all the time, on both
sides of a failover.

Guarantee at stake: compaction moves no record, changes none, and removes none outside the cleaned
part (Kafka documentation, log compaction; KIP-534: when markers and tombstones may go). Every
broker cleans its own log by itself, so replicas, and both ends of a mirror, have other batches in
the cleaned part. A violation looks like a missing record above it, a record at another offset, or a
record of an aborted transaction that became a plain one.

With several replicas (`--topology A:3->B`) a record of the cleaned part that one of them lacks must
be one that a cleaner removes: superseded, aborted, or a tombstone. The last record of each key is
on all of them.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, default_workloads, one_failover
from linkflap.harness.model.scenario import Scenario, TopicSpec


def build(request: ScenarioRequest) -> Scenario:
    """A->B: a compacted topic with tombstones; A is killed with transactions open, and clients go
    on at B.

    Some keys are written all the time and others once, so that much is compacted and something of
    everything stays.
    """
    return one_failover(
        request,
        name="compacted-topic",
        about=(
            "a compacted topic with tombstones and transactions; {source} is killed, clients go on "
            "at {destination}"
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
