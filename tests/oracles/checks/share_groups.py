"""A share group gets each committed record until it has completed it, and no aborted record; record
by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.checks.aborted_read import aborted
from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.story import Story

EACH = frozenset({"aborted-delivery", "delivered-again", "never-delivered", "never-acknowledged"})


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
                pairs = {*_aborted(plain, story, generation, rows), *_again(rows)}
                if _ends_here(plain, generation, group):
                    pairs |= set(_missed(story, generation, rows))
                found += [plain.anomaly(kind, generation.cluster, offset) for kind, offset in pairs]
    return found


def _within(story: Story, generation: PlainGeneration, row: Any) -> bool:
    numbers = {story.number_at(generation.cluster, time) for time in (row.time, row.returned)}
    return row.cluster == generation.cluster and numbers == {generation.number}


def _pairs(row: Any) -> Iterator[tuple[int, int]]:
    return zip(row.offsets, row.uids, strict=True)


def _aborted(
    plain: Plain, story: Story, generation: PlainGeneration, rows: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    for row in rows:
        for offset, uid in (
            _pairs(row) if row.kind == "acquire" and row.isolation == "read_committed" else ()
        ):
            if aborted(plain, story, generation, offset, uid):
                yield "aborted-delivery", offset


def _again(rows: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for row in rows:
        for offset, uid in _pairs(row) if row.kind == "acquire" else ():
            ends = [r for r in rows if r.kind in ("accepted", "rejected") and offset in r.offsets]
            first = min(ends, key=lambda r: r.returned, default=None)
            if first is None or first.returned >= row.time or (offset, uid) not in _pairs(first):
                continue
            if any(_confirms(r, row, offset) for r in rows):
                yield "delivered-again", offset


def _confirms(answer: Any, row: Any, offset: int) -> bool:
    """Whether a broker confirmed an acknowledgement of this delivery."""
    same = (answer.reader, answer.process) == (row.reader, row.process)
    kinds = ("accepted", "rejected", "released", "renewed")
    return (
        same and answer.kind in kinds and offset in answer.offsets and answer.time >= row.returned
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


def _missed(
    story: Story, generation: PlainGeneration, rows: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    ends = [row.position for row in rows if row.kind == "settled"]
    log = story.log(generation)
    for record in log.records if log is not None and ends and rows else ():
        given = [r for r in rows if r.kind == "acquire" and record.offset in r.offsets]
        asked = any(
            r.kind in ("accept", "reject", "accepted", "rejected") and record.offset in r.offsets
            for r in rows
        )
        if not record.visible or record.offset >= max(ends):
            continue
        if not given:
            yield "never-delivered", record.offset
        elif not asked and all(r.position < 3 for r in given):
            yield "never-acknowledged", record.offset
