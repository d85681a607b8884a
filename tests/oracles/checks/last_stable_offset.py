"""The LSO that leaders report never goes back, and agrees with some possible high watermark at that
time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog, of_send, pair, transactions
from tests.oracles.story import PlainGeneration, Story

KINDS = frozenset(
    {
        "lso-above-high-watermark",
        "lso-regression",
        "high-watermark-regression",
        "high-watermark-above-log",
        "log-start-regression",
        "log-start-above-lso",
        "lso-mismatch",
    }
)
DESPITE_TORN = KINDS - {"high-watermark-above-log", "lso-mismatch"}


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in (each for each in views if not each.view.internal):
        story = Story(plain)
        for generation in story.every():
            marks = [
                m for m in story.marks(generation) if m.last_stable >= 0 and m.high_watermark >= 0
            ]
            suspects = list(_order(plain, generation, marks))
            suspects += list(_above(plain, story, generation))
            suspects += list(_sent_later(plain, story, generation))
            suspects += list(_mismatches(plain, story, generation, marks))
            found += [plain.anomaly(kind, generation.cluster, offset) for kind, offset in suspects]
    return found


def _tenure(plain: Plain, generation: PlainGeneration, before: Any, after: Any) -> bool:
    """Whether two samples are certainly from one leader in one epoch."""
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        return False
    view = plain.view
    moved = [
        (w.start, w.end) for w in plain.windows if w.target.split("/")[0] == generation.cluster
    ]
    moved += [(p.fault_time, p.time) for p in view.promotions if p.cluster == generation.cluster]
    moved += [(s.time, s.time) for s in view.stops if s.cluster == generation.cluster]
    moved += [(t.time, t.time) for t in view.truncations if t.cluster == generation.cluster]
    return after.leader_epoch >= 0 or not any(
        before.time <= end and after.returned >= start for start, end in moved
    )


def _order(
    plain: Plain, generation: PlainGeneration, marks: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    reported = [mark for mark in marks if mark.log_start >= 0]
    for before, after in pairwise(reported):
        if after.log_start < before.log_start and _tenure(plain, generation, before, after):
            yield "log-start-regression", after.log_start
    for earlier, before, after in zip([None, *marks], marks, marks[1:], strict=False):
        same = _tenure(plain, generation, before, after)
        lowest = _stepping(plain, generation, before, after)
        reopened = lowest <= after.high_watermark < before.high_watermark
        if same and after.last_stable < min(before.last_stable, lowest) and not reopened:
            yield "lso-regression", after.last_stable
        if same and after.high_watermark < min(before.high_watermark, lowest):
            yield "high-watermark-regression", after.last_stable
        if same and after.log_start > max(after.last_stable, -1):
            yield "log-start-above-lso", after.log_start
        # Another leader may have had any high watermark.
        highest = max(before.high_watermark, after.high_watermark)
        if (
            same
            and before.last_stable > highest
            and not _in_a_step(plain, generation, earlier, before)
        ):
            yield "lso-above-high-watermark", before.last_stable


def _in_a_step(plain: Plain, generation: PlainGeneration, before: Any, mark: Any) -> bool:
    """Whether the log may have lost its end within a sample, after its LSO was requested: its high
    watermark fell while a reversal truncated the log, possibly in several steps."""
    mine = generation.cluster
    return (
        before is not None
        and mark.high_watermark < before.high_watermark
        and any(
            mark.time <= t.time and w.start <= mark.returned
            for w in plain.windows
            if w.fault == "mirror-reverse" and w.took_effect and w.on.source == mine
            for t in plain.view.truncations
            if t.cluster == mine and w.start <= t.time <= w.end
        )
    )


def _stepping(plain: Plain, generation: PlainGeneration, before: Any, after: Any) -> int:
    """How far two samples may go back while a reversal truncates their log, possibly in several
    steps."""
    mine = generation.cluster
    reversals = [
        w
        for w in plain.windows
        if w.fault == "mirror-reverse" and w.took_effect and w.on.source == mine
    ]
    offsets = [
        t.offset
        for w in reversals
        for t in plain.view.truncations
        if t.cluster == mine and w.start <= t.time <= w.end
        if before.time <= t.time and w.start <= after.returned
    ]
    return min(offsets, default=NEVER)


def _above(plain: Plain, story: Story, generation: PlainGeneration) -> Iterator[tuple[str, int]]:
    logs = [
        log
        for log in (
            story.log(generation),
            None if generation.last else story.before_truncation(generation),
        )
        if log is not None
    ]
    if not logs:
        return
    until = max(log.captured for log in logs) or NEVER
    end = story.end(generation)
    for mark in story.marks(generation):
        if mark.returned <= until and end < mark.high_watermark <= _truncated_since(
            plain, generation, mark
        ):
            yield "high-watermark-above-log", end
            return


def _sent_later(
    plain: Plain, story: Story, generation: PlainGeneration
) -> Iterator[tuple[str, int]]:
    """A record that was sent after a sample whose high watermark is above it."""
    log = story.log(generation)
    if log is None or log.torn:
        return
    sent = {uid: s.invoked for s in plain.sends for uid, _, _ in of_send(s)}
    for mark in story.marks(generation):
        if mark.high_watermark > min(
            story.end(generation), _truncated_since(plain, generation, mark)
        ):
            continue
        later = [r.offset for r in log.records if sent.get(r.uid, -1) > mark.returned]
        if later and min(later) < mark.high_watermark:
            yield "high-watermark-above-log", min(later)
            return


def _mismatches(
    plain: Plain, story: Story, generation: PlainGeneration, marks: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    """Each sample with the capture that has all that it can be about: the first one after it, or
    else the last one before it, if the log was the same then."""
    logs = [
        log
        for log in (
            story.log(generation),
            None if generation.last else story.before_truncation(generation),
        )
        if log is not None
    ]
    found = [dict(_recomputed(plain, generation, log, marks)) for log in logs]
    every = story.marks(generation)
    for n, mark in enumerate(marks):
        shown = [
            wrong
            for log, wrong in zip(logs, found, strict=True)
            if mark.returned <= (log.captured or NEVER) and mark.time < generation.ended
        ] or [
            wrong
            for log, wrong in list(zip(logs, found, strict=True))[::-1]
            if _same_log(log, every, marks[n : n + 2])
        ]
        if shown and n in shown[0]:
            yield shown[0][n]


def _same_log(log: PlainLog, every: Sequence[Any], marks: Sequence[Any]) -> bool:
    """Whether a log that was captured before a sample had the same records at its request: all
    that there is until the next sample is in it, and was committed by then or is of the same
    leader, which earlier samples name, or else the log's batches. An elected leader may lack what
    was not committed (KIP-101)."""
    before = [mark for mark in every if mark.returned <= log.captured]
    committed = max((mark.high_watermark for mark in before), default=-1)
    last_epoch = max((each.leader_epoch for each in before or log.batches), default=-1)
    same_leader = 0 <= marks[0].leader_epoch <= last_epoch
    return len(marks) > 1 and all(
        mark.high_watermark <= log.end and (same_leader or mark.high_watermark <= committed)
        for mark in marks
    )


def _recomputed(
    plain: Plain, generation: PlainGeneration, log: PlainLog, marks: Sequence[Any]
) -> Iterator[tuple[int, tuple[str, int]]]:
    """Tries every high watermark that the log can have had when its LSO was requested, and still
    has."""
    pair(log, untracked=True)
    every = transactions(log)
    pair(log)
    for index, mark in enumerate(marks):
        before = marks[index - 1] if index else None
        after = marks[index + 1] if index + 1 < len(marks) else None
        lowest = (
            min(before.high_watermark, mark.high_watermark) if before and _same(before, mark) else 0
        )
        highest = max(
            mark.high_watermark, after.high_watermark if after and _same(mark, after) else log.end
        )
        truncated = [
            generation.began,
            *(t.time for t in plain.view.truncations if t.cluster == generation.cluster),
        ]
        if highest > _truncated_since(plain, generation, mark) or any(
            mark.time <= time <= mark.returned for time in truncated
        ):
            continue
        if mark.last_stable < max(log.log_start, plain.cleaned(log)):
            continue
        if _in_a_step(plain, generation, before, mark):
            continue
        if all(_lso(every, high) != mark.last_stable for high in range(lowest, highest + 1)):
            yield index, ("lso-mismatch", mark.last_stable)


def _truncated_since(plain: Plain, generation: PlainGeneration, mark: Any) -> int:
    """The offset to which a mirror truncated this generation's log after a sample was requested."""
    reported = [(t.cluster, t.time, t.offset) for t in plain.view.truncations]
    reported += [(s.cluster, s.time, at) for s in plain.view.stops for _, at in s.truncated]
    mine = [
        at
        for cluster, time, at in reported
        if cluster == generation.cluster
        and max(generation.settled, mark.time) <= time <= generation.ended
    ]
    return min(mine, default=NEVER)


def _same(before: Any, after: Any) -> bool:
    return None not in (before, after) and (before.leader, before.leader_epoch) == (
        after.leader,
        after.leader_epoch,
    )


def _lso(every: Sequence[Any], high: int) -> int:
    open_ones = [
        t.first
        for t in every
        if t.first < high and (t.marker is None or t.marker.base_offset >= high)
    ]
    return int(min([high, *open_ones]))
