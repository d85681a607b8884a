"""KIP-1279 itself: a promoted topic whose leader dies takes no markers, and an acknowledged
transaction is in it only in part."""

from __future__ import annotations

import contextlib
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 12
"""So many that some are led by the broker that keeps their states, too."""
ENDED_WITHIN: Final = 30.0


@case(
    "KIP-1279-marker-refused",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim={"promoted": True},
    control={"promoted": False},
)
def marker_refused(bench: Bench, *, promoted: bool) -> Observation:
    """A transaction at B in every partition; before it commits a broker of B dies. `promoted`: of a
    topic that was mirrored and stopped, and else of one of B's own."""
    if not promoted:
        return _ended(bench, bench.topic(cluster="B", partitions=PARTITIONS))
    topic = bench.topic(partitions=PARTITIONS)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        mirror.promoted(PARTITIONS)
        return _ended(bench, topic)


def _ended(bench: Bench, topic: str) -> Observation:
    producer = bench.transactional(cluster="B", transaction_timeout_ms="60000")
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send(topic, b"of B", partition)
    producer.flush()
    coordinator = bench.coordinator(bench.name("producer"), cluster="B")
    dead = next(
        broker for broker in bench.cluster("B").brokers.values() if broker.id != coordinator.id
    )
    dead.kill()
    producer.commit()
    for broker in bench.cluster("B").brokers.values():
        if broker.state == "running":
            bench.led(topic, partitions=PARTITIONS, by=broker)
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: not _open(bench, topic),
            within=ENDED_WITHIN,
            what="the transaction to end everywhere",
            every=0.5,
        )
    left = _open(bench, topic)
    facts = {"partitions": PARTITIONS, "commit": "acknowledged", "without_a_marker": left}
    return Observation(shown=0 < len(left) < PARTITIONS, facts=facts)


def _open(bench: Bench, topic: str) -> list[int]:
    """The partitions of B in which a transaction is open."""
    return [
        number
        for number in range(PARTITIONS)
        if bench.bound("stable", topic, number, "B") < bench.bound("high", topic, number, "B")
    ]
