"""Whether a mirror that moves offsets can have made one log of another, where records are known by
their contents alone, and several may have the same.

Such a mirror begins somewhere in the source's log and copies in order. One that delivers at least
once may write again, at any time, any records that it has copied; whatever it writes for the first
time is the next record of the source. Either log may have lost its beginning: of at most as many
records as offsets. What was there is unknown, so that any contents can have come of it.

A log that no such way leads to is a loss, a record of somebody else, or another order: `index` is
the first record that even the best one does not reach.

A cleaner makes room in a log: each offset that is missing was a record of unknown contents. Where
one was, and nothing came twice, a log that leaves no room for what is missing is found likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from linkflap.spark_verify.facts.view import Bools, Ints

_MOST_STEPS: Final = 30_000_000
"""Comparisons of records, at most: beyond, it is unknown."""
_MOST_WAYS: Final = 1_000_000
_AT_ONCE: Final = 100_000
"""Ways past what cleaners took, at most: in all, and at one record. Beyond, it is unknown."""
_FEW: Final = 16
"""Starts in the source's log that are compared one by one; and records that show too little."""
_TIMES: Final = 4
"""How many coincidences prove nothing, for each repeat that the source shows. One is a deleted
record with the content of one that is still there, whether or not readers get that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`how` a log can have come about: each record `once`, some of them `again`, only by
    `coincidence`, in no way (`not`), or `unknown`. If not, `index` is the first record that no way
    reaches, and `position` the record of the source that should have come instead (as many as the
    source has: none)."""

    how: Literal["once", "again", "coincidence", "not", "unknown"]
    index: int = -1
    position: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The contents of the source's records and of the destination's, and how many records each log
    may have had before these. `hidden` are contents of records that the source has and no reader
    gets: aborted, or of an open transaction. `later`, per record of the destination: the source may
    have got it since it was copied."""

    source: Ints
    hidden: Ints
    source_deleted: int
    came: Ints
    came_deleted: int
    later: Bools


def origin(contents: Contents, *, repeats: bool, source_repeats: bool = False) -> Origin:
    """How a mirror, which may repeat what it copied, can have made the one of the other.
    `source_repeats`: so may the mirror that made the source, and then a deleted record with the
    content of one that is still there is likely."""
    least = _origin(contents, repeats=repeats, coincidences=0)
    if least.how != "not" or not contents.source_deleted:
        return least
    shown = len(contents.source) - len(np.unique(contents.source))
    few = max(_FEW - len(contents.source), 0)
    likely = len(contents.came) if source_repeats else _TIMES * shown + few
    most = _origin(contents, repeats=repeats, coincidences=likely)
    return replace(most, how="coincidence") if most.how in ("once", "again") else most


def _origin(contents: Contents, *, repeats: bool, coincidences: int) -> Origin:
    once = _once(contents, coincidences)
    if not repeats or once.how != "not":
        return once
    return _Again(contents, coincidences).origin()


def origin_of_cleaned(contents: Contents, source_room: Ints, came_room: Ints) -> Origin:
    """`not` if a mirror that copies each record once cannot have made the one of the other, even if
    cleaners took some records; else unknown. The rooms are, before each record and behind the last,
    how many offsets are missing there."""
    shown = len(contents.source) - len(np.unique(contents.source))
    most = _TIMES * shown + max(_FEW - len(contents.source), 0)
    theirs, ours = contents.source.tolist(), contents.came.tolist()
    there = set(theirs).union(contents.hidden.tolist())
    later, gone, hidden = contents.later.tolist(), source_room.tolist(), came_room.tolist()
    # The next record of the source, how many came that are missing before it -> coincidences
    ways, steps = {(0, 0): 0}, 0
    for index, content in enumerate(ours):
        ways = _passed(ways, gone, hidden[index])
        steps += len(ways)
        if steps > _MOST_WAYS or len(ways) > _AT_ONCE:
            return Origin(how="unknown")
        after: dict[tuple[int, int], int] = {}
        for (at, came), coincided in ways.items():
            if at == len(theirs) and later[index]:
                return Origin(how="unknown")
            if at < len(theirs) and theirs[at] == content:
                after[at + 1, 0] = min(coincided, after.get((at + 1, 0), coincided))
            more = coincided + (content in there)
            if came < gone[at] and more <= most:
                after[at, came + 1] = min(more, after.get((at, came + 1), more))
        if not after:
            return Origin(how="not", index=index, position=max(at for at, _ in ways))
        ways = after
    return Origin(how="unknown")


def _passed(
    ways: dict[tuple[int, int], int], gone: list[int], room: int
) -> dict[tuple[int, int], int]:
    """The ways on which the mirror also copied up to `room` records that the destination's cleaner
    took: the source's next, or one that is missing there."""
    reached, last = dict(ways), ways
    for _ in range(room):
        further: dict[tuple[int, int], int] = {}
        for (at, came), coincided in last.items():
            steps = [(at + 1, 0)] if at + 1 < len(gone) else []
            steps += [(at, came + 1)] if came < gone[at] else []
            for step in steps:
                if coincided < reached.get(step, coincided + 1):
                    reached[step] = further[step] = coincided
        if not further or len(reached) > _AT_ONCE:
            break
        last = further
    return reached


def _once(contents: Contents, coincidences: int) -> Origin:
    """Every offset where what came can begin in the source's log, record by record until none is
    left; negative: in what was deleted there."""
    theirs, ours = contents.source, contents.came
    left = np.cumsum(np.isin(ours, np.append(theirs, contents.hidden))) <= coincidences
    deleted = int(np.count_nonzero(left[: contents.source_deleted]))
    first, last = -deleted, min(contents.came_deleted, len(theirs))
    starts, steps, index = np.arange(first, last + 1), 0, 0
    best = (-1, -1)
    while index < len(ours) and len(starts) > _FEW:
        at = starts + index
        inside = (at >= 0) & (at < len(theirs))
        same = (at < 0) | ((at >= len(theirs)) & contents.later[index])
        same[inside] = theirs[at[inside]] == ours[index]
        if not same.any():
            return Origin(how="not", index=index, position=max(int(at[0]), 0))
        starts, index, steps = starts[same], index + 1, steps + len(starts)
        if steps > _MOST_STEPS:
            return Origin(how="unknown")
    for start in starts.tolist():
        reached = _reached(contents, start)
        if reached == len(ours):
            return Origin(how="once")
        best = max(best, (reached, max(start + reached, 0)))
    return Origin(how="once") if index == len(ours) else Origin(
        how="not", index=best[0], position=best[1]
    )  # fmt: skip


def _reached(contents: Contents, start: int) -> int:
    """How many records came as the source has them from one start on."""
    begun = max(-start, 0)
    theirs, ours = contents.source[max(start, 0) :], contents.came[begun:]
    same = contents.later[begun:].copy()
    size = min(len(theirs), len(ours))
    same[:size] = theirs[:size] == ours[:size]
    return begun + (len(same) if same.all() else int(np.argmin(same)))


class _Again:
    """The ways of a mirror that repeats. To be further in the source's log is never worse: all that
    a mirror can write from earlier on, it can write from there."""

    def __init__(self, contents: Contents, coincidences: int) -> None:
        self._theirs, self._ours = contents.source.tolist(), contents.came.tolist()
        self._deleted, self._hidden = contents.source_deleted, contents.came_deleted
        self._later, self._steps = contents.later.tolist(), 0
        self._left, self._coincidences = set(self._theirs), coincidences
        self._there = self._left.union(contents.hidden.tolist())
        self._best = (-1, -1)

    def origin(self) -> Origin:
        """Tries every way that none of the others makes needless."""
        if self._hidden_beginning() or self._begun_in_deleted():
            return Origin(how="again")
        if self._steps > _MOST_STEPS:
            return Origin(how="unknown")
        return Origin(how="not", index=self._best[0], position=self._best[1])

    def _hidden_beginning(self) -> bool:
        """The destination deleted the source's first `copied` records, and those deleted records of
        the source that the rest needs."""
        copied = self._begins(min(self._hidden, len(self._theirs)))
        while copied >= 0 and self._steps <= _MOST_STEPS:
            needed = self._needed(0, copied, set(), min(self._deleted, self._hidden - copied))
            if needed <= min(self._deleted, self._hidden - copied):
                return True
            copied = self._begins(min(copied - 1, self._hidden - needed))
        return False

    def _begins(self, most: int) -> int:
        """How much of the source had been copied, at most, before what came; -1: there is no less.
        In a log of many records that ends where the first that came was: it is not taken for one
        of a few that came again alone, behind others that were deleted."""
        first = next((each for each in self._ours if each in self._left), None)
        if len(self._theirs) < _FEW or first is None:
            return most
        return max((n for n in range(most + 1) if self._theirs[n : n + 1] == [first]), default=-1)

    def _begun_in_deleted(self) -> bool:
        """The first records are ones that the source has deleted, no more than it deleted; the
        source's first record follows."""
        known, coincidences = set[int](), 0
        for index, content in enumerate([*self._ours, None]):
            # Until the source's first record comes, it is the same when the mirror got so far.
            if content is None or self._theirs[:1] == [content]:
                left = min(self._deleted - len(known), self._hidden)
                if self._needed(index, 0, known, left) <= left:
                    return True
            if content is None or content in known:
                continue
            known.add(content)
            coincidences += content in self._there
            if len(known) > self._deleted or coincidences > self._coincidences:
                self._best = max(self._best, (index, 0))
                return False
            if self._steps > _MOST_STEPS:
                return False
        return False

    def _needed(self, index: int, copied: int, known: set[int], most: int) -> int:
        """How many contents of what came from `index` on only deleted records of the source can
        have had, if the mirror had copied so many of its records, and these contents; counted to
        one more than `most`."""
        theirs, seen, needed = self._theirs, known | set(self._theirs[:copied]), 0
        coincidences = len(known & self._there)
        self._steps += copied + len(known)
        for at in range(index, len(self._ours)):
            content = self._ours[at]
            self._steps += 1
            if copied < len(theirs) and theirs[copied] == content:
                copied += 1
            elif copied == len(theirs) and self._later[at]:
                return needed
            elif content not in seen:
                needed += 1
                coincidences += content in self._there
                if needed > most or coincidences > self._coincidences:
                    self._best = max(self._best, (at, copied))
                    return max(needed, most + 1)
            seen.add(content)
        return needed
