"""A->B, A->C: one source, several destinations that must agree with it and so with each other."""

from __future__ import annotations

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build, letters


def fan_out(*, destinations: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B, A->C: several links out of one cluster."""
    source, *names = letters(destinations + 1)
    return build([source, *names], [(source, name) for name in names], brokers=brokers, kafka=kafka)
