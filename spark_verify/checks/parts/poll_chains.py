"""The records of one consumer, poll by poll, while nothing may have moved it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from linkflap.spark_verify.checks.parts.generation_truncations import kept_since
from linkflap.spark_verify.checks.parts.positions import consumers
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView

ANEW = frozenset({"assign", "revoke"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What one consumer got one after the other: per record its offset, payload id and poll, an
    index into `polls`."""

    polls: Sequence[Read]
    offset: Ints
    uid: Ints
    poll: Ints


def chains_of(view: PartitionView, reads: Sequence[Read]) -> Iterator[Chain]:
    """Polls of one consumer without anything in between that may have moved it; its rows are in the
    order of their return."""
    for rows in consumers(reads):
        polls: list[Read] = []
        moved, anew = -1, False
        for row in rows:
            if row.kind in ANEW:
                moved, anew = row.returned, True
            elif row.kind == "poll" and len(row.uids):
                if anew:
                    yield from _chain(polls)
                    polls = []
                kept = row.offsets < kept_since(view, row)
                # A rebalance that came inside of this poll: what it returned may be of before and
                # of after it.
                anew = row.time <= moved or not bool(kept.all())
                if row.time > moved and kept.any():
                    polls.append(replace(row, uids=row.uids[kept], offsets=row.offsets[kept]))
        yield from _chain(polls)


def _chain(polls: Sequence[Read]) -> Iterator[Chain]:
    if polls:
        sizes = [len(poll.uids) for poll in polls]
        yield Chain(
            polls=tuple(polls),
            offset=np.concatenate([poll.offsets for poll in polls]),
            uid=np.concatenate([poll.uids for poll in polls]),
            poll=np.repeat(np.arange(len(polls), dtype=np.int64), sizes),
        )


def position_at(rows: Sequence[Read], time: int, earlier: Collection[int]) -> int:
    """The furthest position of rows up to a time, or of an earlier generation (by id)."""
    return max(row.position for row in rows if row.time <= time or id(row) in earlier)


def neighbours(rows: Sequence[Read]) -> Iterator[tuple[int, int]]:
    """Places of polls that returned something, one after the other, of one consumer that nothing
    moved in between."""
    before, moved = -1, -1
    for index, row in enumerate(rows):
        if row.kind in ANEW:
            before, moved = -1, row.returned
        elif row.kind == "poll" and len(row.uids):
            if row.time > moved and before >= 0:
                yield before, index
            before = index if row.time > moved else -1
