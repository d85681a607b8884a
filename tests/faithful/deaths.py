"""Processes of clients are killed with work in flight, and started again: operations that never
return, whose end is in the log.

A transaction that was open is aborted by the successor, which takes its transactional id; a commit
that had been asked for is done all the same, and no client has its answer; a plain send may be
there in part. A relay begins again where its group is.
"""

from __future__ import annotations

from tests.faithful.clients import Producer
from tests.faithful.world import World


def kill(world: World) -> None:
    """Kills one of those that write, at some moment of what it does."""
    rng = world.dying
    chosen: Producer | None = rng.choice(
        [*world.producers, *([None] if world.relay is not None else [])]
    )
    asked = rng.random() < 0.5
    if chosen is None:
        assert world.relay is not None
        world.relay.killed(rng, asked=asked)
        return
    if chosen.writing is None:
        chosen.begin(rng.sample(world.spots, rng.randint(1, len(world.spots))), rng)
    assert chosen.writing is not None
    asked &= chosen.writing.row.ending == "commit"
    while (asked or rng.random() < 0.7) and chosen.write(rng, appended=world.spec.append_time):
        pass
    chosen.killed(asked=asked)
    chosen.start(world.owner)
