"""What a scenario's builder is given, and a few workloads that several scenarios share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.model.scenario import MirrorSpec, Option, Scenario, WorkloadSpec
from harness.model.topology import Topology


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

    def mirrored_by(self, **defaults: Option) -> MirrorSpec:
        """The mirror asked for, with a scenario's defaults under the user's options."""
        return MirrorSpec(kind=self.mirror or "mm2", options={**defaults, **self.mirror_options})


Builder = Callable[[Wish], Scenario]


def everyday(home: str, destination: str) -> tuple[WorkloadSpec, ...]:
    """The workload of most scenarios: transactions that commit, abort or stay open, idempotent sends, readers on both sides."""
    return (
        WorkloadSpec(kind="transactional", home=home, clients=2, options={"partitions": 2}),
        WorkloadSpec(kind="idempotent", home=home, clients=1),
        WorkloadSpec(kind="zombie", home=home, clients=1),
        WorkloadSpec(kind="readers", home=home, clients=2, options={"at": home}),
        WorkloadSpec(kind="readers", home=home, clients=2, options={"at": destination}),
    )
