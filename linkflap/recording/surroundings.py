"""The environment of a run, for readers elsewhere: system, processors, Python, clients, Java.

Nothing is installed or started to find it, and what a machine does not report is left out.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import confluent_kafka

from linkflap.harness.machine import java
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import JAVA, WorkloadSpec, libraries
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import processors
from linkflap.harness.runtimes.kraft.configuration import tuned

_PROCESSORS: Final = Path("/proc/cpuinfo")


def surroundings(
    topology: Topology, runtime: str, workloads: Sequence[WorkloadSpec] = ()
) -> Mapping[str, str]:
    """Name -> value, in the order in which a person reads them."""
    system = os.uname()
    return {
        "system": f"{system.sysname} {system.release} {system.machine}",
        "processors": _processors(),
        "Python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        **_java(topology, runtime),
        **_java_clients(workloads),
        **_broker_settings(topology),
    }


def _broker_settings(topology: Topology) -> Mapping[str, str]:
    """The settings that linkflap makes different from Kafka's defaults: brokers that start fast,
    and time out within seconds."""
    sizes: dict[int, list[str]] = {}
    for cluster in topology.clusters:
        if cluster.bootstrap:
            continue  # its brokers have the settings that their owner gave them
        sizes.setdefault(cluster.brokers, []).append(cluster.name)
    return {
        f"set by linkflap on {', '.join(names)}": ", ".join(
            f"{name}={value}" for name, value in tuned(brokers).items()
        )
        for brokers, names in sizes.items()
    }


def _processors() -> str:
    """How many, and their model."""
    model = ""
    with suppress(OSError):
        lines = _PROCESSORS.read_text(errors="replace").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
        )
    return f"{processors()}{' x ' if model else ''}{model}"


def _java(topology: Topology, runtime: str) -> Mapping[str, str]:
    """The Java of brokers that are processes here; those in containers have that of their image
    (`java_inside`)."""
    if runtime != "process":
        return {}
    kafkas = sorted({cluster.kafka for cluster in topology.clusters})
    return {f"Java for Kafka {kafka}": java.described(kafka) for kafka in kafkas}


def java_inside(deployment: Deployment) -> Mapping[str, str]:
    """The Java that brokers run with, as their runtime knows it once they run: that of an image is
    not this machine's."""
    return {
        f"Java for Kafka {kafka}": release for kafka, release in sorted(deployment.javas.items())
    }


def _java_clients(workloads: Sequence[WorkloadSpec]) -> Mapping[str, str]:
    """The Java of clients that are Kafka's own, by release."""
    releases = {
        each.release for spec in workloads for each in libraries(spec.library) if each.name == JAVA
    }
    return {
        f"Java for clients of Kafka {release}": java.described(release)
        for release in sorted(releases)
    }
