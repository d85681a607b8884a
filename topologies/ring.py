"""A->B->C->A: every cluster's topics go round and stop before they come home, so that no record
meets itself."""

from __future__ import annotations

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build, letters


def ring(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C->A: a row of clusters whose last is linked to the first."""
    names = letters(clusters)
    return build(
        names, zip(names, names[1:] + names[:1], strict=True), brokers=brokers, kafka=kafka
    )
