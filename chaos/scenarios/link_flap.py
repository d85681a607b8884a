"""link-flap: the main job. A link flaps and slows under load, then its source is killed with
transactions open.

Guarantee at stake: the mirror's own guarantee (the shadow: equal offsets; MirrorMaker 2: order) and
Kafka's transactions on both clusters (KIP-98). Records that readers of B saw are not lost in the
failover. A violation is a record that is missing on B below a later one, an aborted record that a
read_committed reader of B got, or two writers with one producer id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from linkflap.chaos.scenarios.base import (
    WITH_TRANSACTIONS_OPEN,
    ScenarioRequest,
    default_workloads,
    default_workloads_of,
    failover_of_first,
    homes,
)
from linkflap.harness.model.scenario import FaultSpec, Minimums, Scenario
from linkflap.harness.model.topology import LinkSpec, Topology, hyphen_free
from linkflap.topologies import parse

_HEALED: Final = 2.0
"""Seconds between the last fault of a link and the failover."""
_LINKS: Final = ("a flapping, then slow link", "flapping, then slow links")


def build(request: ScenarioRequest) -> Scenario:
    """A->B: the link flaps, then slows; A is killed with transactions open; clients continue on B.

    In another topology every link flaps and slows, and the first link's source is killed. A ring
    has no failover: topics of several homes pass over each of its links.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    first, *others = topology.links
    duration = request.duration or 12.0
    flap_at, slow_at = _times(rng)
    kill_at = round(max(slow_at + 3.0 + rng.uniform(0.3, 1.0), duration - 3.0), 2)
    faults = [*_of(first, rng, "", flap_at, slow_at)]
    for link in others:
        faults += _of(
            link,
            rng,
            f"-{hyphen_free(link.source)}-{hyphen_free(link.destination)}",
            *_times(rng),
        )
    workloads, failover = default_workloads(topology, first.source), [_killed(first, kill_at)]
    if others:
        workloads = tuple(
            workload
            for home in homes(topology)
            for workload in default_workloads_of(topology, home)
        )
        slows = [fault.id for fault in faults if fault.fault == "link-latency"]
        failover = list(failover_of_first(topology, _HEALED, slows))
    return Scenario(
        name="link-flap",
        about=_about(topology, fails_over=bool(failover)),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=workloads,
        schedule=(*faults, *failover),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=duration,
    )


def _about(topology: Topology, *, fails_over: bool) -> str:
    first = topology.links[0]
    flaps = (
        f"{', '.join(link.name for link in topology.links)} through "
        f"{_LINKS[len(topology.links) > 1]}"
    )
    if not fails_over:
        return flaps
    return (
        f"{flaps}; {first.source} is killed with transactions open; clients fail over to "
        f"{first.destination} and go on"
    )


def _times(rng: random.Random) -> tuple[float, float]:
    """When a link flaps and when it slows."""
    flap_at = round(rng.uniform(0.5, 1.5), 2)
    return flap_at, round(flap_at + 3.0 + rng.uniform(0.2, 0.8), 2)


def _killed(link: LinkSpec, at: float) -> FaultSpec:
    return FaultSpec(
        id="failover",
        fault="failover-forced",
        target=link.name,
        at=at,
        duration=0.0,
        when=WITH_TRANSACTIONS_OPEN,
    )


def _of(
    link: LinkSpec, rng: random.Random, named: str, flap_at: float, slow_at: float
) -> Iterator[FaultSpec]:
    """The faults of one link."""
    yield FaultSpec(
        id=f"flap{named}",
        fault="link-flap",
        target=link.name,
        at=flap_at,
        duration=3.0,
        options={"down": round(rng.uniform(0.3, 0.6), 2), "up": round(rng.uniform(0.3, 0.6), 2)},
    )
    yield FaultSpec(
        id=f"slow{named}",
        fault="link-latency",
        target=link.name,
        at=slow_at,
        duration=3.0,
        options={"latency": rng.randrange(80, 160), "jitter": rng.randrange(10, 40)},
    )
