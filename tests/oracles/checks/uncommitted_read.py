"""A read_committed reader gets no record before its commit was requested, nor while the LSO was
sampled at or below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.checks.aborted_read import aborted, committed_reads, sent
from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story

EACH = frozenset({"uncommitted-read"})
DESPITE_TORN = frozenset({"uncommitted-read"})
BESIDE = "according to the sample, the transaction was open when a reader got its records"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            wrong = {
                offset
                for read, offset, uid in committed_reads(story, generation)
                if (
                    read.returned < _asked(sent(plain, uid))
                    or _beyond(story, generation, read, offset)
                )
                and not aborted(plain, story, generation, offset, uid)
            }
            found += [
                plain.anomaly("uncommitted-read", generation.cluster, offset) for offset in wrong
            ]
    return found


def _asked(send: Any) -> int:
    """The earliest time at which its commit can have been requested."""
    if send is None:
        return 0
    if send.ending != "commit":
        return NEVER
    if send.returned < 0:
        return int(send.invoked)
    if send.ended_at > 0:
        return int(send.ended_at)
    return int(send.invoked) if send.outcome == "ok" else NEVER


def _beyond(story: Story, generation: PlainGeneration, read: Any, offset: int) -> bool:
    marks = [m for m in story.marks(generation) if m.last_stable >= 0 and m.leader_epoch >= 0]
    for before, after in pairwise(marks):
        if before.time < read.returned <= after.time:
            same = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
            back = any(m.last_stable > after.last_stable for m in _term(marks, after))
            return bool(
                same
                and not back
                and after.last_stable <= offset
                and not _truncated(story, generation, after)
            )
    return False


def _term(marks: Sequence[Any], last: Any) -> list[Any]:
    """A sample and the samples directly before it from the same leader in the same epoch."""
    found: list[Any] = []
    for mark in reversed(marks[: marks.index(last) + 1]):
        if (mark.leader, mark.leader_epoch) != (last.leader, last.leader_epoch):
            break
        found.append(mark)
    return found


def _truncated(story: Story, generation: PlainGeneration, sample: Any) -> bool:
    """Whether a mirror that ended after a sample may have truncated before it: no later sample
    shows more than the rest."""
    for stop in story.stops(generation):
        truncations = [at for end, at in stop.truncated if at < end]
        if truncations and sample.time <= stop.time:
            between = [m for m in story.marks(generation) if sample.time <= m.time <= stop.time]
            if all(m.high_watermark <= max(truncations) for m in between):
                return True
    return False
