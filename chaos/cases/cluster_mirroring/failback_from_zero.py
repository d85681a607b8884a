"""KIP-1279 itself: the log of the mirrors' states gets another leader, and a failback truncates the
cluster that follows to offset 0."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.cluster_mirroring.promotion_forgotten import given_up, promoted
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

RECORDS: Final = 200
OF_B: Final = 10


@case(
    "KIP-1279-failback-from-zero",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim={"moved": True},
    control={"moved": False},
)
def failback_from_zero(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. A's log is no longer than B's."""
    topic = bench.topic()
    bench.write(topic, [b"of A %d" % n for n in range(RECORDS)])
    with branch_mirror(bench, topic) as away:
        away.created()
        one_coordinator(bench)
        away.started()
        away.mirroring(1)
        until(
            lambda: bench.bound("high", topic, cluster="B") == RECORDS,
            within=WITHIN,
            what="B to have all",
            every=0.2,
        )
        promoted(away)
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    number = given_up(bench)
    if moved:
        bench.lead(STATES, number, bench.broker(2, "B"), "B")
    with branch_mirror(bench, topic, "A", source="B") as back:
        back.created()
        back.started()
        ends = _ends(bench, topic)
        facts = {
            "records_of_A": RECORDS,
            "moved": f"{STATES}-{number}" if moved else "",
            "shortest_log_of_A": min(ends),
            "log_of_A_at_the_end": ends[-1],
            "states_at_the_end": dict(back.states()),
        }
    return Observation(shown=min(ends) < RECORDS, facts=facts)


def _ends(bench: Bench, topic: str) -> list[int]:
    """Where A's log ended, from its bytes, until it has the records that were written at B. Raises
    DeadlineExceeded if it neither gets them nor is ever shorter: then nothing is known."""
    ends: list[int] = []

    def followed() -> bool:
        ends.append(max((batch.last_offset + 1 for batch in bench.log(topic)), default=0))
        return ends[-1] >= RECORDS + OF_B

    try:
        until(followed, within=WITHIN, what="A to follow B", every=0.02)
    except DeadlineExceeded:
        if min(ends) >= RECORDS:
            raise
    return ends
