"""Records that readers and groups got wrongly, missed, or got twice; positions beyond all that a
reader got."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from linkflap.harness.model.history import GroupOffset, Poll
from tests.faithful.clusters import Entry, states
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    PLANNED,
    NothingToChange,
    change_return,
    data,
    marks,
    mutation,
    promised,
    promotion,
    returned,
)
from tests.faithful.observers import MS


def polls(made: Made, reader: str, *, least: int = 1) -> list[Poll]:
    """Polls of a reader that returned at least so many records of the first partition."""
    return [p for p in made.polls if p.reader == reader and p.kind == "poll" and _count(p) >= least]


def _count(poll: Poll) -> int:
    return sum(count for f in poll.fetched if f.partition == 0 for _, _, count in f.runs)


def got(poll: Poll, partition: int = 0) -> list[tuple[int, int]]:
    """(uid, offset) of every record that a poll returned."""
    runs = [run for f in poll.fetched if f.partition == partition for run in f.runs]
    return [
        (uid + i if uid >= 0 else uid, offset + i)
        for uid, offset, count in runs
        for i in range(count)
    ]


def change_poll(
    made: Made, poll: Poll, pairs: Iterable[tuple[int, int]], partition: int = 0
) -> None:
    """Makes a poll return other records; the position stays."""
    runs = tuple((uid, offset, 1) for uid, offset in pairs)
    fetched = tuple(replace(f, runs=runs) if f.partition == partition else f for f in poll.fetched)
    made.polls[made.polls.index(poll)] = replace(poll, fetched=fetched)


def forget(made: Made, offsets: set[int], cluster: str) -> None:
    """No reader got the records at these offsets of a cluster."""
    for poll in list(made.polls):
        pairs = got(poll)
        if poll.cluster == cluster and any(offset in offsets for _, offset in pairs):
            change_poll(made, poll, [p for p in pairs if p[1] not in offsets])


def _shown(made: Made, reader: str, entry: Entry) -> None:
    """A reader got a batch too, in the poll that passed it."""
    wanted = [(uid, entry.offset_of(uid)) for uid in entry.uids]
    for poll in polls(made, reader, least=0):
        (position,) = [f.position for f in poll.fetched if f.partition == 0] or [-1]
        if position >= entry.end:
            change_poll(made, poll, sorted([*got(poll), *wanted], key=lambda pair: pair[1]))
            return
    raise NothingToChange(f"{reader} never passed {entry.offset}")


@mutation(PAIR, must="aborted-read/aborted-read read-committed-visibility/phantom-read")
def aborted_was_read(made: Made, rng: Random) -> None:
    """A read_committed reader got a transaction whose abort was acknowledged."""
    _shown(made, "B-committed", data(made, "B", native=False, state="aborted")[0])


@mutation(PAIR, must="uncommitted-read/uncommitted-read")
def read_before_the_commit(made: Made, rng: Random) -> None:
    """A read_committed reader got a transaction before its commit was requested."""
    decided = states(made.log("A")).state
    poll, uid = next(
        (p, uid)
        for p in polls(made, "follower")
        for uid, offset in got(p)
        if p.cluster == "A"
        and any(
            e.offset <= offset < e.end and decided.get(e.offset) == "committed"
            for e in made.log("A")
        )
    )
    row = returned(made, uid)
    change_return(made, row, ended_at=poll.returned + MS, time=poll.returned + 2 * MS, outcome="ok")


@mutation(PAIR, must="read-committed-visibility/hidden-committed", may="poll-continuity unseen")
def committed_was_hidden(made: Made, rng: Random) -> None:
    """No read_committed reader on B got the committed records, although they passed them."""
    batch = next(e for e in data(made, "B", native=False)[2:-2] if promised(made, e))
    for poll in list(made.polls):
        if poll.cluster == "B" and poll.isolation == "read_committed":
            change_poll(made, poll, [p for p in got(poll) if not batch.offset <= p[1] < batch.end])


@mutation(
    FORCED,
    must="unseen/unseen-write",
    may="poll-continuity read-committed-visibility/hidden-committed",
)
def never_seen(made: Made, rng: Random) -> None:
    """No reader got the last committed records on B, although readers report that they have read to
    the end."""
    last = [e for e in data(made, "B", native=True) if promised(made, e)][-1]
    forget(made, set(range(last.offset, last.end)), "B")


@mutation(PAIR, must="poll-continuity/poll-skip")
def poll_skipped(made: Made, rng: Random) -> None:
    """A reader of everything did not get the first records of a poll."""
    poll = polls(made, "A-uncommitted", least=2)[1]
    change_poll(made, poll, got(poll)[1:])


@mutation(PAIR, must="poll-continuity/poll-regression")
def poll_went_back(made: Made, rng: Random) -> None:
    """A reader of everything got the last record of a poll again in the next poll."""
    before, after = polls(made, "A-uncommitted")[:2]
    change_poll(made, after, [got(before)[-1], *got(after)])


@mutation(PAIR, must="poll-continuity/poll-regression")
def poll_below_its_position(made: Made, rng: Random) -> None:
    """A reader of everything reported a position above the first record of its next poll."""
    before, after = polls(made, "A-uncommitted")[:2]
    (first, *_) = got(after)
    fetched = tuple(
        replace(f, position=first[1] + 1) if f.partition == 0 else f for f in before.fetched
    )
    made.polls[made.polls.index(before)] = replace(before, fetched=fetched)


@mutation(PAIR, must="poll-continuity/internal-skip")
def record_skipped_in_a_poll(made: Made, rng: Random) -> None:
    """A reader of everything did not get a record from the middle of a poll."""
    poll = polls(made, "A-uncommitted", least=3)[0]
    first, _, *rest = got(poll)
    change_poll(made, poll, [first, *rest])


@mutation(
    PAIR,
    must="poll-continuity/internal-regression",
    may="poll-continuity/internal-skip",
)
def poll_out_of_order(made: Made, rng: Random) -> None:
    """A reader of everything got two records of a poll in the wrong order."""
    poll = polls(made, "A-uncommitted", least=3)[0]
    one, two, *rest = got(poll)
    change_poll(made, poll, [two, one, *rest])


@mutation(
    PAIR,
    must="read-committed-visibility/phantom-read inconsistent-offset/inconsistent-offset",
    may="unseen",
)
def read_what_is_not_there(made: Made, rng: Random) -> None:
    """A read_committed reader got, at one offset, a record that is in no log."""
    poll = polls(made, "B-committed", least=1)[0]
    (_, offset), *rest = got(poll)
    change_poll(made, poll, [((77 << 40) + 3, offset), *rest])


@mutation(
    PAIR,
    must="inconsistent-offset/inconsistent-offset read-committed-visibility/phantom-read",
)
def readers_disagree(made: Made, rng: Random) -> None:
    """Two readers of one cluster got different records at the same offset."""
    poll = polls(made, "A-uncommitted", least=1)[0]
    (_, offset), *rest = got(poll)
    change_poll(made, poll, [((77 << 40) + 3, offset), *rest])


# A consumer group's offsets.


def _first_on_b(made: Made) -> Poll:
    return next(p for p in polls(made, "follower") if p.cluster == "B")


@mutation(
    FORCED,
    must="group-offsets/group-skip",
    may="group-offsets internal-topics/commit-missing poll-continuity",
)
def group_skipped(made: Made, rng: Random) -> None:
    """The group began on B after records that it had neither got nor committed on A."""
    own = [p for p in made.polls if p.reader == "follower"]
    before = {uid for p in own if p.cluster == "A" for uid, _ in got(p)}
    visible = data(made, "B", native=False, state="committed plain")
    edge = visible[len(visible) // 2].offset
    for poll in own:
        keep = [
            (u, o)
            for u, o in got(poll)
            if (o < edge if poll.cluster == "A" else o >= promotion(made, "B"))
        ]
        if got(poll) != keep:
            change_poll(made, poll, keep)
    made.polls = [
        replace(
            p,
            fetched=tuple(
                replace(f, position=min(f.position, edge)) if f.partition == 0 else f
                for f in p.fetched
            ),
        )
        if p.reader == "follower" and p.cluster == "A"
        else p
        for p in made.polls
    ]
    made.groups = [
        replace(g, offset=min(g.offset, edge)) if g.partition == 0 else g for g in made.groups
    ]
    assert before


@mutation(PLANNED, must="group-offsets/group-replay", verdict="valid")
def group_replayed_a_little(made: Made, rng: Random) -> None:
    """The group got records again on B that it had committed on A: the mirror had not committed
    its offset there yet."""
    unsynced(made, "followers")
    _replay(made)


@mutation(PLANNED, must="group-offsets/group-replay", may="group-offsets")
def group_began_below_its_offset(made: Made, rng: Random) -> None:
    """The group got records again on B that lie below the offset that the mirror had committed for
    it there."""
    if not any(g.cluster == "B" and g.partition == 0 and g.offset > 0 for g in made.groups):
        raise NothingToChange("the mirror committed no offset of the group")
    _replay(made)


def unsynced(made: Made, group: str) -> None:
    """No offset of a group was sampled on B before the group had records of every partition
    there."""
    first: dict[int, int] = {}
    for poll in sorted(made.polls, key=lambda poll: poll.returned):
        if (poll.cluster, poll.group, poll.kind) == ("B", group, "poll"):
            for fetched in poll.fetched:
                if fetched.runs:
                    first.setdefault(fetched.partition, poll.returned)
    began = max(first.values())
    made.groups = [g for g in made.groups if (g.cluster, g.group) != ("B", group) or g.time > began]


@mutation({**PLANNED, "steps": 600}, must="group-offsets/group-replay", may="group-offsets")
def group_replayed_too_much(made: Made, rng: Random) -> None:
    """The group got more than 100 records again on B that it had committed on A long before."""
    early = min(p.returned for p in made.polls if p.reader == "follower" and p.kind == "commit")
    own = [
        p for p in made.polls if p.reader == "follower" and p.kind == "commit" and p.cluster == "A"
    ]
    # All commits but the first lie in one instant, long before the failover: nothing explains a
    # step back.
    shift = 20_000 * MS
    made.started -= shift
    for poll in own:
        made.polls[made.polls.index(poll)] = replace(
            poll, time=poll.time - shift, returned=poll.returned - shift
        )
    made.groups = [g for g in made.groups if g.cluster != "B"] + [
        GroupOffset(
            time=early,
            cluster="B",
            group="followers",
            topic=own[0].fetched[0].topic,
            partition=p,
            offset=_end(made, p),
        )
        for p in range(2)
    ]
    made.polls.append(own[-1])
    _replay(made)


def _end(made: Made, partition: int) -> int:
    return promotion(made, "B", partition)


def _replay(made: Made) -> None:
    """The group's first poll on B begins at the start of the log."""
    poll = _first_on_b(made)
    again = [
        (uid, e.offset_of(uid))
        for e in data(made, "B", native=False)
        if states(made.log("B")).state[e.offset] in ("plain", "committed")
        for uid in e.uids
    ]
    mine = got(poll)
    change_poll(made, poll, [*[p for p in again if not mine or p[1] < mine[0][1]], *mine])


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


def _drained_at(made: Made, reader: str, position: int) -> None:
    """A reader's row that it is drained names another position in the first partition."""
    row = [p for p in made.polls if p.reader == reader and p.kind == "drained"][-1]
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
    _drained_at(made, "A-uncommitted", middle)


@mutation(PAIR, must="poll-continuity/position-beyond-end")
def position_that_no_log_has(made: Made, rng: Random) -> None:
    """A reader reports that it is drained after the end of B's log."""
    _drained_at(made, "B-committed", made.log("B")[-1].end + 5)


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
