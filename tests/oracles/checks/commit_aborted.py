"""An acknowledged commit ends in a COMMIT marker in every partition it wrote to, an acknowledged abort in none.

Markers of a cluster's last seconds may be missing, if it was given up by force; but not where the producer went on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.checks.marker_pairing import next_operation
from tests.oracles.plain import Place, Plain
from tests.oracles.promises import promises
from tests.oracles.story import PlainLife, Story, kept

EACH: frozenset[str] = frozenset()
BESIDE = "a commit or an abort that was acknowledged ends with the marker that is now there, or with none"
GRACE = 5_000_000_000


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every():
            log = story.log(life)
            told: dict[tuple[str, int], Place] = {}
            for promise in promises(plain, story, life) if log else ():
                record = log.of(promise.uid)
                if record is None or promise.refused or promise.send.outcome == "info":
                    continue
                kind = _wrong(plain, life, log, promise.send, record)
                if kind:
                    offset = record.offset if kind == "commit-unmarked" else record.batch.marker.base_offset
                    told.setdefault((kind, promise.send.number), plain.place(kind, life.cluster, offset))
            found += [place for place in told.values() if kept(life, place[4])]
    return found


def _wrong(plain: Plain, life: PlainLife, log: Any, send: Any, record: Any) -> str:
    if send.ending == "abort" or (send.ending == "commit" and send.kind == "transaction" and send.outcome == "fail"):
        return "abort-committed" if record.state == "committed" else ""
    if send.ending != "commit":
        return ""
    if record.state == "aborted":
        return "commit-aborted"
    if next_operation(log, record) is not None:
        return "commit-unmarked"
    return "commit-unmarked" if record.state == "open" and not _excused(plain, life, send) else ""


def _excused(plain: Plain, life: PlainLife, send: Any) -> bool:
    if life.lost is None:
        return False
    on_it = [w for w in plain.view.windows if w.target.split("/")[0] == life.cluster and w.start <= life.lost]
    return send.returned >= life.lost - GRACE or any(w.end >= send.returned for w in on_it)
