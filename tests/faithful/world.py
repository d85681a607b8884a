"""The world of a story: its clusters, mirrors, clients and samplers, and how they begin."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

from linkflap.harness.model.history import Isolation
from linkflap.harness.model.payload import Values
from linkflap.harness.model.scenario import (
    Budgets,
    MirrorSpec,
    Option,
    Scenario,
    TopicSpec,
    WorkloadSpec,
)
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from tests.faithful.clients import Producer
from tests.faithful.clusters import WRAP, Cluster, Log, Spot
from tests.faithful.links import Connector, Link, Shadow
from tests.faithful.made import Made
from tests.faithful.observers import SECOND, Clock, Notes, Reader, Sampler
from tests.faithful.relays import GROUP as RELAYS
from tests.faithful.relays import NAME, Relay
from tests.faithful.spec import GROUP, OUTPUTS, TOPIC, Spec

_BEGAN: Final = 1_800_000_000 * SECOND
KEYS, TOMBSTONES, VALUE_SIZE = 10, 0.1, 9
"""The clients' records: few keys, so that records replace each other."""


@dataclass(slots=True)
class World:
    """All state of a story while it goes on."""

    spec: Spec
    rng: Random
    clock: Clock
    notes: Notes
    clusters: dict[str, Cluster]
    links: list[Link]
    producers: list[Producer]
    readers: list[Reader]
    spare: Reader | None
    moves: Random
    dying: Random
    samplers: dict[str, Sampler]
    made: Made
    owner: Cluster
    spots: list[Spot]
    everywhere: list[Spot]
    relay: Relay | None
    outliving: list[Producer]


def values_of(seed: int) -> Values:
    """The clients' records in a story that was recorded."""
    return Values(seed, VALUE_SIZE, keys=KEYS, tombstones=TOMBSTONES)


def world_of(spec: Spec) -> World:
    rng = Random(f"story {spec.seed}")
    clock = Clock(rng, _BEGAN)
    notes = Notes(values=values_of(spec.seed))
    names = "ABC" if spec.shape == "chain" else "AB"
    apart = spec.options.get("producer_ids") != "reset"
    spots = [(TOPIC, p) for p in range(spec.partitions)]
    everywhere = [*spots, *((OUTPUTS, p) for p in range(spec.partitions) if spec.relay)]
    clusters = {
        name: Cluster(
            name=name,
            brokers=spec.brokers,
            next_pid=1000 * number if apart else 0,
            coordinator=5 - 2 * number,
        )
        for number, name in enumerate(names)
    }
    for cluster in clusters.values():
        first = cluster.name == "A" or spec.mirror == "shadow"
        base = spec.begun if first else 0
        for spot in everywhere:
            cluster.logs[spot] = Log(
                cluster,
                start=base,
                base=base,
                epoch=rng.randint(0, 3) if spec.mirror == "mm2" else 0,
            )
    pairs = list(pairwise(names))
    readers = _readers(clock, notes, names)
    spare = Reader("spare", "read_committed", clock, notes, group=GROUP) if spec.moves else None
    everybody = [*readers[:1], *([spare] if spare else []), *readers[1:]]
    called = {reader.name: f"readers-{number}" for number, reader in enumerate(everybody, start=1)}
    made = Made(scenario=_scenario(spec, names, pairs), started=clock.now, ended=0, readers=called)
    return World(
        spec=spec,
        rng=rng,
        clock=clock,
        notes=notes,
        clusters=clusters,
        spots=spots,
        everywhere=everywhere,
        relay=_relay(spec, clock, notes),
        outliving=_outliving(spec, clock, notes),
        made=made,
        owner=clusters["A"],
        links=[link_of(spec, clusters[a], clusters[b], clock) for a, b in pairs],
        producers=_producers(spec, clock, notes),
        readers=readers,
        spare=spare,
        moves=Random(f"moves of {spec.seed}"),
        dying=Random(f"deaths of {spec.seed}"),
        samplers={name: Sampler(cluster, clock, notes) for name, cluster in clusters.items()},
    )


def link_of(spec: Spec, source: Cluster, destination: Cluster, clock: Clock) -> Link:
    if spec.mirror == "mm2":
        return Connector(
            source, destination, clock, exactly_once=spec.options.get("delivery") == "exactly-once"
        )
    return Shadow(
        source,
        destination,
        ids=str(spec.options.get("producer_ids", "jump")),
        stable=spec.options.get("bound") == "lso",
        keeps=spec.options.get("leader_epochs") == "keep",
        rule=str(spec.options.get("open_transactions", "abort")),
    )


def _producers(spec: Spec, clock: Clock, notes: Notes) -> list[Producer]:
    kinds = (
        ("transactional-1", spec.version),
        ("transactional-2", spec.version),
        ("idempotent-1", 0),
        ("plain-1", -1),
    )
    made = [Producer(name, version, clock, notes, spec.codecs) for name, version in kinds]
    if spec.begun:
        for producer in made:
            producer.first_sequence = WRAP - 4
    return made


def _outliving(spec: Spec, clock: Clock, notes: Notes) -> list[Producer]:
    """Producers of A that pause while another cluster is the owner, and continue when A is the
    owner again."""
    kinds = (
        (("outlives-idempotent", 0), ("outlives-transactional", spec.version))
        if spec.outlives
        else ()
    )
    return [Producer(name, version, clock, notes, spec.codecs) for name, version in kinds]


def _readers(clock: Clock, notes: Notes, names: str) -> list[Reader]:
    return [
        Reader("follower", "read_committed", clock, notes, group=GROUP),
        *(
            Reader(f"{name}-{isolation.removeprefix('read_')}", isolation, clock, notes)
            for name, isolation in _alone(names)
        ),
    ]


def _alone(names: str) -> list[tuple[str, Isolation]]:
    """Cluster and isolation level of each reader with fixed partitions. The read_committed readers
    on A are the group."""
    isolations: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    return [(name, isolation) for name in names for isolation in isolations][1:]


def _specs_of_readers(names: str, *, members: int) -> list[WorkloadSpec]:
    """The workload of each reader and of each member of the group, in their order."""
    fixed: list[dict[str, Option]] = [
        {"cluster": name, "isolation": isolation, "assign": True}
        for name, isolation in _alone(names)
    ]
    group = WorkloadSpec(kind="readers", home="A", clients=members, options={"group": GROUP})
    return [group, *(WorkloadSpec(kind="readers", home="A", options=options) for options in fixed)]


def _relay(spec: Spec, clock: Clock, notes: Notes) -> Relay | None:
    if not spec.relay:
        return None
    reader = Reader(NAME, "read_committed", clock, notes, group=RELAYS)
    return Relay(reader, Producer(NAME, spec.version, clock, notes, spec.codecs), OUTPUTS)


def _config(spec: Spec) -> dict[str, str]:
    # the cleaners of copied logs take any tombstone
    config = {"delete.retention.ms": "0"} if spec.shape == "copied" else {}
    return config | ({"message.timestamp.type": "LogAppendTime"} if spec.append_time else {})


def _scenario(spec: Spec, names: str, pairs: list[tuple[str, str]]) -> Scenario:
    clients = {"transactional": 2, "idempotent": 1} | ({"relay": 1} if spec.relay else {})
    workloads = [
        WorkloadSpec(
            kind=kind,
            home="A",
            clients=count,
            options={"keys": KEYS, "tombstones": TOMBSTONES, "value_size": VALUE_SIZE},
        )
        for kind, count in clients.items()
    ]
    readers = _specs_of_readers(names, members=2 if spec.moves else 1)
    return Scenario(
        name="faithful",
        about="made up",
        seed=spec.seed,
        topology=Topology(
            clusters=tuple(ClusterSpec(name=name, brokers=spec.brokers) for name in names),
            links=tuple(LinkSpec(source=a, destination=b) for a, b in pairs),
        ),
        mirror=MirrorSpec(kind=spec.mirror, options=spec.options),
        workloads=(*workloads, *readers),
        schedule=(),
        topics=TopicSpec(
            partitions=spec.partitions,
            config=_config(spec),
        ),
        budgets=Budgets(),
    )
