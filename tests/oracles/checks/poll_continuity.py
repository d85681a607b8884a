"""A consumer gets what it can see of a partition without a gap and without going back, unless it
was moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog
from tests.oracles.story import PlainGeneration, Story

Found = tuple[str, str, int]
"""Kind, reader, offset."""


@dataclass(slots=True)
class Span:
    """The polls of a consumer between two changes of its position from outside. `rows` are (row,
    whether its position can be trusted)."""

    start: int
    rows: list[tuple[Any, bool]] = field(default_factory=list)

    def reached(self) -> int:
        return max((stood(row) for row, trusted in self.rows if trusted), default=-1)

    def passed(self, truncations: Sequence[tuple[int, int]], offset: int) -> bool:
        ends = [min(stood(row), limit(row, truncations)) for row, trusted in self.rows if trusted]
        return 0 <= self.start <= offset < max(ends, default=-1)

    def got(self) -> set[int]:
        return {offset for row, _ in self.rows for offset in row.offsets}


def stood(row: Any) -> int:
    """The offset after everything that a row reports as passed."""
    return int(max([row.position, *(offset + 1 for offset in row.offsets)]))


def limit(row: Any, truncations: Sequence[tuple[int, int]]) -> int:
    return min((at for time, at in truncations if row.time <= time), default=NEVER)


def positions(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog
) -> Iterator[Found]:
    reads = sorted(story.reads(generation), key=lambda r: (r.reader, r.process, r.returned))
    reported = [
        (t.time, t.offset) for t in plain.view.truncations if t.cluster == generation.cluster
    ]
    reported += [
        (s.time, at)
        for s in plain.view.stops
        if s.cluster == generation.cluster
        for _, at in s.truncated
    ]
    truncations = [
        (time, at) for time, at in reported if generation.settled <= time <= generation.ended
    ]
    floor = max(
        [
            log.log_start,
            plain.compacted.get(generation.cluster, 0),
            *(m.log_start for m in story.marks(generation)),
        ]
    )
    for who in sorted({(r.reader, r.process) for r in reads}):
        mine = [r for r in reads if (r.reader, r.process) == who]
        sure = [r for r in _seen(log, mine[0].isolation) if r.offset >= floor]
        for span in spans(mine, truncations, _left_at(plain, story, generation, mine)):
            got = span.got()
            yield from (
                ("passed-unread", who[0], r.offset)
                for r in sure
                if span.passed(truncations, r.offset) and r.offset not in got
            )
        known = (
            mine
            if generation.last or story.truncations(generation)
            else [r for r in mine if r.returned <= generation.ended]
        )
        yield from _beyond(story.end(generation), known, truncations)
        if generation.last:
            yield from _early(sure, mine, _promised(plain, story, generation, truncations))
    for together in {r.group or f"{r.reader} {r.process}" for r in reads}:
        yield from _ahead(
            plain,
            log,
            floor,
            [r for r in reads if (r.group or f"{r.reader} {r.process}") == together],
        )


def _seen(log: PlainLog, isolation: str) -> list[Any]:
    return [r for r in log.records if r.visible or isolation != "read_committed"]


def _left_at(plain: Plain, story: Story, generation: PlainGeneration, rows: Sequence[Any]) -> int:
    """The consumer's position from before this log was truncated, if nothing has moved it since and
    no truncation was below it; else -1."""
    at, moved = -1, False
    everything = [
        r
        for r in plain.reads
        if (r.reader, r.process, r.cluster) == (rows[0].reader, rows[0].process, generation.cluster)
    ]
    earlier = [r for r in everything if r.returned < rows[0].returned] if generation.earlier else []
    for before in (
        story.generations[generation.cluster][: generation.number] if rows[0].kind == "poll" else ()
    ):
        same = [
            r
            for r in story.reads(before)
            if (r.reader, r.process, r.kind) == (rows[0].reader, rows[0].process, "poll")
        ]
        earlier += [r for r in same if r.returned == rows[0].returned]
    for row in sorted(earlier, key=lambda r: r.returned):
        if row.kind in ("assign", "revoke"):
            at, moved = (row.position if row.kind == "assign" else -1), row.kind == "revoke"
        elif row.kind in ("poll", "drained") and not moved:
            at = max(at, stood(row))
    return at if at <= min(generation.earlier, default=-1) else -1


def spans(rows: Sequence[Any], truncations: Sequence[tuple[int, int]], left_at: int) -> list[Span]:
    found: list[Span] = []
    here = Span(left_at) if left_at >= 0 else None
    found += [here] if here is not None else []
    moved, before = -1, limit(rows[0], truncations) if here is not None else NEVER
    for row in rows:
        if here is not None and limit(row, truncations) != before and here.reached() > before:
            here = None
        before = limit(row, truncations)
        if row.kind in ("assign", "revoke"):
            if here is not None and row.kind == "revoke":
                here.rows.append((row, True))
            moved, here = row.returned, Span(row.position) if row.kind == "assign" else None
        served = row.time <= moved
        if row.kind == "poll" and not served and (here is None or here.start < 0):
            if row.offsets:
                here = Span(row.offsets[0])
            elif here is not None:
                here = Span(row.position)
        if here is not None and row.kind in ("poll", "drained"):
            here.rows.append((row, row.kind == "drained" or not served))
        if here is not None and not any(here is one for one in found):
            found.append(here)
    return found


def _beyond(
    end: int, rows: Sequence[Any], truncations: Sequence[tuple[int, int]]
) -> Iterator[Found]:
    for index, row in enumerate(rows):
        known = any(
            r.kind == "assign" or (r.kind == "poll" and r.offsets) for r in rows[: index + 1]
        )
        moved = max(
            (n for n, r in enumerate(rows[:index]) if r.kind in ("assign", "revoke")), default=0
        )
        since = [stood(r) for r in rows[moved:index] if r.kind in ("assign", "poll", "drained")]
        stays = row.kind not in ("assign", "revoke") and since[-1:] == [stood(row)]
        if known and end < stood(row) <= limit(row, truncations) and not stays:
            yield "position-beyond-end", row.reader, end
            return


def _promised(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    truncations: Sequence[tuple[int, int]],
) -> int:
    busy = max((max(s.returned, s.invoked) for s in plain.sends), default=-1)
    early = [m for m in story.marks(generation) if m.returned <= busy]
    return max(
        (min([m.last_stable, *(at for time, at in truncations if time >= m.time)]) for m in early),
        default=-1,
    )


def _early(sure: Sequence[Any], rows: Sequence[Any], promised: int) -> Iterator[Found]:
    done = max((r.position for r in rows if r.kind == "drained"), default=-1)
    got = {offset for r in rows if r.kind == "poll" for offset in r.offsets}
    if done >= 0:
        missed = [r.offset for r in sure if done <= r.offset < promised and r.offset not in got]
        yield from (("drained-early", rows[0].reader, offset) for offset in missed)


def _ahead(plain: Plain, log: PlainLog, floor: int, rows: Sequence[Any]) -> Iterator[Found]:
    """`rows` are of a group, or of one consumer without a group. The isolation level is that of the
    first reader by name."""
    group, isolation = rows[0].group, rows[0].isolation
    had = {
        uid
        for r in (plain.reads if group else rows)
        if r.group == group and r.kind == "poll"
        for uid in r.uids
    }
    moved: dict[tuple[str, int], int] = {}
    reached = -1
    for row in sorted(rows, key=lambda r: r.returned):
        who = row.reader, row.process
        if row.kind in ("assign", "revoke"):
            moved[who] = row.returned
        if row.kind == "assign" and reached >= 0:
            for record in _seen(log, isolation):
                if max(reached, floor) <= record.offset < row.position and record.uid not in had:
                    yield "began-ahead", row.reader, record.offset
        if row.kind == "poll" and row.time <= moved.get(who, -1):
            reached = max([reached, *(o + 1 for o in row.offsets[-1:])])
        elif row.kind != "commit":
            reached = max([reached, row.position, *(o + 1 for o in row.offsets[-1:])])


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
        and min(offsets) <= record.offset < read.offsets[0] < _truncated_since(plain, read)
        if record.uid >= 0
        and record.uid not in had
        and (record.visible or read.isolation != "read_committed")
    ]
    yield from sorted(gone)[:1]


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
