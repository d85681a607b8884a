"""KIP-1279 itself: a build of its branch refuses a failover while the source is dead."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.scenario_files import NONE, judged

STALLED = 'options = { source = "stalled" }'


def _judged(bench: Bench, *, dead: bool) -> Observation:
    found = judged(bench, "dead-source.toml", {STALLED: ""} if dead else {STALLED: STALLED})
    return Observation(shown="failover/failover-refused" in found.kinds, facts=found.facts)


CASE = Case(
    name="KIP-1279-dead-source",
    title=(
        "A build of the KIP-1279 branch refuses to promote the destination while the source is dead"
    ),
    kind="proposal",
    claim_text=(
        "When every broker of the source is dead, its partitions become FAILED, and stop is "
        "refused with INVALID_CLUSTER_MIRROR_STATES as long as the source is dead. The failover "
        "that a mirror exists for is not possible."
    ),
    sources=(
        "docs/findings/cluster-mirroring-failover-refused.md",
        "branch of KIP-1279, validateLocalPartitions",
    ),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule=(
        "1. clients write through the mirror; 2. kill -9 of A with open transactions; 3. stop on "
        "B; 4. the run is judged"
    ),
    reproduced="check failover finds failover-refused",
    control_text=(
        "A is suspended (SIGSTOP) when stop is requested, and killed afterwards: the destination "
        "is promoted"
    ),
    refuted="a promotion after the death of the source",
    topology=NONE,
    claim=partial(_judged, dead=True),
    control=partial(_judged, dead=False),
    runs=1,
    needs="a build of the KIP-1279 branch (--kafka DIRECTORY)",
    apart=True,
)
