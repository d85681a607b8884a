"""A consumer group that fails over skips no record, and gets only records again that it had
committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story

KINDS = frozenset({"group-skip", "group-replay"})
EACH = KINDS


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        if plain.view.internal or not plain.options.get("groups", ".*"):
            continue
        for compared in mirrored_ranges(plain, Story(plain)):
            promotion = compared.mirrored_range.promotion
            for group in {r.group for r in plain.reads if r.group} if promotion else ():
                found += [
                    plain.anomaly(kind, promotion.cluster, offset)
                    for kind, offset in _judge(plain, compared, group)
                ]
    return found


def _judge(plain: Plain, compared: Compared, group: str) -> Iterator[tuple[str, int]]:
    promotion, there, began = (
        compared.mirrored_range.promotion,
        compared.mirrored_range.destination,
        compared.mirrored_range.settled,
    )
    ended = min(
        (p.fault_time for p in plain.view.promotions if p.source == there and p.time > began),
        default=NEVER,
    )
    reads = [
        r
        for r in plain.reads
        if r.group == group and (r.cluster != there or r.time >= began) and r.returned <= ended
    ]
    after = [r for r in reads if r.cluster == promotion.cluster and r.kind == "poll" and r.offsets]
    if not reads or any(r.returned < promotion.fault_time for r in after):
        return
    got = [r for r in plain.reads if r.group == group and r.kind == "poll"]
    mirrored = [
        r
        for r in compared.destination.records
        if r.visible and r.uid >= 0 and r.offset < promotion.offset
    ]
    yield from _skips(compared, reads, after, got, mirrored)


def _skips(
    compared: Compared,
    reads: Sequence[Any],
    after: Sequence[Any],
    got: Sequence[Any],
    mirrored: Sequence[Any],
) -> Iterator[tuple[str, int]]:
    promotion = compared.mirrored_range.promotion
    commits = [
        r for r in reads if r.cluster == promotion.source and r.kind == "commit" and r.position >= 0
    ]
    if not commits or not after:
        return
    committed = max(commits, key=lambda r: r.returned).position
    start = min(after, key=lambda r: r.returned).offsets[0]
    ever, later = (
        {u for r in got for u in r.uids},
        {read for r in after for read in zip(r.offsets, r.uids, strict=True)},
    )
    for record in mirrored:
        origin = compared.source.of(record.uid)
        if origin is None:
            continue
        if record.offset < start and origin.offset >= committed and record.uid not in ever:
            yield "group-skip", record.offset
        if origin.offset < committed and (record.offset, record.uid) in later:
            yield "group-replay", record.offset
