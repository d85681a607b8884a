"""A<->B: a link in each direction, for disjoint topics; the same topic goes both ways only by
failover and failback."""

from __future__ import annotations

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build


def round_trip(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A<->B: two clusters, a link in each direction."""
    return build(["A", "B"], [("A", "B"), ("B", "A")], brokers=brokers, kafka=kafka)
