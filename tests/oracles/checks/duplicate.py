"""Every payload is in every log once. Aborted copies in a native era do not count, and a mirror may
copy a duplicate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.oracles.generations import kept
from tests.oracles.mirrored_ranges import mirrored_ranges
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.story import Story

EACH = frozenset({"duplicate", "mirrored-duplicate"})
BESIDE = "a payload occurs twice"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            seen: Counter[int] = Counter()
            for record in log.records if log else ():
                native = generation.native(record.offset)
                if record.uid < 0 or not (record.visible or (native and record.state != "aborted")):
                    continue
                copy = seen[record.uid]
                seen[record.uid] += 1
                if (
                    copy
                    and (
                        native or not _faithful(plain, story, generation.cluster, record.uid, copy)
                    )
                    and kept(generation, record.offset)
                ):
                    found.append(
                        plain.anomaly(
                            "duplicate" if native else "mirrored-duplicate",
                            generation.cluster,
                            record.offset,
                        )
                    )
    return found


def _faithful(plain: Plain, story: Story, cluster: str, uid: int, copy: int) -> bool:
    """Whether a cluster from which this one mirrored has as many copies, or may have had them."""
    into = [c for c in mirrored_ranges(plain, story) if c.mirrored_range.destination == cluster]
    return any(
        uid in c.doubted or sum(1 for r in c.source.records if r.visible and r.uid == uid) > copy
        for c in into
    )
