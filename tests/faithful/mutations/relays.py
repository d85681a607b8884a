"""Outputs that a relay, or a user's program with `exactly_once`, lost, made twice, or made without
input; transactions that read each other; the cost of failovers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Operation, SendGroup
from tests.faithful.clusters import ABORT, Entry, states
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    PLANNED,
    NothingToChange,
    change_return,
    mutation,
    put,
)
from tests.faithful.mutations.readers import unsynced
from tests.faithful.relays import GROUP
from tests.faithful.spec import OUTPUTS

RELAYED = {**PAIR, "relay": True, "steps": 120}


def _steps(made: Made, *, least: int) -> list[tuple[Operation, SendGroup]]:
    """The relay's outputs in partition 0 from committed transactions, one group each."""
    rows = [
        o
        for o in made.operations
        if (o.phase, o.ending, o.outcome, o.group) == ("return", "commit", "ok", GROUP)
    ]
    found = [(o, g) for o in rows for g in o.sends if g.partition == 0 and o.cluster == "A"]
    if len(found) < least:
        raise NothingToChange(f"the relay committed {len(found)} transactions")
    return found


def _made_from(
    made: Made, row: Operation, group: SendGroup, runs: tuple[tuple[int, int, int], ...]
) -> None:
    """The client says that it made a group from something else."""
    assert group.made_from is not None
    other = replace(group, made_from=replace(group.made_from, runs=runs))
    change_return(made, row, sends=tuple(other if g == group else g for g in row.sends))


def _inputs(group: SendGroup) -> tuple[int, int]:
    """The payload id and the offset of the first record that a group was made from."""
    assert group.made_from is not None
    uid, offset, _ = group.made_from.runs[0]
    return uid, offset


@mutation(
    RELAYED,
    must="exactly-once/input-lost commit-aborted/commit-aborted",
    may=(
        "aborted-read internal-topics/outcome-disagreement lost-write read-committed-visibility "
        "torn-transaction"
    ),
)
def output_lost(made: Made, rng: Random) -> None:
    """The outputs of a relay's transaction are aborted in one partition, on both clusters, although
    its offsets were committed."""
    _, group = _steps(made, least=1)[-1]
    log = made.log("A", topic=OUTPUTS)
    batch = next(e for e in log if group.first_uid in e.uids)
    marker = next(e for e in log if e.offset == states(log).marker[batch.offset])
    for cluster in "AB":
        made.change(cluster, 0, put(marker, ends=ABORT), topic=OUTPUTS)


@mutation(RELAYED, must="exactly-once/output-duplicated", may="exactly-once/input-lost")
def output_made_twice(made: Made, rng: Random) -> None:
    """A relay wrote outputs twice for the same input."""
    steps = _steps(made, least=2)
    row, group = steps[-1]
    assert group.made_from is not None
    uid, offset = _inputs(steps[0][1])
    first, *rest = [(u + i, o + i, 1) for u, o, count in group.made_from.runs for i in range(count)]
    assert first != (uid, offset, 1)
    _made_from(made, row, group, ((uid, offset, 1), *rest))


@mutation(RELAYED, must="exactly-once/output-without-input")
def output_of_nothing(made: Made, rng: Random) -> None:
    """A relay wrote an output for an input record that does not exist."""
    row, group = _steps(made, least=1)[-1]
    assert group.made_from is not None
    (_, offset, _), *rest = [
        (u + i, o + i, 1) for u, o, count in group.made_from.runs for i in range(count)
    ]
    _made_from(made, row, group, (((77 << 40) + 9, offset, 1), *rest))


@mutation(RELAYED, must="exactly-once/offset-behind", may="internal-topics/commit-missing")
def offset_lost(made: Made, rng: Random) -> None:
    """The group's sampled offset is below the offsets that completed transactions had committed."""
    steps = _steps(made, least=2)
    # A transaction is over for certain once the same incarnation of the relay has ended another.
    over = next(
        after.time
        for n, (after, _) in enumerate(steps)
        if after.process in {row.process for row, _ in steps[:n]}
    )
    mine = [g for g in made.groups if (g.cluster, g.group, g.partition) == ("A", GROUP, 0)]
    late = [g for g in mine if g.time > over and g.offset > 0]
    if not late:
        raise NothingToChange("nobody sampled the group late enough")
    made.groups[made.groups.index(late[-1])] = replace(late[-1], offset=0)


@mutation(RELAYED, must="write-cycles/write-cycle", may="exactly-once")
def transactions_in_a_circle(made: Made, rng: Random) -> None:
    """Each of two transactions read what the other wrote."""
    steps = _steps(made, least=2)
    (one, ours), (two, theirs) = steps[0], steps[-1]
    _made_from(made, one, ours, ((theirs.first_uid, 0, 1),))
    _made_from(made, two, theirs, ((ours.first_uid, 0, 1),))
    for row in (one, two):
        made.operations = [
            (
                replace(
                    o,
                    sends=next(
                        r.sends
                        for r in made.operations
                        if (r.number, r.phase) == (row.number, "return")
                    ),
                )
                if (o.number, o.phase) == (row.number, "invoke")
                else o
            )
            for o in made.operations
        ]


@mutation(
    {**PLANNED, "relay": True, "relay_anew": True},
    must="exactly-once/output-repeated-by-failover",
    verdict="valid",
)
def relay_began_anew(made: Made, rng: Random) -> None:
    """A relay began on B at the start, because the mirror had not committed the offset of its group
    there, and repeated outputs that were already mirrored."""
    unsynced(made, GROUP)


@mutation(
    {**FORCED, "relay": True, "relay_torn": True},
    must="exactly-once/output-lost-by-failover",
    verdict="valid",
)
def outputs_left_behind(made: Made, rng: Random) -> None:
    """The group's offset was synced to B before A died, and the outputs of its inputs were not
    mirrored."""


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


def _carried_on(made: Made, entry: Entry, uid: int) -> None:
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
    _carried_on(made, last, first.records[0].uid)


@mutation(COPYING, must="program-copies/copy-without-input program-copies/input-not-copied")
def program_output_of_nothing(made: Made, rng: Random) -> None:
    """A program wrote an output for an input record that does not exist."""
    _carried_on(made, _outputs(made)[-1], (77 << 40) + 9)


@mutation(COPYING, unknown="program-copies", verdict="unknown")
def program_output_unlabelled(made: Made, rng: Random) -> None:
    """An output lacks the header that names its input, so its input is unknown."""
    _carried_on(made, _outputs(made)[-1], -1)


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
