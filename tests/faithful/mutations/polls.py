"""What readers got, and how a mutation changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from linkflap.harness.model.history import Poll
from tests.faithful.made import Made


def polls(made: Made, reader: str, partition: int = 0, *, least: int = 1) -> list[Poll]:
    """Polls of a reader that returned at least so many records of a partition."""
    return [
        p
        for p in made.polls
        if p.reader == reader and p.kind == "poll" and _count(p, partition) >= least
    ]


def _count(poll: Poll, partition: int) -> int:
    return sum(count for f in poll.fetched if f.partition == partition for _, _, count in f.runs)


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


def forget(made: Made, offsets: set[int], cluster: str, partition: int = 0) -> None:
    """Nobody got what is at these offsets of a cluster."""
    for poll in list(made.polls):
        pairs = got(poll, partition)
        if poll.cluster == cluster and any(offset in offsets for _, offset in pairs):
            change_poll(made, poll, [p for p in pairs if p[1] not in offsets], partition)
