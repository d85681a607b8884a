"""The stories of seeds: clusters, mirrors, clients and failovers. All are faithful: no check may
find anything.

pair         A->B, without a failover; the link may flap
failover     A->B, planned or forced; then clients continue on B
round-trip   failover A->B, planned or forced; A follows B; planned failover back (only with a
             mirror that keeps offsets)
chain        A->B->C; A fails over to B, and C follows B all the time
copied       only the logs of such a pair, compacted before they were mirrored, without a history
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from linkflap.harness.model.scenario import MirrorSpec, WorkloadSpec
from tests.faithful.client_steps import era, go_on, left_open, look, mirror, settle
from tests.faithful.clusters import Cluster, Log
from tests.faithful.failovers import (
    MIRRORED_SETTINGS,
    OWN_SETTINGS,
    capture,
    fail_over,
    flap,
    reverse,
    settings,
    stop,
)
from tests.faithful.made import END, Made
from tests.faithful.relays import as_program
from tests.faithful.shares import with_share_group
from tests.faithful.spec import Spec
from tests.faithful.world import World, world_of


def story(spec: Spec) -> Made:
    """Plays a story to its end."""
    world = world_of(spec)
    _begin(world)
    _SHAPES[spec.shape](world)
    return _finished(world)


def _begin(world: World) -> None:
    for cluster in world.clusters.values():
        settings(world, cluster, OWN_SETTINGS if cluster is world.owner else MIRRORED_SETTINGS)
    for producer in (*world.producers, *world.outliving):
        producer.start(world.owner)
    for reader in world.readers:
        cluster = world.clusters["A" if reader.group else reader.name[0]]
        reader.assign(cluster, {spot: cluster.logs[spot].start for spot in world.everywhere})
    if world.spare is not None:
        world.spare.assign(world.owner, {})
    if world.relay is not None:
        world.relay.start(world.owner, {spot: world.owner.logs[spot].start for spot in world.spots})


def _pair(world: World) -> None:
    era(world)
    if world.spec.flap:
        flap(world)
    settle(world)


def _copied(world: World) -> None:
    """A's logs were compacted before anything was mirrored, and there is no history of clients."""
    links, world.links = world.links, []
    era(world)
    for log in world.owner.logs.values():
        log.compact(world.rng)
    world.links = links
    fail_over(world, world.links[0], forced=False, name="away")
    era(world)
    settle(world)


def _failover(world: World) -> None:
    era(world)
    if world.spec.flap:
        flap(world)
    fail_over(world, world.links[0], forced=world.spec.forced, name="away")
    era(world)
    settle(world)


def _round_trip(world: World) -> None:
    era(world)
    go_on(world)
    parted = fail_over(world, world.links[0], forced=world.spec.forced, name="away")
    era(world)
    reverse(world, parted)
    era(world)
    fail_over(world, world.links[0], forced=False, name="home")
    go_on(world)
    era(world)
    settle(world)


_SHAPES: Final = {
    "pair": _pair,
    "failover": _failover,
    "round-trip": _round_trip,
    "chain": _failover,
    "copied": _copied,
}


def _finished(world: World) -> Made:
    made, notes = world.made, world.notes
    if world.spec.open_at_end:
        left_open(world)
        look(world)
    while world.links:
        link = world.links.pop(0)
        if link.source.alive:
            stop(link, notes, world.clock, drained=True, behind=world.links)
            mirror(world)
    if world.spec.deleted:
        _delete_beginnings(world)
    for cluster in world.clusters.values():
        if cluster.alive:
            capture(world, END, cluster)
    made.operations, made.polls, made.marks, made.groups = (
        notes.operations,
        notes.polls,
        notes.marks,
        notes.groups,
    )
    made.written, made.endings = notes.written, notes.ended
    made.events, made.ended = notes.events, world.clock.tick()
    if world.spec.shares and world.spec.shape != "copied":
        made = with_share_group(made, world.spec.seed)
    if world.spec.program:
        return as_program(made)
    return without_history(made) if world.spec.shape == "copied" else made


def without_history(made: Made) -> Made:
    """The part of a run that remains if a user has only copied its logs and knows the promotion
    offsets. The last stable offsets are those that the leaders of running clusters reported."""
    made.operations, made.polls, made.marks, made.groups = [], [], [], []
    made.events = [e for e in made.events if e.kind in ("promotion", "captured")]
    made.recorded, made.homes = False, {key.topic: "A" for key in made.logs}
    for captured in made.logs.values():
        if captured.bounds.leader and captured.bounds.alive:
            log = Log(Cluster(name="", brokers=1, next_pid=0), base=captured.bounds.log_start)
            for entry in captured.entries:
                log.take(entry)
            captured.bounds = replace(captured.bounds, last_stable=log.stable, stable_above=log.end)
    ids = made.scenario.mirror.options.get("producer_ids")
    exact = MirrorSpec(kind="exact", options={"producer_ids": ids} if ids == "complement" else {})
    unknown = (WorkloadSpec(kind="unknown", home="A"),)
    made.scenario = replace(made.scenario, mirror=exact, workloads=unknown, schedule=())
    return made


def _delete_beginnings(world: World) -> None:
    """The log start offset is raised by a few batches: by DeleteRecords, sometimes to the middle of
    a batch, or by retention, which keeps entire segments."""
    retention = world.rng.random() < 0.5
    if retention:
        topics = world.made.scenario.topics
        topics = replace(
            topics, config={**topics.config, "retention.bytes": "1", "segment.bytes": "14"}
        )
        world.made.scenario = replace(world.made.scenario, topics=topics)
    for cluster in world.clusters.values():
        for spot, log in cluster.logs.items() if cluster.alive else ():
            first, after = log.entries[0], log.entries[min(3, len(log.entries) - 1)]
            if retention:
                log.start = world.rng.choice((first, after)).offset
                continue
            log.start = world.rng.randint(log.start, after.end)
            row = {"topic": spot[0], "partition": spot[1], "offset": log.start}
            world.notes.event(world.clock.tick(), "records-deleted", cluster.name, **row)
    for sampler in world.samplers.values():
        if sampler.cluster.alive:
            sampler.sample()
