"""The last moments of a cluster whose mirror truncates what is open at its end
(`tests.faithful.endings`).

One transaction is open to the end, and others are acknowledged behind where it began: what of them
was mirrored goes with it. Where transactions `overlap`, cutting one opens the one before it. On a
destination nobody gets any of it but what stays open, and that only who reads uncommitted: what a
destination has shown it must keep.
"""

from __future__ import annotations

from tests.faithful.clients import Producer
from tests.faithful.doing import all_finish, drain, look, operation, sample
from tests.faithful.links import Link
from tests.faithful.world import World


def tail(world: World, link: Link) -> None:
    """Up to the moment at which the source of a link dies."""
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
        # Acknowledged, and its marker goes nowhere.
        _commit(world.producers[0])


def _overlapping(world: World) -> None:
    """Two producers in turn; each begins before the other commits, and the last stays open."""
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
    """Readers of the cluster that is about to die, and the relay, go on."""
    for reader in world.readers:
        if reader.cluster is world.owner:
            reader.poll(world.rng)
    if world.relay is not None and world.rng.random() < 0.5:
        world.relay.step(world.rng, appended=world.spec.append_time)


def after_the_truncation(world: World, link: Link) -> None:
    """Readers that stood beyond the truncation are set back to it, or do not learn of it, and wait
    there."""
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
