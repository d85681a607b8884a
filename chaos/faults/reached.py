"""The clusters that a cluster's topics reach. Faults that change a topic wait until all of them
have the change."""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.harness.model.protocols import World


def reached(home: str, world: World) -> Sequence[str]:
    """The home, and all clusters that running mirrors reach from it."""
    found = [home]
    for cluster in found:
        found += [
            mirror.link.destination
            for mirror in world.mirrors.values()
            if mirror.alive
            and mirror.link.source == cluster
            and mirror.link.destination not in found
        ]
    return found
