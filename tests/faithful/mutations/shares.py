"""What a share group was given and should not have been, was given again, was not given, or was rid
of without a word."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Poll
from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, NothingToChange, data, mutation
from tests.faithful.notes import MS
from tests.faithful.shares import CONFIRMED, GROUP

SHARED = {**PAIR, "shares": True, "steps": 60}


def _of(made: Made, *kinds: str) -> list[Poll]:
    return [
        poll
        for poll in made.polls
        if poll.group == GROUP and poll.kind in kinds and poll.fetched[0].partition == 0
    ]


def _offset(poll: Poll) -> int:
    return poll.fetched[0].runs[0][1]


def _settled(made: Made) -> int:
    return max(poll.fetched[0].position for poll in _of(made, "settled"))


def _simply(made: Made) -> Poll:
    """A delivery of what was accepted at once, is committed, and that the group is done with."""
    log = made.log("A", 0)
    plain = {
        e.offset + r.delta for e in log if e.ends is None and not e.transactional for r in e.records
    }
    once = [
        poll
        for poll in _of(made, "acquire")
        if sum(_offset(o) == _offset(poll) for o in _of(made, "acquire")) == 1
    ]
    accepted = {_offset(poll) for poll in _of(made, "accepted")}
    found = [
        poll
        for poll in once
        if _offset(poll) in accepted & plain and _offset(poll) < _settled(made)
    ]
    if len(found) < 2:
        raise NothingToChange("nothing was accepted at once")
    return found[len(found) // 2]


def _forget(made: Made, offset: int, *kinds: str) -> None:
    rows = [poll for poll in _of(made, *kinds) if _offset(poll) == offset]
    made.polls = [poll for poll in made.polls if not any(poll is row for row in rows)]


@mutation(SHARED, must="share-groups/aborted-delivery")
def share_group_got_an_aborted_record(made: Made, rng: Random) -> None:
    """A member of a share group with read_committed got a record of an aborted transaction."""
    row = _simply(made)
    if row.isolation != "read_committed":
        raise NothingToChange("the group reads uncommitted")
    entry = data(made, "A", native=True, state="aborted")[0]
    got = replace(row.fetched[0], runs=((entry.uids[0], entry.offset, 1),), position=1)
    made.polls.append(replace(row, time=row.time, fetched=(got,)))


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_got_a_record_again(made: Made, rng: Random) -> None:
    """A share group got a record again after its acceptance was confirmed, and accepted it a second
    time."""
    row = _simply(made)
    later = max(poll.returned for poll in made.polls) + MS
    for kind in ("acquire", "accept", CONFIRMED["accept"]):
        position = 1 if kind == "acquire" else -1
        again = replace(row.fetched[0], position=position)
        made.polls.append(
            replace(row, kind=kind, time=later, returned=later + MS, fetched=(again,))
        )
        later += 2 * MS
    made.ended = max(made.ended, later + MS)


@mutation(SHARED, must="share-groups/never-delivered")
def share_group_never_got_a_record(made: Made, rng: Random) -> None:
    """A share group has completed a record that no member got."""
    _forget(made, _offset(_simply(made)), "acquire", "accept", "accepted")


@mutation(SHARED, must="share-groups/never-acknowledged")
def share_group_dropped_a_record(made: Made, rng: Random) -> None:
    """A share group has completed a record that one member got and did not acknowledge."""
    _forget(made, _offset(_simply(made)), "accept", "accepted")
