"""Records that a share group was given wrongly, was given again, was not given, or lost without an
acknowledgement."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Poll
from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, NothingToChange, data, mutation
from tests.faithful.mutations.group_offsets import killed
from tests.faithful.mutations.progress import waited
from tests.faithful.observers import MS
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


def _rows(made: Made, offset: int) -> list[Poll]:
    kinds = ("acquire", "accept", "accepted")
    return [poll for poll in _of(made, *kinds) if _offset(poll) == offset]


def _instead(made: Made, rows: list[Poll], uid: int, offset: int) -> None:
    """The given rows, with another record."""
    changed = {
        id(row): replace(row, fetched=(replace(row.fetched[0], runs=((uid, offset, 1),)),))
        for row in rows
    }
    made.polls = [changed.get(id(poll), poll) for poll in made.polls]


def _also(made: Made, row: Poll, uid: int, offset: int) -> None:
    """A member got this record too."""
    got = replace(row.fetched[0], runs=((uid, offset, 1),), position=1)
    made.polls.append(replace(row, fetched=(got,)))


@mutation(
    SHARED,
    must="aborted-read/aborted-read read-committed-visibility/phantom-read",
    may="torn-transaction",
)
def share_group_got_an_aborted_record(made: Made, rng: Random) -> None:
    """A member of a share group with read_committed got a record of an aborted transaction."""
    row = _simply(made)
    if row.isolation != "read_committed":
        raise NothingToChange("the group reads uncommitted")
    entry = data(made, "A", native=True, state="aborted")[0]
    _also(made, row, entry.uids[0], entry.offset)


@mutation(
    SHARED,
    must="inconsistent-offset/inconsistent-offset read-committed-visibility/phantom-read",
)
def share_group_got_another_record(made: Made, rng: Random) -> None:
    """A member of a share group got, at the offset of one record, another record, and accepted
    it."""
    rows = _rows(made, _offset(_simply(made)))
    entry = next(
        e for e in data(made, "A", native=True, state="plain") if e.offset != _offset(rows[0])
    )
    _instead(made, rows, entry.uids[0], _offset(rows[0]))


@mutation(
    SHARED, must="read-committed-visibility/phantom-read", may="uncommitted-read/uncommitted-read"
)
def share_group_got_a_record_behind_the_end(made: Made, rng: Random) -> None:
    """A member of a share group got and accepted a record at an offset far above the end of the
    log."""
    for row in _rows(made, _offset(_simply(made))):
        _also(made, row, row.fetched[0].runs[0][0], _offset(row) + 10_000)


@mutation(SHARED, must="read-committed-visibility/phantom-read")
def share_group_got_a_record_at_a_marker(made: Made, rng: Random) -> None:
    """A member of a share group, of either isolation, got and accepted a record at the offset of a
    marker."""
    marker = next(e for e in made.log("A", 0) if e.ends is not None)
    for row in _rows(made, _offset(_simply(made))):
        _also(made, row, row.fetched[0].runs[0][0], marker.offset)


@mutation(SHARED, must="uncommitted-read/uncommitted-read", may="share-groups/delivered-again")
def share_group_got_an_uncommitted_record(made: Made, rng: Random) -> None:
    """A member of a share group with read_committed got a record before its commit was
    requested."""
    row = _simply(made)
    if row.isolation != "read_committed":
        raise NothingToChange("the group reads uncommitted")
    entry = data(made, "A", native=True, state="committed")[0]
    early = min(o.time for o in made.operations if o.phase == "invoke")
    _also(made, replace(row, time=early, returned=early + 1), entry.uids[0], entry.offset)


@mutation(
    SHARED, must="share-groups/unacquired-acknowledgement", may="share-groups/delivered-again"
)
def share_group_confirmed_another_member(made: Made, rng: Random) -> None:
    """The broker confirmed the acceptance of a record to a member that had not acquired it."""
    row = _simply(made)
    (accepted,) = (p for p in _of(made, "accepted") if _offset(p) == _offset(row))
    other, process = next(
        (p.reader, p.process) for p in _of(made, "acquire") if p.reader != row.reader
    )
    made.polls = [
        replace(p, reader=other, process=process) if p is accepted else p for p in made.polls
    ]


@mutation(SHARED, must="share-groups/wrong-delivery-count")
def share_group_delivered_beyond_its_limit(made: Made, rng: Random) -> None:
    """A record was delivered to a share group for the sixth time, though five is the limit."""
    row = _simply(made)
    (got,) = row.fetched
    changed = replace(row, fetched=(replace(got, position=6),))
    made.polls = [changed if poll is row else poll for poll in made.polls]


def _with_start(made: Made, position: int) -> None:
    last = max(_of(made, "settled"), key=lambda poll: poll.returned)
    got = replace(last.fetched[0], position=position)
    later = max(poll.returned for poll in made.polls) + MS
    made.polls.append(replace(last, time=later, returned=later + MS, fetched=(got,)))
    made.ended = max(made.ended, later + 2 * MS)


@mutation(SHARED, must="share-groups/wrong-start-offset", may="share-groups")
def share_group_passed_the_end(made: Made, rng: Random) -> None:
    """The start offset of a share group is above the end of the log."""
    _with_start(made, 10_000)


@mutation(SHARED, must="share-groups/wrong-start-offset")
def share_group_went_back(made: Made, rng: Random) -> None:
    """The start offset of a share group was lower at the end than before."""
    _with_start(made, 0)


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


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_accepted_a_record_twice(made: Made, rng: Random) -> None:
    """Two members had the acceptance of the same record confirmed, one as soon as the other."""
    row = _simply(made)
    other, process = next(
        (p.reader, p.process) for p in _of(made, "acquire") if p.reader != row.reader
    )
    made.polls += [
        replace(each, reader=other, process=process) for each in _rows(made, _offset(row))
    ]


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_gave_a_record_to_two_members(made: Made, rng: Random) -> None:
    """A second member got a record that the first one held: it had it confirmed after that."""
    row = _simply(made)
    other, process = next(
        (p.reader, p.process) for p in _of(made, "acquire") if p.reader != row.reader
    )
    (got,) = row.fetched
    later = replace(row, reader=other, process=process, time=row.returned, returned=row.returned)
    again = replace(got, position=got.position + 1)
    made.polls.append(replace(later, fetched=(again,)))


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_gave_a_record_to_its_owner_again(made: Made, rng: Random) -> None:
    """The next poll of a member returned a record again that it had accepted, with the same
    delivery count, and it did not answer that."""
    row = _simply(made)
    made.polls.append(replace(row, time=row.returned + 1, returned=row.returned + 2))


def _given_again(made: Made, fault: str) -> None:
    """After a fault of a broker a member got a record again that it had accepted; it did not answer
    that."""
    row = _simply(made)
    ended = max(r.returned for r in _rows(made, _offset(row)))
    killed(made, ended, "A/1", fault)
    made.polls.append(replace(row, time=ended + 1, returned=ended + 2))


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_gave_a_record_to_its_owner_after_a_kill(made: Made, rng: Random) -> None:
    """After the kill of a broker a member got a record again that it had accepted; it did not
    answer that."""
    _given_again(made, "broker-kill")


@mutation(SHARED, must="share-groups/unproven-redelivery", verdict="valid")
def share_group_gave_a_record_to_its_owner_after_a_pause(made: Made, rng: Random) -> None:
    """A broker was paused, whose answer may have come late: a member got a record again that it had
    accepted."""
    _given_again(made, "broker-pause")


@mutation(SHARED, must="share-groups/wrong-delivery-count")
def share_group_forgot_a_release_after_a_kill(made: Made, rng: Random) -> None:
    """A member released a record, with confirmation. After the kill of a broker it got it again,
    with the delivery count of before."""
    row = _simply(made)
    released = replace(row.fetched[0], position=-1)
    at = row.returned
    killed(made, at + 2, "A/1")
    made.polls += [
        replace(row, kind="release", time=at, returned=at + 1, fetched=(released,)),
        replace(row, kind=CONFIRMED["release"], time=at, returned=at + 1, fetched=(released,)),
        replace(row, time=at + 3, returned=at + 4),
    ]


@mutation(SHARED, must="share-groups/wrong-start-offset", may="share-groups")
def share_group_passed_the_high_watermark(made: Made, rng: Random) -> None:
    """The start offset of a share group is the end of the log, before that had been written."""
    end = made.log("A", 0)[-1].end
    first = min(_of(made, "settled"), key=lambda poll: poll.returned)
    got = replace(first.fetched[0], position=end)
    later = replace(first, fetched=(got,))
    made.polls = [later if poll is first else poll for poll in made.polls]


@mutation(SHARED, must="share-groups/delivered-again")
def share_group_got_a_record_twice_in_one_poll(made: Made, rng: Random) -> None:
    """One poll of a member of a share group returned a record twice."""
    row = _simply(made)
    twice = replace(row.fetched[0], runs=row.fetched[0].runs * 2)
    made.polls = [replace(row, fetched=(twice,)) if poll is row else poll for poll in made.polls]


@mutation(SHARED, must="share-groups/never-delivered")
def share_group_never_got_a_record(made: Made, rng: Random) -> None:
    """A share group has completed a record that no member got."""
    _forget(made, _offset(_simply(made)), "acquire", "accept", "accepted")


@mutation(SHARED, must="share-groups/never-acknowledged")
def share_group_dropped_a_record(made: Made, rng: Random) -> None:
    """A share group has completed a record that one member got and did not acknowledge."""
    _forget(made, _offset(_simply(made)), "accept", "accepted")


def _never_there(made: Made) -> None:
    made.polls = [
        poll for poll in made.polls if poll.group != GROUP or poll.fetched[0].partition != 0
    ]


@mutation(SHARED, unknown="share-groups", verdict="unknown")
def share_group_got_nothing_of_a_partition(made: Made, rng: Random) -> None:
    """The members of a share group were given nothing of one partition, and asked nothing about
    it."""
    _never_there(made)


@mutation(SHARED, must="progress/stalled", unknown="share-groups")
def share_group_that_stalled_before_it_began(made: Made, rng: Random) -> None:
    """For a minute and a half after the last fault, members of a share group were given nothing of
    one partition, as before."""
    _never_there(made)
    waited(made, promised="share-group")
