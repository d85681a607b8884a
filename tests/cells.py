"""Cells of scenario x clients x security: all combinations, and a selection in which each pair of
values occurs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.topologies.notation import arrows

CLIENTS = ("librdkafka", "java")
SECURITIES = ("", "tls+scram")
BEFORE_KAFKA_20734 = "4.1.2"
"""4.3.1 can lose the marker of a commit that arrives while the only broker restarts, which `relay`
provokes. Such a run is correctly invalid (docs/findings/KAFKA-20734.md). The relays may then wait
for that transaction forever."""


def pairwise(*factors: Sequence[str]) -> list[tuple[str, ...]]:
    """A small selection of combinations in which any two values of two factors occur together
    (pairwise testing). Greedy: it always takes the combination with the most new pairs; of equal
    ones the first."""
    columns = list(itertools.combinations(range(len(factors)), 2))

    def pairs(row: tuple[str, ...]) -> set[tuple[int, int, str, str]]:
        return {(i, j, row[i], row[j]) for i, j in columns}

    rows = list(itertools.product(*factors))
    wanted = set().union(*map(pairs, rows)) if rows else set()
    chosen = []
    while wanted:
        best = max(rows, key=lambda row: len(pairs(row) & wanted))
        chosen.append(best)
        wanted -= pairs(best)
    return chosen


def topology(name: str, security: str) -> str:
    """A scenario's topology with this security on each cluster, on a release without the defect
    that the scenario would meet."""
    own = scenario(name, ScenarioRequest(seed=1)).topology
    clusters = tuple(replace(each, security=security) for each in own.clusters)
    if name == "relay":
        clusters = tuple(replace(each, kafka=BEFORE_KAFKA_20734) for each in clusters)
    return arrows(replace(own, clusters=clusters))
