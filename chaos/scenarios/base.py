"""The arguments of a scenario's builder, and the workloads and failovers that several scenarios
share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from linkflap.chaos.triggers import SEEN_ON_BOTH_SIDES, after
from linkflap.harness.model.scenario import (
    FaultSpec,
    Minimums,
    MirrorSpec,
    Option,
    Scenario,
    TopicSpec,
    WorkloadSpec,
)
from linkflap.harness.model.topology import LinkSpec, Topology, hyphen_free
from linkflap.topologies import parse

MINIMUMS: Final = Minimums(committed=60, aborted=5, reads=500)
"""What most scenarios have to do at least, so that their verdict means something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRequest:
    """The user's options beside the scenario's name; None and empty mean the scenario's own."""

    seed: int
    topology: Topology | None = None
    mirror: str | None = None
    mirror_options: Mapping[str, Option] = field(default_factory=dict)
    duration: float | None = None
    clients: str | None = None
    stall_source: bool = False
    """Whether each forced failover keeps its source half-open until the mirror is promoted, then
    kills it."""

    @property
    def rng(self) -> random.Random:
        """The only source of randomness of a schedule: the same seed gives the same faults."""
        return random.Random(self.seed)

    def mirrored_by(self, kind: str = "shadow") -> MirrorSpec:
        """The requested mirror, else `kind`, with the user's options."""
        return MirrorSpec(kind=self.mirror or kind, options=self.mirror_options)

    def scenario(
        self,
        topology: Topology,
        *,
        name: str,
        about: str,
        workloads: Sequence[WorkloadSpec],
        schedule: Sequence[FaultSpec],
        duration: float,
        minimums: Minimums = MINIMUMS,
        topics: TopicSpec | None = None,
    ) -> Scenario:
        """A scenario with the requested seed, mirror and duration, else `duration` seconds."""
        return Scenario(
            name=name,
            about=about,
            seed=self.seed,
            topology=topology,
            mirror=self.mirrored_by(),
            workloads=tuple(workloads),
            schedule=tuple(schedule),
            minimums=minimums,
            topics=topics or TopicSpec(),
            duration=self.duration or duration,
        )


GROUP = "linkflap.followers"
"""The consumer group that follows a failover; group offset sync is judged by it."""

Builder = Callable[[ScenarioRequest], Scenario]


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


WITH_TRANSACTIONS = f"{SEEN_ON_BOTH_SIDES} and transactions-ended:10"
"""The trigger of a failover. On a busy machine, records are mirrored and read before the first
transaction ends."""
WITH_TRANSACTIONS_OPEN = f"{WITH_TRANSACTIONS} and open-transactions"
"""The trigger of a failover that needs open transactions."""

Clients = Callable[[Topology, str], tuple[WorkloadSpec, ...]]
"""The workloads of clients whose topics are created on a cluster."""
Before = Callable[[LinkSpec, random.Random], tuple[FaultSpec, ...]]
"""The faults before a failover over a link."""


def one_failover(
    request: ScenarioRequest,
    *,
    name: str,
    about: str,
    duration: float,
    between: tuple[float, float],
    kind: str = "failover-forced",
    when: str = WITH_TRANSACTIONS_OPEN,
    before: Before = lambda _link, _rng: (),
    clients: Clients = default_workloads,
    minimums: Minimums = MINIMUMS,
    topics: TopicSpec | None = None,
) -> Scenario:
    """A->B with the default workloads: the faults of `before`, then a failover over the first link
    at a random time in `between`.

    `about` is a format string: {source} and {destination} are the link's clusters.
    """
    topology, rng = request.topology or parse("A->B"), request.rng
    link = topology.links[0]
    earlier = before(link, rng)
    at = round(rng.uniform(*between), 2)
    return request.scenario(
        topology,
        name=name,
        about=about.format(source=link.source, destination=link.destination),
        workloads=clients(topology, link.source),
        schedule=(
            *earlier,
            FaultSpec(id="failover", fault=kind, target=link.name, at=at, duration=0.0, when=when),
        ),
        minimums=minimums,
        topics=topics,
        duration=duration,
    )


def failover_of_first(topology: Topology, at: float, follows: Sequence[str]) -> Iterator[FaultSpec]:
    """A forced failover over the first link: its source is lost for good. None if topics of other
    homes pass over it, as in a ring: their clients would not move."""
    first = topology.links[0]
    if len(topology.homes_over(first)) > 1:
        return
    when = after(*follows, once=WITH_TRANSACTIONS_OPEN) if follows else WITH_TRANSACTIONS_OPEN
    yield replace(source_killed(first, at), when=when)


def source_killed(link: LinkSpec, at: float, id: str = "failover") -> FaultSpec:
    """A forced failover over a link, once transactions are open there."""
    return FaultSpec(
        id=id,
        fault="failover-forced",
        target=link.name,
        at=at,
        duration=0.0,
        when=WITH_TRANSACTIONS_OPEN,
    )


def homes(topology: Topology) -> tuple[str, ...]:
    """The home clusters of topics: those that no link leads to, or all clusters if links lead to
    each."""
    mirrored = {link.destination for link in topology.links}
    every = tuple(cluster.name for cluster in topology.clusters)
    return tuple(name for name in every if name not in mirrored) or every


def default_workloads_at_every_home(topology: Topology) -> tuple[WorkloadSpec, ...]:
    """The default workloads on every home cluster, so that every link carries records."""
    if len(topology.links) == 1:
        return default_workloads(topology, topology.links[0].source)
    return tuple(
        workload for home in homes(topology) for workload in default_workloads_of(topology, home)
    )


def id_of(fault: str, link: LinkSpec, topology: Topology) -> str:
    """The id of a fault that every link has. It includes the link's name, except for the first
    link."""
    first = link is topology.links[0]
    return fault if first else f"{fault}-{hyphen_free(link.source)}-{hyphen_free(link.destination)}"


def default_workloads_of(topology: Topology, home: str) -> Iterator[WorkloadSpec]:
    """The default workloads of one home. Each home's group has its own name, because several
    groups may move to one cluster."""
    for workload in default_workloads(topology, home):
        group = {"group": f"{GROUP}.{home}"} if "group" in workload.options else {}
        yield replace(workload, options={**workload.options, **group})
