"""Every acknowledged record is at its acknowledged offset, and also on the other side of a mirror,
as far as the mirror got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.promises import deleted, marker_at, promises
from tests.oracles.story import Story, kept

EACH = frozenset({"lost-write"})


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            for promise in promises(plain, story, generation) if log else ():
                assert log is not None
                record = log.of(promise.uid)
                there = record is not None and (
                    record.visible or (record.state == "open" and generation.lost is not None)
                )
                if not promise.must or there or not kept(generation, promise.acked):
                    continue
                if deleted(plain, story, generation, log, promise) is False:
                    found.append(plain.anomaly("lost-write", generation.cluster, promise.acked))
        for compared in mirrored_ranges(plain, story):
            lost = {r.uid for r in [*compared.holes, *_tail(plain, story, compared)]}
            for generation in story.every():
                theirs = promises(plain, story, generation, earlier=False)
                # Of a row that the history repeats, the first one says what was acknowledged.
                missing = {p.uid: p.acked for p in reversed(theirs) if p.must and p.uid in lost}
                for acked in missing.values():
                    found.append(plain.anomaly("lost-write", generation.cluster, acked))
    return found


def _tail(plain: Plain, story: Story, compared: Compared) -> list[Any]:
    if compared.tail == "drained":
        return compared.behind
    return shown(plain, story, compared) if compared.tail == "lost" else []


def shown(plain: Plain, story: Story, compared: Compared) -> list[Any]:
    """The part of the missing tail that the destination once had: readers got it, or its high
    watermark covered it."""
    mirrored_range = compared.mirrored_range
    polls = [
        r
        for generation in story.generations[mirrored_range.destination]
        if generation.number >= mirrored_range.generation
        for r in story.reads(generation)
    ]
    polls = [r for r in polls if r.kind == "poll"]
    committed = {uid for r in polls if r.isolation == "read_committed" for uid in r.uids}
    anyhow = {uid for r in polls for uid in r.uids} - {r.uid for r in compared.destination.records}
    anyhow -= {
        r.uid
        for r in compared.behind
        if marker_at(r) < NEVER and marker_at(r) >= _arrived(plain, compared)
    }
    covered = compared.after_front[: _covered(plain, story, compared)]
    return [
        r
        for r in compared.behind
        if r.uid in committed or r.uid in anyhow or any(r is c for c in covered)
    ]


def _arrived(plain: Plain, compared: Compared) -> int:
    """The offset up to which the destination had the source's log before its ending mirror
    truncated it; NEVER if no mirror did."""
    mirrored_range = compared.mirrored_range
    ended = NEVER if mirrored_range.promotion is None else mirrored_range.promotion.time
    link = f"{mirrored_range.source}->{mirrored_range.destination}"
    stops = [
        s
        for s in plain.view.stops
        if s.link == link and mirrored_range.began <= s.time <= ended and s.truncated
    ]
    return max((s.mirrored for s in stops), default=NEVER)


def _covered(plain: Plain, story: Story, compared: Compared) -> int:
    """Offsets between the mirrored bytes and the promotion that were observed before clients
    wrote."""
    mirrored_range, promotion, log = (
        compared.mirrored_range,
        compared.mirrored_range.promotion,
        compared.destination,
    )
    generation = story.generations[log.cluster][mirrored_range.generation]
    if promotion is not None:
        invoked = [
            s.invoked
            for s in plain.sends
            if s.cluster == log.cluster and s.invoked >= mirrored_range.began
        ]
        before = max(min(invoked, default=NEVER), promotion.time)
    elif generation.lost is not None:
        before = generation.lost
    else:
        return 0
    marks = story.marks(generation)
    seen = [
        m.high_watermark for m in marks if m.returned <= before and m.time >= mirrored_range.began
    ]
    polls = [r for r in story.reads(generation) if r.kind == "poll"]
    seen += [r.position for r in polls if mirrored_range.began <= r.time and r.returned <= before]
    end = max(
        (b.last_offset + 1 for b in log.batches if b.base_offset < mirrored_range.end),
        default=log.log_start,
    )
    end = max(end, min(mirrored_range.end, plain.compacted.get(log.cluster, 0)))
    return max(0, min(max(seen, default=0), mirrored_range.end) - end)
