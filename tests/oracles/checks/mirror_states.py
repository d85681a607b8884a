"""A mirror reports no lag below every lag of the last 5 s. It does not report that it mirrors a
promoted partition, and always knows of the promotion within 30 s. Disagreements of verbs are
reported once for each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Anomaly, Plain

EACH: frozenset[str] = frozenset()
KNOWS_TORN = True
FAITHFUL_TOO = True
OLD = 5_000_000_000
LOADING = 30_000_000_000


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for link in sorted({d.link for d in plain.view.descriptions}):
            found += _of_reports(plain, link.split("->")[1], _of(link, plain.view.descriptions))
        for link in {d.link for d in plain.view.disagreements}:
            found.append(plain.anomaly("verb-disagreement", link.split("->")[1], -1))
        for link in {each.link for each in plain.view.comparisons}:
            newest, *others = _of(link, plain.view.comparisons)
            for each in others:
                if each.time >= newest.time:
                    newest = each
            if len(newest.recorded) > 0:
                found.append(plain.anomaly("record-differs", link.split("->")[1], -1))
    return found


def _of(link: str, every: Sequence[Any]) -> list[Any]:
    return [each for each in every if each.link == link]


def _of_reports(plain: Plain, b: str, reports: list[Any]) -> list[Anomaly]:
    found: list[Anomaly] = []
    mirroring = [d for d in reports if d.mirrors]
    lags = [
        (at_least - d.lag, had)
        for d in mirroring
        if d.lag >= 0
        for at_least, had in _behind(plain, d)
    ]
    worst = [lie for lie in lags if lie[0] > 0]
    if worst:
        found.append(plain.anomaly("state-lie", b, max(worst, key=lambda lie: lie[0])[1]))
    over = [p for d in mirroring for p in _promoted_before(plain, d)]
    if over:
        found.append(plain.anomaly("state-lie", b, over[0].offset))
    longest, promoted_at = _forgotten(plain, reports)
    if longest >= LOADING:
        found.append(plain.anomaly("promotion-forgotten", b, promoted_at))
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


def _forgotten(plain: Plain, reports: list[Any]) -> tuple[int, int]:
    """The longest time between two reports, with every report in between soon after the last one
    and without knowledge of the same promotion, and the offset of that promotion."""
    reports = sorted(reports, key=lambda d: d.asked)
    longest = (-1, -1)
    for number, first in enumerate(reports):
        promotions = _promoted_before(plain, first)
        before = first
        for each in reports[number:]:
            unknown = each.promoted is False and not each.mirrors
            late = each.asked - before.returned > OLD
            if not promotions or _promoted_before(plain, each) != promotions:
                break
            if not unknown or late:
                break
            if each.asked - first.asked > longest[0]:
                longest = (each.asked - first.asked, promotions[0].offset)
            before = each
    return longest
