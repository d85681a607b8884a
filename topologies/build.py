"""Builds topologies from names and pairs of names, for the named topologies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_uppercase

from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
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
