"""What a program of the user's that says `exactly_once` lost, made twice, or made of nothing; and
what failovers cost it."""

from __future__ import annotations

from random import Random

from tests.faithful.entries import ABORT, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    PLANNED,
    NothingToChange,
    mutation,
    put,
    states,
)
from tests.faithful.relays import GROUP
from tests.faithful.spec import OUTPUTS

COPIES = {"relay": True, "program": True}
COPYING = {**PAIR, **COPIES, "steps": 120}


def _outputs(made: Made, *, least: int = 1) -> list[Entry]:
    """Committed batches of the first partition of what the program writes."""
    log = made.log("A", topic=OUTPUTS)
    state = states(log).state
    found = [e for e in log if e.ends is None and state[e.offset] in ("plain", "committed")]
    if len(found) < least:
        raise NothingToChange(f"the program committed {len(found)} batches")
    return found


def _made_from(made: Made, entry: Entry, uid: int) -> None:
    """The first record of a batch carries on another header, on both clusters."""
    first, *rest = entry.records
    for cluster in "AB":
        made.change(cluster, 0, put(entry, records=(first._replace(uid=uid), *rest)), topic=OUTPUTS)


@mutation(
    COPYING,
    must="program-copies/input-not-copied",
    may=(
        "aborted-read internal-topics/outcome-disagreement read-committed-visibility "
        "torn-transaction"
    ),
)
def program_output_aborted(made: Made, rng: Random) -> None:
    """A transaction of a program is aborted in one partition, on both clusters, although its
    offsets were committed."""
    log = made.log("A", topic=OUTPUTS)
    batch = _outputs(made)[-1]
    marker = next(e for e in log if e.offset == states(log).marker[batch.offset])
    for cluster in "AB":
        made.change(cluster, 0, put(marker, ends=ABORT), topic=OUTPUTS)


@mutation(COPYING, must="program-copies/input-copied-twice program-copies/input-not-copied")
def program_output_twice(made: Made, rng: Random) -> None:
    """A program wrote an output for an input that it had already processed, and none for the next
    input."""
    first, *_, last = _outputs(made, least=2)
    _made_from(made, last, first.records[0].uid)


@mutation(COPYING, must="program-copies/copy-without-input program-copies/input-not-copied")
def program_output_of_nothing(made: Made, rng: Random) -> None:
    """A program wrote an output for an input record that does not exist."""
    _made_from(made, _outputs(made)[-1], (77 << 40) + 9)


@mutation(COPYING, unknown="program-copies", verdict="unknown")
def program_output_unlabelled(made: Made, rng: Random) -> None:
    """An output lacks the header that names its input, so its input is unknown."""
    _made_from(made, _outputs(made)[-1], -1)


@mutation(
    {**PLANNED, **COPIES, "relay_anew": True},
    must="program-copies/copy-repeated-by-failover",
    verdict="valid",
)
def program_began_anew(made: Made, rng: Random) -> None:
    """The group's offset was not synced to B, so a program began again on B and repeated outputs
    that were already mirrored."""
    moved = min(e.time for e in made.events if e.kind == "promotion")
    made.groups = [g for g in made.groups if (g.cluster, g.group) != ("B", GROUP) or g.time > moved]


@mutation(
    {**FORCED, **COPIES, "relay_torn": True},
    must="program-copies/copy-lost-by-failover",
    verdict="valid",
)
def program_outputs_left_behind(made: Made, rng: Random) -> None:
    """The group's offset was synced to B before A died, and the outputs of its inputs were not
    mirrored."""
