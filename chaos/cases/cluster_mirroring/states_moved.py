"""KIP-1279 itself: the log of the mirrors' states gets other leaders, and the destination is
truncated to offset 0."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools import wire
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

RECORDS: Final = 200
PARTITIONS: Final = 3
WATCHED: Final = 10.0
"""Seconds for which the logs of B's leaders are watched: brokers look after theirs every two."""


@case(
    "KIP-1279-states-moved",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim={"move": True},
    control={"move": False},
)
def states_moved(bench: Bench, *, move: bool) -> Observation:
    """A, the link and the leaders of the mirrored partitions are untouched."""
    topic = bench.topic(partitions=PARTITIONS)
    for number in range(PARTITIONS):
        bench.write(topic, [b"%d" % n for n in range(RECORDS)], number)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        for number in range(PARTITIONS):
            until(
                partial(_has_all, bench, topic, number),
                within=WITHIN,
                what="B to have all",
                every=0.2,
            )
        shortest = dict.fromkeys(range(PARTITIONS), RECORDS)

        def truncated() -> bool:
            leaders = wire.answered(bench.bootstrap("B").split(",")[0], topic)
            for number, one in leaders.items():
                log = bench.log(topic, number, broker=one.leader, cluster="B")
                end = max((batch.last_offset + 1 for batch in log), default=0)
                shortest[number] = min(shortest[number], end)
            return min(shortest.values()) < RECORDS

        if move:
            _moved(bench)
        with contextlib.suppress(DeadlineExceeded):
            until(truncated, within=WATCHED, what="a leader's log to be shorter", every=0.02)
        facts = {
            "mirrored": RECORDS,
            "shortest_logs_of_leaders": {str(number): end for number, end in shortest.items()},
            "states_at_the_end": dict(mirror.states()),
        }
    return Observation(shown=min(shortest.values()) < RECORDS, facts=facts)


def _has_all(bench: Bench, topic: str, number: int) -> bool:
    return bench.bound("high", topic, number, "B") == RECORDS


def _moved(bench: Bench) -> None:
    """Every partition of the log of states is led by the next broker."""
    asked = bench.ask(bench.up("B"))
    for number, now in sorted(asked.leadership(STATES).items()):
        bench.lead(STATES, number, bench.broker(1 + now.leader % 3, "B"), "B")
