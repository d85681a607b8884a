"""At an acknowledged offset is the acknowledged record and no other, in the acknowledging cluster's
own era."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.generations import kept
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.promises import deleted, promises
from tests.oracles.story import Story

EACH = frozenset({"ghost-ack"})
DESPITE_TORN = frozenset({"ghost-ack"})
BESIDE = "the record that was acknowledged at an offset is not the record that is there now"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            # Without a promotion this cannot be decided; standby-isolation reports it.
            if log is None or all(generation.sources):
                continue
            given: set[int] = set()
            for promise in promises(plain, story, generation):
                offset = promise.acked
                if offset < log.log_start or offset < 0:
                    continue
                record = log.at(offset)
                right = (
                    generation.native(offset) and record is not None and record.uid == promise.uid
                )
                if record is None and generation.native(offset) and offset not in given:
                    # A cleaner took it, or it was in the lost part of a torn log.
                    compacted = plain.compacted.get(generation.cluster, 0)
                    right = offset >= log.torn_from or (
                        offset < min(compacted, log.end)
                        and deleted(plain, story, generation, log, promise, absent=True)
                        is not False
                    )
                if not right and kept(generation, offset):
                    found.append(plain.anomaly("ghost-ack", generation.cluster, offset))
                given.add(offset)
    return found
