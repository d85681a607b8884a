"""Cluster Mirroring (KIP-1279) in a build of Kafka: whether its jars have it, and the names that
this build uses.

No release has it. Builds of its branch differ in names, so a table has one entry for each
generation of the branch. Only the classes in the build's own kafka-clients jar decide which entry
applies.
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
    """One generation of the feature. `mark` is a class that it has and earlier generations lack.
    `broker` and `mirror` map linkflap's names of broker and mirror settings to the generation's
    own. `aligning` is the state in which a destination truncates."""

    name: str
    mark: str
    broker: Mapping[str, str]
    mirror: Mapping[str, str]
    aligning: str


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
)
"""Oldest first."""


def generation(kafka: Kafka) -> Generation | None:
    """The generation of Cluster Mirroring in a Kafka; None without the feature, and for generations
    that the table lacks."""
    return recognised(_classes(kafka))


def lacking(kafka: Kafka | None) -> str:
    """Why a Kafka has no known generation, in words: it has no Cluster Mirroring, like every
    release (None), or a generation that the table lacks."""
    if kafka is None or not any(_FEATURE in name for name in _classes(kafka)):
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


def _classes(kafka: Kafka) -> Sequence[str]:
    """The files of its kafka-clients jar that belong to the Admin."""
    clients = [jar for jar in kafka.jars if CLIENTS_JAR.fullmatch(jar.name)]
    return _of_admin(clients[0]) if clients else ()


@lru_cache
def _of_admin(clients: Path) -> Sequence[str]:
    try:
        with zipfile.ZipFile(clients) as jar:
            return tuple(name for name in jar.namelist() if name.startswith(_ADMIN))
    except (OSError, zipfile.BadZipFile):
        return ()  # inside an image, or damaged: its start reports that


def recognised(names: Sequence[str]) -> Generation | None:
    """The newest generation whose mark is among the files of a kafka-clients jar."""
    found = set(names)
    return next(
        (each for each in reversed(GENERATIONS) if f"{_ADMIN}{each.mark}.class" in found), None
    )


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
