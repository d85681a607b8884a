"""A share group gets each committed record until it has completed it; record by record.

Written from KIP-932 ("Share-partition start offset", "Record delivery states", "Acknowledgement"):
only the member that has acquired a record acknowledges it, while its lock lasts, and neither that
member nor another is given it meanwhile; Acknowledged and Archived are final; the delivery count
never exceeds its limit; the start offset only moves forward, within the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.faithful.observers import SECOND
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import PlainGeneration, Story

EACH = frozenset(
    {
        "delivered-again",
        "never-delivered",
        "never-acknowledged",
        "unacquired-acknowledgement",
        "wrong-delivery-count",
        "unproven-redelivery",
    }
)
ENDS = ("accepted", "rejected")
ANSWERS = (*ENDS, "released", "renewed")
LOCK, LATE = 15 * SECOND, 5 * SECOND


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            for group in sorted({row.group for row in plain.shares}):
                rows = [
                    row
                    for row in plain.shares
                    if row.group == group and _within(story, generation, row)
                ]
                pairs = {
                    *_again(plain, story, generation, rows),
                    *_unacquired(rows),
                    *_miscounted(plain, generation, rows),
                }
                if _ends_here(plain, generation, group):
                    pairs |= set(_missed(plain, story, generation, rows))
                starts = list(_starts(plain, story, generation, rows))
                found += [
                    plain.anomaly(kind, generation.cluster, offset)
                    for kind, offset in [*pairs, *starts]
                ]
    return found


def _within(story: Story, generation: PlainGeneration, row: Any) -> bool:
    numbers = {story.number_at(generation.cluster, time) for time in (row.time, row.returned)}
    return row.cluster == generation.cluster and numbers == {generation.number}


def _pairs(row: Any) -> Iterator[tuple[int, int]]:
    return zip(row.offsets, row.uids, strict=True)


def _rows(rows: Sequence[Any], offset: int, *kinds: str) -> list[Any]:
    return [row for row in rows if row.kind in kinds and offset in row.offsets]


def _same(one: Any, other: Any) -> bool:
    return (one.reader, one.process) == (other.reader, other.process)


def _faults(plain: Plain, cluster: str, start: int, end: int) -> list[str]:
    """The faults at that time, and shortly before, of a cluster and of its clients' paths."""
    return [
        window.fault
        for window in plain.view.windows
        if cluster in window.target.replace("/", "->").split("->")
        and not (window.fault.startswith("link-") and "*" not in window.target)
        and window.fault not in ("partitions-added", "records-deleted")
        and (window.fault, window.target.split("->")[0]) != ("mirror-kill", cluster)
        and window.start <= end
        and start <= window.end + LOCK
    ]


def _epochs_begun(plain: Plain, cluster: str, start: int, end: int) -> int:
    """How many leader epochs began at that time, or shortly before."""
    samples = [mark for mark in plain.marks.get(cluster, []) if mark.leader_epoch >= 0]
    return sum(
        abs(next_one.leader_epoch - one.leader_epoch)
        for one, next_one in pairwise(samples)
        if one.time <= end and next_one.returned >= start - LOCK
    )


def _calm(plain: Plain, cluster: str, start: int, end: int) -> bool:
    """Whether no fault of the cluster, and no election, can have made a broker forget."""
    if _epochs_begun(plain, cluster, start, end):
        return False
    return not _faults(plain, cluster, start, end)


def _no_late_answer(plain: Plain, cluster: str, start: int, end: int) -> bool:
    """Brokers that a fault killed answer no more; any other fault, or an election besides that of a
    kill, may have delayed an answer."""
    faults = set(_faults(plain, cluster, start, end))
    elections = _epochs_begun(plain, cluster, start, end)
    if faults == {"broker-kill"}:
        return elections < 2
    return faults <= {"broker-kill", "broker-restart", "rolling-restart"} and not elections


def _again(
    plain: Plain, story: Story, generation: PlainGeneration, rows: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    kind = "delivered-again"
    offsets = {offset for row in rows for offset in row.offsets}
    twice = set()
    for offset in offsets:
        ends = _rows(rows, offset, *ENDS)
        first = min(ends, key=lambda r: r.returned, default=None)
        late = [
            r
            for r in _rows(rows, offset, *ANSWERS)
            if first
            and (
                r.time > first.returned
                or (r.kind not in ENDS and _same(r, first) and r.time >= first.time)
            )
        ]
        count = sum(row.offsets.count(offset) for row in ends)
        if late or count > 1:
            twice.add(offset)
            yield kind, offset
    doubtful, named = set(), set(twice)
    for row in rows:
        for offset, uid in _pairs(row) if row.kind == "acquire" else ():
            finished = _finished(story, generation, rows, offset, uid)
            if offset in twice:
                continue
            if row.offsets.count(offset) > 1:
                named.add(offset)
            if finished >= row.time:
                continue
            fresh = _fresh(plain, generation, rows, row, offset, finished)
            if any(_confirms(r, row, offset) for r in rows) or fresh == "proven":
                named.add(offset)
            elif fresh:
                doubtful.add(offset)
    named |= {o for o in offsets - twice if _two_members(plain, generation, rows, o)}
    yield from ((kind, offset) for offset in named - twice)
    yield from (("unproven-redelivery", offset) for offset in doubtful - named)


def _two_members(
    plain: Plain, generation: PlainGeneration, rows: Sequence[Any], offset: int
) -> bool:
    got = sorted(_rows(rows, offset, "acquire"), key=lambda r: r.returned)
    return any(
        first is not later and _both(plain, generation, rows, first, later, offset)
        for number, later in enumerate(got)
        for first in got[:number]
    )


def _both(
    plain: Plain, generation: PlainGeneration, rows: Sequence[Any], one: Any, other: Any,
    offset: int,
) -> bool:  # fmt: skip
    """Whether a member still held a record when another one was given it: its lock cannot have
    expired, or a broker confirmed later that it had lasted."""
    if not _calm(plain, generation.cluster, min(one.time, other.time), other.returned):
        return False
    theirs = [r for r in rows if _same(r, one)]
    since = [
        r
        for r in _rows(theirs, offset, *ANSWERS, "release", "renew", "acquire")
        if r.time >= one.returned
    ]
    # KIP-1222: what a member renews, its client hands over once more.
    again = ("renew", "renewed") if _same(one, other) else ()
    back = min([r.time for r in since if r.kind in ("release", "released", *again)], default=NEVER)
    written = []
    for row in (one, other):
        at = list(row.offsets).index(offset)
        uid = row.uids[at]
        written += [
            max(
                (
                    s.invoked
                    for s in plain.sends
                    if s.first_uid <= uid < s.first_uid + len(s.offsets)
                ),
                default=-LOCK,
            )
        ]
    counted_once = _same(one, other) and one.position == other.position > 0
    if other.returned < min(written) + LOCK or counted_once:
        return back > other.returned and any(r.time >= other.returned for r in theirs)
    if _same(one, other) or other.time < one.returned or other.position <= one.position:
        return False
    confirmed = [r.time for r in since if r.kind in ANSWERS and r.time >= other.returned]
    given = [r.returned for r in since if r.kind == "acquire"]
    return bool(confirmed) and back >= min(confirmed) and all(t > min(confirmed) for t in given)


def _finished(
    story: Story, generation: PlainGeneration, rows: Sequence[Any], offset: int, uid: int
) -> int:
    """When a record was ended, or lay below the start offset of the group."""
    ends = _rows(rows, offset, *ENDS)
    first = min(ends, key=lambda r: r.returned, default=None)
    times = [first.returned] if first and (offset, uid) in _pairs(first) else []
    log = story.log(generation)
    if log is not None and offset >= log.log_start:
        times += [_passed(rows, offset)]
    return min(times, default=NEVER)


def _passed(rows: Sequence[Any], offset: int) -> int:
    return min(
        (r.returned for r in rows if r.kind == "settled" and r.position > offset), default=NEVER
    )


def _confirms(answer: Any, row: Any, offset: int) -> bool:
    """Whether a broker confirmed an acknowledgement of this delivery."""
    return (
        _same(answer, row)
        and answer.kind in ANSWERS
        and offset in answer.offsets
        and answer.time >= row.returned
    )


def _fresh(
    plain: Plain, generation: PlainGeneration, rows: Sequence[Any], row: Any, offset: int, end: int
) -> str:
    """Whether the member cannot have fetched the record before its end, `proven` or not: it had
    ended it itself, it had got what was sent later, or the count rose."""
    before = [r for r in _rows(rows, offset, "acquire") if r.returned <= end]
    if not before:
        return ""
    since = max(r.returned for r in before)
    newer = any(
        _same(r, row) and r.kind == "acquire" and r.returned <= row.time and sent > since
        for r in rows
        for uid in r.uids
        for sent in [
            s.invoked for s in plain.sends if s.first_uid <= uid < s.first_uid + len(s.offsets)
        ]
    )
    first = min(_rows(rows, offset, *ENDS), key=lambda r: r.returned, default=None)
    uid = row.uids[list(row.offsets).index(offset)]
    own = first is not None and first.returned <= end and _same(first, row)
    own = own and (offset, uid) in _pairs(first)
    higher = row.position > max(r.position for r in before)
    cluster, until = generation.cluster, row.returned
    if (own or newer) and _no_late_answer(plain, cluster, since, until):
        return "proven"
    if higher and _calm(plain, cluster, since, until):
        return "proven"
    return "unproven" if own or newer or higher else ""


def _unacquired(rows: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for answer in rows:
        for offset in answer.offsets if answer.kind in ANSWERS else ():
            mine = [r for r in rows if _same(r, answer)]
            given = [
                r.returned
                for r in _rows(mine, offset, "acquire", "renewed")
                if r.returned <= answer.time
            ]
            back = [r.time for r in _rows(mine, offset, *ENDS, "released") if r.time < answer.time]
            # What is given at the time at which it is given back was given back.
            had = max(given, default=-1)
            if had < 0 or max(back, default=-1) >= had or answer.time > had + LOCK + LATE:
                yield "unacquired-acknowledgement", offset


def _miscounted(
    plain: Plain, generation: PlainGeneration, rows: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    (cluster,) = (c for c in plain.view.topology.clusters if c.name == generation.cluster)
    limit = int(cluster.config.get("group.share.delivery.count.limit", 5))
    for row in rows:
        for offset in row.offsets if row.kind == "acquire" else ():
            beyond = row.position != -1 and not 1 <= row.position <= limit
            if beyond:
                yield "wrong-delivery-count", offset
            before = [
                r
                for r in rows
                if r.kind == "acquire"
                and offset in r.offsets
                and _same(r, row)
                and r is not row
                and (r.returned, rows.index(r)) < (row.returned, rows.index(row))
            ]
            last = max(before, key=lambda r: (r.returned, rows.index(r)), default=None)
            if last is None or row.position > last.position:
                continue
            released = any(
                _same(r, row) and last.returned <= r.time and r.returned <= row.time
                for r in _rows(rows, offset, "released")
            )
            if not released:
                continue
            certain = _no_late_answer(plain, generation.cluster, last.returned, row.returned)
            if certain:
                yield "wrong-delivery-count", offset
            elif not beyond:
                yield "unproven-redelivery", offset


def _starts(
    plain: Plain, story: Story, generation: PlainGeneration, rows: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    log = story.log(generation)
    reports = sorted((r for r in rows if r.kind == "settled"), key=lambda r: r.returned)
    # A truncation of the log does not take back the start offset from before it.
    kept = {
        at
        for old in plain.shares
        if old.cluster == generation.cluster and old.time < generation.began
        for row in rows[:1]
        if row.group == old.group
        for at in ([old.position] if old.kind == "settled" else [at + 1 for at in old.offsets])
    }
    for row in reports:
        beyond = log is not None and not log.torn and row.position > log.end
        beyond = beyond or _above_what_was_sampled(plain, story, generation, row)
        if beyond and row.position > max(kept, default=0):
            yield "wrong-start-offset", row.position
            continue
        higher = [r for r in reports if r.returned < row.time and r.position > row.position]
        if not higher:
            continue
        highest = max(r.position for r in higher)
        first = next(r for r in higher if r.position == highest)
        later = reports[reports.index(row) :]
        if _calm(plain, generation.cluster, first.time, row.returned) or all(
            r.position < highest for r in later
        ):
            yield "wrong-start-offset", row.position


def _above_what_was_sampled(
    plain: Plain, story: Story, generation: PlainGeneration, row: Any
) -> bool:
    """KIP-932: the start offset is at most that of a record that consumers may read, so at most the
    high watermark, which does not fall while the partition keeps its leader."""
    later = [
        mark
        for mark in plain.marks.get(generation.cluster, [])
        if mark.time >= row.returned
        and mark.high_watermark >= 0
        and story.number_at(generation.cluster, mark.time) == generation.number
    ]
    return bool(later) and (
        later[0].high_watermark < row.position
        and _calm(plain, generation.cluster, row.time, later[0].returned)
    )


def _ends_here(plain: Plain, generation: PlainGeneration, group: str) -> bool:
    """Whether the group was on this cluster at the end, and only in this log."""
    mine = [row for row in plain.shares if row.group == group]
    early = any(row.cluster == generation.cluster and row.time < generation.began for row in mine)
    return (
        generation.last
        and not early
        and max(mine, key=lambda r: r.returned).cluster == generation.cluster
    )


def _ended_elsewhere(plain: Plain, one: Any) -> set[int]:
    """The records that the group of a row was done with on another cluster."""
    return {
        uid
        for row in plain.shares
        if row.group == one.group and row.cluster != one.cluster
        if row.kind in ("accept", "reject", *ENDS) or (row.kind == "acquire" and row.position >= 3)
        for _, uid in _pairs(row)
        if uid >= 0
    }


def _missed(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    rows: Sequence[Any],
) -> Iterator[tuple[str, int]]:
    log = story.log(generation)
    begins = min(
        (o for row in rows if row.kind == "acquire" for o, _ in _pairs(row)), default=NEVER
    )
    for record in log.records if log is not None and rows else ():
        end = _passed(rows, record.offset)
        if not record.visible or end == NEVER:
            continue
        if record.offset < begins and record.uid in _ended_elsewhere(plain, rows[0]):
            continue  # it began here after a failover, where a mirror had copied its start offset
        given = _rows(rows, record.offset, "acquire")
        asked = _rows(rows, record.offset, "accept", "reject", *ENDS)
        if all(r.time > end for r in given):
            yield "never-delivered", record.offset
        elif all(r.time > end for r in asked) and all(r.position < 3 for r in given):
            yield "never-acknowledged", record.offset
