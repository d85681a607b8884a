"""No transaction has read, directly or through others, what depends on its own writes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.plain import Anomaly, Plain, of_send
from tests.oracles.promises import never_committed

EACH: frozenset[str] = frozenset()
KNOWS_TORN = True


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    wrote: dict[int, set[int]] = {}
    read: dict[int, set[int]] = {}
    first: dict[int, Anomaly] = {}
    for plain in sorted(views, key=lambda p: (p.topic, p.partition)):
        for send in sorted(plain.sends, key=lambda s: s.cluster):
            if send.kind == "transaction" and send.input_uids and not never_committed(send):
                wrote.setdefault(send.number, set()).update(uid for uid, _, _ in of_send(send))
                read.setdefault(send.number, set()).update(send.input_uids)
                first.setdefault(
                    send.number, plain.anomaly("write-cycle", send.cluster, send.offsets[0])
                )
    reach = {one: {other for other in read if wrote[one] & read[other]} for one in wrote}
    for _ in reach:
        for others in reach.values():
            others |= {far for near in set(others) for far in reach[near]}
    circles = {
        frozenset(o for o in reach if o in reach[one] and one in reach[o])
        for one in reach
        if one in reach[one]
    }
    return [first[min(circle)] for circle in circles]
