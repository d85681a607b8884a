"""The state after failovers and failbacks of a shadow: logs, leaders and truncations on both
sides."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka.admin import AdminClient

from linkflap.harness.model.protocols import Cluster, Deployment, Mirror
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition, quiet
from tests.events import Rows as Events
from tests.shadows import SAME, TOPIC, TOPIC_PARTITIONS, Writer, drained, ends, headers


def same_everywhere(deployment: Deployment) -> None:
    """Waits until every live replica of every cluster has the same bytes, except for leader epochs:
    a commit returns before its markers are written."""

    def differing() -> dict[Partition, dict[tuple[str, int], list[Any]]]:
        each = {tp: _bytes(deployment, tp) for tp in TOPIC_PARTITIONS}
        return {tp: logs for tp, logs in each.items() if not _same(*logs.values())}

    until(
        lambda: not differing(),
        within=30,
        every=0.1,
        what="all replicas to be the same",
        state=lambda: {
            tp: {where: log[0][-3:] for where, log in logs.items()}
            for tp, logs in differing().items()
        },
    )


def _bytes(deployment: Deployment, tp: Partition) -> dict[tuple[str, int], list[Any]]:
    return {
        (cluster.name, broker.id): [headers(broker, tp)[key] for key in SAME]
        for cluster in deployment.clusters.values()
        for broker in cluster.brokers.values()
        if broker.state == "running"
    }


def _same(first: list[Any], *others: list[Any]) -> bool:
    return bool(first[0]) and all(log == first for log in others)


def led_by_its_own(cluster: Cluster, *, replicas: int = 1) -> None:
    """Only real brokers lead and replicate every partition, and all are in sync."""
    admin = AdminClient(quiet(cluster.bootstrap))

    def whole() -> bool:
        partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return all(
            p.leader >= 0 and len(p.isrs) == replicas == len(p.replicas) and max(p.replicas) < 1000
            for p in partitions
        )

    until(whole, within=60, every=0.2, what=f"{cluster.name} to be its own")


def truncations(events: Events, link: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The truncations of the last takeover over a link: (topic, partition) -> (offset, end
    before)."""
    return cast(
        dict[tuple[str, int], tuple[int, int]],
        {
            (d["topic"], d["partition"]): (d["offset"], d["end"])
            for kind, at, d in events
            if (kind, at) == ("truncation", link)
        },
    )


def away(deployment: Deployment, mirror: Mirror, *, dead: bool = True, first: int = 0) -> Any:
    """A forced failover over a mirror's link, whose source then has a tail. Returns the end of that
    source's log. Clients have continued on the destination when this returns. Broker `first` dies
    before the others."""
    here, there = (
        deployment.clusters[mirror.link.source],
        deployment.clusters[mirror.link.destination],
    )
    drained(mirror)
    deployment.links[mirror.link.name].cut()
    writer = Writer(here.bootstrap)
    writer.write(2)
    tail = ends(here.bootstrap)
    if first:
        here.brokers[first].kill()
        until(
            lambda: not _in_sync(here, first),
            within=120,
            every=0.2,
            what=f"broker {first} to be out of every ISR",
        )
    if dead:
        side_by_side(broker.kill for broker in here.brokers.values())
    mirror.stop()
    deployment.links[mirror.link.name].restore()
    Writer(there.bootstrap).write(5)
    return tail


def _in_sync(cluster: Cluster, broker: int) -> bool:
    partitions = (
        AdminClient(quiet(cluster.bootstrap))
        .list_topics(TOPIC, timeout=60)
        .topics[TOPIC]
        .partitions.values()
    )
    return any(broker in p.isrs for p in partitions)


def revived(cluster: Cluster, *, without: tuple[int, ...] = ()) -> None:
    side_by_side(
        b.start for b in cluster.brokers.values() if b.state == "stopped" and b.id not in without
    )
    ends(cluster.bootstrap)
