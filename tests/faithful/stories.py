"""A seed's story: which clusters and mirrors there are, what clients do, what fails over to what. Faithful, all of it.

pair         A->B, a flapping link at most, nobody fails over
failover     A->B, planned or forced, clients go on on B
round-trip   A->B by force or as planned, A follows B, and back as planned (a mirror that keeps offsets)
chain        A->B->C, A fails over to B, C follows B all along
copied       the logs of such a pair alone, compacted before they were mirrored, without a history
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from harness.model.history import Bounds
from harness.model.scenario import Budgets, FaultSpec, MirrorSpec, Option, Scenario, WorkloadSpec
from harness.model.topology import ClusterSpec, LinkSpec, Topology
from tests.faithful.clients import SECOND, Clock, Notes, Producer, Reader, Sampler, fence, writing_epoch
from tests.faithful.clusters import Cluster, Log, Spot
from tests.faithful.entries import ABORT, COMMIT, WRAP, Entry
from tests.faithful.links import Connector, Link, Shadow, committed, hand_over, sync_groups, turn_back
from tests.faithful.made import END, Captured, Made, Place
from tests.faithful.relays import GROUP as RELAYS
from tests.faithful.relays import NAME, Relay

TOPIC: Final = "A.orders"
OUTPUTS: Final = "A.relayed"
GROUP: Final = "followers"
SHAPES: Final = ("pair", "failover", "round-trip", "chain", "copied")
_WEIGHTS: Final = (12, 6, 4, 3, 2, 2, 0.5, 0.3)
"""How often clients write, mirrors fetch, readers poll, somebody samples, group offsets are synced, relays step, and so on."""
_BEGAN: Final = 1_800_000_000 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a story is about; all of it a function of the seed, but for what a caller insists on (`spec`).

    `version` is that of transactions. `begun`: offsets before the log start, and with it sequences that wrap. `deleted`: the
    beginnings were deleted in the end. `flap`: the link is broken for a while. `lag`: the last that was acknowledged before a
    forced failover was not mirrored; `tear`: a transaction was committed then of which one partition was mirrored and another was
    not; `open_at_death`: one was open, of which something was mirrored; `open_at_end`: one is when the run ends. `relay`: there
    is one, which before a forced failover passes on what is not mirrored (`relay_torn`), or begins on the destination anew
    (`relay_anew`). `behind`: followers may lack the last batch.
    """

    seed: int
    shape: str
    mirror: str
    options: Mapping[str, Option]
    forced: bool
    version: int
    partitions: int
    brokers: int
    codecs: tuple[str, ...]
    append_time: bool
    begun: int
    deleted: bool
    flap: bool
    elections: bool
    lag: bool
    relay: bool
    behind: bool
    open_at_end: bool
    steps: int = 40
    open_at_death: bool = False
    tear: bool = False
    relay_torn: bool = False
    relay_anew: bool = False


def spec(seed: int, **wanted: object) -> Spec:
    """The story of a seed, with what is wanted of it."""
    rng = Random(seed)
    shape = str(wanted.pop("shape", "") or rng.choice(SHAPES))
    mirror = str(wanted.pop("mirror", "") or ("shadow" if shape in ("round-trip", "copied") else rng.choice(("shadow", "mm2"))))
    drawn = Spec(
        seed=seed,
        shape=shape,
        mirror=mirror,
        options=_options(mirror, rng),
        forced=rng.random() < 0.6,
        version=rng.choice((1, 2)),
        partitions=rng.choice((1, 2, 2, 3)),
        brokers=rng.choice((1, 1, 2, 3)),
        codecs=rng.choice((("none",), ("none", "gzip"), ("snappy", "lz4"), ("zstd", "xerial", "none"))),
        append_time=rng.random() < 0.3,
        begun=rng.choice((0, 0, 17)),
        deleted=rng.random() < 0.15,
        flap=rng.random() < 0.5,
        elections=rng.random() < 0.5,
        lag=rng.random() < 0.5,
        relay=rng.random() < 0.4,
        behind=rng.random() < 0.5,
        open_at_end=rng.random() < 0.2,
    )
    return replace(drawn, **wanted)  # type: ignore[arg-type]


def _options(mirror: str, rng: Random) -> Mapping[str, Option]:
    if mirror == "mm2":
        return {"delivery": rng.choice(("at-least-once", "exactly-once"))}
    return {
        "producer_ids": rng.choice(("jump", "jump", "reset", "complement")),
        "bound": rng.choice(("hw", "hw", "lso")),
        "leader_epochs": rng.choice(("rewrite", "rewrite", "keep")),
    }


@dataclass(slots=True)
class World:
    """Everything of a story while it goes on."""

    spec: Spec
    rng: Random
    clock: Clock
    notes: Notes
    clusters: dict[str, Cluster]
    links: list[Link]
    producers: list[Producer]
    readers: list[Reader]
    samplers: dict[str, Sampler]
    made: Made
    owner: Cluster
    spots: list[Spot]
    everywhere: list[Spot]
    relay: Relay | None


def story(told: Spec) -> Made:
    """Plays a story to its end."""
    world = _world(told)
    _begin(world)
    _SHAPES[told.shape](world)
    return _finished(world)


def _world(told: Spec) -> World:
    rng = Random(f"story {told.seed}")
    clock, notes = Clock(rng, _BEGAN), Notes()
    names = "ABC" if told.shape == "chain" else "AB"
    apart = told.options.get("producer_ids") != "reset"
    spots = [(TOPIC, p) for p in range(told.partitions)]
    everywhere = [*spots, *((OUTPUTS, p) for p in range(told.partitions) if told.relay)]
    clusters = {
        name: Cluster(name=name, brokers=told.brokers, next_pid=1000 * number if apart else 0)
        for number, name in enumerate(names)
    }
    for cluster in clusters.values():
        first = cluster.name == "A" or told.mirror == "shadow"
        base = told.begun if first else 0
        for spot in everywhere:
            cluster.logs[spot] = Log(cluster, start=base, base=base, epoch=rng.randint(0, 3) if told.mirror == "mm2" else 0)
    pairs = list(pairwise(names))
    made = Made(scenario=_scenario(told, names, pairs), started=clock.now, ended=0)
    return World(
        spec=told,
        rng=rng,
        clock=clock,
        notes=notes,
        clusters=clusters,
        spots=spots,
        everywhere=everywhere,
        relay=_relay(told, clock, notes),
        made=made,
        owner=clusters["A"],
        links=[_link(told, clusters[a], clusters[b], clock) for a, b in pairs],
        producers=_producers(told, clock, notes),
        readers=_readers(clock, notes, names),
        samplers={name: Sampler(cluster, clock, notes) for name, cluster in clusters.items()},
    )


def _link(told: Spec, source: Cluster, destination: Cluster, clock: Clock) -> Link:
    if told.mirror == "mm2":
        return Connector(source, destination, clock, exactly_once=told.options.get("delivery") == "exactly-once")
    return Shadow(
        source,
        destination,
        ids=str(told.options.get("producer_ids", "jump")),
        stable=told.options.get("bound") == "lso",
        keeps=told.options.get("leader_epochs") == "keep",
    )


def _producers(told: Spec, clock: Clock, notes: Notes) -> list[Producer]:
    kinds = (("transactional-1", told.version), ("transactional-2", told.version), ("idempotent-1", 0), ("plain-1", -1))
    made = [Producer(name, version, clock, notes, told.codecs) for name, version in kinds]
    if told.begun:
        for producer in made:
            producer.first_sequence = WRAP - 4
    return made


def _readers(clock: Clock, notes: Notes, names: str) -> list[Reader]:
    alone = [(f"{name}-{isolation}", f"read_{isolation}") for name in names for isolation in ("committed", "uncommitted")]
    return [
        Reader("follower", "read_committed", clock, notes, group=GROUP),
        *(Reader(name, isolation, clock, notes) for name, isolation in alone if name != "A-committed"),
    ]


def _relay(told: Spec, clock: Clock, notes: Notes) -> Relay | None:
    if not told.relay:
        return None
    reader = Reader(NAME, "read_committed", clock, notes, group=RELAYS)
    return Relay(reader, Producer(NAME, told.version, clock, notes, told.codecs), OUTPUTS)


def _scenario(told: Spec, names: str, pairs: list[tuple[str, str]]) -> Scenario:
    clients = {"transactional": 2, "idempotent": 1} | ({"relay": 1} if told.relay else {})
    workloads = [WorkloadSpec(kind=kind, home="A", clients=count) for kind, count in clients.items()]
    readers = [WorkloadSpec(kind="readers", home="A", options={"group": GROUP})]
    return Scenario(
        name="faithful",
        about="made up",
        seed=told.seed,
        topology=Topology(
            clusters=tuple(ClusterSpec(name=name, brokers=told.brokers) for name in names),
            links=tuple(LinkSpec(source=a, destination=b) for a, b in pairs),
        ),
        mirror=MirrorSpec(kind=told.mirror, options=told.options),
        workloads=(*workloads, *readers),
        schedule=(),
        partitions=told.partitions,
        budgets=Budgets(),
    )


def _begin(world: World) -> None:
    for producer in world.producers:
        producer.start(world.owner)
    for reader in world.readers:
        cluster = world.clusters["A" if reader.group else reader.name[0]]
        reader.assign(cluster, {spot: cluster.logs[spot].start for spot in world.everywhere})
    if world.relay is not None:
        world.relay.start(world.owner, {spot: world.owner.logs[spot].start for spot in world.spots})


def _pair(world: World) -> None:
    _era(world)
    if world.spec.flap:
        _flap(world)
    _settle(world)


def _copied(world: World) -> None:
    """What A had was compacted before anything was mirrored; of clients nothing is known."""
    links, world.links = world.links, []
    _era(world)
    for log in world.owner.logs.values():
        log.compact(world.rng)
    world.links = links
    _fail_over(world, world.links[0], forced=False, name="away")
    _era(world)
    _settle(world)


def _failover(world: World) -> None:
    _era(world)
    if world.spec.flap:
        _flap(world)
    _fail_over(world, world.links[0], forced=world.spec.forced, name="away")
    _era(world)
    _settle(world)


def _round_trip(world: World) -> None:
    _era(world)
    parted = _fail_over(world, world.links[0], forced=world.spec.forced, name="away")
    _era(world)
    _reverse(world, parted)
    _era(world)
    _fail_over(world, world.links[0], forced=False, name="home")
    _era(world)
    _settle(world)


_SHAPES: Final = {"pair": _pair, "failover": _failover, "round-trip": _round_trip, "chain": _failover, "copied": _copied}


def _era(world: World) -> None:
    """Each client does something once, so that everything due is there to examine; then clients and mirrors do this and that."""
    rng = world.rng
    for producer in world.producers:
        _operation(world, producer, "commit")
    _operation(world, world.producers[0], "abort")
    if world.relay is not None:
        world.relay.step(world.rng, everything=True, appended=world.spec.append_time, ending="commit")
    _drain(world)
    _look(world)
    for _ in range(world.spec.steps):
        action = rng.choices((_produce, _mirror, _poll, _sample, _sync, _pass_on, _restart, _elect), _WEIGHTS)[0]
        action(world)


def _operation(world: World, producer: Producer, ending: str) -> None:
    if producer.writing is not None:
        _finish(world, producer)
    producer.begin(world.spots, world.rng, ending=ending if producer.transactional else "")
    _finish(world, producer)


def _finish(world: World, producer: Producer) -> None:
    while producer.write(world.rng, appended=world.spec.append_time):
        pass
    producer.end()


def _produce(world: World) -> None:
    rng = world.rng
    producer = rng.choice(world.producers)
    if producer.writing is None:
        producer.begin(rng.sample(world.spots, rng.randint(1, len(world.spots))), rng)
    elif producer.writing.left and rng.random() < 0.95:
        producer.write(rng, appended=world.spec.append_time)
    elif producer.writing.left and not producer.transactional:
        producer.refused()
        producer.end(outcome="info")
    elif not producer.writing.left:
        _ended(producer, rng)


def _ended(producer: Producer, rng: Random) -> None:
    """Most are told what became of their transaction."""
    ending = producer.writing.row.ending if producer.writing else ""
    if ending == "commit" and rng.random() < 0.1:
        producer.end(outcome="info", really=rng.choice((COMMIT, ABORT)))
    else:
        producer.end()


def _mirror(world: World) -> None:
    for link in world.links:
        if link.source.alive:
            link.fetch(world.rng.choice(world.everywhere), world.rng)


def _poll(world: World) -> None:
    reader = world.rng.choice(world.readers)
    if reader.cluster is not None and reader.cluster.alive:
        reader.poll(world.rng)


def _sample(world: World) -> None:
    sampler = world.rng.choice([s for s in world.samplers.values() if s.cluster.alive])
    if sampler.begun is None and world.rng.random() < 0.5:
        sampler.begin()
    else:
        sampler.finish()
        sampler.sample()


def _sync(world: World) -> None:
    for link in world.links:
        if link.source.alive:
            sync_groups(link, world.notes, world.clock, GROUP)
            sync_groups(link, world.notes, world.clock, RELAYS)


def _pass_on(world: World) -> None:
    if world.relay is not None:
        world.relay.step(world.rng, appended=world.spec.append_time)


def _restart(world: World) -> None:
    """A producer dies and has a successor; or is fenced by one, and is told so."""
    producer = world.rng.choice(world.producers[:2])
    if producer.writing is None:
        return
    if world.rng.random() < 0.5:
        producer.give_up(world.rng)
    else:
        fence(world.owner, producer.name, world.clock.ms)
        row = replace(
            producer.writing.row, phase="return", time=world.clock.tick(), outcome="fail", sends=producer.writing.sends()
        )
        told = replace(row, ending="commit", producer_id=producer.pid, producer_epoch=producer.epoch, ended_at=world.clock.now)
        world.notes.operations.append(told)
    producer.start(world.owner)


def _elect(world: World) -> None:
    if world.spec.elections and world.spec.brokers > 1:
        world.owner.elect(world.rng.choice(world.everywhere), world.rng.randint(1, world.spec.brokers))


def _settle(world: World) -> None:
    """Everybody finishes, mirrors drain, readers read to the end, samplers look once more."""
    _all_finish(world)
    _drain(world)
    _look(world)
    for reader in world.readers:
        if reader.cluster is not None and reader.cluster.alive:
            reader.drained()


def _drain(world: World) -> None:
    for link in world.links:
        for spot in world.everywhere if link.source.alive else ():
            link.fetch(spot, world.rng, everything=True)


def _look(world: World) -> None:
    for reader in world.readers:
        if reader.cluster is not None and reader.cluster.alive:
            reader.poll(world.rng, everything=True)
    for sampler in world.samplers.values():
        if sampler.cluster.alive:
            sampler.finish()
            sampler.sample()
    _sync(world)


def _flap(world: World) -> None:
    """The link is broken for a while; a mirror that delivers at least once may then repeat itself."""
    notes, clock, link = world.notes, world.clock, world.links[0]
    name = f"{link.source.name}->{link.destination.name}"
    _fault_start(world, "flap", "link-flap", name, restores=True)
    if isinstance(link, Connector) and not link.exactly_once:
        for spot in world.everywhere:
            link.rewind(spot, world.rng.randint(0, 5))
    for _ in range(5):
        _produce(world)
    _fault_end(world, "flap", name)
    for _ in range(10):
        world.rng.choice((_produce, _mirror, _poll, _sample))(world)
    notes.event(clock.tick(), "phase", "settling")


def _fault_start(world: World, name: str, fault: str, target: str, *, restores: bool) -> None:
    notes, clock = world.notes, world.clock
    notes.event(clock.tick(), "fault-start", target, id=name, fault=fault, options={}, restores=restores)
    spec_ = FaultSpec(id=name, fault=fault, target=target, at=1.0, duration=0.0)
    world.made.scenario = replace(world.made.scenario, schedule=(*world.made.scenario.schedule, spec_))


def _fault_end(world: World, name: str, target: str) -> None:
    notes, clock = world.notes, world.clock
    notes.event(clock.tick(), "fault-bite", target, id=name, bit=True, observable="it", measured=1, expected=1)
    notes.event(clock.tick(), "fault-heal", target, id=name, healed=True, checked=[])
    notes.event(clock.tick(), "fault-end", target, id=name)


def _fail_over(world: World, link: Link, *, forced: bool, name: str) -> dict[Spot, int]:
    """The source of a link is given up, its destination is the owner. Returns the promotion offsets."""
    source, destination = link.source, link.destination
    target, kind = f"{source.name}->{destination.name}", "forced" if forced else "planned"
    _last_moments(world, link, forced=forced)
    _fault_start(world, name, f"failover-{kind}", target, restores=False)
    fault_time = world.clock.tick()
    if forced:
        # What it had not committed is its last moment's: nobody was told.
        source.alive = False
        for producer in world.producers:
            producer.give_up(world.rng)
    else:
        _drain(world)
        _look(world)
    offsets = hand_over(link, world.notes, world.clock, kind=kind, fault_time=fault_time)
    world.links.remove(link)
    world.owner = destination
    for producer in world.producers:
        producer.start(destination)
    follower = world.readers[0]
    follower.assign(destination, _synced(link, GROUP, world.everywhere))
    if world.relay is not None:
        anew = {spot: destination.logs[spot].start for spot in world.spots}
        world.relay.start(destination, anew if world.spec.relay_anew else _synced(link, RELAYS, world.spots))
    world.notes.event(world.clock.tick(), "clients-moved", source.name, to=destination.name)
    if forced:
        _capture(world, f"1-{name}", source)
    _fault_end(world, name, target)
    return offsets


def _synced(link: Link, group: str, spots: list[Spot]) -> dict[Spot, int]:
    """Where a group is on the destination: where the mirror says, or at the start."""
    return {spot: link.synced.get((group, spot), link.destination.logs[spot].start) for spot in spots}


def _last_moments(world: World, link: Link, *, forced: bool) -> None:
    """What clients and the mirror do right before a failover."""
    if not forced:
        _all_finish(world)
        return
    if world.spec.open_at_death:
        _left_open(world)
    if world.spec.tear:
        _drain(world)
        _operation(world, world.producers[0], "commit")
        link.fetch(world.spots[-1], world.rng, everything=True)
    if world.spec.relay_torn and world.relay is not None:
        _all_finish(world)
        _operation(world, world.producers[2], "")
        _drain(world)
        world.relay.step(world.rng, everything=True, ending="commit")
        _sync(world)
    if world.spec.lag:
        for producer in world.producers[1:]:
            _operation(world, producer, "commit")


def _all_finish(world: World) -> None:
    for producer in world.producers:
        if producer.writing is not None:
            _finish(world, producer)


def _left_open(world: World) -> None:
    producer = world.producers[0]
    if producer.writing is not None:
        _finish(world, producer)
    producer.begin(world.spots, world.rng, ending="commit")
    while producer.write(world.rng, appended=world.spec.append_time):
        pass
    _drain(world)


def _reverse(world: World, parted: Mapping[Spot, int]) -> None:
    """A follows B."""
    old, new = world.clusters["A"], world.clusters["B"]
    target = "A->B"
    old.alive = True
    sampler = world.samplers["A"]
    sampler.begun = None
    _fault_start(world, "reverse", "mirror-reverse", target, restores=True)
    _capture(world, "1-reverse", old)
    turn_back(old, new, dict(parted), world.notes, world.clock)
    _fault_end(world, "reverse", target)
    world.links.append(_link(world.spec, new, old, world.clock))
    for reader in world.readers:
        if reader.cluster is old:
            reader.assign(old, {spot: min(position, old.logs[spot].end) for spot, position in reader.positions.items()})


def _capture(world: World, moment: str, cluster: Cluster) -> None:
    rng = world.rng
    for (topic, partition), log in cluster.logs.items():
        for broker in range(1, cluster.brokers + 1):
            entries = list(log.entries)
            leads = broker == log.leader
            if world.spec.behind and not leads and len(entries) > 3 and rng.random() < 0.3:
                entries.pop()
            bounds = Bounds(
                cluster=cluster.name,
                broker=broker,
                topic=topic,
                partition=partition,
                leader=leads,
                alive=cluster.alive,
                log_start=log.start,
                high_watermark=entries[-1].end if entries else log.base,
                high_watermark_from="sampled",
            )
            cuts = tuple(e.offset for e in entries if rng.random() < 0.1)
            kept = [e for e in entries if e.end > log.start]
            world.made.logs[Place(moment, cluster.name, broker, topic, partition)] = Captured(
                entries=kept, bounds=bounds, cuts=cuts
            )
    world.notes.event(world.clock.tick(), "captured", cluster.name, moment=moment, replicas=cluster.brokers * len(cluster.logs))


def _finished(world: World) -> Made:
    made, notes = world.made, world.notes
    if world.spec.open_at_end:
        _left_open(world)
        _look(world)
    for link in world.links:
        name = f"{link.source.name}->{link.destination.name}"
        if link.source.alive:
            notes.event(world.clock.tick(), "mirror-stopped", name, drained=True)
    if world.spec.deleted:
        _delete_beginnings(world)
    for cluster in world.clusters.values():
        if cluster.alive:
            _capture(world, END, cluster)
    made.operations, made.polls, made.marks, made.groups = notes.operations, notes.polls, notes.marks, notes.groups
    made.events, made.ended = notes.events, world.clock.tick()
    return _without_history(made) if world.spec.shape == "copied" else made


def _without_history(made: Made) -> Made:
    """What is left of a run when somebody has only copied its logs, and knows what was promoted where."""
    made.operations, made.polls, made.marks, made.groups = [], [], [], []
    made.events = [e for e in made.events if e.kind in ("promotion", "captured")]
    made.recorded, made.homes = False, {place.topic: "A" for place in made.logs}
    ids = made.scenario.mirror.options.get("producer_ids")
    exact = MirrorSpec(kind="exact", options={"producer_ids": ids} if ids == "complement" else {})
    unknown = (WorkloadSpec(kind="unknown", home="A"),)
    made.scenario = replace(made.scenario, mirror=exact, workloads=unknown, schedule=())
    return made


def _delete_beginnings(world: World) -> None:
    """DeleteRecords, or retention: the log start is raised by a few batches, to the middle of one too.

    Not where a mirror repeated itself: behind a cluster that lost the first copies nobody can tell repeats from inversions.
    """
    if world.spec.flap and world.spec.options.get("delivery") == "at-least-once":
        return
    for cluster in world.clusters.values():
        for log in cluster.logs.values() if cluster.alive else ():
            log.start = world.rng.randint(log.start, log.entries[min(3, len(log.entries) - 1)].end)
    for sampler in world.samplers.values():
        if sampler.cluster.alive:
            sampler.sample()


def faithful(seeds: Iterator[int] | range) -> Iterator[Made]:
    """One story per seed."""
    return (story(spec(seed)) for seed in seeds)


__all__ = ["GROUP", "TOPIC", "Entry", "Spec", "committed", "faithful", "spec", "story", "writing_epoch"]
