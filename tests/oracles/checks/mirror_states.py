"""A mirror reports no lag below every lag of the last 5 s, and does not report that it mirrors a
promoted partition. Disagreements of verbs are reported once for each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Anomaly, Plain

EACH: frozenset[str] = frozenset()
KNOWS_TORN = True
FAITHFUL_TOO = True
OLD = 5_000_000_000


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        said = [d for d in plain.view.descriptions if d.mirrors]
        for link in sorted({d.link for d in said}):
            b = link.split("->")[1]
            lags = [
                (at_least - d.lag, had)
                for d in said
                if d.link == link and d.lag >= 0
                for at_least, had in _behind(plain, d)
            ]
            worst = [lie for lie in lags if lie[0] > 0]
            if worst:
                found.append(plain.anomaly("state-lie", b, max(worst, key=lambda lie: lie[0])[1]))
            over = [p for d in said if d.link == link for p in _promoted_before(plain, d)]
            if over:
                found.append(plain.anomaly("state-lie", b, over[0].offset))
        for link in {d.link for d in plain.view.disagreements}:
            found.append(plain.anomaly("verb-disagreement", link.split("->")[1], -1))
        for link in {each.link for each in plain.view.comparisons}:
            mine = [each for each in plain.view.comparisons if each.link == link]
            newest = mine[0]
            for each in mine:
                if each.time >= newest.time:
                    newest = each
            if len(newest.recorded) > 0:
                found.append(plain.anomaly("record-differs", link.split("->")[1], -1))
    return found


def _behind(plain: Plain, said: Any) -> list[tuple[int, int]]:
    """The lags at every moment that the report may be from, and the most that the destination
    had."""
    a, b = said.link.split("->")
    many = any(
        cluster.name == b and cluster.brokers > 1 for cluster in plain.view.topology.clusters
    )
    began, over = said.asked - OLD, said.returned + (OLD if many else 0)
    for truncation in plain.view.truncations:
        if truncation.cluster in (a, b) and began - OLD <= truncation.time <= over + OLD:
            return []
    theirs, ours = _highs(plain, a, began, said.returned), _highs(plain, b, began, over)
    answered = any(mark.time >= over for mark in plain.marks.get(b, []) if mark.high_watermark >= 0)
    return [(min(theirs) - max(ours), max(ours))] if theirs and ours and answered else []


def _highs(plain: Plain, cluster: str, began: int, over: int) -> list[int]:
    found: list[int] = []
    early = False
    for mark in plain.marks.get(cluster, []):
        if mark.high_watermark < 0:
            continue
        if mark.returned <= began:
            found, early = [], True
        found.append(mark.high_watermark)
        if mark.time >= over:
            break
    return found if early else []


def _promoted_before(plain: Plain, said: Any) -> list[Any]:
    a, b = said.link.split("->")
    ended = [p for p in plain.view.promotions if p.link == said.link and p.time + OLD < said.asked]
    for promotion in sorted(ended, key=lambda p: p.time)[-1:]:
        for window in plain.view.windows:
            if (
                window.fault == "mirror-reverse"
                and window.target == f"{b}->{a}"
                and promotion.time < window.start <= said.returned
            ):
                return []
        return [promotion]
    return []
