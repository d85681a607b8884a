"""A->B->C: what reaches C went through B, so that B's failover is seen from C."""

from __future__ import annotations

from itertools import pairwise

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build, letters


def chain(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C: a row of clusters, each linked to the next."""
    names = letters(clusters)
    return build(names, pairwise(names), brokers=brokers, kafka=kafka)
