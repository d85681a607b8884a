"""The named topologies and their registry: one function and one line for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from string import ascii_uppercase
from typing import Final, Protocol

from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology
from linkflap.topologies.legal import check


def letters(count: int) -> list[str]:
    """A, B, C, …; at most 26, far above what is legal."""
    return list(ascii_uppercase[:count])


def build(
    names: Sequence[str], links: Iterable[tuple[str, str]], *, brokers: int, kafka: str
) -> Topology:
    """A legal topology; InputError otherwise."""
    return check(
        Topology(
            clusters=tuple(ClusterSpec(name=name, brokers=brokers, kafka=kafka) for name in names),
            links=tuple(
                LinkSpec(source=source, destination=destination) for source, destination in links
            ),
        )
    )


def pair(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B: two clusters, one link."""
    return build(["A", "B"], [("A", "B")], brokers=brokers, kafka=kafka)


def chain(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C: a row of clusters, each linked to the next."""
    names = letters(clusters)
    return build(names, pairwise(names), brokers=brokers, kafka=kafka)


def round_trip(*, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A<->B: two clusters, a link in each direction."""
    return build(["A", "B"], [("A", "B"), ("B", "A")], brokers=brokers, kafka=kafka)


def fan_in(*, sources: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->C, B->C: several links into one cluster."""
    *names, destination = letters(sources + 1)
    return build(
        [*names[:1], destination, *names[1:]],
        [(name, destination) for name in names],
        brokers=brokers,
        kafka=kafka,
    )


def fan_out(*, destinations: int = 2, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B, A->C: several links out of one cluster."""
    source, *names = letters(destinations + 1)
    return build([source, *names], [(source, name) for name in names], brokers=brokers, kafka=kafka)


def ring(*, clusters: int = 3, brokers: int = 1, kafka: str = DEFAULT_KAFKA) -> Topology:
    """A->B->C->A: a row of clusters whose last is linked to the first."""
    names = letters(clusters)
    return build(
        names, zip(names, names[1:] + names[:1], strict=True), brokers=brokers, kafka=kafka
    )


class Build(Protocol):
    """Makes a topology whose clusters all have these brokers and this Kafka."""

    def __call__(self, *, brokers: int = ..., kafka: str = ...) -> Topology: ...


TOPOLOGIES: Final[Mapping[str, Build]] = {
    "chain": chain,
    "fan_in": fan_in,
    "fan_out": fan_out,
    "pair": pair,
    "ring": ring,
    "round_trip": round_trip,
}
