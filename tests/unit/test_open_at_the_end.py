"""Which clusters have transactions that nobody can end any more when a run ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.model.topology import LinkSpec
from linkflap.recording.drain import orphaned
from linkflap.recording.world import RunWorld


def world(*links: str, dead: str) -> RunWorld:
    """Mirrors over these links, each into a running cluster."""
    mirrors = [
        SimpleNamespace(link=LinkSpec(source=link[0], destination=link[1])) for link in links
    ]
    able = [mirror for mirror in mirrors if mirror.link.source not in dead]
    return cast(RunWorld, SimpleNamespace(running_mirrors=mirrors, able_mirrors=able))


@pytest.mark.parametrize(
    ("links", "dead", "found"),
    [
        (["AB"], "A", "B"),
        (["AB", "BC", "CD"], "A", "BCD"),
        (["AB", "BC", "CD"], "B", "CD"),
        (["AB", "BC", "CD"], "", ""),
        (["AC", "BC", "CD"], "A", "CD"),
        (["AB", "AC"], "A", "BC"),
        (["BC"], "A", ""),
        (["AB", "BA"], "", ""),
        (["AB", "BC", "CA"], "A", "BC"),
    ],
    ids=["pair", "chain", "its middle", "healthy", "fan-in", "fan-out", "stopped", "both", "ring"],
)
def test_clusters_behind_a_dead_one_are_orphaned(links: list[str], dead: str, found: str) -> None:
    seen = world(*links, dead=dead)
    assert "".join(name for name in "ABCD" if name not in dead and orphaned(seen, name)) == found
