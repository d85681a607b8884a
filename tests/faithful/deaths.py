"""Client processes are killed with operations in flight, and started again. These operations never
return; their outcome is only in the log.

The successor, with the same transactional id, aborts an open transaction. A commit that was already
requested is carried out, but no client gets the answer. Some of the records of a plain send may be
in the log. A relay resumes at the offsets of its group.
"""

from __future__ import annotations

from tests.faithful.clients import Producer
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
