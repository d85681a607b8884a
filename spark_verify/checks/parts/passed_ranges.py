"""Ranges of offsets that a consumer passed, by the positions that it reported (`parts.positions`
says what a position is)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView

Truncations = Sequence[tuple[int, int]]
"""(time, offset) of what was truncated inside of a log generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Offsets [start, end) that one consumer passed. `first` is the row with its start, `last` the
    row with its end. `got` are the offsets of all records that it got meanwhile, in any order, and
    of those that it may have got before."""

    start: int
    end: int
    first: Read
    last: Read
    got: Ints


@dataclass(slots=True, kw_only=True)
class _Going:
    """A consumer that nothing has moved so far. `reached` is the position as reported, `end`
    without what was truncated."""

    first: Read
    start: int
    limit: int
    reached: int = -1
    end: int = -1
    last: Read | None = None
    got: list[Ints] = field(default_factory=list)

    def reach(self, row: Read, position: int) -> None:
        if position > self.reached:
            self.reached, self.end, self.last = position, min(position, self.limit), row

    def passed(self) -> Iterator[Passed]:
        if self.last is not None and 0 <= self.start < self.end:
            got = np.concatenate([np.empty(0, np.int64), *self.got])
            yield Passed(start=self.start, end=self.end, first=self.first, last=self.last, got=got)


def passed(
    rows: Sequence[Read], truncations: Truncations, before: Sequence[Read] = ()
) -> Iterator[Passed]:
    """What one consumer passed; its rows are of one log generation, in the order of their return.

    `before`: what it did since it was moved last, where that was before this generation, and below
    the truncation.
    """
    going = _stood(before, kept_until(rows[0], truncations) if rows else FOREVER)
    moved = -1
    for row in rows:
        limit = kept_until(row, truncations)
        if going is not None and limit != going.limit:
            if going.reached > going.limit:
                # It stood beyond where the log was truncated since then.
                yield from going.passed()
                going = None
            else:
                going.limit = limit
        if row.kind in ("assign", "revoke"):
            if going is not None:
                if row.kind == "revoke":
                    going.reach(row, row.position)
                yield from going.passed()
            going = (
                _Going(first=row, start=row.position, limit=limit) if row.kind == "assign" else None
            )
            moved = row.returned
        else:
            going = _went_on(going, row, limit, served=row.time <= moved)
    if going is not None:
        yield from going.passed()


def _stood(before: Sequence[Read], limit: int) -> _Going | None:
    """A consumer that was not moved keeps its position, also across generations."""
    at = max((position_of(row) for row in before), default=-1)
    if at < 0:
        return None
    return _Going(first=before[-1], start=at, limit=limit)


def _earlier(view: PartitionView, cluster: str, first: Read) -> Sequence[Read]:
    """What the consumer of a row did there before it, in order; of the same poll what comes
    first."""
    mine = [
        r
        for r in view.reads
        if (r.reader, r.process, r.cluster) == (first.reader, first.process, cluster)
    ]
    parts = [
        part
        for r in mine
        if r.kind == "poll" and r.returned == first.returned
        for part in _before(r, first)
    ]
    return [
        *sorted((r for r in mine if r.returned < first.returned), key=attrgetter("returned")),
        *parts,
    ]


def rows_before(
    view: PartitionView, generation: LogGeneration, rows: Sequence[Read]
) -> Sequence[Read]:
    """What one consumer did on its cluster before its first row of this generation, since it was
    moved last.

    That is of a poll which is split between two generations what it got in the one before. Empty
    where it had got beyond the truncation: what it lacks then is known from its polls
    (`skipped-by-truncation`).
    """
    if not generation.earlier or not rows:
        return ()
    mine = _earlier(view, generation.cluster, rows[0])
    since = max((at for at, row in enumerate(mine) if row.kind in ("assign", "revoke")), default=0)
    stood = [row for row in mine[since:] if row.kind in ("assign", "poll", "drained")]
    revoked = bool(mine) and mine[since].kind == "revoke"
    return (
        () if revoked or any(position_of(row) > min(generation.earlier) for row in stood) else stood
    )


def _before(poll: Read, part: Read) -> Iterator[Read]:
    """What a poll got in the generation before, where it was split between two and `part` is what
    it got in this one."""
    count = len(poll.offsets) - len(part.offsets)
    if part.kind == "poll" and count > 0:
        offsets = poll.offsets[:count]
        yield replace(poll, offsets=offsets, uids=poll.uids[:count], position=int(offsets[-1]) + 1)


def _went_on(going: _Going | None, row: Read, limit: int, *, served: bool) -> _Going | None:
    """After a poll, or a consumer's word that it is drained; `served`: a rebalance came inside of
    this poll."""
    if (
        row.kind == "poll"
        and len(row.offsets)
        and not served
        and (going is None or going.start < 0)
    ):
        going = _Going(first=row, start=int(row.offsets[0]), limit=limit)
    if going is None or row.kind not in ("poll", "drained"):
        return going
    if len(row.offsets):
        going.got.append(row.offsets)
    if not served or row.kind == "drained":
        going.reach(row, position_of(row))
    return going


def kept_until(row: Read, truncations: Truncations) -> int:
    """The offset below which what a row speaks of is still in the log that this generation ended
    with."""
    return min((at for time, at in truncations if row.time <= time), default=FOREVER)


def position_of(row: Read) -> int:
    return max(row.position, int(row.offsets.max()) + 1 if len(row.offsets) else -1)
