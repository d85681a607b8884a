"""Tails: the end of a cluster whose mirror truncates open transactions at its end
(`tests.faithful.endings`).

One transaction stays open, and other records are acknowledged after its first record: their
mirrored copies are truncated with it. If transactions `overlap`, truncating one opens the one
before it. On the destination, no reader gets any of the truncated records, because a destination
must keep what it has served. Only a read_uncommitted reader gets records of the transactions that
stay open.
"""

from __future__ import annotations

from tests.faithful.clients import Producer
from tests.faithful.doing import all_finish, drain, look, operation, sample
from tests.faithful.links import Link
from tests.faithful.world import World


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
