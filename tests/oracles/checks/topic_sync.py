"""A topic on the destination equals the source's topic: it exists, with as many partitions and the
same configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.plain import Anomaly, Plain
from tests.oracles.worlds import SECOND

IN_SYNC = "min.insync.replicas"

EACH: frozenset[str] = frozenset()
KNOWS_TORN = True


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for link in {each.link for each in plain.view.comparisons}:
            rows = [each for each in plain.view.comparisons if each.link == link]
            newest = rows[0]
            for row in rows:
                if row.time >= newest.time:
                    newest = row
            b = link.split("->")[1]
            if newest.here == 0:
                found.append(plain.anomaly("topic-missing", b, -1))
            else:
                if newest.here != newest.there:
                    found.append(plain.anomaly("partitions-differ", b, -1))
                if len(list(newest.differing)) > 0:
                    found.append(plain.anomaly("setting-differs", b, -1))
                if any(True for acl in [*newest.missing, *newest.beside]):
                    found.append(plain.anomaly("acl-differs", b, -1))
        found += [
            plain.anomaly("setting-differs", promotion.cluster, -1)
            for promotion in plain.view.promotions
            if plain.mirror == "shadow" and not _restored(plain, promotion)
        ]
    return found


def _restored(plain: Plain, promotion: Any) -> bool:
    """Whether the promoted topic has its home's settings from ten seconds later on."""
    over, due = _until(plain, promotion), _sampled(plain, promotion)
    if promotion.cluster in plain.view.deaths:
        return True
    if due >= over:
        if over < plain.ended:
            return True
        due = over
    home = _home(plain, promotion)
    theirs = [
        s for s in plain.view.settings if s.cluster == home and s.asked < promotion.fault_time
    ]
    ours = [
        s
        for s in plain.view.settings
        if s.cluster == promotion.cluster
        and s.asked <= over
        and not (s.asked < promotion.time and s.until < due)
    ]
    if not theirs or not ours:
        return True
    recent = theirs[-1:]
    for older, newer in pairwise(theirs):
        if newer.asked > promotion.fault_time - 15 * SECOND:
            recent.append(older)
    states = [s for s in ours if s.asked > due]
    states += [[s for s in ours if s.asked <= due][-1]] if ours[0].asked <= due else []
    most = next(c.brokers for c in plain.view.topology.clusters if c.name == promotion.cluster)
    return all(
        any(_same(each.settings, state.settings, plain, theirs, most) for each in recent)
        for state in states
    )


def _until(plain: Plain, promotion: Any) -> int:
    over = plain.ended
    for window in plain.view.windows:
        unclean = window.fault == "unclean-election" and window.target == promotion.cluster
        moves = window.fault in ("mirror-reverse", "failover-planned", "failover-forced")
        turned = moves and window.target.split("->")[0]
        if window.start > promotion.time and (unclean or turned == promotion.cluster):
            over = min(over, window.start)
    return over


def _sampled(plain: Plain, promotion: Any) -> int:
    due: int = promotion.time + 10 * SECOND
    for window in sorted(plain.view.windows, key=lambda w: w.start):
        if window.target.split("/")[0] == promotion.cluster and window.start <= due:
            due = max(due, window.end + 10 * SECOND)
    return due


def _same(
    there: Mapping[str, str], here: Mapping[str, str], plain: Plain, theirs: Any, most: int
) -> bool:
    for name in {*there, *here}:
        if (
            name.endswith("throttled.replicas")
            or name in plain.view.partition_facts.unknown_settings
        ):
            continue
        if name != IN_SYNC and there.get(name) != here.get(name):
            return False
    known = [each.settings.get(IN_SYNC) for each in theirs]
    at_most = [str(min(int(value), most)) for value in known if value is not None]
    return here.get(IN_SYNC) in [*known, *at_most]


def _home(plain: Plain, promotion: Any) -> str:
    cluster: str = promotion.source
    before = [p.cluster for p in plain.view.promotions if p.time < promotion.time]
    while cluster != plain.home and cluster not in before:
        sources = [a for a, b in plain.hops if b == cluster]
        if not sources:
            break
        cluster = sources[0]
    return cluster
