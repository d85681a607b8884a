"""The scenarios that a file cannot express, and the arguments of every scenario.

Their times depend on one another, their faults come in a random order, or they refuse some
topologies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from linkflap.chaos.default_workloads import (
    default_workloads,
    default_workloads_at_every_home,
    default_workloads_of,
)
from linkflap.chaos.triggers import SEEN_ON_BOTH_SIDES, after
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import (
    NO_MIRROR,
    FaultSpec,
    Minimums,
    MirrorSpec,
    Option,
    Scenario,
    WorkloadSpec,
)
from linkflap.harness.model.topology import LinkSpec, Topology, hyphen_free, id_of
from linkflap.topologies import parse

MINIMUMS: Final = Minimums(committed=60, aborted=5, reads=500)
"""The minimums of most scenarios for a meaningful verdict."""


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

    def mirrored_by(self) -> MirrorSpec:
        """The requested mirror with the user's options. Default: the shadow; between clusters that
        linkflap did not start, MirrorMaker 2, because the shadow cannot be a broker there. A
        topology without links has no mirror.
        """
        if self.topology is not None and not self.topology.links and self.mirror is None:
            return replace(NO_MIRROR, options=self.mirror_options)
        usual = "mm2" if self.topology is not None and self.topology.attached else "shadow"
        return MirrorSpec(
            kind=usual if self.mirror is None else self.mirror, options=self.mirror_options
        )

    def scenario(
        self,
        topology: Topology,
        *,
        name: str,
        about: str,
        workloads: Sequence[WorkloadSpec],
        schedule: Sequence[FaultSpec],
        duration: float,
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
            minimums=MINIMUMS,
            duration=self.duration or duration,
        )


Builder = Callable[[ScenarioRequest], Scenario]


OPEN: Final = f"{SEEN_ON_BOTH_SIDES} and transactions-ended:10 and open-transactions"
"""The trigger of a forced failover. On a busy machine, records are mirrored and read before the
first transaction ends."""


def source_killed(link: LinkSpec, at: float) -> FaultSpec:
    """A forced failover over a link, once transactions are open there."""
    return FaultSpec(
        id="failover",
        fault="failover-forced",
        target=link.name,
        at=at,
        duration=0.0,
        when=OPEN,
    )


def failover_of_first(topology: Topology, at: float, follows: Sequence[str]) -> Iterator[FaultSpec]:
    """A forced failover over the first link: its source is lost for good. None if topics of other
    homes pass over it, as in a ring: their clients would not move."""
    first = topology.links[0]
    if len(topology.homes_over(first)) > 1:
        return
    when = after(*follows, once=OPEN) if follows else OPEN
    yield replace(source_killed(first, at), when=when)


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
            workload for home in topology.homes for workload in default_workloads_of(topology, home)
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
    ended = "is cut off" if topology.attached else "is killed"
    return (
        f"{flaps}; {first.source} {ended} with transactions open; clients fail over to "
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
    every home cluster. On one cluster alone only those of its clients do.

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
    of_clients = f"responses of clients of {' and '.join(writers)}"
    return request.scenario(
        topology,
        name="half-open",
        about=(
            f"{links}; responses stall for the mirror, then requests, then {of_clients}"
            if links
            else f"{of_clients} stall"
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
                    14.0 + gap if links else 1.0,
                    "responses",
                )
                for n, home in enumerate(writers)
            ),
        ),
        duration=22.0 if links else 9.0,
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
            workload for home in topology.homes for workload in default_workloads_of(topology, home)
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


def region_loss(request: ScenarioRequest) -> Scenario:
    """A<->B: clients write on both; A is killed for good with transactions open, and its clients
    continue on B.

    In another topology the source of the first link is killed. Raises InputError if that link
    carries topics of other clusters too, as in a ring.

    Guarantee at stake: what each region promised before stays true on those that are left. Records
    that the dead region had not received, or had received and not shown to anybody, are not due.
    Records that it had shown to readers or acknowledged to clients must be in its logs; those that
    were not mirrored are the recovery point of the failover. A violation is a record of a living
    region that is missing there, a record of the dead region that another region had shown and has
    lost, or clients that do not continue.
    """
    topology = request.topology or parse("A<->B")
    link = topology.links[0]
    failover = tuple(failover_of_first(topology, round(request.rng.uniform(4.0, 6.0), 2), ()))
    if not failover:
        raise InputError(
            f"region-loss moves the clients of {link.source} over {link.name}, which carries topics"
            f" of {', '.join(topology.homes_over(link))}; name first a link that carries "
            "the topics of its source alone, e.g. 'A<->B'"
        )
    return request.scenario(
        topology,
        name="region-loss",
        about=(
            f"clients write in every region; {link.source} is killed for good with transactions "
            f"open; its clients continue on {link.destination}"
        ),
        workloads=default_workloads_at_every_home(topology),
        schedule=failover,
        duration=9.0,
    )


_LEAST = 3


def broker_loss(request: ScenarioRequest) -> Scenario:
    """A:3->B:3: one broker of A is killed, one of B paused, one of A restarted.

    On one cluster alone the paused broker is another one of A.

    Guarantee at stake: replication in a cluster (acks=all, min.insync.replicas 2) and transactions
    survive the loss of one broker (KIP-98, KIP-966). Afterwards replicas agree below the high
    watermark.
    """
    rng = request.rng
    topology = request.topology or parse("A:3->B:3")
    ends = topology.links[0].ends if topology.links else (topology.clusters[0].name,) * 2
    source, destination = ends
    for name in ends:
        if (brokers := topology.cluster(name).brokers) < _LEAST and not topology.attached:
            enough = "->".join(f"{each}:{_LEAST}" for each in dict.fromkeys(ends))
            raise InputError(
                f"broker-loss takes brokers of every cluster away while the others go on: {name} "
                f"needs {_LEAST} or more and has {brokers}; write --topology '{enough}'"
            )
    killed = rng.choice([1, 2, 3])
    return request.scenario(
        topology,
        name="broker-loss",
        about=(
            f"{'->'.join(dict.fromkeys(ends))}; a broker of {source} is killed, one of "
            f"{destination} paused, another of {source} restarted"
        ),
        workloads=default_workloads(topology, source),
        schedule=(
            FaultSpec(
                id="kill",
                fault="broker-kill",
                target=f"{source}/{killed}",
                at=2.0,
                duration=5.0,
            ),
            FaultSpec(
                id="pause",
                fault="broker-pause",
                target=f"{destination}/{rng.choice([1, 2, 3])}",
                at=14.0,
                duration=5.0,
            ),
            FaultSpec(
                id="restart",
                fault="broker-restart",
                target=f"{source}/{killed % 3 + 1}",
                at=26.0,
                duration=1.0,
            ),
        ),
        duration=32.0,
    )
