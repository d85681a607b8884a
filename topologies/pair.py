"""A->B: one cluster, and the one that takes over from it."""

from __future__ import annotations

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build


def pair(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B: two clusters, one link."""
    return build(["A", "B"], [("A", "B")], brokers=brokers, kafka=kafka)
