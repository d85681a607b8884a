"""KIP-1279 itself: a promoted topic whose leader dies takes no markers, and an acknowledged
transaction is in it only in part."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 12
"""So many that some are led by the broker that keeps their states, too."""
ENDED_WITHIN: Final = 30.0


def _committed(bench: Bench, *, promoted: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-marker-refused",
    title=(
        "A build of the KIP-1279 branch refuses transaction markers on a promoted topic whose "
        "leader died, and a committed transaction is visible in part"
    ),
    kind="proposal",
    claim_text=(
        "B is promoted, and clients write there. A broker of B dies. The new leader of a partition "
        "does not know that it is STOPPED, and refuses appends with READ_ONLY_TOPIC, COMMIT "
        "markers among them. The transaction coordinator takes that for an error that cannot be, "
        "and does not send the marker again: a transaction whose commit was acknowledged is "
        "visible in other partitions, and stays open in this one."
    ),
    sources=(
        "docs/findings/cluster-mirroring-marker-refused.md",
        "KIP-98: a transaction is atomic; KIP-1279: states of partitions",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. three brokers of B; a topic of {PARTITIONS} partitions is mirrored, and stopped; 2. a "
        "transaction at B in all of them; 3. kill -9 of a broker that does not coordinate it; 4. "
        f"commit: acknowledged; 5. LSO and high watermark of each partition, for {ENDED_WITHIN:.0f}"
        " s"
    ),
    reproduced="in some partitions the transaction is open in the end, and in others committed",
    control_text="a topic of B's own, that was never mirrored: it is committed in all of them",
    refuted="no partition has it open",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim=partial(_committed, promoted=True),
    control=partial(_committed, promoted=False),
    runs=3,
    needs=BUILD,
    apart=True,
)
