"""What a scenario's builder is given, and a few workloads that several scenarios share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from linkflap.harness.model.scenario import MirrorSpec, Option, Scenario, WorkloadSpec
from linkflap.harness.model.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for beside the scenario's name; None and empty mean the scenario's own."""

    seed: int
    topology: Topology | None = None
    mirror: str | None = None
    mirror_options: Mapping[str, Option] = field(default_factory=dict)
    duration: float | None = None

    @property
    def dice(self) -> random.Random:
        """The only source of chance of a schedule: the same seed rolls the same faults."""
        return random.Random(self.seed)

    def mirrored_by(self, kind: str = "shadow") -> MirrorSpec:
        """The mirror asked for, else `kind`, with the user's options."""
        return MirrorSpec(kind=self.mirror or kind, options=self.mirror_options)


GROUP = "linkflap.followers"
"""The consumer group that follows a failover: what group offset sync is held against."""

Builder = Callable[[Wish], Scenario]


def everyday(topology: Topology, home: str, **records: Option) -> tuple[WorkloadSpec, ...]:
    """The workload of most scenarios: transactions that commit, abort or stay open, idempotent sends, a zombie, readers.

    A group in read_committed starts at home and follows a failover; readers of fixed partitions in both isolations are on every
    cluster that home's topics get to, all the time, so that what a mirror shows is seen before, during and after each fault.
    `records` are options of all workloads that write.
    """
    mirrored = {link.destination for link in topology.links if home in topology.homes_over(link)} - {home}

    def reader(cluster: str, isolation: str) -> WorkloadSpec:
        return WorkloadSpec(kind="readers", home=home, options={"cluster": cluster, "isolation": isolation, "assign": True})

    return (
        WorkloadSpec(
            kind="transactional", home=home, clients=2, options={"rate": 15.0, "open_share": 0.03, "hold": 1.0, **records}
        ),
        WorkloadSpec(kind="idempotent", home=home, options={"rate": 10.0, **records}),
        WorkloadSpec(kind="zombie", home=home, options={"rate": 1.0, **records}),
        WorkloadSpec(kind="readers", home=home, options={"group": GROUP}),
        reader(home, "read_uncommitted"),
        *(reader(c.name, i) for c in topology.clusters if c.name in mirrored for i in ("read_committed", "read_uncommitted")),
    )
