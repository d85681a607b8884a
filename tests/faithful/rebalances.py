"""Rebalances: readers are killed and come back, and partitions move between members of their group.

A member begins at the committed offset of its group; a reader with fixed partitions begins at the
log start offset. A killed reader writes no more rows, neither its last position nor a revocation.
"""

from __future__ import annotations

from tests.faithful.observers import Reader
from tests.faithful.world import World


def disturb(world: World) -> None:
    """One of these events, for a reader whose cluster is alive."""
    alive = [
        reader for reader in world.readers if reader.cluster is not None and reader.cluster.alive
    ]
    if not alive:
        return
    reader = world.moves.choice(alive)
    if not reader.group or world.spare is None or world.moves.random() < 0.3:
        _restart(reader)
    elif world.moves.random() < 0.5:
        _rebalance(reader)
    else:
        _hand_on(world, reader, world.spare)


def _restart(reader: Reader) -> None:
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
