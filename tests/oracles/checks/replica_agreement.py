"""Below their common high watermark the replicas of a cluster have the same batches; every CRC is right; offsets rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Place, Plain, PlainLog

EACH: frozenset[str] = frozenset()
DESPITE_TORN = frozenset({"replica-disagreement", "replica-missing", "corrupt-batch", "log-disorder"})
BESIDE = "the other broker's copy was not changed with it"
KEPT = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "control", "transactional")
"""What no cleaner changes."""
SAME = ("base_offset", "last_offset", "count", "length", "crc", "leader_epoch", "crc_ok")


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        for cluster in {r.cluster for r in plain.replicas}:
            replicas = [r for r in plain.replicas if r.cluster == cluster]
            places = [place for r in replicas for place in _alone(r)]
            places += [("log-ends-early", r.end) for r in replicas if r.end < r.high_watermark and not r.torn]
            model = next((r for r in replicas if r.canonical), replicas[0])
            start, end = max(r.log_start for r in replicas), min(r.high_watermark for r in replicas)
            # Every broker compacts by itself, and keeps what names a batch.
            cleaned = max(plain.cleaned(r) for r in replicas)
            for other in replicas:
                if other is not model:
                    between = _between(model, other, start, end)
                    places += [(kind, o) for kind, o in between if o >= cleaned or _renamed(kind, o, model, other)]
            found += [plain.place(kind, cluster, offset) for kind, offset in places]
    return found


def _renamed(kind: str, offset: int, model: PlainLog, other: PlainLog) -> bool:
    def name(log: PlainLog) -> Any:
        mine = next(b for b in log.batches if b.base_offset <= offset <= b.last_offset)
        return tuple(getattr(mine, field) for field in KEPT)

    return kind == "replica-disagreement" and name(model) != name(other)


def _alone(log: PlainLog) -> list[tuple[str, int]]:
    found = [("corrupt-batch", b.base_offset) for b in log.batches if not b.crc_ok]
    for place, batch in enumerate(log.batches):
        if any(before.last_offset >= batch.base_offset for before in log.batches[:place]):
            found.append(("log-disorder", batch.base_offset))
    return found


def _between(model: PlainLog, other: PlainLog, start: int, end: int) -> list[tuple[str, int]]:
    def held(log: PlainLog) -> Counter[Any]:
        inside = [b for b in log.batches if b.base_offset >= start and b.last_offset < end]
        return Counter(tuple(getattr(b, name) for name in SAME) for b in inside)

    ours, theirs = held(model), held(other)
    if model.torn or other.torn:
        both = {key[0] for key in ours} & {key[0] for key in theirs}
        ours, theirs = (Counter({key: n for key, n in held_.items() if key[0] in both}) for held_ in (ours, theirs))
    more, less = ours - theirs, theirs - ours
    found = []
    for base in {key[0] for key in (more | less)}:
        mine, yours = sorted(k for k in more if k[0] == base), sorted(k for k in less if k[0] == base)
        if not mine or not yours:
            found.append(("replica-missing", base))
        else:
            found.append(("replica-disagreement", _first_changed(model, other, base, mine[0][1])))
    return found


def _first_changed(model: PlainLog, other: PlainLog, base: int, last: int) -> int:
    """The first record of the batch that differs; the batch's first offset where records cannot tell."""

    def parts(log: PlainLog) -> dict[int, tuple[int, ...]]:
        return {p.offset: (p.timestamp, p.key, p.value, p.headers) for p in log.parts if base <= p.offset <= last}

    ours, theirs = parts(model), parts(other)
    if not ours or not theirs:
        return base
    return min((o for o in ours | theirs if ours.get(o) != theirs.get(o)), default=base)
