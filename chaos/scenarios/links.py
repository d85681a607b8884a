"""Scenarios of links that flap, slow down, hang or stay half open, between two or more clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from linkflap.chaos.scenarios.base import (
    ScenarioRequest,
    default_workloads,
    default_workloads_at_every_home,
    default_workloads_of,
    failover_of_first,
    homes,
    id_of,
    source_killed,
)
from linkflap.chaos.triggers import after
from linkflap.harness.model.scenario import FaultSpec, Option, Scenario, WorkloadSpec
from linkflap.harness.model.topology import LinkSpec, Topology, hyphen_free
from linkflap.topologies import parse

_HEALED: Final = 2.0
"""Seconds between the last fault of a link and the failover."""
_LINKS: Final = ("a flapping, then slow link", "flapping, then slow links")


def link_flap(request: ScenarioRequest) -> Scenario:
    """A->B: the link flaps, then slows; A is killed with transactions open; clients continue on B.

    In another topology every link flaps and slows, and the first link's source is killed. A ring
    has no failover: topics of several homes pass over each of its links.

    Guarantee at stake: the mirror's own guarantee (the shadow: equal offsets; MirrorMaker 2: order)
    and Kafka's transactions on both clusters (KIP-98). Records that readers of B saw are not lost
    in the failover. A violation is a record that is missing on B below a later one, an aborted
    record that a read_committed reader of B got, or two writers with one producer id.
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
    workloads, failover = default_workloads(topology, first.source), [source_killed(first, kill_at)]
    if others:
        workloads = tuple(
            workload
            for home in homes(topology)
            for workload in default_workloads_of(topology, home)
        )
        slows = [fault.id for fault in faults if fault.fault == "link-latency"]
        failover = list(failover_of_first(topology, _HEALED, slows))
    return request.scenario(
        topology,
        name="link-flap",
        about=_about(topology, fails_over=bool(failover)),
        workloads=workloads,
        schedule=(*faults, *failover),
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


def half_open(request: ScenarioRequest) -> Scenario:
    """A->B: the mirror's responses stall, then its requests, then the responses of A's clients.

    In another topology the responses and requests of every link stall, then those of the clients of
    every home cluster.

    Brokers execute requests, but their responses are lost. Guarantee at stake: a commit without a
    response is either complete or absent (KIP-98), an idempotent producer's retry is not written
    twice (KIP-98), and clients report unknown outcomes as unknown. A violation is a duplicate, or
    an acknowledged record that is missing.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    clients = tuple(
        (
            replace(w, options={**w.options, "via": "proxy"})
            if w.kind in ("transactional", "idempotent")
            else w
        )
        for w in default_workloads_at_every_home(topology)
    )
    gap = round(rng.uniform(0.5, 1.5), 2)
    writers = dict.fromkeys(workload.home for workload in clients)
    links = ", ".join(link.name for link in topology.links)
    return request.scenario(
        topology,
        name="half-open",
        about=(
            f"{links}; responses stall for the mirror, then requests, then responses of clients of "
            f"{' and '.join(writers)}"
        ),
        workloads=clients,
        schedule=(
            *(
                _stalled(id_of("deaf", link, topology), link.name, 1.0, "responses")
                for link in topology.links
            ),
            *(
                _stalled(id_of("mute", link, topology), link.name, 7.0 + gap, "requests")
                for link in topology.links
            ),
            *(
                _stalled(
                    "clients" if n == 0 else f"clients-{hyphen_free(home)}",
                    f"*->{home}",
                    14.0 + gap,
                    "responses",
                )
                for n, home in enumerate(writers)
            ),
        ),
        duration=22.0,
    )


def _stalled(id: str, target: str, at: float, direction: str) -> FaultSpec:
    return FaultSpec(
        id=id,
        fault="link-half-open",
        target=target,
        at=at,
        duration=3.0,
        options={"stalled": direction},
    )


_HELD = 2.0
_HEALS = 1.5
"""Seconds between two faults of one hop. On a slow machine a fault takes longer: each follows the
end of the previous one, because it measures an intact link."""


def chain_flap(request: ScenarioRequest) -> Scenario:
    """A->B->C: each hop flaps, slows and goes half-open; A is killed with transactions open;
    clients continue on B.

    A ring has no failover: topics of several homes pass over each of its links.

    Guarantee at stake: an offset-exact mirror of a mirror is a mirror of the source (KIP-1279). C
    equals B and A per offset, whatever a hop did. C's clients see no more than B's replicas have.
    After B is promoted, its appends and truncations reach C. Any topology will do: each cluster
    that no link leads to, or every cluster of a ring, has clients and topics of its own. A
    violation is a byte that differs, or a record on C that B does not have below its end.
    """
    rng = request.rng
    topology = request.topology or parse("A->B->C")
    hops = [tuple(_of_hop(link, rng)) for link in topology.links]
    waits = round(_HEALS + rng.uniform(0.3, 1.0), 2)
    lasts = max(sum(fault.at + fault.duration for fault in hop) for hop in hops) + waits
    return request.scenario(
        topology,
        name="chain-flap",
        about=(
            "each hop flaps, slows and goes half-open; then clients of the first cluster fail over "
            "to the second"
        ),
        workloads=tuple(
            workload
            for home in homes(topology)
            for workload in default_workloads_of(topology, home)
        ),
        schedule=(
            *(fault for hop in hops for fault in hop),
            *failover_of_first(topology, waits, [hop[-1].id for hop in hops]),
        ),
        duration=round(lasts + 2.0, 2),
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


def round_trip(request: ScenarioRequest) -> Scenario:
    """A->B: A dies with transactions open; clients fail over to B; the mirror is reversed; a
    planned failover back to A.

    Guarantee at stake: a failback leaves one log (KIP-1279, failback). A loses the records that
    were never mirrored, and nothing else; B's records are on A at the same offsets; the way back is
    planned, so it loses nothing. A violation looks like an offset at which A and B have different
    records, a record acknowledged on B that A does not have, or two writers under one producer id,
    now that each cluster has ids of the other's in its log.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    back = f"{link.destination}->{link.source}"
    away_at = round(rng.uniform(3.5, 5.0), 2)
    return request.scenario(
        topology,
        name="round-trip",
        about=(
            f"{link.name}; {link.source} is killed, clients continue on {link.destination}, and "
            "come back by a planned failover"
        ),
        workloads=default_workloads(topology, link.source),
        schedule=(
            source_killed(link, away_at, "away"),
            FaultSpec(
                id="reverse",
                fault="mirror-reverse",
                target=link.name,
                at=round(rng.uniform(1.5, 2.5), 2),
                duration=0.0,
                when="after:away",
            ),
            FaultSpec(
                id="home",
                fault="failover-planned",
                target=back,
                at=round(rng.uniform(1.5, 2.5), 2),
                duration=0.0,
                when="after:reverse",
            ),
        ),
        duration=12.0,
    )


GROUP = "linkflap.relay"


def relay(request: ScenarioRequest) -> Scenario:
    """A->B: two relays on A. Their broker restarts, then A is killed with transactions open, and
    they continue on B.

    Guarantee at stake: a relay's outputs and its group's offsets are one transaction (KIP-98,
    KIP-447), on each cluster, whatever happens to it. No mirror promises that across the failover:
    partitions and group offsets are mirrored independently (KIP-382, KIP-545, KIP-1279). So outputs
    may be repeated, and those of the last moments may be missing; both are counted and reported. A
    violation looks like an input that the group has passed without an output, or one with two
    outputs on the cluster where both were made.
    """
    rng = request.rng
    topology = request.topology or parse("A->B")
    link = topology.links[0]
    home, there = link.source, link.destination
    restart_at = round(rng.uniform(2.0, 3.0), 2)
    kill_at = round(rng.uniform(4.0, 5.0), 2)

    def reader(cluster: str, isolation: str) -> WorkloadSpec:
        return WorkloadSpec(
            kind="readers",
            home=home,
            options={"cluster": cluster, "isolation": isolation, "assign": True},
        )

    return request.scenario(
        topology,
        name="relay",
        about=(
            "relays read a topic and write another, exactly once; their broker restarts, then they "
            f"fail over and continue on {there}"
        ),
        workloads=(
            WorkloadSpec(
                kind="transactional",
                home=home,
                clients=2,
                options={"rate": 12.0, "open_share": 0.01, "hold": 0.5},
            ),
            WorkloadSpec(
                kind="relay",
                home=home,
                clients=2,
                options={"rate": 10.0, "group": GROUP, "abort_share": 0.1},
            ),
            reader(home, "read_committed"),
            *(reader(there, isolation) for isolation in ("read_committed", "read_uncommitted")),
        ),
        schedule=(
            FaultSpec(
                id="restart",
                fault="broker-restart",
                target=f"{home}/1",
                at=restart_at,
                duration=2.0,
                when="under-way",
            ),
            FaultSpec(
                id="failover",
                fault="failover-forced",
                target=link.name,
                at=kill_at,
                duration=0.0,
                when="after:restart and seen-on-both-sides and open-transactions",
            ),
        ),
        duration=14.0,
    )
