"""A->C, B->C: several sources, each with its own topics, into one destination (the last letter)."""

from __future__ import annotations

from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.build import build, letters


def fan_in(*, sources: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->C, B->C: several links into one cluster."""
    *names, destination = letters(sources + 1)
    return build(
        [*names[:1], destination, *names[1:]],
        [(name, destination) for name in names],
        brokers=brokers,
        kafka=kafka,
    )
