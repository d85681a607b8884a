"""Writes a topology as arrows, in the notation that `topologies.notation` reads."""

from __future__ import annotations

import re
from typing import Final

from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology

_NEEDS_QUOTES: Final = re.compile(r'[\s:,;"{}]|->')


def arrows(topology: Topology) -> str:
    """Writes the notation: `parse(arrows(t)) == t` for every t that parse can return.

    A topology built by hand whose clusters are not in the order in which its links name them comes
    back in that order.
    """
    written: set[str] = set()
    pieces: list[str] = []
    links, end, index = topology.links, "", 0
    while index < len(links):
        link = links[index]
        back = index + 1 < len(links) and links[index + 1] == LinkSpec(
            source=link.destination, destination=link.source
        )
        if link.source != end:
            pieces.append(", " if pieces else "")
            pieces.append(_write(topology.cluster(link.source), written))
        pieces.append("<->" if back else "->")
        pieces.append(_write(topology.cluster(link.destination), written))
        end, index = link.destination, index + 1 + back
    return "".join(pieces)


def _write(cluster: ClusterSpec, written: set[str]) -> str:
    if cluster.name in written:
        return cluster.name
    written.add(cluster.name)
    kafka = cluster.kafka
    if _NEEDS_QUOTES.search(kafka) or kafka.endswith(("-", "<")):
        kafka = '"' + kafka.replace('"', '""') + '"'
    version = f"@{kafka}" if cluster.kafka != DEFAULT_KAFKA else ""
    brokers = f":{cluster.brokers}" if cluster.brokers != 1 else ""
    return (
        cluster.name + version + brokers + (f"{{{cluster.security}}}" if cluster.security else "")
    )
