"""Builds of Kafka in a scenario that are not releases: folders of jars, and images. They are the
user's own code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from linkflap.harness.model.clients import libraries
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes.distribution.kafka import released


def own_builds(scenario: Scenario) -> dict[str, str]:
    """Cluster or client that runs a build of the user's own -> its folder or image. Raises
    InputError."""
    known = released()
    of_clients = {
        f"clients of workload {number} at {spec.home}": each.release
        for number, spec in enumerate(scenario.workloads, start=1)
        for each in libraries(spec.library)
        if each.release and each.release not in known
    }
    clusters = scenario.topology.clusters
    return {
        **{f"cluster {each.name}": each.kafka for each in clusters if each.kafka not in known},
        **of_clients,
    }


def full_path(asked: str) -> str:
    """A Kafka that can be named in any folder: a folder of jars with its full path, releases and
    images as they are."""
    path = Path(asked).expanduser()
    return str(path.absolute()) if asked and asked not in released() and path.is_dir() else asked


def placed(topology: Topology) -> Topology:
    """The same topology, each folder with its full path."""
    return replace(
        topology,
        clusters=tuple(replace(each, kafka=full_path(each.kafka)) for each in topology.clusters),
    )


def anywhere(scenario: Scenario) -> Scenario:
    """The same scenario, each folder of jars with its full path: a suite runs it from a folder of
    its own."""
    workloads = tuple(
        replace(
            spec,
            library=",".join(
                str(replace(each, release=full_path(each.release)))
                for each in libraries(spec.library)
            ),
        )
        for spec in scenario.workloads
    )
    return replace(scenario, topology=placed(scenario.topology), workloads=workloads)
