"""A consumer gets what it can see of a partition without a gap and without going back, unless it
was moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog
from tests.oracles.story import Story

KINDS = frozenset({"poll-skip", "poll-regression", "internal-skip", "internal-regression"})
EACH = KINDS
DESPITE_TORN = frozenset({"poll-regression", "internal-regression"})


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log, reads = story.log(generation), story.reads(generation)
            for who in {(r.reader, r.process) for r in reads}:
                mine = sorted(
                    (r for r in reads if (r.reader, r.process) == who), key=lambda r: r.returned
                )
                found += [
                    plain.anomaly(kind, generation.cluster, offset)
                    for kind, offset in _follow(plain, log, mine)
                ]
    return found


def _follow(plain: Plain, log: PlainLog | None, reads: Sequence[Any]) -> Iterator[tuple[str, int]]:
    at, moved, stood = None, -1, -1
    isolation = ""
    for read in reads:
        if read.kind in ("assign", "revoke"):
            at, moved = None, read.returned
        if read.kind != "poll" or not read.offsets:
            continue
        offsets = [o for o in read.offsets if o < _truncated_since(plain, read)]
        if read.time <= moved:
            # A rebalance happened during this poll.
            at = None
            continue
        isolation = read.isolation if at is None else isolation
        for index, offset in enumerate(offsets):
            if at is not None:
                yield from _step(log, isolation, at, offset, "internal" if index else "poll")
            if at is not None and not index and at < offset < stood:
                yield "poll-regression", offset
            at = offset
        stood = min(read.position, _truncated_since(plain, read))
        if len(offsets) < len(read.offsets):
            at = None


def _step(
    log: PlainLog | None, isolation: str, before: int, offset: int, where: str
) -> Iterator[tuple[str, int]]:
    if offset <= before:
        yield f"{where}-regression", offset
    for record in log.records if log else ():
        if before < record.offset < offset and (record.visible or isolation != "read_committed"):
            yield f"{where}-skip", record.offset


def _truncated_since(plain: Plain, read: Any) -> int:
    """The offset at which a mirror that ended after this poll reported that it truncated the
    log."""
    truncations = [
        at
        for s in plain.view.stops
        if s.cluster == read.cluster and read.time <= s.time
        for _, at in s.truncated
    ]
    return min(truncations, default=NEVER)
