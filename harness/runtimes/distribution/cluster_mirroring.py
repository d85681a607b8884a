"""Cluster Mirroring (KIP-1279) in a build of Kafka: whether its jars have it, and the names that
this build uses.

No release has it. Builds of its branch differ in names, so a table has one entry for each
generation of the branch. Only the classes in the build's own kafka-clients jar, and their methods,
decide which entry applies.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from linkflap.harness.runtimes.distribution.kafka import CLIENTS_JAR, Kafka

_ADMIN: Final = "org/apache/kafka/clients/admin/"
_FEATURE: Final = "ClusterMirror"
"""A part of the names of the feature's classes, in every generation so far."""
UNSTABLE: Final[Mapping[str, str]] = {
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
}
"""Settings that every node needs before it formats or starts, as long as no release has the feature
(KIP-1279, mirror.version)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of the feature. `mark` is a class, or a method (Class.method), that its Admin
    has and earlier generations lack. `broker` and `mirror` map linkflap's names of broker and
    mirror settings to the generation's own. `aligning` is the state in which a destination
    truncates. `asks_for_states`: describe answers states and offsets only where its options ask
    for them, as leaderStates(); and topics of verbs are lists."""

    name: str
    mark: str
    broker: Mapping[str, str]
    mirror: Mapping[str, str]
    aligning: str
    asks_for_states: bool = False


_BROKER: Final = {
    "state-partitions": "mirror.state.topic.num.partitions",
    "state-replicas": "mirror.state.topic.replication.factor",
    "refresh": "mirror.metadata.refresh.interval.ms",
    "most-backoff": "mirror.failed.retry.max.backoff.ms",
}
GENERATIONS: Final[Sequence[Generation]] = (
    Generation(
        name="prefixed keys",
        mark="StartMirrorTopicsOptions",
        broker=_BROKER,
        mirror={"bootstrap": "bootstrap.servers", "groups": "mirror.groups.include"},
        aligning="LOG_TRUNCATION",
    ),
    Generation(
        name="recovery",
        mark="RecoverMirrorTopicsOptions",
        broker=_BROKER,
        mirror={"bootstrap": "bootstrap.servers", "groups": "groups.include"},
        aligning="LOG_ALIGNMENT",
    ),
    Generation(
        name="leader states",
        mark="DescribeClusterMirrorsOptions.includeMirrorState",
        broker=_BROKER,
        mirror={"bootstrap": "bootstrap.servers", "groups": "groups.include"},
        aligning="LOG_ALIGNMENT",
        asks_for_states=True,
    ),
)
"""Oldest first."""


def generation(kafka: Kafka) -> Generation | None:
    """The generation of Cluster Mirroring in a Kafka; None without the feature, and for generations
    that the table lacks."""
    found = _of_admin(kafka)
    return next((each for each in reversed(GENERATIONS) if each.mark in found), None)


def lacking(kafka: Kafka | None) -> str:
    """Why a Kafka has no known generation, in words: it has no Cluster Mirroring, like every
    release (None), or a generation that the table lacks."""
    if kafka is None or not any(_FEATURE in name for name in _of_admin(kafka)):
        return (
            "has no Cluster Mirroring; name the jars of a build that has it: --topology "
            "'A@DIRECTORY->B@DIRECTORY', in a suite or a case --kafka DIRECTORY"
        )
    marks = ", ".join(each.mark for each in GENERATIONS)
    return (
        f"has Cluster Mirroring of a generation that linkflap does not know: of {marks} its Admin "
        "has none; the table in harness/runtimes/distribution/cluster_mirroring.py needs an entry "
        "for it"
    )


@lru_cache
def _of_admin(kafka: Kafka) -> frozenset[str]:
    """The classes of the Admin in a kafka-clients jar, and those marks that are methods."""
    clients = [jar for jar in kafka.jars if CLIENTS_JAR.fullmatch(jar.name)]
    if not clients:
        return frozenset()
    try:
        with zipfile.ZipFile(clients[0]) as jar:
            found = {Path(name).stem for name in jar.namelist() if name.startswith(_ADMIN)}
            methods = [each.mark.split(".") for each in GENERATIONS if "." in each.mark]
            return frozenset(found).union(
                f"{name}.{method}"
                for name, method in methods
                if name in found and _constant(method) in jar.read(f"{_ADMIN}{name}.class")
            )
    except (OSError, zipfile.BadZipFile):
        return frozenset()  # inside an image, or damaged: its start reports that


def _constant(text: str) -> bytes:
    """A name as it stands in a class file (Java Virtual Machine Specification, 4.4.7)."""
    return b"\x01" + len(text).to_bytes(2, "big") + text.encode()


def authorizer_settings(found: Generation | None) -> dict[str, str]:
    """Settings of an authorizer for brokers of such a build with anonymous clients: ACLs are kept
    and mirrored, but no request is denied."""
    if found is None:
        return {}
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def broker_settings(found: Generation | None, nodes: int) -> dict[str, str]:
    """Settings of brokers and controllers of such a build, for small clusters whose faults show
    within seconds."""
    if found is None:
        return {}
    values = {
        "state-partitions": "5",
        "state-replicas": str(min(3, nodes)),
        "refresh": "2000",
        "most-backoff": "5000",
    }
    return {**UNSTABLE, **{found.broker[name]: value for name, value in values.items()}}
