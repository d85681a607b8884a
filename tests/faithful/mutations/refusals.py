"""What clients know for certain not to have been written, and is in a log; and what looks like it
and may have been written."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import SendGroup
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    PAIR,
    NothingToChange,
    change_return,
    data,
    mutation,
    promised,
    returned,
)
from tests.faithful.mutations.polls import forget


def _batch(made: Made, state: str) -> Entry:
    """A batch of A that was acknowledged, of a transaction that was committed, or of none."""
    found = [
        e
        for e in data(made, "A", native=True, state=state)[2:-2]
        if promised(made, e) and e.pid >= 0
    ]
    if not found:
        raise NothingToChange(f"A has no {state} batch that was acknowledged")
    return found[0]


def _not_acknowledged(made: Made, entry: Entry, *, refused: bool) -> None:
    """The client has no acknowledgement of a batch's records; `refused`: but the word that they
    were not written."""
    row = returned(made, entry.uids[0])
    sends = tuple(_without(group, entry, refused=refused) for group in row.sends)
    change_return(
        made, row, sends=sends, outcome=row.outcome if row.kind == "transaction" else "info"
    )


def _without(group: SendGroup, entry: Entry, *, refused: bool) -> SendGroup:
    gone = {
        uid - group.first_uid
        for uid in entry.uids
        if group.first_uid <= uid < group.first_uid + group.count
    }
    if not gone:
        return group
    single = [(i + n, 1, offset + n) for i, count, offset in group.acks for n in range(count)]
    acks = tuple(ack for ack in single if ack[0] not in gone)
    return replace(
        group, acks=acks, refused=tuple((i, 1) for i in sorted(gone)) if refused else group.refused
    )


@mutation(PAIR, must="provenance/refused-write aborted-read/refused-read")
def refused_was_written(made: Made, rng: Random) -> None:
    """A send outside of a transaction was refused for certain, and is in A's log; readers got
    it."""
    _not_acknowledged(made, _batch(made, "plain"), refused=True)


@mutation(PAIR, must="provenance/refused-write aborted-read/refused-read")
def refused_in_a_committed_transaction(made: Made, rng: Random) -> None:
    """Some records of a committed transaction were refused for certain, and are in A's log; readers
    got them."""
    _not_acknowledged(made, _batch(made, "committed"), refused=True)


@mutation(PAIR, must="provenance/refused-write", may="poll-continuity read-committed-visibility")
def refused_was_written_and_not_read(made: Made, rng: Random) -> None:
    """A send outside of a transaction was refused for certain, and is in A's log; no reader got
    it."""
    batch = _batch(made, "plain")
    _not_acknowledged(made, batch, refused=True)
    for cluster in "AB":
        forget(made, set(range(batch.offset, batch.end)), cluster)


@mutation(PAIR, verdict="valid")
def given_up_and_written(made: Made, rng: Random) -> None:
    """A send outside of a transaction was given up in flight, so its outcome is unknown. It is in
    A's log, and readers got it."""
    _not_acknowledged(made, _batch(made, "plain"), refused=False)


@mutation(
    PAIR, must="commit-aborted/abort-committed aborted-read/aborted-read", may="torn-transaction"
)
def never_asked_for_and_committed(made: Made, rng: Random) -> None:
    """A commit was certainly never requested, and the transaction ends in COMMIT."""
    row = returned(made, _batch(made, "committed").uids[0])
    change_return(made, row, outcome="fail")
