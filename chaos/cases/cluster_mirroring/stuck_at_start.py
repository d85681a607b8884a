"""KIP-1279 itself: the first mirror of a cluster is started at once, and a partition of it stays in
LOG_TRUNCATION."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 3
"""Few: with more of them brokers are busy for longer before they ask, and the log is there by
then."""


@case(
    "KIP-1279-stuck-at-start",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3), ClusterSpec(name="C")),
        links=(LinkSpec(source="A", destination="B"), LinkSpec(source="A", destination="C")),
    ),
    claim={"to": "B"},
    control={"to": "C"},
)
def stuck_at_start(bench: Bench, *, to: str) -> Observation:
    """KIP-1279 itself: the first mirror of a cluster is started at once, and a partition of it
    stays in LOG_TRUNCATION."""
    topic = bench.topic(partitions=PARTITIONS)
    with branch_mirror(bench, topic, to) as mirror:
        mirror.create()
        mirror.started()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: mirror.states() == {MIRRORING: PARTITIONS},
                within=WITHIN,
                what=f"{topic} to mirror",
                every=0.5,
            )
        rows = mirror.rows()
    stuck = sorted(row.partition for row in rows if row.state == mirror.aligning)
    return Observation(
        shown=bool(stuck),
        facts={"states_after_a_minute": dict(Counter(row.state for row in rows)), "stuck": stuck},
    )
