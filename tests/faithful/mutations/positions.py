"""What one reader says of how far it is, and never got: other readers' polls say nothing of
that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, NothingToChange, marks, mutation
from tests.faithful.mutations.polls import change_poll, got, polls


def _alone(made: Made, reader: str, keep: Callable[[int], bool]) -> None:
    """Of the first partition one reader got only what is kept; what it says of its positions
    stays."""
    for poll in polls(made, reader, least=0):
        change_poll(made, poll, [pair for pair in got(poll) if keep(pair[1])])


def _offsets(made: Made, reader: str) -> list[int]:
    found = [offset for poll in polls(made, reader) for _, offset in got(poll)]
    if len(found) < 4:
        raise NothingToChange(f"{reader} got {len(found)} records")
    return sorted(found)


@mutation(PAIR, must="poll-continuity/passed-unread")
def head_never_got(made: Made, rng: Random) -> None:
    """A reader was assigned B's beginning, and its first polls returned no records of what it
    passed."""
    offsets = _offsets(made, "B-uncommitted")
    _alone(made, "B-uncommitted", lambda offset: offset >= offsets[len(offsets) // 2])


@mutation(PAIR, must="poll-continuity/passed-unread")
def tail_never_got(made: Made, rng: Random) -> None:
    """A reader reports that it is drained at the end of B, and never got the second half; other
    readers did."""
    offsets = _offsets(made, "B-uncommitted")
    _alone(made, "B-uncommitted", lambda offset: offset < offsets[len(offsets) // 2])


@mutation(PAIR, must="poll-continuity/passed-unread")
def member_never_got_the_tail(made: Made, rng: Random) -> None:
    """A member of a group reports that it is drained, and never got the second half; another member
    got all of it."""
    offsets = _offsets(made, "follower")
    own = [p for p in made.polls if p.reader == "follower"]
    made.polls += [
        replace(p, reader="second", process=p.process + 900) for p in own if p.kind != "commit"
    ]
    _alone(made, "follower", lambda offset: offset < offsets[len(offsets) // 2])


def _stands(made: Made, reader: str, kind: str, position: int) -> None:
    """A reader's last row of a kind names another position in the first partition."""
    row = [p for p in made.polls if p.reader == reader and p.kind == kind][-1]
    fetched = tuple(replace(f, position=position) if f.partition == 0 else f for f in row.fetched)
    made.polls[made.polls.index(row)] = replace(row, fetched=fetched)


@mutation(PAIR, must="poll-continuity/drained-early")
def drained_before_the_end(made: Made, rng: Random) -> None:
    """A reader reports that it is drained in the middle of A, and read no further."""
    offsets = _offsets(made, "A-uncommitted")
    middle = offsets[len(offsets) // 4]
    busy = max(row.time for row in made.operations)
    if not any(mark.returned <= busy and mark.last_stable > middle for mark in marks(made, "A")):
        raise NothingToChange("nobody sampled more of A while its clients wrote")
    for poll in [p for p in made.polls if (p.reader, p.kind) == ("A-uncommitted", "poll")]:
        fetched = tuple(
            replace(f, position=min(f.position, middle)) if f.partition == 0 else f
            for f in poll.fetched
        )
        made.polls[made.polls.index(poll)] = stopped = replace(poll, fetched=fetched)
        change_poll(made, stopped, [pair for pair in got(poll) if pair[1] < middle])
    _stands(made, "A-uncommitted", "drained", middle)


@mutation(PAIR, must="poll-continuity/position-beyond-end")
def position_that_no_log_has(made: Made, rng: Random) -> None:
    """A reader reports that it is drained after the end of B's log."""
    _stands(made, "B-committed", "drained", made.log("B")[-1].end + 5)


@mutation(PAIR, must="poll-continuity/began-ahead", may="unseen")
def member_began_ahead(made: Made, rng: Random) -> None:
    """A group's next member was assigned a position after that of the member before it, and no
    member got the records between."""
    rows = [p for p in made.polls if p.reader == "follower" and p.cluster == "A"]
    full = [p for p in rows if p.kind == "poll" and got(p)]
    if len(full) < 3:
        raise NothingToChange("the group's member polled less than three times")
    lost, then = full[1], full[2]
    upto = got(then)[0][1]
    for row in [p for p in rows if full[0].returned < p.returned < then.returned]:
        made.polls.remove(row)
    assert lost not in made.polls
    index = made.polls.index(then)
    for poll in [p for p in made.polls if p.reader == "follower" and p.returned >= then.returned]:
        made.polls[made.polls.index(poll)] = replace(poll, process=poll.process + 900)
    first = made.polls[index]
    fetched = tuple(
        replace(f, runs=(), position=upto if f.partition == 0 else f.runs[0][1] if f.runs else -1)
        for f in first.fetched
    )
    made.polls.insert(
        index,
        replace(
            first, kind="assign", time=first.time - 2, returned=first.time - 1, fetched=fetched
        ),
    )
