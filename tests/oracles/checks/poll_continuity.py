"""A consumer that nothing moved gets what it can see of a partition without a gap and without going back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.checks.inconsistent_offset import cut_since
from tests.oracles.plain import Place, Plain, PlainLog
from tests.oracles.positions import positions
from tests.oracles.story import PlainLife, Story

EACH = frozenset(
    {"poll-skip", "poll-regression", "internal-skip", "internal-regression", "passed-unread", "began-ahead", "drained-early"}
)


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every():
            log, reads = story.log(life), story.reads(life)
            skipped: dict[str, set[int]] = {}
            for who in {(r.reader, r.process) for r in reads}:
                mine = sorted((r for r in reads if (r.reader, r.process) == who), key=lambda r: r.returned)
                followed = list(_follow(plain, log, mine))
                skipped[who[0]] = skipped.get(who[0], set()) | {at for kind, at in followed if kind.endswith("-skip")}
                found += [plain.place(kind, life.cluster, offset) for kind, offset in followed]
            if log is not None:
                said = positions(plain, story, life, log)
                found += [plain.place(kind, life.cluster, at) for kind, who, at in said if at not in skipped.get(who, ())]
                found += [plain.place("skipped-by-cut", life.cluster, offset) for offset in _across(plain, story, life, log)]
    return found


def _across(plain: Plain, story: Story, life: PlainLife, log: PlainLog) -> Iterator[int]:
    """Per consumer that nothing moved, and two of its polls between which the log was cut: what took the tail's place unseen."""
    before = story.lives[life.cluster][life.number - 1].ended
    everything = [r for r in plain.reads if r.cluster == life.cluster]
    for who in {(r.reader, r.process) for r in everything}:
        mine = sorted((r for r in everything if (r.reader, r.process) == who), key=lambda r: r.returned)
        last, moved, had = None, -1, set()
        for read in mine:
            if read.kind in ("assign", "revoke"):
                last, moved = None, read.returned
            if read.kind != "poll" or not read.offsets:
                continue
            had |= set(read.uids)
            if read.time > moved and last is not None and read.returned <= life.ended:
                yield from _missed(plain, life, log, before, last, read, had)
            last = read if read.time > moved else None


def _missed(plain: Plain, life: PlainLife, log: PlainLog, before: int, last: Any, read: Any, had: set[int]) -> Iterator[int]:
    """`before` is when the life before this one ended; its log was cut since then, when the mirror says so."""
    told = [(t.cluster, t.time, t.offset) for t in plain.view.truncations]
    began = [time for cluster, time, _ in told if cluster == life.cluster and before <= time < life.began]
    told += [(s.cluster, s.time, at) for s in plain.view.stops for _, at in s.truncated]
    inside = [(t, at) for cluster, t, at in told if cluster == life.cluster and life.began <= t <= life.ended]
    places = [at for time, at in inside if last.time <= time < read.time]
    if life.earlier and last.time <= min([*began, life.began - 1]) < read.time:
        places.append(life.earlier[-1])
    gone = [
        record.offset
        for record in log.records
        if places and min(places) <= record.offset < read.offsets[0] < cut_since(plain, read)
        if record.uid >= 0 and record.uid not in had and (record.visible or read.isolation != "read_committed")
    ]
    yield from sorted(gone)[:1]


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
