"""Flaps, failovers, reversals and captures; the end of a mirror, after which its destination is
promoted and the cluster that was given up follows it.

The end of a cluster whose mirror truncates: one transaction stays open, and other records are
acknowledged after its first record, so that their mirrored copies are truncated with it. If
transactions `overlap`, truncating one opens the one before it. On the destination, no reader gets
any of the truncated records, because a destination must keep what it has served. Only a
read_uncommitted reader gets records of the transactions that stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import FaultSpec
from tests.faithful.client_steps import (
    all_finish,
    drain,
    left_open,
    look,
    mirror,
    operation,
    poll,
    produce,
    sample,
    sync,
)
from tests.faithful.clients import Producer
from tests.faithful.clusters import ABORT, TRUNCATING_RULES, Cluster, Spot, cleaned_again
from tests.faithful.coordinators import ticked
from tests.faithful.links import Connector, Link, Shadow
from tests.faithful.made import Captured, LogKey
from tests.faithful.observers import Clock, Notes
from tests.faithful.relays import GROUP as RELAYS
from tests.faithful.spec import GROUP
from tests.faithful.world import World, link_of


def hand_over(
    link: Link,
    notes: Notes,
    clock: Clock,
    *,
    kind: str,
    fault_time: int,
    behind: Sequence[Link] = (),
) -> dict[Spot, int]:
    """Ends the mirror and its open transactions, and makes the destination writable. Returns the
    promotion offsets."""
    destination, name = link.destination, f"{link.source.name}->{link.destination.name}"
    opened = (
        sum(len(log.open) for log in destination.logs.values()) if isinstance(link, Shadow) else 0
    )
    offsets = stop(link, notes, clock, drained=kind == "planned", behind=behind)
    for (topic, partition), offset in offsets.items():
        notes.event(
            clock.tick(1, 1),
            "promotion",
            name,
            cluster=destination.name,
            topic=topic,
            partition=partition,
            offset=offset,
        )
    notes.event(
        clock.tick(1, 1),
        "failover",
        name,
        kind=kind,
        fault_time=fault_time,
        open_transactions=opened,
    )
    return offsets


def stop(
    link: Link, notes: Notes, clock: Clock, *, drained: bool, behind: Sequence[Link] = ()
) -> dict[Spot, int]:
    """Ends a mirror, and records its journal. Returns where clients of the destination may
    begin."""
    name, spots = f"{link.source.name}->{link.destination.name}", sorted(link.destination.logs)
    if isinstance(link, Shadow):
        ends = {spot: link.end(spot, clock.ms, behind) for spot in spots}
        notes.event(
            clock.tick(),
            "mirror-stopped",
            name,
            drained=drained,
            partitions=[row for _, row in ends.values()],
        )
        return {spot: kept for spot, (kept, _) in ends.items()}
    offsets = {spot: link.destination.logs[spot].end for spot in spots}
    for log in link.destination.logs.values():
        log.epoch += 1
    notes.event(clock.tick(), "mirror-stopped", name, drained=drained)
    return offsets


def turn_back(
    old: Cluster, new: Cluster, parted: dict[Spot, int], notes: Notes, clock: Clock
) -> None:
    """The cluster that was given up truncates what the new owner never had, and follows it."""
    for spot, log in sorted(old.logs.items()):
        end, truncated_to = log.end, parted[spot]
        log.truncate(truncated_to)
        # A truncation is recorded for every log that is taken over, even if it had no tail.
        data = {
            "cluster": old.name,
            "topic": spot[0],
            "partition": spot[1],
            "offset": truncated_to,
            "end": end,
        }
        notes.event(clock.tick(1, 2), "truncation", f"{new.name}->{old.name}", **data)
        log.epoch = max(log.epoch, new.logs[spot].epoch) + 1
    notes.event(
        clock.tick(),
        "mirror-started",
        f"{new.name}->{old.name}",
        mirror="shadow",
        options={},
        seconds=0.1,
    )


def tail(world: World, link: Link) -> None:
    """Plays until the source of a link dies."""
    all_finish(world)
    drain(world)
    look(world)
    if world.spec.overlap:
        _overlapping(world)
    else:
        _begin(world, world.producers[0])
        drain(world)
        _uncommitted_poll(world)
    for producer in world.producers[2:]:
        operation(world, producer, "")
        _mirror(world, link)
    for _ in range(world.rng.randint(0, 3)):
        sample(world)
    _at_home(world)
    _mirror(world, link)
    if not world.spec.overlap and world.rng.random() < 0.3:
        # Acknowledged, and its marker is never mirrored.
        _commit(world.producers[0])


def _overlapping(world: World) -> None:
    """Two producers alternate; each begins before the other commits, and the last transaction stays
    open."""
    first, second = world.producers[:2]
    for _ in range(world.rng.randint(2, 4)):
        _begin(world, second)
        _commit(first)
        first, second = second, first
    world.producers[:2] = [first, second]


def _begin(world: World, producer: Producer) -> None:
    producer.begin(world.spots, world.rng, ending="commit")
    while producer.write(world.rng, appended=world.spec.append_time):
        pass


def _commit(producer: Producer) -> None:
    if producer.writing is not None:
        producer.end()


def _mirror(world: World, link: Link) -> None:
    for one in (link, *world.links):
        for spot in world.everywhere:
            one.fetch(spot, world.rng, everything=world.rng.random() < 0.5)


def _uncommitted_poll(world: World) -> None:
    for reader in world.readers:
        if (
            reader.cluster is not world.owner
            and reader.isolation == "read_uncommitted"
            and world.rng.random() < 0.7
        ):
            reader.poll(world.rng, everything=True)


def _at_home(world: World) -> None:
    """Readers of the dying cluster, and the relay, continue."""
    for reader in world.readers:
        if reader.cluster is world.owner:
            reader.poll(world.rng)
    if world.relay is not None and world.rng.random() < 0.5:
        world.relay.step(world.rng, appended=world.spec.append_time)


def after_the_truncation(world: World, link: Link) -> None:
    """Readers after the truncation are set back to it; or they do not notice it, and wait at their
    positions."""
    destinations = {link.destination.name, *(one.destination.name for one in world.links)}
    for reader in world.readers:
        cluster = reader.cluster
        if cluster is None or cluster.name not in destinations:
            continue
        held = {
            spot: min(position, cluster.logs[spot].end)
            for spot, position in reader.positions.items()
        }
        if held != reader.positions and world.rng.random() < 0.5:
            reader.assign(cluster, held)


OWN_SETTINGS = {"retention.ms": "604800000", "min.insync.replicas": "1"}
MIRRORED_SETTINGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
}


def settings(world: World, cluster: Cluster, own: Mapping[str, str]) -> None:
    """The topics of a cluster have other settings from now on, and are sampled."""
    every = {**world.made.scenario.topics.config, **own}
    topics = {topic: dict(every) for topic in sorted({topic for topic, _ in world.everywhere})}
    now = world.clock.now
    row = {"asked": now, "before": max(0, now - 1), "topics": topics}
    world.notes.event(now, "settings-sampled", cluster.name, **row)


def flap(world: World) -> None:
    """The link is down for a while. A mirror with at-least-once delivery may then repeat
    records."""
    notes, clock, link = world.notes, world.clock, world.links[0]
    name = f"{link.source.name}->{link.destination.name}"
    _fault_start(world, "flap", "link-flap", name, restores=True)
    if isinstance(link, Connector) and not link.exactly_once:
        for spot in world.everywhere:
            link.rewind(spot, world.rng.randint(0, 5))
    for _ in range(5):
        produce(world)
    _fault_end(world, "flap", name)
    for _ in range(10):
        world.rng.choice((produce, mirror, poll, sample))(world)
    notes.event(clock.tick(), "phase", "settling")


def _fault_start(world: World, name: str, fault: str, target: str, *, restores: bool) -> None:
    notes, clock = world.notes, world.clock
    notes.event(
        clock.tick(), "fault-start", target, id=name, fault=fault, options={}, restores=restores
    )
    spec_ = FaultSpec(id=name, fault=fault, target=target, at=1.0, duration=0.0)
    world.made.scenario = replace(
        world.made.scenario, schedule=(*world.made.scenario.schedule, spec_)
    )


def _fault_end(world: World, name: str, target: str) -> None:
    notes, clock = world.notes, world.clock
    notes.event(
        clock.tick(),
        "fault-bite",
        target,
        id=name,
        bit=True,
        observable="it",
        measured=1,
        expected=1,
    )
    notes.event(clock.tick(), "fault-heal", target, id=name, healed=True, checked=[])
    notes.event(clock.tick(), "fault-end", target, id=name)


def fail_over(world: World, link: Link, *, forced: bool, name: str) -> dict[Spot, int]:
    """The source of a link is given up, and its destination becomes the owner. Returns the
    promotion offsets."""
    source, destination = link.source, link.destination
    target, kind = f"{source.name}->{destination.name}", "forced" if forced else "planned"
    _last_moments(world, link, forced=forced)
    _fault_start(world, name, f"failover-{kind}", target, restores=False)
    fault_time = world.clock.tick()
    if forced:
        # Its uncommitted records are the last ones: no client got an answer for them.
        source.alive = False
        for producer in world.producers:
            producer.give_up(world.rng)
    else:
        drain(world)
        look(world)
    world.links.remove(link)
    behind = [one for one in world.links if one.source is destination]
    offsets = hand_over(
        link, world.notes, world.clock, kind=kind, fault_time=fault_time, behind=behind
    )
    world.owner = destination
    after_the_truncation(world, link)
    for producer in world.producers:
        producer.start(destination)
    follower = world.readers[0]
    follower.assign(destination, _synced(link, GROUP, world.everywhere))
    if world.relay is not None:
        anew = {spot: destination.logs[spot].start for spot in world.spots}
        world.relay.start(
            destination, anew if world.spec.relay_anew else _synced(link, RELAYS, world.spots)
        )
    world.notes.event(world.clock.tick(), "clients-moved", source.name, to=destination.name)
    settings(world, destination, OWN_SETTINGS)
    if forced:
        capture(world, f"1-{name}", source)
    _fault_end(world, name, target)
    return offsets


def _synced(link: Link, group: str, spots: list[Spot]) -> dict[Spot, int]:
    """The position of a group on the destination: the offset that the mirror committed, or the
    start."""
    return {
        spot: link.synced.get((group, spot), link.destination.logs[spot].start) for spot in spots
    }


def _last_moments(world: World, link: Link, *, forced: bool) -> None:
    """Steps of clients and the mirror directly before a failover."""
    if not forced:
        all_finish(world)
        return
    if world.spec.options.get("open_transactions") in TRUNCATING_RULES:
        tail(world, link)
    if world.spec.open_at_death:
        left_open(world)
        if world.spec.late_commit:
            # Acknowledged, and its marker is never mirrored.
            world.producers[0].end()
    if world.spec.tear:
        drain(world)
        operation(world, world.producers[0], "commit")
        link.fetch(world.spots[-1], world.rng, everything=True)
    if world.spec.relay_torn and world.relay is not None:
        all_finish(world)
        operation(world, world.producers[2], "")
        drain(world)
        world.relay.step(
            world.rng, everything=True, appended=world.spec.append_time, ending="commit"
        )
        sync(world)
    if world.spec.lag:
        # A leader without a reset continues with its producer states, so the end of a session must
        # not be truncated there.
        truncated = world.outliving[:1] if world.spec.options.get("producer_ids") == "reset" else []
        for producer in (*world.producers[1:], *truncated):
            operation(world, producer, "commit")


def reverse(world: World, parted: Mapping[Spot, int]) -> None:
    """A follows B."""
    old, new = world.clusters["A"], world.clusters["B"]
    target = "A->B"
    old.alive = True
    sampler = world.samplers["A"]
    sampler.begun = None
    _fault_start(world, "reverse", "mirror-reverse", target, restores=True)
    _meanwhile(world, old)
    capture(world, "1-reverse", old)
    if world.rng.random() < 0.5:
        _end_what_died(world, old)
    _meanwhile(world, old)
    turn_back(old, new, dict(parted), world.notes, world.clock)
    _set_back(world, old)
    link = link_of(world.spec, new, old, world.clock)
    world.links.append(link)
    settings(world, old, MIRRORED_SETTINGS)
    _meanwhile(world, old)
    for spot in world.everywhere:
        link.fetch(spot, world.rng, everything=world.rng.random() < 0.7)
    _meanwhile(world, old)
    _fault_end(world, "reverse", target)


def _meanwhile(world: World, cluster: Cluster) -> None:
    """Observations of readers and samplers of one cluster, now."""
    for reader in world.readers:
        if reader.cluster is cluster and world.rng.random() < 0.7:
            reader.poll(world.rng, everything=world.rng.random() < 0.5)
    if world.rng.random() < 0.7:
        world.samplers[cluster.name].sample()


def _end_what_died(world: World, cluster: Cluster) -> None:
    """The coordinator of a restarted cluster aborts the transactions that clients had left open; a
    capture was taken before."""
    for log in cluster.logs.values():
        for pid, mine in list(log.open.items()):
            log.mark(ABORT, pid=pid, epoch=mine[0].epoch, timestamp=world.clock.ms)


def _set_back(world: World, cluster: Cluster) -> None:
    """Readers after the offset of a truncation notice it, and begin there."""
    for reader in world.readers:
        if reader.cluster is cluster:
            reader.assign(
                cluster,
                {
                    spot: min(position, cluster.logs[spot].end)
                    for spot, position in reader.positions.items()
                },
            )


def capture(world: World, moment: str, cluster: Cluster) -> None:
    rng = world.rng
    for _ in range(5):
        ticked(cluster, world.clock.ms)
    # Logs that a user copied do not contain Kafka's own topics.
    own = {} if world.spec.shape == "copied" else cluster.own
    for (topic, partition), log in (*cluster.logs.items(), *own.items()):
        for broker in range(1, cluster.brokers + 1):
            entries = list(log.entries)
            leads = broker == log.leader
            if log.cleaned and not leads:
                # Every broker has its own log cleaner, which runs independently of the leader's.
                entries = cleaned_again(
                    entries, log.cleaned, log.aborted, world.clock.ms + broker, rng
                )
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
                compacted=log.cleaned,
            )
            edges_at = tuple(e.offset for e in entries if rng.random() < 0.1)
            kept = [e for e in entries if e.end > log.start]
            world.made.logs[LogKey(moment, cluster.name, broker, topic, partition)] = Captured(
                entries=kept, bounds=bounds, edges_at=edges_at
            )
    world.notes.event(
        world.clock.tick(),
        "captured",
        cluster.name,
        moment=moment,
        replicas=cluster.brokers * len(cluster.logs),
    )
