"""What a log that is truncated does to readers that do not learn of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Fetched
from tests.faithful.made import Made
from tests.faithful.mutations.base import ROUND_TRIP, NothingToChange, data, mutation, promotion
from tests.faithful.mutations.polls import change_poll, got, polls

READER = "A-uncommitted"


@mutation(ROUND_TRIP, must="poll-continuity/skipped-by-truncation", verdict="valid")
def stayed_beyond_the_truncation(made: Made, rng: Random) -> None:
    """A reader of everything got A's tail before it was truncated. It then continued at its old
    position, in records that came from B."""
    truncated_to, since = (
        promotion(made),
        next(e.time for e in made.events if e.kind == "fault-start" and e.data["id"] == "reverse"),
    )
    all_of_it = data(made, "A", native=True, moment="1-reverse")
    tail = [e for e in all_of_it if e.offset >= truncated_to]
    if not tail:
        raise NothingToChange("A had nothing that B did not have")
    stood = tail[-1].end
    skipped = [
        e for e in data(made, "A", native=True) if truncated_to <= e.offset and e.end <= stood
    ]
    later = [poll for poll in polls(made, READER) if poll.time > since]
    if not skipped or not any(offset >= stood for poll in later for _, offset in got(poll)):
        raise NothingToChange("nobody read what came after that from B")
    for poll in later:
        change_poll(made, poll, [pair for pair in got(poll) if pair[1] >= stood])
    _not_moved(made, since)
    before = [poll for poll in polls(made, READER) if poll.time < since][-1]
    last = max(
        offset for poll in polls(made, READER) if poll.time < since for _, offset in got(poll)
    )
    fresh = [(uid, e.offset_of(uid)) for e in all_of_it for uid in e.uids]
    runs = tuple((uid, offset, 1) for uid, offset in fresh if offset > last)
    row = Fetched(topic=made.log_keys("A", 0)[0].topic, partition=0, runs=runs, position=stood)
    made.polls.append(replace(before, time=since - 2, returned=since - 1, fetched=(row,)))


def _not_moved(made: Made, since: int) -> None:
    """Nobody set the reader back, in the first partition, to where the log was truncated."""
    for poll in [
        p for p in made.polls if p.reader == READER and p.kind == "assign" and p.time > since
    ]:
        others = tuple(f for f in poll.fetched if f.partition != 0)
        made.polls[made.polls.index(poll)] = replace(poll, fetched=others)
