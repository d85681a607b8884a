"""The clusters that cases are played on."""

from __future__ import annotations

from typing import Final

from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology


def one(config: dict[str, str] | None = None) -> Topology:
    """One broker, with these settings."""
    return Topology(clusters=(ClusterSpec(name="A", config=config or {}),), links=())


def nodes(count: int, config: dict[str, str] | None = None) -> Topology:
    """One cluster of so many nodes, each broker and controller."""
    return Topology(clusters=(ClusterSpec(name="A", brokers=count, config=config or {}),), links=())


ONE: Final = one()
THREE: Final = nodes(3)
PAIR: Final = Topology(
    clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")),
    links=(LinkSpec(source="A", destination="B"),),
)
