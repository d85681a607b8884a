"""chain-flap: every hop of a topology flaps, slows and goes half-open in turn; then the first hop
is failed over.

Guarantee at stake: an offset-exact mirror of a mirror is a mirror of the source (KIP-1279). C
equals B and A per offset, whatever a hop did. C's clients see no more than B's replicas have. After
B is promoted, its appends and truncations reach C. Any topology will do: each cluster that no link
leads to, or every cluster of a ring, has clients and topics of its own. A violation is a byte that
differs, or a record on C that B does not have below its end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from linkflap.chaos.scenarios.base import (
    ScenarioRequest,
    default_workloads_of,
    failover_of_first,
    homes,
)
from linkflap.chaos.triggers import after
from linkflap.harness.model.scenario import FaultSpec, Minimums, Option, Scenario
from linkflap.harness.model.topology import LinkSpec, hyphen_free
from linkflap.topologies import parse

_HELD = 2.0
_HEALS = 1.5
"""Seconds between two faults of one hop. On a slow machine a fault takes longer: each follows the
end of the previous one, because it measures an intact link."""


def build(request: ScenarioRequest) -> Scenario:
    """A->B->C: each hop flaps, slows and goes half-open; A is killed with transactions open;
    clients continue on B.

    A ring has no failover: topics of several homes pass over each of its links.
    """
    rng = request.rng
    topology = request.topology or parse("A->B->C")
    hops = [tuple(_of_hop(link, rng)) for link in topology.links]
    waits = round(_HEALS + rng.uniform(0.3, 1.0), 2)
    lasts = max(sum(fault.at + fault.duration for fault in hop) for hop in hops) + waits
    return Scenario(
        name="chain-flap",
        about=(
            "each hop flaps, slows and goes half-open; then clients of the first cluster fail over "
            "to the second"
        ),
        seed=request.seed,
        topology=topology,
        mirror=request.mirrored_by(),
        workloads=tuple(
            workload
            for home in homes(topology)
            for workload in default_workloads_of(topology, home)
        ),
        schedule=(
            *(fault for hop in hops for fault in hop),
            *failover_of_first(topology, waits, [hop[-1].id for hop in hops]),
        ),
        minimums=Minimums(committed=60, aborted=5, reads=500),
        duration=request.duration or round(lasts + 2.0, 2),
    )


def _of_hop(link: LinkSpec, rng: random.Random) -> Iterator[FaultSpec]:
    """The faults of one hop, one after the other. Faults of other hops may overlap them."""
    kinds: list[tuple[str, str, dict[str, Option]]] = [
        (
            "flap",
            "link-flap",
            {"down": round(rng.uniform(0.3, 0.6), 2), "up": round(rng.uniform(0.3, 0.6), 2)},
        ),
        (
            "slow",
            "link-latency",
            {"latency": rng.randrange(80, 160), "jitter": rng.randrange(10, 40)},
        ),
        ("deaf", "link-half-open", {"stalled": "responses"}),
        ("mute", "link-half-open", {"stalled": "requests"}),
    ]
    rng.shuffle(kinds)
    before: tuple[str, ...] = ()
    for name, fault, options in kinds:
        id_ = f"{name}-{hyphen_free(link.source)}-{hyphen_free(link.destination)}"
        at = round((_HEALS if before else 0.5) + rng.uniform(0.0, 0.7), 2)
        when = after(*before) if before else "always"
        yield FaultSpec(
            id=id_, fault=fault, target=link.name, at=at, duration=_HELD, when=when, options=options
        )
        before = (id_,)
