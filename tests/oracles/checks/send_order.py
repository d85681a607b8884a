"""Along a log, the payload ids of one producer incarnation only rise: within an operation, and from
one operation to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.generations import kept
from tests.oracles.plain import Anomaly, Plain, incarnation
from tests.oracles.story import Story

EACH = frozenset({"send-inversion", "internal-inversion"})
BESIDE = "records of one producer are in another order than they were sent"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            highest: dict[int, Any] = {}
            seen: set[int] = set()
            firsts: dict[int, int] = {}
            for record in log.records if log else ():
                assert log is not None
                native = generation.native(record.offset)
                if record.uid < 0 or record.uid in seen or not (native or record.visible):
                    continue
                seen.add(record.uid)
                who = incarnation(record.uid)
                first = firsts.setdefault(who, record.uid)
                # If the log lost its beginning, the first copy may have been there.
                if log.log_start > 0 and not plain.keeps and record.uid < first and not native:
                    continue
                before = highest.get(who)
                if before is not None and record.uid < before.uid:
                    kind = (
                        "internal-inversion"
                        if before.operation == record.operation
                        else "send-inversion"
                    )
                    if kept(generation, record.offset):
                        found.append(plain.anomaly(kind, generation.cluster, record.offset))
                else:
                    highest[who] = record
    return found
