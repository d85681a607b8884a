"""An acknowledged commit ends in a COMMIT marker in every partition of the transaction, and an
acknowledged abort in none.

Markers of a cluster's last seconds may be missing if it was given up in a forced failover, unless
the producer continued there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.checks.marker_pairing import next_operation
from tests.oracles.generations import PlainGeneration, kept
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.promises import promises
from tests.oracles.story import Story

EACH: frozenset[str] = frozenset()
BESIDE = "the marker of a transaction whose commit or abort was acknowledged was changed or removed"
GRACE = 5_000_000_000


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            found_at: dict[tuple[str, int], Anomaly] = {}
            for promise in promises(plain, story, generation) if log else ():
                assert log is not None
                record = log.of(promise.uid)
                if record is None or promise.refused or promise.send.outcome == "info":
                    continue
                kind = _wrong(plain, generation, log, promise.send, record)
                if kind:
                    offset = (
                        record.offset
                        if kind == "commit-unmarked"
                        else record.batch.marker.base_offset
                    )
                    found_at.setdefault(
                        (kind, promise.send.number), plain.anomaly(kind, generation.cluster, offset)
                    )
            found += [anomaly for anomaly in found_at.values() if kept(generation, anomaly[4])]
    return found


def _wrong(plain: Plain, generation: PlainGeneration, log: Any, send: Any, record: Any) -> str:
    if send.ending == "abort" or (
        send.ending == "commit" and send.kind == "transaction" and send.outcome == "fail"
    ):
        return "abort-committed" if record.state == "committed" else ""
    if send.ending != "commit":
        return ""
    if record.state == "aborted":
        return "commit-aborted"
    if next_operation(log, record) is not None:
        return "commit-unmarked"
    return (
        "commit-unmarked"
        if record.state == "open" and not _excused(plain, generation, send)
        else ""
    )


def _excused(plain: Plain, generation: PlainGeneration, send: Any) -> bool:
    if generation.lost is None:
        return False
    on_it = [
        w
        for w in plain.view.windows
        if w.target.split("/")[0] == generation.cluster and w.start <= generation.lost
    ]
    healthy, edge = True, generation.lost
    while healthy and edge - GRACE > send.returned:
        reaching = [w.start for w in on_it if w.start < edge and w.end >= edge - GRACE]
        healthy, edge = bool(reaching), min(reaching, default=edge)
    return healthy
