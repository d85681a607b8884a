"""Below their common high watermark, the replicas of a cluster have the same batches; every CRC is
correct; offsets rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from linkflap.spark_verify.facts.view import NULL
from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog

KINDS = frozenset(
    {"replica-disagreement", "replica-missing", "corrupt-batch", "log-disorder", "log-ends-early"}
)
DESPITE_TORN = KINDS
KEPT = (
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "control",
    "transactional",
    "log_append_time",
)
"""The fields that the log cleaner never changes."""
SAME = ("base_offset", "last_offset", "count", "length", "crc", "leader_epoch", "crc_ok")


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for cluster in {r.cluster for r in plain.replicas}:
            replicas = [r for r in plain.replicas if r.cluster == cluster]
            suspects = [one for r in replicas for one in _alone(r)]
            suspects += [
                ("log-ends-early", r.end)
                for r in replicas
                if r.end < r.high_watermark and not r.torn and r.high_watermark_from != "copied"
            ]
            model = next((r for r in replicas if r.canonical), replicas[0])
            cleaned = max(plain.cleaned(r) for r in replicas)
            for other in replicas:
                if other is not model:
                    start = max(model.log_start, other.log_start)
                    end = min(_agreed(plain, model, r) for r in (model, other))
                    for kind, base, offset in _parted(model, other, start, end):
                        if base < cleaned:
                            suspects += _cleaned(
                                plain, replicas, (model, other), kind, base, offset
                            )
                        elif not (
                            cleaned
                            and kind == "replica-disagreement"
                            and _repacked(plain, model, other, base)
                        ):
                            suspects.append((kind, offset))
            found += [plain.anomaly(kind, cluster, offset) for kind, offset in suspects]
    return found


def _agreed(plain: Plain, model: PlainLog, log: PlainLog) -> int:
    """Up to where a replica has to have what the model has: its high watermark. Of copied logs
    nobody knows when each was copied, nor who was in sync: what is above a log's end, and a tail
    that is only of older leader epochs than the model's, proves nothing."""
    if plain.view.recorded or model.high_watermark_from == "sampled":
        return log.high_watermark
    epochs = {b.base_offset: b.leader_epoch for b in model.batches}
    both = [b for b in log.batches if b.base_offset in epochs]
    older = [b for b in both if b.leader_epoch < epochs[b.base_offset]]
    end = log.end
    if older:
        first = older[0].base_offset
        tail = [b for b in both if b.base_offset >= first]
        end = first if all(b.leader_epoch < epochs[first] for b in tail) else end
    return min(log.high_watermark, end)


def _cleaned(
    plain: Plain,
    replicas: Sequence[PlainLog],
    pair: tuple[PlainLog, PlainLog],
    kind: str,
    base: int,
    offset: int,
) -> list[tuple[str, int]]:
    """The differences that no log cleaner explains. Every broker has its own cleaner, which removes
    what it may remove when it runs."""
    model, other = pair
    one, two = (
        next((b for b in log.batches if b.base_offset == base), None) for log in (model, other)
    )
    upto = max(plain.cleaned(r) for r in replicas) if plain.view.recorded else NEVER

    def missed(holder: PlainLog, batch: Any, lacking: PlainLog, there: set[int]) -> list[int]:
        """The records of a batch that another replica lacks and that no cleaner has removed."""
        if batch.control != -1 or not _readable(holder, batch):
            return []
        return [
            p.offset
            for p in holder.parts
            if batch.base_offset <= p.offset <= batch.last_offset
            and p.offset not in there
            and may_go(plain, lacking, holder, p, replicas, upto) is False
        ]

    if kind == "replica-missing":
        if one is not None and two is not None:
            return [(kind, base)]
        holder, batch, lacking = (model, one, other) if two is None else (other, two, model)
        if batch is not None and batch.ends:
            return [(kind, base)] if ended_is_there(holder, batch, lacking) else []
        return [(kind, o) for o in missed(holder, batch, lacking, set())[:1]]
    assert one is not None
    if changed(one, two):
        return [(kind, offset)]
    if one.control != -1 or not (_readable(model, one) and _readable(other, two)):
        return []
    ours, theirs = _content(model, one), _content(other, two)
    others = sorted(o for o in ours.keys() & theirs.keys() if ours[o] != theirs[o])
    if others:
        return [(kind, others[0])]
    gone = sorted([*missed(model, one, other, set(theirs)), *missed(other, two, model, set(ours))])
    return [("replica-missing", o) for o in gone[:1]]


def changed(one: Any, two: Any) -> list[str]:
    """The fields in which two batches differ; an empty control batch does not say what it was."""
    empty = not one.data and not two.data and 0 in (one.count, two.count)
    skipped = ("control", "coordinator_epoch") if empty else ()
    # DefaultRecordBatch: with LogAppendTime the maximum timestamp is the time of all records.
    names = (*KEPT, "crc_ok", *(("max_timestamp",) if one.log_append_time else ()))
    return [n for n in names if n not in skipped and getattr(one, n) != getattr(two, n)]


def ended_is_there(holder: PlainLog, marker: Any, lacking: PlainLog) -> bool:
    """Whether the other log still has a batch of the transaction that the marker ended."""
    same = [
        b.base_offset
        for b in holder.batches[: marker.row]
        if b.producer_id == marker.producer_id and not b.data
    ]
    return any(
        max(same, default=-1) < b.base_offset < marker.base_offset
        for b in lacking.batches
        if b.producer_id == marker.producer_id and b.data and b.transactional and b.crc_ok
    )


def _repacked(plain: Plain, model: PlainLog, other: PlainLog, base: int) -> bool:
    """Whether both have the same content in other bytes, in copied logs, where a cleaner may have
    gone further than recorded."""
    one, two = (next(b for b in log.batches if b.base_offset == base) for log in (model, other))
    if plain.view.recorded or changed(one, two):
        return False
    if one.ends:
        return bool(one.crc_ok)
    sound = one.control == -1 and _readable(model, one) and _readable(other, two)
    return sound and _content(model, one) == _content(other, two)


def may_go(
    plain: Plain,
    lacking: PlainLog,
    holder: PlainLog,
    part: Any,
    known: Sequence[PlainLog],
    upto: int,
) -> bool | None:
    """Whether the log cleaner of one log may have removed a record that another has; None if that
    is unknown."""
    state = ending(holder, part)
    if state == "open":
        state = ending(lacking, part, of=holder)
    expires = expired(plain, lacking)
    old = part.value == NULL and (expires is None or part.timestamp <= expires)
    later = _replacing(lacking, holder, known, part, part.offset)
    if any(o < upto for o in later["ended"]) or part.key == NULL or old or state == "aborted":
        return True
    first = min(later["ended"], default=NEVER)
    passed = any(
        min(
            _replacing(lacking, holder, known, p, max(p.offset, upto - 1))["ended"],
            default=NEVER,
        )
        <= first
        for p in lacking.parts
        if p.offset < part.offset
    )
    unsure = state == "open" or later["open"] or (first < NEVER and not passed)
    return None if unsure else False


def _replacing(
    lacking: PlainLog,
    holder: PlainLog,
    known: Sequence[PlainLog],
    part: Any,
    after: int,
) -> dict[str, list[int]]:
    """The offsets of later records with the same key, by whether their transactions have ended."""
    found: dict[str, list[int]] = {"ended": [], "open": []}
    for log in {id(log): log for log in (lacking, holder, *known)}.values():
        for p in log.parts:
            if p.key == part.key and after < p.offset:
                state = ending(log, p)
                if state != "aborted":
                    found["open" if state == "open" else "ended"].append(p.offset)
    return found


def expired(plain: Plain, log: PlainLog) -> int | None:
    """The newest time of a tombstone that may be gone."""
    if not plain.view.recorded:
        return None
    config = dict(plain.view.partition_facts.facts.topic_config)
    kept = int(config.get("delete.retention.ms", 24 * 3600 * 1000))
    if log.cluster != plain.home:
        kept = min(kept, 24 * 3600 * 1000)
    return (log.captured or plain.ended) // 1_000_000 - kept


def ending(log: PlainLog, part: Any, *, of: PlainLog | None = None) -> str:
    """How the transaction of a record ended, by the first later marker of its producer. The
    record may be in another log."""
    its = of or log
    if not _rising(its):
        return ""
    batch = [b for b in its.batches if b.base_offset <= part.offset][-1]
    if not batch.transactional:
        return ""
    ends = [
        b
        for b in log.batches
        if b.ends
        and b.crc_ok
        and b.producer_id == batch.producer_id
        and part.offset <= b.base_offset
    ]
    return "open" if not ends else "committed" if ends[0].control == 1 else "aborted"


def _readable(log: PlainLog, batch: Any) -> bool:
    inside = [p for p in log.parts if batch.base_offset <= p.offset <= batch.last_offset]
    return bool(batch.crc_ok) and _rising(log) and len(inside) == batch.count


def _rising(log: PlainLog) -> bool:
    return all(a.base_offset < b.base_offset for a, b in pairwise(log.batches))


def _content(log: PlainLog, batch: Any) -> dict[int, tuple[int, ...]]:
    inside = [p for p in log.parts if batch.base_offset <= p.offset <= batch.last_offset]
    return {p.offset: (p.timestamp, p.key, p.value, p.headers) for p in inside}


def _alone(log: PlainLog) -> list[tuple[str, int]]:
    found = [("corrupt-batch", b.base_offset) for b in log.batches if not b.crc_ok]
    for index, batch in enumerate(log.batches):
        if any(before.last_offset >= batch.base_offset for before in log.batches[:index]):
            found.append(("log-disorder", batch.base_offset))
    return found


def _parted(model: PlainLog, other: PlainLog, start: int, end: int) -> list[tuple[str, int, int]]:
    """The differences of two replicas: kind, base offset of the batch, and offset."""

    def held(log: PlainLog) -> Counter[Any]:
        inside = [b for b in log.batches if b.base_offset >= start and b.last_offset < end]
        return Counter(tuple(getattr(b, name) for name in SAME) for b in inside)

    ours, theirs = held(model), held(other)
    if model.torn or other.torn:
        both = {key[0] for key in ours} & {key[0] for key in theirs}
        ours, theirs = (
            Counter({key: n for key, n in held_.items() if key[0] in both})
            for held_ in (ours, theirs)
        )
    more, less = ours - theirs, theirs - ours
    found = []
    for base in {key[0] for key in (more | less)}:
        mine, yours = (
            sorted(k for k in more if k[0] == base),
            sorted(k for k in less if k[0] == base),
        )
        if not mine or not yours:
            found.append(("replica-missing", base, base))
        else:
            found.append(
                ("replica-disagreement", base, _first_changed(model, other, base, mine[0][1]))
            )
    return found


def _first_changed(model: PlainLog, other: PlainLog, base: int, last: int) -> int:
    """The first record of the batch that differs; the batch's first offset if records do not show
    it."""

    def parts(log: PlainLog) -> dict[int, tuple[int, ...]]:
        return {
            p.offset: (p.timestamp, p.key, p.value, p.headers)
            for p in log.parts
            if base <= p.offset <= last
        }

    ours, theirs = parts(model), parts(other)
    if not ours or not theirs:
        return base
    return min((o for o in ours | theirs if ours.get(o) != theirs.get(o)), default=base)
