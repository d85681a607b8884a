"""Scenarios of which a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, Unpack

from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario, TopicSpec, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.topologies import parse

ALONE = Topology(clusters=(ClusterSpec(name="A"),), links=())


class Rest(TypedDict, total=False):
    """The other fields of a scenario."""

    name: str
    seed: int
    workloads: tuple[WorkloadSpec, ...]
    schedule: tuple[FaultSpec, ...]
    topics: TopicSpec


def scenario_of(
    topology: str | Topology = "A->B", mirror: str | MirrorSpec = "none", **rest: Unpack[Rest]
) -> Scenario:
    """Without workloads and faults, unless they are given."""
    plain = Scenario(
        name="made up",
        about="",
        seed=1,
        topology=parse(topology) if isinstance(topology, str) else topology,
        mirror=MirrorSpec(kind=mirror) if isinstance(mirror, str) else mirror,
        workloads=(),
        schedule=(),
    )
    return replace(plain, **rest)


def drawn(bounds: GeneratorBounds, runs: int = 30, *, seed: int = 3) -> list[FaultSpec]:
    """The faults of so many generated scenarios."""
    made = (generate(seed, n, Coverage(), bounds, guided=False) for n in range(runs))
    return [fault for one in made for fault in one.schedule]
