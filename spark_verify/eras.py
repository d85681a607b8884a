"""The eras that promotions cut a log into, and which fault windows concern which place.

An era is a stretch of one partition's log on one cluster in which offsets have one meaning. MirrorMaker 2 never truncates, so
promotions are the only cuts: below the promotion offset the log is mirrored, from it on it is the cluster's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_verify.view import Origin, PartitionView, Window

FOREVER = 2**62
"""The end of the last era of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Offsets [start, end) of one partition on one cluster."""

    cluster: str
    origin: Origin
    start: int
    end: int


def eras(view: PartitionView, cluster: str) -> Sequence[Era]:
    """The eras of this partition on a cluster, in offset order, without gaps."""
    if cluster == home(view.topic):
        return (Era(cluster=cluster, origin="native", start=0, end=FOREVER),)
    cut = promoted_at(view, cluster)
    if cut is None:
        return (Era(cluster=cluster, origin="mirrored", start=0, end=FOREVER),)
    return (
        Era(cluster=cluster, origin="mirrored", start=0, end=cut),
        Era(cluster=cluster, origin="native", start=cut, end=FOREVER),
    )


def home(topic: str) -> str:
    """The cluster whose clients wrote this topic first: its name's first part (`harness.model.topology.topic_name`)."""
    return topic.partition(".")[0]


def promoted_at(view: PartitionView, cluster: str) -> int | None:
    """The first offset that is the cluster's own, or None where it was never promoted."""
    return min((p.offset for p in view.promotions if p.cluster == cluster), default=None)


def lost_at(view: PartitionView, cluster: str) -> int | None:
    """When a forced failover gave this cluster up, or None. Its last moments are cut off, which is not its fault."""
    return min((p.fault_time for p in view.promotions if p.source == cluster and p.kind == "forced"), default=None)


def touches(window: Window, link: str) -> bool:
    """Whether a fault is on this link, on its mirror, or on a broker of either of its ends."""
    source, _, destination = link.partition("->")
    place = window.target.partition("/")[0]
    return window.target == link or place in (source, destination)


def on_cluster(windows_: Sequence[Window], cluster: str) -> Iterator[Window]:
    """The windows of faults on brokers of a cluster."""
    return (w for w in windows_ if w.target.partition("/")[0] == cluster)
