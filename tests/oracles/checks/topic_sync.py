"""A topic on the destination equals the source's topic: it exists, with as many partitions and the
same configs."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.plain import Anomaly, Plain

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
    return found
