"""The possible targets of a fault at the end of a draft: links, brokers, clusters or clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from linkflap.chaos.faults import FAULTS, OF_CERTIFICATES, OF_CLIENTS
from linkflap.chaos.faults.clusters import older
from linkflap.chaos.generator.draft import Draft
from linkflap.harness.model.faults import KILL, UNCLEAN, FaultName, Target
from linkflap.harness.model.topology import DEFAULT_KAFKA, LinkSpec

UPGRADE: Final = "rolling-upgrade"


DELETED: Final = "records-deleted"


RECREATED: Final = "topic-recreated"


OF_BROKERS: Final = frozenset(
    {
        "broker-kill",
        "broker-pause",
        "broker-restart",
        "coordinator-loss",
        "controller-loss",
        "leadership-move",
        "rolling-restart",
    }
    | {UPGRADE, UNCLEAN, "clock-skew", "broker-disk-slow", "mirror-coordinator-loss"}
)
"""Faults of the brokers of one cluster. On the same cluster, two of them never overlap."""


RESTARTED: Final = frozenset({"broker-restart", "clock-skew", "broker-disk-slow"})
"""Faults that shut one broker down cleanly."""


_TAKEN_OVER: Final = RESTARTED | {
    "coordinator-loss",
    "controller-loss",
    "mirror-coordinator-loss",
    "rolling-restart",
    UPGRADE,
}
"""Faults that test how the other brokers of a cluster take over."""


RULED: Final = frozenset({"mirror-source-moved", "mirror-verbs"})
"""Admin requests to a mirror that runs inside the brokers (Cluster Mirroring)."""


def targets(fault: str, draft: Draft) -> list[str]:
    """The possible targets of a fault: running brokers, links into them, existing mirrors, clusters
    with clients."""
    return [
        target
        for target in _candidates(fault, draft)
        if FAULTS[fault].applies_to(target, draft.topology) is None
    ]


def _is_of_brokers(fault: str) -> bool:
    return fault in OF_BROKERS or fault.startswith("broker-") or fault == "partition"


def _candidates(fault: str, draft: Draft) -> Sequence[str]:
    """The existing objects of the kind that a fault targets."""
    if FaultName(fault).of_link or fault in (*OF_CERTIFICATES, KILL, *RULED):
        return _of_links(fault, draft)
    if fault in OF_CLIENTS:
        return written_clusters(draft)
    if fault in ("partitions-added", DELETED, RECREATED):
        # After a failover, the home's own partitions are judged up to the failover and must not
        # change any more.
        return sorted(home for home, at in draft.at.items() if home == at)
    if _is_of_brokers(fault):
        return _of_brokers(fault, draft)
    return [*sorted(draft.up), *brokers_of_at_least(draft, least=1), *sorted(draft.mirrored)]


def _of_links(fault: str, draft: Draft) -> Sequence[str]:
    """Links with a mirror and a running source. Faults of the mirror itself need a running
    destination too."""
    links = [LinkSpec.parse(link) for link in sorted(draft.mirrored)]
    if fault == KILL or fault in RULED:
        links = [link for link in links if set(link.ends) <= draft.up]
    if fault in RULED:
        written = written_or_mirrored(draft)
        links = [link for link in links if link.source in written]
    return [link.name for link in links if link.source in draft.up]


def _of_brokers(fault: str, draft: Draft) -> Sequence[str]:
    """Brokers; or clusters, if the fault chooses the broker itself."""
    if fault == UNCLEAN:
        return _at_home_of_three(draft)
    if fault == "leadership-move":
        # On other clusters, mirrors lead the partitions or nobody writes.
        return [
            name for name in written_clusters(draft) if draft.topology.cluster(name).brokers > 1
        ]
    if fault in _TAKEN_OVER:
        # The only broker of a cluster can lose a commit when it shuts down (docs/scenarios.md), and
        # no other broker can take over.
        spared = brokers_of_at_least(draft, least=3)
        clusters = sorted({Target.parse(broker).cluster for broker in spared})
        if fault == "mirror-coordinator-loss":
            return sorted(
                {LinkSpec.parse(link).destination for link in draft.mirrored} & set(clusters)
            )
        if fault == UPGRADE:
            return [
                name
                for name in clusters
                if older(draft.topology.cluster(name).kafka, DEFAULT_KAFKA)
            ]
        return spared if fault in RESTARTED else clusters
    return brokers_of_at_least(draft, least=1)


def _at_home_of_three(draft: Draft) -> list[str]:
    """Clusters of at least three brokers whose clients are at home. On other clusters, mirrors lead
    the partitions."""
    return sorted(
        home
        for home, at in draft.at.items()
        if home == at and draft.topology.cluster(home).brokers > 2
    )


def written_clusters(draft: Draft) -> list[str]:
    """Running clusters that have clients now."""
    return sorted(set(draft.at.values()) & draft.up)


def brokers_of_at_least(draft: Draft, *, least: int) -> list[str]:
    """The brokers (`A/1`) of running clusters with at least `least` brokers."""
    counts = {name: draft.topology.cluster(name).brokers for name in sorted(draft.up)}
    return [
        f"{name}/{n}"
        for name, count in counts.items()
        if count >= least
        for n in range(1, count + 1)
    ]


def written_or_mirrored(draft: Draft) -> set[str]:
    """The clusters that receive records, from clients or through mirrors. Nothing passes over a
    link that leaves any other cluster."""
    found, links = set(draft.at.values()), [LinkSpec.parse(link) for link in sorted(draft.mirrored)]
    for _ in links:
        found |= {link.destination for link in links if link.source in found}
    return found
