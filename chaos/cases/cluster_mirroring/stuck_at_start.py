"""KIP-1279 itself: the first mirror of a cluster is started at once, and a partition of it stays in
LOG_TRUNCATION."""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 3
"""Few: with more of them brokers are busy for longer before they ask, and the log is there by
then."""


def _started(bench: Bench, *, to: str) -> Observation:
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


CASE = Case(
    name="KIP-1279-stuck-at-start",
    title=(
        "A build of the KIP-1279 branch leaves a partition in LOG_TRUNCATION when its first mirror "
        "is started at once"
    ),
    kind="proposal",
    claim_text=(
        "The log of the mirrors' states is made with the first mirror. A partition leader that asks"
        " for the state of its partition while the broker that coordinates it does not know that "
        "log yet, or not the topic, is answered NOT_COORDINATOR, and does not ask again: the "
        "partition stays in LOG_TRUNCATION while the others mirror."
    ),
    sources=(
        "docs/findings/cluster-mirroring-stuck-at-start.md",
        "KIP-1279: states of partitions, __mirror_state",
    ),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule=(
        f"1. three brokers of B; a topic of {PARTITIONS} partitions on A; 2. create; 3. start at "
        "once; 4. describe"
    ),
    reproduced="a minute after start was accepted a partition is in LOG_TRUNCATION",
    control_text="the same on C, of one broker, which asks nobody: every partition mirrors",
    refuted="all partitions MIRRORING in every run",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3), ClusterSpec(name="C")),
        links=(LinkSpec(source="A", destination="B"), LinkSpec(source="A", destination="C")),
    ),
    claim=partial(_started, to="B"),
    control=partial(_started, to="C"),
    runs=10,
    clients=("java",),
    needs=BUILD,
    apart=True,
)
