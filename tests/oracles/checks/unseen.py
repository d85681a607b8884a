"""Committed records were read, at their visible offsets, if a read_committed reader had read to the
end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.promises import Promise, promises
from tests.oracles.story import Story

EACH = frozenset({"unseen-write"})
BESIDE = "an acknowledged record is at an offset that readers passed, and no reader got it"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            spans = list(_spans(story.reads(generation))) if generation.last else []
            log = story.log(generation)
            floor = max(
                [
                    0,
                    *(m.log_start for m in plain.marks.get(generation.cluster, [])),
                    *([log.log_start] if log else []),
                ]
            )
            seen = {
                uid
                for each in story.generations[generation.cluster]
                for r in story.reads(each)
                if (r.kind, r.isolation) == ("poll", "read_committed")
                for uid in r.uids
            }
            for promise, own in _heard(plain, story, generation) if spans else ():
                offset = _where(
                    generation,
                    log,
                    promise,
                    own=own,
                    cleaned=plain.compacted.get(generation.cluster, 0),
                )
                passed = any(start <= offset < end for start, end in spans)
                if promise.must and offset >= floor and passed and promise.uid not in seen:
                    found.append(plain.anomaly("unseen-write", generation.cluster, offset))
    return found


def _spans(reads: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """From where a reader, or its group, first began, to the end that it reached."""
    reads = [r for r in reads if r.isolation == "read_committed"]

    def audience(row: Any) -> tuple[str, str]:
        """Its group; or the reader alone, if its position is unchanged since the log generation
        before."""
        first = next(r for r in reads if (r.reader, r.process) == (row.reader, row.process))
        return (
            ("group", row.group) if row.group and first.kind == "assign" else ("reader", row.reader)
        )

    for name in {audience(r) for r in reads}:
        mine = [r for r in reads if audience(r) == name]
        ends = [r.position for r in mine if r.kind == "drained"]
        begins = [r.position for r in mine if r.kind == "assign" and r.position >= 0]
        begins += [min(r.offsets) for r in mine if r.kind == "poll" and r.offsets]
        if ends and begins:
            yield min(begins), max(ends)


def _heard(
    plain: Plain, story: Story, generation: PlainGeneration
) -> Iterator[tuple[Promise, bool]]:
    for other in story.every():
        if other is generation:
            yield from ((p, True) for p in promises(plain, story, generation))
        elif other.cluster != generation.cluster:
            yield from ((p, False) for p in promises(plain, story, other, earlier=False))


def _where(
    generation: PlainGeneration, log: PlainLog | None, promise: Promise, *, own: bool, cleaned: int
) -> int:
    """The cluster's own records are at their acknowledged offsets; mirrored records are where the
    log has them."""
    # Compacted, perhaps before any reader reached it.
    gone = log is not None and promise.acked < cleaned and log.of(promise.uid) is None
    if own and promise.acked >= 0 and not gone:
        return promise.acked
    there = (
        next((r for r in log.records if r.visible and r.uid == promise.uid), None) if log else None
    )
    return there.offset if there is not None and generation.native(there.offset) == own else -1
