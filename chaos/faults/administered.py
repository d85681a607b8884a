"""Mirrors that run inside the destination's brokers (KIP-1279): code of the faults that send admin
requests to them."""

from __future__ import annotations

from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Administered, World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import Topology


def link_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a link of the topology, or the reverse of one."""
    links = [link.name for link in topology.links]
    if target in links or Target.parse(target).back in links:
        return None
    return (
        f"{target!r} has no mirror; mirrors run on {', '.join(links) or 'no link'}, and back once "
        "they are reversed"
    )


def mirror_of(spec: FaultSpec, world: World) -> Administered:
    """The mirror of the target link. Raises InputError."""
    if spec.target not in world.mirrors:
        known = ", ".join(sorted(world.mirrors)) or "none"
        raise InputError(
            f"fault {spec.id!r} targets the mirror {spec.target!r}, but the mirrors are {known}"
        )
    mirror = world.mirrors[spec.target]
    if not isinstance(mirror, Administered):
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) asks a mirror for what {mirror.spec.kind} has not; "
            "use cluster-mirroring"
        )
    return mirror


def mirror_to(cluster: str, world: World) -> Administered:
    """A running mirror into a cluster. Raises FaultError if there is none."""
    for mirror in world.mirrors.values():
        if mirror.alive and mirror.link.destination == cluster and isinstance(mirror, Administered):
            return mirror
    raise FaultError(
        f"no mirror that brokers are leads to cluster {cluster} by now, so none of them "
        "coordinates one"
    )
