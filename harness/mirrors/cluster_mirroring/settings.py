"""The options of Cluster Mirroring, the topics that it mirrors, and the scenarios that it cannot
play. Pure: no sockets, no processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import KILL
from linkflap.harness.model.option import OptionAbout, checked_options, reason_against
from linkflap.harness.model.scenario import Option, Scenario
from linkflap.harness.model.topology import CANARY, topic_pattern
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import Kafka, look_for

KIND: Final = "cluster-mirroring"
LOADED, AT_ONCE = "loaded", "at-once"
ABOUT: Final[Mapping[str, OptionAbout]] = {
    "groups": OptionAbout(
        takes="a Java regular expression; empty: none",
        default=".*",
        about="consumer groups whose offsets are synced",
    ),
    "first_start": OptionAbout(
        choices=(LOADED, AT_ONCE),
        default=LOADED,
        about=(
            "loaded: the verb start comes once every broker has its replicas of __mirror_state, "
            "and partitions that are stuck then get another leader; at-once: start comes right "
            "after create"
        ),
    ),
}
"""The options, as the command line lists them."""
NO_PROCESS: Final = (
    "the brokers of the destination are the mirror, so it has no process of its own; kill or pause "
    "one of them"
)
NOT_IN: Final[Mapping[str, str]] = {
    "docker": (
        "the build's own Java Admin runs beside linkflap, and brokers' files are read there, "
        "neither of which reaches into containers; leave --runtime out"
    ),
    "attached": "its brokers need a build of KIP-1279 and settings of linkflap's; use --mirror mm2",
}
"""Runtimes in which it cannot be played, and why."""
WITHOUT: Final[Mapping[str, str]] = {KILL: NO_PROCESS}
"""Faults that do not apply to this mirror, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMirroringOptions:
    """A scenario's options of the mirror. `groups` is a Java regular expression; empty: no group
    offsets are synced."""

    groups: str = ".*"
    first_start: str = LOADED


def options(given: Mapping[str, Option]) -> ClusterMirroringOptions:
    """The options of a MirrorSpec. Raises InputError."""
    chosen = checked_options(KIND, given, ABOUT)
    groups = chosen["groups"]
    if not isinstance(groups, str) or "\n" in groups or (groups and reason_against(groups)):
        raise InputError(
            f"option groups of mirror {KIND} is {groups!r}; it must be a Java regular expression "
            "on one line"
        )
    return ClusterMirroringOptions(**chosen)


def patterns(homes: tuple[str, ...]) -> list[str]:
    """The patterns for start and stop, besides the existing topics: all topics of these homes,
    including those created later.

    The canary topic is excluded. Otherwise the reverse mirror would take it over and make it
    read-only where the next mirror has to write to it.
    """
    return [rf"(?!.*\.{CANARY}$){topic_pattern(homes)}"]


def without_feature(cluster: str, asked: str, build: Kafka | None, *, back: str = "") -> str:
    """Why a cluster cannot be a destination; `build`: None for a release; `back`: the fault that
    reverses a mirror onto it, if only that makes it a destination."""
    version = asked if build is None else build.version
    because = f", to which fault {back!r} reverses the mirror," if back else ""
    return (
        f"cluster {cluster}{because} runs Kafka {version}, which "
        f"{cluster_mirroring.lacking(build)} (linkflap docs cluster-mirroring)"
    )


def refusal(scenario: Scenario) -> str | None:
    """Why this mirror cannot play a scenario, in one sentence; None if it can."""
    if secured := [cluster.name for cluster in scenario.topology.clusters if cluster.security]:
        return (
            f"NOT APPLICABLE: mirror {KIND} has no settings for secured clusters, as {secured[0]} "
            "is; leave its braces out"
        )
    for name, back in _destinations(scenario).items():
        asked = scenario.topology.cluster(name).kafka
        build = look_for(asked)
        if build is None or cluster_mirroring.generation(build) is None:
            return without_feature(name, asked, build, back=back)
    return None


def _destinations(scenario: Scenario) -> Mapping[str, str]:
    """All clusters that become destinations: those of links, with "", and those that only a fault
    reverses a mirror onto, with its id."""
    found = dict.fromkeys((link.destination for link in scenario.topology.links), "")
    for fault in scenario.schedule:
        if fault.name.reverses:
            found.setdefault(fault.on.source, fault.id)
    return found
