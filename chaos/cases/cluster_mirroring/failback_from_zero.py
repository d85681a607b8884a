"""KIP-1279 itself: the log of the mirrors' states gets another leader, and a failback truncates the
cluster that follows to offset 0."""

from __future__ import annotations

from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.cluster_mirroring.promotion_forgotten import given_up, promoted
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

RECORDS: Final = 200
OF_B: Final = 10


def _failed_back(bench: Bench, *, moved: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-failback-from-zero",
    title=(
        "A build of the KIP-1279 branch truncates A to offset 0 at a failback when __mirror_state "
        "of B got another leader"
    ),
    kind="proposal",
    claim_text=(
        "A stop stores the last mirrored epoch: a failback truncates A to its end. The broker of "
        "B that keeps it gives up another partition of __mirror_state and forgets the epochs of "
        "all. The answer to the failback is -1, which it takes for offset 0: A's log, which B has "
        "in full, is truncated below its high watermark and copied again."
    ),
    sources=(
        "docs/findings/cluster-mirroring-promotion-forgotten.md",
        "KIP-1279: last mirrored epochs, LOG_TRUNCATION of a failback",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. three brokers of B, of which broker 1 leads all of __mirror_state; {RECORDS} records "
        f"are mirrored; 2. stop: STOPPED; {OF_B} records are written to B; 3. broker 2 leads a "
        "partition of __mirror_state that keeps no state of the topic; 4. A mirrors B"
    ),
    reproduced="the log of A, from its bytes, is shorter than what was mirrored",
    control_text="the same without step 3: A's log only grows",
    refuted="a log of A that is never shorter",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim=partial(_failed_back, moved=True),
    control=partial(_failed_back, moved=False),
    clients=("java",),
    needs=BUILD,
    apart=True,
)
