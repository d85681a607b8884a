"""Where checks that compare by offset have something to examine: at the destinations of links that
mirror the topic."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.view import Origin


def offsets_due(
    scenario: Scenario, promotions: Sequence[Promotion]
) -> Collection[tuple[str, Origin]]:
    """The destination of every link that topics cross, if the mirror keeps offsets."""
    if not scenario.mirror.guarantee.offsets_kept:
        return ()
    return {
        (link.destination, "mirrored")
        for link in scenario.topology.links
        if _written(scenario, link.source)
    }


def _written(scenario: Scenario, cluster: str) -> bool:
    """Whether topics cross a link from here: workloads at home on the cluster, or upstream of
    it."""
    homes = {workload.home for workload in scenario.workloads}
    return any(
        homes & set(scenario.topology.homes_over(link))
        for link in scenario.topology.links
        if link.source == cluster
    )
