"""At one offset of one generation of a log everybody saw the same payload: the bytes, producers by
their acknowledgements, readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.generations import PlainGeneration, kept
from tests.oracles.plain import NEVER, Anomaly, Plain, of_send
from tests.oracles.story import Story

EACH = frozenset({"inconsistent-offset"})
DESPITE_TORN = frozenset({"inconsistent-offset"})
BESIDE = "a reader got, or a producer was acknowledged, another record at that offset"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            seen: dict[int, set[int]] = {}
            for offset, uid in _observed(plain, story, generation):
                if kept(generation, offset):
                    seen.setdefault(offset, set()).add(uid)
            found += [
                plain.anomaly("inconsistent-offset", generation.cluster, o)
                for o, uids in seen.items()
                if len(uids) > 1
            ]
    return found


def _observed(plain: Plain, story: Story, generation: PlainGeneration) -> Iterator[tuple[int, int]]:
    log = story.log(generation)
    yield from ((r.offset, r.uid) for r in (log.records if log else ()))
    for before in story.generations[generation.cluster][: generation.number + 1]:
        end = min(generation.earlier[before.number :], default=NEVER)
        for send in story.sends(before):
            yield from ((acked, uid) for uid, acked, _ in of_send(send) if 0 <= acked < end)
        for read in story.polls(before):
            limit = min(end, truncated_since(plain, read))
            yield from (
                (o, uid) for o, uid in zip(read.offsets, read.uids, strict=True) if o < limit
            )


def truncated_since(plain: Plain, read: Any) -> int:
    """The offset at which a mirror that ended after this poll reported that it truncated the
    log."""
    truncations = [
        at
        for s in plain.view.stops
        if s.cluster == read.cluster and read.time <= s.time
        for _, at in s.truncated
    ]
    return min(truncations, default=NEVER)
