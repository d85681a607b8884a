"""A cluster as the target of a fault: whether the topology has it, and its object in the
deployment."""

from __future__ import annotations

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Cluster, World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import Topology


def cluster_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a cluster of the topology; otherwise the reason."""
    if any(cluster.name == target for cluster in topology.clusters):
        return None
    return (
        f"{target!r} is not a cluster; this topology has "
        f"{', '.join(cluster.name for cluster in topology.clusters)}"
    )


def cluster_of(spec: FaultSpec, world: World) -> Cluster:
    """The target cluster. Raises InputError if the deployment has no cluster of that name."""
    clusters = world.deployment.clusters
    if spec.target not in clusters:
        raise InputError(
            f"fault {spec.id!r} targets {spec.target!r}, but the clusters are {', '.join(clusters)}"
        )
    return clusters[spec.target]
