"""A consumer gets what it can see of a partition without a gap and without going back, unless it
was moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.checks.inconsistent_offset import truncated_since
from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.positions import positions
from tests.oracles.story import Story

EACH = frozenset(
    {
        "poll-skip",
        "poll-regression",
        "internal-skip",
        "internal-regression",
        "passed-unread",
        "began-ahead",
        "drained-early",
    }
)
DESPITE_TORN = frozenset({"poll-regression", "internal-regression"})
BESIDE = "a consumer's polls no longer agree with each other, or with the records between them"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log, reads = story.log(generation), story.reads(generation)
            skipped: dict[str, set[int]] = {}
            for who in {(r.reader, r.process) for r in reads}:
                mine = sorted(
                    (r for r in reads if (r.reader, r.process) == who), key=lambda r: r.returned
                )
                followed = list(_follow(plain, log, mine))
                skipped[who[0]] = skipped.get(who[0], set()) | {
                    at for kind, at in followed if kind.endswith("-skip")
                }
                found += [
                    plain.anomaly(kind, generation.cluster, offset) for kind, offset in followed
                ]
            if log is not None:
                said = positions(plain, story, generation, log)
                found += [
                    plain.anomaly(kind, generation.cluster, at)
                    for kind, who, at in said
                    if at not in skipped.get(who, ())
                ]
                found += [
                    plain.anomaly("skipped-by-truncation", generation.cluster, offset)
                    for offset in _across(plain, story, generation, log)
                ]
    return found


def _across(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog
) -> Iterator[int]:
    """For each consumer that was not moved, and two of its polls with a truncation in between: the
    records that replaced the tail and that it never got."""
    older = [
        r
        for before in story.generations[generation.cluster][: generation.number]
        for r in story.reads(before)
    ]
    rows = [(r, False) for r in older] + [(r, True) for r in story.reads(generation)]
    for who in {(r.reader, r.process) for r, _ in rows}:
        mine = sorted(
            (row for row in rows if (row[0].reader, row[0].process) == who),
            key=lambda row: row[0].returned,
        )
        last, moved, had = None, -1, set()
        for read, here in mine:
            if read.kind in ("assign", "revoke"):
                last, moved = None, read.returned
            if read.kind != "poll" or not read.offsets:
                continue
            had |= set(read.uids)
            if read.time > moved and last is not None and here:
                yield from _missed(plain, generation, log, last, read, had)
            last = (read, here) if read.time > moved else None


def _missed(
    plain: Plain,
    generation: PlainGeneration,
    log: PlainLog,
    last: tuple[Any, bool],
    read: Any,
    had: set[int],
) -> Iterator[int]:
    """What of this log is below what a consumer got next; `last` is what it got before, and whether
    that was of this log too."""
    reported = [(t.cluster, t.time, t.offset) for t in plain.view.truncations]
    inside = [
        (t, at)
        for cluster, t, at in reported
        if cluster == generation.cluster and generation.settled <= t <= generation.ended
    ]
    inside += [
        (s.time, at)
        for s in plain.view.stops
        if s.cluster == generation.cluster
        for _, at in s.truncated
    ]
    offsets = [
        at
        for time, at in inside
        if generation.settled <= time <= generation.ended and last[0].time <= time < read.time
    ]
    if not last[1]:
        offsets.append(generation.earlier[-1])
    gone = [
        record.offset
        for record in log.records
        if offsets
        and min(offsets) <= record.offset < read.offsets[0] < truncated_since(plain, read)
        if record.uid >= 0
        and record.uid not in had
        and (record.visible or read.isolation != "read_committed")
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
        offsets = [o for o in read.offsets if o < truncated_since(plain, read)]
        if read.time <= moved:
            # A rebalance happened during this poll.
            at = None
            continue
        isolation = read.isolation if at is None else isolation
        for index, offset in enumerate(offsets):
            if at is not None:
                yield from _step(log, isolation, at, offset, "internal" if index else "poll")
            at = offset
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
