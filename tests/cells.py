"""Cells of scenario x clients x security: all of them, and a choice in which each pair of values
occurs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from linkflap.chaos.scenarios import Wish, scenario
from linkflap.topologies.arrows import arrows

CLIENTS = ("librdkafka", "java")
SECURITIES = ("", "tls+scram")
BEFORE_KAFKA_20734 = "4.1.2"
"""4.3.1 can lose the marker of a commit that arrives while the only broker restarts, which is what
`relay` does: such a run is invalid, and rightly so (docs/findings/KAFKA-20734.md). The relays may
then wait behind that transaction for ever."""


def pairwise(*factors: Sequence[str]) -> list[tuple[str, ...]]:
    """Few of the combinations of one value of each factor, so that any two values of two factors
    are together in one of them.

    Greedy: always the combination with most pairs that no other had yet, of equal ones the first.
    """
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
    """A scenario's own topology, each cluster of it secured so, of a release without the defect
    that the scenario would meet."""
    own = scenario(name, Wish(seed=1)).topology
    clusters = tuple(replace(each, security=security) for each in own.clusters)
    if name == "relay":
        clusters = tuple(replace(each, kafka=BEFORE_KAFKA_20734) for each in clusters)
    return arrows(replace(own, clusters=clusters))
