"""The Kafka release and the Java of Java clients: the release that was requested, else the
clusters' newest, and a Java that runs it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from linkflap.harness.machine.java import Java, java_for
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import JAVA, Library, WorkloadSpec, libraries
from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.harness.runtimes.distribution.kafka import Kafka, kafka, look_for, released
from linkflap.harness.runtimes.kraft.installation import LOGGING
from linkflap.harness.workloads import share_group
from linkflap.harness.workloads.library import Jvm
from linkflap.harness.workloads.readers import PROTOCOLS

SHARE_GROUPS: Final = "4.2.0"
"""The first release whose share groups (KIP-932) are ready for production."""


def _too_old(release: str) -> bool:
    """Whether a release has no share groups; the brokers of a user's own build report that
    themselves."""
    known = released()
    return release in known and known.index(release) < known.index(SHARE_GROUPS)


def check(spec: WorkloadSpec) -> None:
    """Raises InputError for clients that their library or release does not support."""
    new_protocol = spec.options.get("protocol", PROTOCOLS[0]) != PROTOCOLS[0]
    for each in libraries(spec.library):
        if spec.kind == share_group.KIND and each.name != JAVA:
            raise InputError(f"only Java clients have workload {spec.kind}; give it clients java")
        if spec.kind == share_group.KIND and _too_old(each.release):
            raise InputError(
                f"Kafka {each.release} has no share consumer; give workload {spec.kind} "
                f"java@{SHARE_GROUPS} or newer"
            )
        if new_protocol and each.name != JAVA:
            raise InputError(
                f"workload {spec.kind} has the group protocol of KIP-848 with Java's clients only; "
                "give it clients java"
            )
        if each.release:
            look_for(each.release)


def resolve(specs: Sequence[WorkloadSpec], topology: Topology) -> tuple[WorkloadSpec, ...]:
    """The same workloads, with every release named. Raises InputError, or SetupError when a release
    cannot be downloaded."""
    known = released()
    theirs = [cluster.kafka for cluster in topology.clusters if cluster.kafka in known]
    newest = max(theirs, key=known.index) if theirs else DEFAULT_KAFKA
    if any(spec.kind == share_group.KIND for spec in specs):
        for cluster in topology.clusters:
            if _too_old(cluster.kafka):
                raise InputError(
                    f"Kafka {cluster.kafka} of cluster {cluster.name} has no share groups; give it "
                    f"{SHARE_GROUPS} or newer"
                )
    resolved = []
    for spec in specs:
        named = [
            Library(name=JAVA, release=newest) if str(one) == JAVA else one
            for one in libraries(spec.library)
        ]
        for each in named:
            if each.name == JAVA:
                _installed(each.release)
        resolved.append(replace(spec, library=",".join(map(str, named))))
    return tuple(resolved)


def jvm(library: Library, log: Path) -> Jvm | None:
    """The JVM for a process with clients of this library; None for librdkafka."""
    if library.name != JAVA:
        return None
    theirs, java = _installed(library.release)
    options = (
        f"-Dlinkflap.log={log.with_suffix('.kafka.log')}",
        f"-Dlog4j2.configurationFile={LOGGING / 'log4j2.properties'}",
        f"-Dlog4j.configuration=file:{LOGGING / 'log4j.properties'}",
    )
    return Jvm(
        java=str(java.path),
        major=java.major,
        classpath=theirs.classpath,
        release=theirs.version,
        log=str(log),
        options=options,
    )


def given(library: Library) -> dict[str, str]:
    """Environment variables with the Java and the jars of this library, for a user's program; empty
    for librdkafka."""
    if library.name != JAVA:
        return {}
    theirs, java = _installed(library.release)
    return {"LINKFLAP_JAVA": str(java.path), "LINKFLAP_CLASSPATH": theirs.classpath}


@functools.cache
def _installed(release: str) -> tuple[Kafka, Java]:
    theirs = kafka(release)
    return theirs, java_for(theirs.version)
