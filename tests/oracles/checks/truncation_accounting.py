"""A failback truncates only what the new owner never had, and a failover appends only what the
mirror reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.plain import Anomaly, Plain, PlainLog, starts
from tests.oracles.promises import promises
from tests.oracles.story import PlainGeneration, Story

EACH = frozenset({"truncated-write"})
DESPITE_TORN = frozenset(
    {
        "truncation-too-deep",
        "truncation-too-short",
        "tail-not-truncated",
        "marker-unannounced",
        "promotion-mismatch",
        "promotion-unaccounted",
        "epoch-mismatch",
    }
)
SAME = ("base_offset", "last_offset", "length", "crc", "leader_epoch")


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for truncation in plain.view.truncations:
            mine = story.generations.get(truncation.cluster, [])
            if truncation.end == truncation.offset:
                continue  # nothing was removed
            if mine and not any(a.ended <= truncation.time <= b.settled for a, b in pairwise(mine)):
                found.append(
                    plain.anomaly("truncation-impossible", truncation.cluster, truncation.offset)
                )
        for cluster, generations in story.generations.items():
            for generation, following in pairwise(generations):
                found += [
                    plain.anomaly(kind, cluster, offset)
                    for kind, offset in _truncation(plain, story, generation, following)
                ]
        for stop in plain.view.stops:
            promotion = next(
                (p for p in plain.view.promotions if p.link == stop.link and p.time >= stop.time),
                None,
            )
            if promotion is None or stop.cluster not in story.generations:
                continue
            log = story.log(
                story.generations[stop.cluster][story.number_at(stop.cluster, stop.time)]
            )
            if log is not None and stop.promoted >= 0:
                found += [
                    plain.anomaly(kind, stop.cluster, offset)
                    for kind, offset in _ended(plain, log, stop, promotion)
                ]
    return found


def _truncation(
    plain: Plain, story: Story, generation: PlainGeneration, following: PlainGeneration
) -> Iterator[tuple[str, int]]:
    before, after = story.before_truncation(generation), story.log(following)
    if before is None or after is None:
        return
    truncations = [
        t
        for t in plain.view.truncations
        if t.cluster == generation.cluster and generation.ended <= t.time <= following.ended
    ]
    yield from (
        ("truncation-too-deep", truncation.offset)
        for truncation in truncations
        if truncation.offset < generation.truncated_to
    )
    yield from (
        ("truncation-impossible", truncation.offset)
        for truncation in truncations
        if _contradicted(truncation, generation, before)
    )
    yield from _lacking(
        plain,
        generation,
        following,
        after,
        min([generation.truncated_to, *(truncation.offset for truncation in truncations)]),
    )
    tail = [b for b in before.batches if b.last_offset >= generation.truncated_to]
    if tail and not truncations:
        yield "truncation-unrecorded", tail[0].base_offset
    gone = [
        n
        for n, b in enumerate(before.batches)
        if b not in tail and b.base_offset >= after.log_start and not _has(after, b)
    ]
    yield from (("history-changed", before.batches[n].base_offset) for n in starts(gone))
    owner = plain.final(following.sources[min(generation.truncated_to, len(following.sources) - 1)])
    left = [b for b in tail if _has(after, b) and not _from(owner, b)]
    yield from (("tail-not-truncated", b.base_offset) for b in left[:1])
    possible = [t for t in truncations if not _contradicted(t, generation, before)]
    kept = [
        b
        for b in tail
        if possible and all(b.base_offset < t.offset for t in possible)
        if not _from(owner, b)
    ]
    yield from (("truncation-too-short", b.base_offset) for b in kept[:1])
    for promise in promises(plain, story, generation, earlier=False):
        if (
            promise.must
            and promise.acked >= generation.truncated_to
            and (generation.lost is None or promise.send.invoked > generation.lost)
        ):
            yield "truncated-write", promise.acked


def _contradicted(truncation: Any, generation: PlainGeneration, before: PlainLog) -> bool:
    if before.torn or truncation.end < truncation.offset:
        return bool(truncation.end < truncation.offset)
    return bool(
        truncation.end < before.end
        or (truncation.offset > before.end and truncation.offset > generation.truncated_to)
    )


def _lacking(
    plain: Plain, generation: PlainGeneration, following: PlainGeneration, after: PlainLog, end: int
) -> Iterator[tuple[str, int]]:
    """The part of the common history that a capture from after the cluster's loss lacks, although
    it exists afterwards."""
    since = max(
        [
            0,
            *(
                p.fault_time
                for p in plain.view.promotions
                if p.source == generation.cluster and p.time <= generation.ended
            ),
        ]
    )
    for log in plain.earlier:
        if (
            log.cluster != generation.cluster
            or log.torn
            or not since <= log.captured <= following.settled
        ):
            continue
        bases = {b.base_offset for b in log.batches}
        common = [
            n
            for n, b in enumerate(after.batches)
            if b.last_offset < end and b.base_offset >= log.log_start and b.crc_ok
        ]
        gone = [n for n in common if after.batches[n].base_offset not in bases]
        yield from (("history-changed", after.batches[n].base_offset) for n in starts(gone))


def _has(log: PlainLog, batch: Any) -> bool:
    return any(all(getattr(b, name) == getattr(batch, name) for name in SAME) for b in log.batches)


def _from(owner: PlainLog | None, batch: Any) -> bool:
    return owner is not None and any(
        (b.base_offset, b.crc) == (batch.base_offset, batch.crc) for b in owner.batches
    )


def _ended(plain: Plain, log: PlainLog, stop: Any, promotion: Any) -> Iterator[tuple[str, int]]:
    markers = {offset for offset, _ in stop.appended if offset < stop.promoted}
    if promotion.offset != min(stop.promoted - len(markers), stop.mirrored):
        yield "promotion-mismatch", promotion.offset
    for offset, what in stop.appended:
        held = [_called(b) for b in log.batches if b.base_offset == offset]
        if not held and offset < max(log.log_start, plain.cleaned(log)):
            continue
        if offset >= log.log_start and held != [
            what if what.startswith("ABORT") else "another control record"
        ]:
            yield "marker-not-appended", offset
    said = [offset for offset, _ in stop.appended]
    between = [
        b for b in log.batches if b.last_offset >= stop.mirrored and b.base_offset < stop.promoted
    ]
    silent = [b.base_offset for b in between if b.base_offset not in said]
    yield from (("marker-unannounced", offset) for offset in silent)
    appended = sum(offset < stop.promoted for offset in said)
    if not silent and stop.promoted - appended not in _ways(stop):
        yield "promotion-unaccounted", stop.promoted
    yield from _not_made(log, stop)
    yield from _other_epochs(log, stop)


def _called(batch: Any) -> str:
    if batch.control == 0:
        return f"ABORT of producer {batch.producer_id}, epoch {batch.producer_epoch}"
    return "another control record" if batch.reset else "data or COMMIT"


def _ways(stop: Any) -> set[int]:
    """Where the log can have ended after some of the last truncations, each from its end at that
    time or before."""
    found = {stop.mirrored}
    for first in range(len(stop.truncated)):
        been = {stop.mirrored}
        steps = stop.truncated[first:]
        for end, at in steps:
            been = been | {at} if end in been and at <= end else set()
        if been:
            found.add(steps[-1][1])
    return found


def _not_made(log: PlainLog, stop: Any) -> Iterator[tuple[str, int]]:
    for index, (end, at) in enumerate(stop.truncated):
        deeper = any(later < at for _, later in stop.truncated[index + 1 :])
        below = [b for b in log.batches if b.base_offset < at]
        behind = [b for b in log.batches if b.last_offset >= at]
        if at >= end or deeper or not below or not behind:
            continue
        if behind[0].base_offset < at or behind[0].leader_epoch <= max(
            b.leader_epoch for b in below
        ):
            yield "truncation-not-made", at


def _other_epochs(log: PlainLog, stop: Any) -> Iterator[tuple[str, int]]:
    """The first mirrored batch whose leader epoch differs from the recorded one for its offset."""
    for batch in log.batches:
        said = [epoch for epoch, start in stop.epochs if start <= batch.base_offset]
        if (
            batch.base_offset < min(stop.mirrored, stop.promoted)
            and said
            and said[-1] != batch.leader_epoch
        ):
            yield "epoch-mismatch", batch.base_offset
            return
