"""Which log generation clients saw during a reversal (`mirror-reverse`) onto a cluster.

During a reversal the cluster is truncated: its brokers are started and serve their old log, then
the mirror truncates them, then it copies. So a poll or a sample of that time is of the ending log
generation or of the new one. The event `truncation` has the time of the truncation, but not the
instant: the mirror's journal has it first, then the harness sees it there, and meanwhile followers
truncate. And a consumer hands over records that it had fetched before.

For records, their content decides. A consumer hands records over in the order in which it fetched
them, so there is one point in its records that separates the old generation from the new one. That
point is the recorded truncation. It is later if records follow that only the old generation has
(fetched before, handed over after), and earlier if one comes before that only the new generation
has. Once a consumer has got a record of the new generation, or has read the end of the log after
the truncation, its records of the old generation are no leftovers: they are judged by the new one.

For samples, the first one counts whose high watermark has stepped back from above the truncation,
among those of the leader epoch of the recorded truncation, and to the truncation if any did (a log
may be truncated in steps). Otherwise it is the first sample that was not complete by then, unless
the next one proves that this was too early. A broker truncates the log first and corrects its high
watermark up to half a second later (`UnifiedLog.truncateTo`), so a sample that was requested after
the truncation and repeats the one before it can be of the old log generation too. The log start and
the LSO of the first sample of a generation were requested before its high watermark, and so perhaps
before the truncation: they are of neither generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from operator import attrgetter

import numpy as np

from linkflap.spark_verify.checks.parts.logs import Log, locate
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, Ints, Watermarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """A reversal onto a cluster: [start, end] of it, when its truncation to `offset` was noted, the
    logs before and after."""

    start: int
    end: int
    time: int
    offset: int
    before: Log | None
    after: Log | None


def turns(
    generations: Sequence[LogGeneration], logs: Mapping[int, Log | None]
) -> Sequence[Reversal]:
    """The reversals onto a cluster; `logs` show its log generations, those that were truncated as
    they last were."""
    return [
        Reversal(
            start=generation.ended,
            end=following.settled,
            time=following.began,
            offset=generation.truncated_to,
            before=logs.get(generation.number),
            after=logs.get(following.number),
        )
        for generation, following in pairwise(generations)
    ]


def by_generation(reads: Sequence[Read], reversals: Sequence[Reversal]) -> Sequence[Sequence[Read]]:
    """What readers of one cluster did in each of its log generations, in the order given; a poll
    may have parts in two."""
    found: list[list[Read]] = [[] for _ in range(len(reversals) + 1)]
    rest = list(reads)
    for number, turn in enumerate(reversals):
        rows, rest = rest, []
        unclear: list[Read] = []
        for read in rows:
            (
                found[number]
                if read.returned <= turn.start
                else rest
                if read.time >= turn.end
                else unclear
            ).append(read)
        for old, new in _parted(unclear, turn):
            found[number] += old
            rest += new
    found[-1] += rest
    # Every part goes where its poll was.
    return [sorted(mine, key=attrgetter("returned", "time", "reader")) for mine in found]


def _parted(reads: Sequence[Read], turn: Reversal) -> Iterator[tuple[list[Read], list[Read]]]:
    """What each consumer did before and after it saw the truncation."""
    ordered = sorted(reads, key=attrgetter("reader", "process", "returned"))
    for _, mine in groupby(ordered, attrgetter("reader", "process")):
        rows = list(mine)
        index, records = _point(rows, turn)
        old, new = rows[:index], rows[index + 1 :]
        if index < len(rows):
            old += _part(rows[index], slice(0, records))
            new[:0] = _part(rows[index], slice(records, None)) if records else [rows[index]]
        yield old, new


def _part(read: Read, some: slice) -> list[Read]:
    """Some of the records of a poll; nothing where there are none."""
    uids, offsets = read.uids[some], read.offsets[some]
    if not len(uids):
        return []
    return [
        replace(
            read,
            uids=uids,
            offsets=offsets,
            position=read.position if some.stop is None else int(offsets[-1]) + 1,
        )
    ]


def _point(rows: Sequence[Read], turn: Reversal) -> tuple[int, int]:
    """From which row on, and which record in it, a consumer saw the new log generation."""
    offsets, uids = (
        np.concatenate([getattr(row, name) for row in rows]) for name in ("offsets", "uids")
    )
    committed = np.repeat(
        [row.isolation == "read_committed" for row in rows], [len(row.uids) for row in rows]
    )
    old, new = (_holds(log, offsets, uids, committed) for log in (turn.before, turn.after))
    point = next((n for n, row in enumerate(rows) if row.returned > turn.time), len(rows)), 0
    end = 0
    for number, row in enumerate(rows):
        start, end = end, end + len(row.uids)
        if row.time >= turn.time and not len(row.uids):
            # it looked at the end of the log, or was set to an offset: nothing is left over
            return min((number, 0), point)
        first = next(iter(np.flatnonzero(new[start:end] & ~old[start:end]).tolist()), end - start)
        left = np.flatnonzero(old[start : start + first] & ~new[start : start + first])
        point = max(point, (number, int(left[-1]) + 1)) if len(left) else point
        if start + first < end:
            return min((number, first), point)
    return point


def _holds(log: Log | None, offsets: Ints, uids: Ints, committed: Bools) -> Bools:
    """Per record that was got, whether a log has it at that offset, and shows it, to those who read
    `committed` records alone.

    A transaction that was open where the logs part may have been committed in one and aborted in
    the other.
    """
    if log is None or not len(log.replica.records):
        return np.zeros(len(offsets), np.bool_)
    records = log.replica.records
    at = locate(records.offset, offsets)
    return np.asarray((at >= 0) & (records.uid[at] == uids) & (log.visible[at] | ~committed))


def sampled(marks: Watermarks, reversals: Sequence[Reversal]) -> Sequence[Watermarks]:
    """The samples of one cluster, by log generation."""
    firsts = [_first_of_the_new(marks, turn) for turn in reversals]
    across = [
        first
        for first, turn in zip(firsts, reversals, strict=True)
        if first < len(marks.time) and marks.time[first] < turn.end
    ]
    marks = replace(
        marks,
        log_start=_without(marks.log_start, across),
        last_stable=_without(marks.last_stable, across),
    )
    edges = [0, *firsts, len(marks.time)]
    return [
        Watermarks(
            **{f.name: getattr(marks, f.name)[start : max(start, end)] for f in fields(Watermarks)}
        )
        for start, end in pairwise(edges)
    ]


def _without(column: Ints, rows: Sequence[int]) -> Ints:
    """A column that says nothing (-1) in some rows."""
    column = column.copy()
    column[list(rows)] = -1
    return column


def _first_of_the_new(marks: Watermarks, turn: Reversal) -> int:
    """The index of the first sample that is of the new log generation."""
    known = marks.high_watermark >= 0
    first = int(next(iter(np.flatnonzero(known & (marks.returned > turn.time))), len(known)))
    if first >= len(known):
        return first
    within = (marks.returned > turn.start) & (marks.time < turn.end)
    # Samples of a leader that did not say its epoch are of the ones around them.
    same = (marks.leader_epoch == marks.leader_epoch[first]) | (marks.leader_epoch < 0)
    rows = np.flatnonzero(within & same & known)
    if marks.high_watermark[first] <= turn.offset:
        rows = rows[rows <= first]
    elif _of_the_old(
        marks, turn, known, first, following := _next(known & _other(marks, first), first)
    ):
        return following
    high = marks.high_watermark[rows]
    fell = np.flatnonzero((high[1:] < high[:-1]) & (high[:-1] > turn.offset))
    # A step that ends above the truncation is none of it, where there is one that does not.
    whole = fell[high[fell + 1] <= turn.offset]
    fell = whole if len(whole) else fell
    return int(rows[fell[0] + 1]) if len(fell) else first


def _next(some: Bools, index: int) -> int:
    """The index of the next that is one of some, or the end."""
    return int(next(iter(index + 1 + np.flatnonzero(some[index + 1 :])), len(some)))


def _other(marks: Watermarks, index: int) -> Bools:
    """Per sample, whether its high watermark or leader epoch differs from those of one."""
    return np.asarray(
        (marks.high_watermark != marks.high_watermark[index])
        | (marks.leader_epoch != marks.leader_epoch[index])
    )


def _of_the_old(
    marks: Watermarks, turn: Reversal, known: Bools, index: int, following: int
) -> bool:
    """Whether a sample is of the old log generation although it was not complete when the
    truncation was recorded.

    It was under way at that time, or repeats the sample before it; and the next sample that
    differs, in any leader epoch, is not above the truncation.
    """
    before = np.flatnonzero(known[:index])
    repeats = len(before) > 0 and not _other(marks, index)[before[-1]]
    return (
        following < len(marks.time)
        and bool(repeats or marks.time[index] <= turn.time)
        and bool(marks.time[following] < turn.end)
        and bool(marks.high_watermark[following] <= turn.offset)
    )
