"""Steps of clients and mirrors between faults, and at the end. All of it takes time of the world's
one clock.

Producers are killed between a request and its return, so that the outcome is only in the log. The
successor, with the same transactional id, aborts an open transaction. A commit that was already
requested is carried out, but no client gets the answer. Some of the records of a plain send may be
in the log. A relay resumes at the offsets of its group.

Readers are killed too, and partitions move between members of a group. A member begins at the
committed offset of its group; a reader with fixed partitions begins at the log start offset. A
killed reader writes no more rows, neither its last position nor a revocation.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.faithful.clients import Producer
from tests.faithful.clusters import ABORT, COMMIT
from tests.faithful.coordinators import fence
from tests.faithful.links import sample_groups, sync_groups
from tests.faithful.observers import Reader
from tests.faithful.relays import GROUP as RELAYS
from tests.faithful.spec import GROUP
from tests.faithful.world import World


def kill(world: World) -> None:
    """Kills one of the producers at a random step."""
    rng = world.dying
    chosen: Producer | None = rng.choice(
        [*world.producers, *([None] if world.relay is not None else [])]
    )
    asked = rng.random() < 0.5
    if chosen is None:
        assert world.relay is not None
        world.relay.killed(rng, asked=asked, appended=world.spec.append_time)
        return
    if chosen.writing is None:
        chosen.begin(rng.sample(world.spots, rng.randint(1, len(world.spots))), rng)
    assert chosen.writing is not None
    asked &= chosen.writing.row.ending == "commit"
    while (asked or rng.random() < 0.7) and chosen.write(rng, appended=world.spec.append_time):
        pass
    chosen.killed(asked=asked)
    chosen.start(world.owner)


def disturb(world: World) -> None:
    """One of these events, for a reader whose cluster is alive."""
    alive = [
        reader for reader in world.readers if reader.cluster is not None and reader.cluster.alive
    ]
    if not alive:
        return
    reader = world.moves.choice(alive)
    if not reader.group or world.spare is None or world.moves.random() < 0.3:
        _restart_reader(reader)
    elif world.moves.random() < 0.5:
        _rebalance(reader)
    else:
        _hand_on(world, reader, world.spare)


def _restart_reader(reader: Reader) -> None:
    assert reader.cluster is not None
    reader.process = 0
    starts = {spot: reader.cluster.logs[spot].start for spot in reader.positions}
    reader.assign(reader.cluster, {**starts, **reader.held} if reader.group else starts)


def _rebalance(reader: Reader) -> None:
    assert reader.cluster is not None
    reader.revoke(list(reader.positions))
    reader.assign(reader.cluster, reader.held)


def _hand_on(world: World, reader: Reader, other: Reader) -> None:
    """A partition moves to another member of the group, which continues to read it, and moves
    back."""
    spot = world.moves.choice(sorted(reader.positions))
    reader.revoke([spot])
    assert reader.cluster is not None
    other.assign(reader.cluster, {spot: reader.held[spot]})
    other.held = reader.held
    for _ in range(world.moves.randint(1, 2)):
        other.poll(world.moves)
    if world.moves.random() < 0.7:
        other.revoke([spot])
    reader.take(spot, reader.held[spot])


_WEIGHTS: Final = (12, 6, 4, 3, 2, 2, 0.5, 0.3)
"""How often clients write, mirrors fetch, readers poll, samplers sample, group offsets are synced,
relays step, and so on."""


def era(world: World) -> None:
    """First, each client acts once, so that every check has something to examine. Then clients and
    mirrors act at random."""
    rng = world.rng
    for producer in world.producers:
        operation(world, producer, "commit")
    operation(world, world.producers[0], "abort")
    if world.relay is not None:
        world.relay.step(
            world.rng, everything=True, appended=world.spec.append_time, ending="commit"
        )
    drain(world)
    look(world)
    for _ in range(world.spec.steps):
        action = rng.choices(
            (produce, mirror, poll, sample, sync, _pass_on, _restart, _elect), _WEIGHTS
        )[0]
        action(world)
        if world.spec.moves and world.moves.random() < 0.15:
            disturb(world)
        if world.spec.deaths and world.dying.random() < 0.1:
            kill(world)


def go_on(world: World) -> None:
    """Sessions that span a failback write in every partition before it, and again when their
    cluster is the owner again."""
    for producer in world.outliving:
        for _ in range(world.rng.randint(1, 3)):
            operation(world, producer, "commit")
    drain(world)


def operation(world: World, producer: Producer, ending: str) -> None:
    if producer.writing is not None:
        _finish(world, producer)
    producer.begin(world.spots, world.rng, ending=ending if producer.transactional else "")
    _finish(world, producer)


def _finish(world: World, producer: Producer) -> None:
    while producer.write(world.rng, appended=world.spec.append_time):
        pass
    producer.end()


def produce(world: World) -> None:
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
    """Most producers get the outcomes of their transactions."""
    ending = producer.writing.row.ending if producer.writing else ""
    if ending == "commit" and rng.random() < 0.1:
        producer.end(outcome="info", really=rng.choice((COMMIT, ABORT)))
    else:
        producer.end()


def mirror(world: World) -> None:
    for link in world.links:
        if link.source.alive:
            link.fetch(world.rng.choice(world.everywhere), world.rng)


def poll(world: World) -> None:
    reader = world.rng.choice(world.readers)
    if reader.cluster is not None and reader.cluster.alive:
        reader.poll(world.rng)


def sample(world: World) -> None:
    sampler = world.rng.choice([s for s in world.samplers.values() if s.cluster.alive])
    if sampler.begun is None and world.rng.random() < 0.5:
        sampler.begin()
    else:
        sampler.finish()
        sampler.sample()


def sync(world: World) -> None:
    mirrored = set()
    for link in world.links:
        if link.source.alive:
            mirrored |= {link.source.name, link.destination.name}
            sync_groups(link, world.notes, world.clock, GROUP)
            sync_groups(link, world.notes, world.clock, RELAYS)
    for cluster in world.clusters.values():
        if cluster.alive and cluster.name not in mirrored:
            sample_groups(cluster, world.notes, world.clock, (GROUP, RELAYS))


def _pass_on(world: World) -> None:
    if world.relay is not None:
        world.relay.step(world.rng, appended=world.spec.append_time)


def _restart(world: World) -> None:
    """A producer dies and has a successor; or a successor fences it, and it gets the error."""
    producer = world.rng.choice(world.producers[:2])
    if producer.writing is None:
        return
    if world.rng.random() < 0.5:
        producer.give_up(world.rng)
    else:
        fence(world.owner, producer.name, world.clock.ms)
        row = replace(
            producer.writing.row,
            phase="return",
            time=world.clock.tick(),
            outcome="fail",
            sends=producer.writing.sends(),
        )
        returned = replace(
            row,
            ending="commit",
            producer_id=producer.pid,
            producer_epoch=producer.epoch,
            ended_at=world.clock.now,
        )
        world.notes.operations.append(returned)
    producer.start(world.owner)


def _elect(world: World) -> None:
    if world.spec.elections and world.spec.brokers > 1:
        world.owner.elect(
            world.rng.choice(world.everywhere), world.rng.randint(1, world.spec.brokers)
        )


def settle(world: World) -> None:
    """All clients finish, mirrors drain, readers read to the end, and samplers take a last
    sample."""
    all_finish(world)
    drain(world)
    look(world)
    for reader in world.readers:
        if reader.cluster is not None and reader.cluster.alive:
            reader.drained()


def drain(world: World) -> None:
    for link in world.links:
        for spot in world.everywhere if link.source.alive else ():
            link.fetch(spot, world.rng, everything=True)


def look(world: World) -> None:
    for reader in world.readers:
        if reader.cluster is not None and reader.cluster.alive:
            reader.poll(world.rng, everything=True)
    for sampler in world.samplers.values():
        if sampler.cluster.alive:
            sampler.finish()
            sampler.sample()
    sync(world)


def all_finish(world: World) -> None:
    for producer in world.producers:
        if producer.writing is not None:
            _finish(world, producer)


def left_open(world: World) -> None:
    producer = world.producers[0]
    if producer.writing is not None:
        _finish(world, producer)
    producer.begin(world.spots, world.rng, ending="commit")
    while producer.write(world.rng, appended=world.spec.append_time):
        pass
    drain(world)
