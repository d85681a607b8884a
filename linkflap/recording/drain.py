"""Drains a run before its logs are captured: mirrors catch up, open transactions end, and readers
read to the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

from confluent_kafka.admin import AdminClient

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, quiet
from linkflap.recording.world import RunWorld

SETTLE = 60.0
"""Seconds that readers may take to reach the end once producers have stopped, and mirrors since
they last came closer to it."""
ORPHANED = 5.0
"""Seconds that open transactions may take to end on a cluster that is still mirrored to from a dead
one, or by a dead mirror, also over others."""


def drain(
    world: RunWorld,
    topics: Mapping[str, int],
    watch: Callable[[], bool],
    *,
    died: Collection[str],
) -> None:
    """Waits for mirrors that can catch up, then for readers. Polls `watch`, which returns False.
    `died` are the links whose mirrors died by themselves.

    A deadline that passes here is not an error: the verdict reports what was not read or mirrored.
    """
    lags: list[int | None] = []

    def caught_up() -> bool:
        nonlocal lags
        lags = [mirror.lag() for mirror in world.able_mirrors]
        return watch() or all(lag == 0 for lag in lags)

    with contextlib.suppress(DeadlineExceeded):
        until(
            caught_up,
            within=SETTLE,
            what="mirrors to catch up",
            every=0.1,
            left=lambda: sum(lag or 0 for lag in lags) if None not in lags else None,
        )
    topology = world.deployment.topology
    with contextlib.suppress(DeadlineExceeded):
        world.clients.drain(
            {
                name: stable_ends(
                    world.deployment.clusters[name],
                    {t: n for t, n in topics.items() if arrives(topology, t, name)},
                    within=ORPHANED if orphaned(world, name, died) else SETTLE,
                )
                for name in world.running_clusters
            },
            within=SETTLE,
        )


def arrives(topology: Topology, topic: str, cluster: str) -> bool:
    """Whether a topic is on a cluster: it is at home there, or a link carries it there."""
    into = [link for link in topology.links if link.destination == cluster]
    return any(
        is_data_topic(topic, homes) for homes in [(cluster,), *map(topology.homes_over, into)]
    )


def orphaned(world: RunWorld, cluster: str, died: Collection[str]) -> bool:
    """Whether a mirror into this cluster died or has lost its source, or one into that source did:
    then nothing ends the transactions that were open."""
    dead = [world.mirrors[link] for link in died if not world.mirrors[link].alive]
    able, upstream, into = world.able_mirrors, {cluster}, [*world.running_mirrors, *dead]
    for _ in into:  # a cluster farther back in each round
        behind = [mirror for mirror in into if mirror.link.destination in upstream]
        if any(mirror not in able for mirror in behind):
            return True
        upstream |= {mirror.link.source for mirror in behind}
    return False


def stable_ends(
    cluster: Cluster, topics: Mapping[str, int], *, within: float = SETTLE
) -> dict[tuple[str, int], int]:
    """The high watermarks of a cluster's partitions, once no transaction is open below them.

    When that does not come true in time: the last stable offsets, of the partitions whose leaders
    answer.
    """
    admin = AdminClient(quiet(cluster.bootstrap))
    partitions = [
        (topic, partition) for topic, count in topics.items() for partition in range(count)
    ]

    def settled() -> dict[tuple[str, int], int] | None:
        stable = answered_bounds(admin, partitions, "stable", within=5.0)
        high = answered_bounds(admin, partitions, "high", within=5.0)
        return high if stable == high and len(high) == len(partitions) else None

    if not partitions:
        return {}
    try:
        return until(
            settled, within=within, every=0.1, what=f"open transactions on {cluster.name} to end"
        )
    except DeadlineExceeded:
        return answered_bounds(admin, partitions, "stable", within=5.0)
