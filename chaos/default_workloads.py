"""The default workloads of scenarios: those of one home cluster, or of every home of a topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from linkflap.harness.model.scenario import PRODUCERS, Option, WorkloadSpec
from linkflap.harness.model.topology import Topology

GROUP: Final = "linkflap.followers"
"""The consumer group that follows a failover; group offset sync is judged by it."""
DEFAULT: Final = "default"
DEFAULT_READERS: Final = "default-readers"
KINDS: Final[Mapping[str, str]] = {
    DEFAULT: "what most scenarios use: producers of every kind, and readers on every cluster",
    DEFAULT_READERS: "the readers of `default` without its producers",
}
"""Workloads of scenario files that stand for several workloads."""


def default_workloads(topology: Topology, home: str, **records: Option) -> tuple[WorkloadSpec, ...]:
    """The workload of most scenarios: transactions that commit, abort or stay open, idempotent
    sends, a zombie, readers.

    A group in read_committed starts at home and follows a failover; readers of fixed partitions in
    both isolation levels run on every cluster that home's topics are mirrored to, so that they see
    what a mirror exposes before, during and after each fault. `records` are options of all
    workloads that write.
    """
    mirrored = {
        link.destination for link in topology.links if home in topology.homes_over(link)
    } - {home}

    def reader(cluster: str, isolation: str) -> WorkloadSpec:
        return WorkloadSpec(
            kind="readers",
            home=home,
            options={"cluster": cluster, "isolation": isolation, "assign": True},
        )

    return (
        WorkloadSpec(
            kind="transactional",
            home=home,
            clients=2,
            options={"rate": 15.0, "open_share": 0.03, "hold": 1.0, **records},
        ),
        WorkloadSpec(kind="idempotent", home=home, options={"rate": 10.0, **records}),
        WorkloadSpec(kind="zombie", home=home, options={"rate": 1.0, **records}),
        WorkloadSpec(kind="readers", home=home, options={"group": GROUP}),
        reader(home, "read_uncommitted"),
        *(
            reader(c.name, i)
            for c in topology.clusters
            if c.name in mirrored
            for i in ("read_committed", "read_uncommitted")
        ),
    )


def default_readers(topology: Topology, home: str) -> tuple[WorkloadSpec, ...]:
    """The readers of the default workloads."""
    return tuple(w for w in default_workloads(topology, home) if w.kind not in PRODUCERS)


def default_workloads_at_every_home(topology: Topology) -> tuple[WorkloadSpec, ...]:
    """The default workloads on every home cluster, so that every link carries records."""
    if len(topology.links) == 1:
        return default_workloads(topology, topology.links[0].source)
    return tuple(
        workload for home in topology.homes for workload in default_workloads_of(topology, home)
    )


def default_workloads_of(topology: Topology, home: str) -> Iterator[WorkloadSpec]:
    """The default workloads of one home of several. Each home's group has its own name, because
    several groups may move to one cluster."""
    for workload in default_workloads(topology, home):
        group = {"group": f"{GROUP}.{home}"} if "group" in workload.options else {}
        yield replace(workload, options={**workload.options, **group})
