"""Scenarios of topics: compacted, with retention, stamped by brokers, grown, of large records."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.chaos.scenarios.base import (
    WITH_TRANSACTIONS_OPEN,
    ScenarioRequest,
    default_workloads,
    one_failover,
)
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import LinkSpec, Topology
from linkflap.topologies import parse


def compacted_topic(request: ScenarioRequest) -> Scenario:
    """A->B: a compacted topic with tombstones; A is killed with transactions open, and clients go
    on at B.

    Some keys are written all the time and others once: many records are compacted, and some stay.

    Guarantee at stake: compaction neither moves nor changes a record, and removes none outside the
    cleaned part (Kafka documentation, log compaction; KIP-534 for the removal of markers and
    tombstones). Every broker cleans its own log, so replicas, and both ends of a mirror, have
    different batches in the cleaned part. A violation is a missing record above it, a record at
    another offset, or a record of an aborted transaction that became non-transactional.

    A replica, or one end of the mirror, may lack a record of the cleaned part only if a cleaner
    removes it: a superseded or aborted record, or an expired tombstone. All of them have the last
    record of each key.
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


KEPT = 300_000
"""Bytes of a partition on the source. Retention is by size, not by time, so that it depends only on
the records that were written."""
KEPT_ELSEWHERE = 5 * KEPT
MIRRORED = 500
"""Offsets of every partition that are on both sides before the failover, above the source's log
start."""


def retention(request: ScenarioRequest) -> Scenario:
    """A->B: brokers of A keep some hundred KB of each partition; once they have deleted segments A
    is killed.

    Guarantee at stake: retention moves the log start, deletes whole segments below it, and nothing
    else (Kafka documentation, log.retention.bytes). A reader or a mirror misses only the records
    that it had not got by then. A violation looks like a missing record at or above the log start,
    or a log that begins below a reported log start.

    B's log start follows A's while B mirrors. After that B deletes by its own limit, which is
    several times A's, as on a recovery cluster: the mirrored records are still there at the end,
    however long clients continue, so they can be compared.
    """
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


def log_append_time(request: ScenarioRequest) -> Scenario:
    """A->B: a topic stamped by its brokers; a drained failover to B.

    Guarantee at stake: a mirrored record has the timestamp that its source's log gave it (KIP-32;
    KIP-1279 keeps bytes). MirrorMaker 2 copies timestamps but not message.timestamp.type, so its
    destination does not stamp records again. A violation looks like a mirrored record with another
    timestamp than at the same place of the source.
    """
    return one_failover(
        request,
        name="log-append-time",
        about=(
            "a topic whose records are stamped by the brokers that append them; the mirror is "
            "drained, clients continue on {destination}"
        ),
        between=(3.0, 4.0),
        kind="failover-planned",
        when="seen-on-both-sides",
        topics=TopicSpec(config={"message.timestamp.type": "LogAppendTime"}),
        duration=7.0,
    )


GROWN = 50
"""Offsets of every partition that are on both sides before the failover."""


def partitions_added(request: ScenarioRequest) -> Scenario:
    """A->B: the topic grows by two partitions; A is killed with transactions open, and clients go
    on at B.

    Guarantee at stake: every guarantee covers a partition from its first record on, whenever it was
    added (KIP-195). A client that discovers it late must begin at its log start. A violation is a
    new partition whose first records the group or the mirror never got.
    """
    return one_failover(
        request,
        name="partitions-added",
        about=(
            "the topic gets two more partitions under load; {source} is killed, clients continue "
            "on {destination}"
        ),
        before=_grow,
        between=(3.0, 4.0),
        # Nothing can be compared in a partition without mirrored records.
        when=f"after:grow and mirrored:{GROWN} and {WITH_TRANSACTIONS_OPEN}",
        duration=11.0,
    )


def _grow(link: LinkSpec, rng: Random) -> tuple[FaultSpec, ...]:
    at = round(rng.uniform(2.0, 3.0), 2)
    return (
        FaultSpec(
            id="grow",
            fault="partitions-added",
            target=link.source,
            at=at,
            duration=0.0,
            when="under-way",
            options={"add": 2},
        ),
    )


VALUE = 1_200_000
"""Bytes of a value: a batch of one record is above the defaults of brokers (1,048,588) and of
producers (1 MiB)."""


def large_messages(request: ScenarioRequest) -> Scenario:
    """A->B: records of 1.2 MB; A is killed with transactions open, and clients continue on B.

    Guarantee at stake: whoever fetches gets the first batch in full, whatever its own limit
    (KIP-74), and whoever writes has a limit that fits the topic's max.message.bytes. A violation
    looks like a mirror or a replica that stops before a large batch, or that skips it.
    """
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
