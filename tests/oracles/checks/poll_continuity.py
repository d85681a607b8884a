"""A consumer that nothing moved gets what it can see of a partition without a gap and without going back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.checks.inconsistent_offset import cut_since
from tests.oracles.plain import Place, Plain, PlainLog
from tests.oracles.story import Story

EACH = frozenset({"poll-skip", "poll-regression", "internal-skip", "internal-regression"})


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every():
            log, reads = story.log(life), story.reads(life)
            for who in {(r.reader, r.process) for r in reads}:
                mine = sorted((r for r in reads if (r.reader, r.process) == who), key=lambda r: r.returned)
                found += [plain.place(kind, life.cluster, offset) for kind, offset in _follow(plain, log, mine)]
    return found


def _follow(plain: Plain, log: PlainLog | None, reads: Sequence[Any]) -> Iterator[tuple[str, int]]:
    at, moved = None, -1
    isolation = ""
    for read in reads:
        if read.kind in ("assign", "revoke"):
            at, moved = None, read.returned
        if read.kind != "poll" or not read.offsets:
            continue
        offsets = [o for o in read.offsets if o < cut_since(plain, read)]
        if read.time <= moved:
            # A rebalance came inside of this poll.
            at = None
            continue
        isolation = read.isolation if at is None else isolation
        for place, offset in enumerate(offsets):
            if at is not None:
                yield from _step(log, isolation, at, offset, "internal" if place else "poll")
            at = offset
        if len(offsets) < len(read.offsets):
            at = None


def _step(log: PlainLog | None, isolation: str, before: int, offset: int, where: str) -> Iterator[tuple[str, int]]:
    if offset <= before:
        yield f"{where}-regression", offset
    for record in log.records if log else ():
        if before < record.offset < offset and (record.visible or isolation != "read_committed"):
            yield f"{where}-skip", record.offset
