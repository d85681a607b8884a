"""What is on a cluster twice, or in another order than it was sent or mirrored in."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.made import Made
from tests.faithful.mutations.base import FORCED, MM2_PAIR, data, mutation, put

SEEN = "read-committed-visibility/phantom-read"
"""What else is true of a record that readers got and that is not there any more, or not visible."""


@mutation(FORCED, must="duplicate/duplicate sequence-continuity/sequence-repeat")
def native_batch_repeated(made: Made, rng: Random) -> None:
    """An idempotent batch of B's own is repeated at the end of the log."""
    batch = next(e for e in data(made, "B", native=True, state="plain") if e.pid >= 0)
    made.change(
        "B",
        0,
        lambda log: [*log, replace(batch, offset=log[-1].end, leader_epoch=log[-1].leader_epoch)],
    )


@mutation(MM2_PAIR, must="order-equality/mirrored-duplicate duplicate/mirrored-duplicate")
def moved_batch_repeated(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote a batch again, although nothing had failed."""
    mirrored = data(made, "B", native=False)
    again = mirrored[rng.randrange(len(mirrored))]
    sequence = mirrored[-1].sequence + len(mirrored[-1].records)
    made.change("B", 0, lambda log: [*log, replace(again, offset=log[-1].end, sequence=sequence)])


@mutation(
    {**MM2_PAIR, "flap": True},
    must="order-equality/mirrored-duplicate",
    may="duplicate/mirrored-duplicate",
)
def one_batch_repeated_after_a_fault(made: Made, rng: Random) -> None:
    """After a fault MirrorMaker 2 wrote an earlier batch again, and did not go on from there."""
    mirrored = data(made, "B", native=False)
    again = mirrored[-2]
    sequence = mirrored[-1].sequence + len(mirrored[-1].records)
    made.change("B", 0, lambda log: [*log, replace(again, offset=log[-1].end, sequence=sequence)])


@mutation(
    MM2_PAIR, must="order-equality/mirror-inversion", may="send-order inconsistent-offset " + SEEN
)
def moved_batches_swapped(made: Made, rng: Random) -> None:
    """Two neighbouring batches that MirrorMaker 2 wrote have changed places."""
    mirrored = data(made, "B", native=False)
    at = rng.randrange(len(mirrored) - 1)
    one, two = mirrored[at], mirrored[at + 1]
    first = replace(two, offset=one.offset, sequence=one.sequence)
    second = replace(one, offset=first.end, sequence=one.sequence + len(two.records))
    made.change(
        "B", 0, lambda log: [{one.offset: first, two.offset: second}.get(e.offset, e) for e in log]
    )


@mutation(
    FORCED,
    must="send-order/internal-inversion ghost-ack/ghost-ack",
    may="inconsistent-offset " + SEEN,
)
def records_swapped(made: Made, rng: Random) -> None:
    """Two records of one of B's own batches have changed places."""
    batch = next(e for e in data(made, "B", native=True) if len(e.records) > 1)
    one, two, *rest = batch.records
    swapped = (two._replace(delta=0), one._replace(delta=1), *rest)
    made.change("B", 0, put(batch, records=swapped))


@mutation(
    {**FORCED, "steps": 200},
    must="send-order/send-inversion ghost-ack/ghost-ack",
    may="inconsistent-offset send-order " + SEEN,
)
def batches_swapped(made: Made, rng: Random) -> None:
    """Two sends of a producer without an id are on B in the wrong order."""
    plain = [e for e in data(made, "B", native=True) if e.pid < 0]
    pairs = ((a, b) for a in plain for b in plain if a.offset < b.offset and a.span == b.span)
    one, two = next(
        (a, b) for a, b in pairs if _one_incarnation(a.records[0].operation, b.records[0].operation)
    )
    made.change("B", 0, put(one, records=two.records))
    made.change("B", 0, put(two, records=one.records))


def _one_incarnation(one: int, other: int) -> bool:
    """Two operations of one process: one that took the place of a dead client keeps no order with
    that."""
    return one != other and one >> 40 == other >> 40
