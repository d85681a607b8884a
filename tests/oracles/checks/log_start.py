"""A log begins later than it did only after DeleteRecords, by retention, or as its mirror's source
does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story

EACH: frozenset[str] = frozenset()
DESPITE_TORN = frozenset({"lost-beginning"})
BESIDE = "a log start may also be changed where a mutation means another bound"
WEEK = 7 * 24 * 3600 * 1000
HOUR = 3600 * 1000


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        internal = plain.topic.startswith("__")
        if internal and plain.topic not in ("__consumer_offsets", "__transaction_state"):
            continue
        seen = sorted(_seen(plain), key=lambda s: s["returned"])
        for cluster in {s["cluster"] for s in seen}:
            mine = [s for s in seen if s["cluster"] == cluster]
            found += [
                plain.anomaly("lost-beginning", cluster, at)
                for at in _moves(plain, cluster, mine, seen, internal=internal)
            ]
    return found


def _seen(plain: Plain) -> list[dict[str, Any]]:
    """Every log start that anybody saw."""
    found: list[dict[str, Any]] = []
    for cluster, marks in plain.marks.items():
        found += [
            {"cluster": cluster, "asked": m.time, "returned": m.returned, "start": m.log_start}
            | {"leader": True, "log": None}
            for m in sorted(marks, key=lambda m: m.time)
            if m.log_start >= 0
        ]
    for s in plain.view.replica_samples:
        if s.log_start >= 0:
            found.append(
                {"cluster": s.cluster, "asked": s.asked, "returned": s.returned}
                | {"start": s.log_start, "leader": False, "log": None}
            )
    for log in [*plain.earlier, *plain.replicas]:
        at = log.captured or plain.ended
        found.append(
            {"cluster": log.cluster, "asked": at, "returned": at, "start": log.log_start}
            | {"leader": False, "log": log}
        )
    return found


def _moves(
    plain: Plain, cluster: str, mine: Sequence[Any], seen: Sequence[Any], *, internal: bool
) -> list[int]:
    """Where the log began before each move that has no reason."""
    found = []
    start, last = 0, 0
    if cluster == plain.home and not internal:
        rows = [o for s in plain.sends if s.cluster == cluster for o in s.offsets]
        rows += [o for r in plain.reads if r.cluster == cluster for o in r.offsets]
        start = min([mine[0]["start"], *(o for o in rows if o >= 0)])
    for one in mine:
        if one["start"] > start:
            if not _reason(plain, cluster, one, start, last, seen, internal=internal):
                found.append(start)
            start = one["start"]
        elif one["leader"]:
            start = one["start"]
        last = max(last, one["asked"])
    return found


def _reason(
    plain: Plain, cluster: str, one: Any, before: int, last: int, seen: Sequence[Any], *,
    internal: bool,
) -> bool:  # fmt: skip
    for deletion in plain.view.deletions:
        requested = deletion.cluster == cluster and deletion.asked <= one["returned"]
        if requested and deletion.offset == one["start"]:
            return True
    if internal:
        return False
    if plain.keeps and _source_begins(plain, cluster, one, last, seen):
        return True
    for milliseconds, size in _limits(plain, cluster):
        held = [
            r
            for r in plain.replicas
            if r.cluster == cluster and r.log_start == one["start"] and not r.torn
        ]
        if held and all(any(b.last_offset < one["start"] for b in r.batches) for r in held):
            continue  # a segment below it is there
        if _by_time(plain, cluster, one, before, milliseconds):
            return True
        if _by_size(plain, cluster, one, size):
            return True
    return False


def _source_begins(plain: Plain, cluster: str, one: Any, last: int, seen: Sequence[Any]) -> bool:
    for each in Story(plain).mirrored_ranges:
        ended = each.promotion.fault_time if each.promotion is not None else NEVER
        if each.destination != cluster or each.began > one["returned"] or last > ended:
            continue
        theirs = [s for s in seen if s["cluster"] == each.source]
        limit = [s["start"] for s in theirs if s["asked"] < one["returned"]]
        limit += [s["start"] for s in theirs if s["asked"] >= one["returned"]][:1]
        limit += [
            d.offset
            for d in plain.view.deletions
            if d.cluster == each.source and d.asked <= one["returned"]
        ]
        if limit and max(limit) >= one["start"]:
            return True
    return False


def _limits(plain: Plain, cluster: str) -> list[tuple[int, int]]:
    """(retention.ms, retention.bytes), with the topic's settings and without them if a mirror may
    have left them out."""
    brokers = next(dict(c.config) for c in plain.view.topology.clusters if c.name == cluster)
    topic = dict(plain.view.partition_facts.facts.topic_config)
    found = []
    sampled = [dict(s.settings) for s in plain.view.settings if s.cluster == cluster]
    for own in [*sampled, *([topic] if cluster == plain.home else [topic, {}])]:
        policy = own.get("cleanup.policy") or brokers.get("log.cleanup.policy") or "delete"
        if "delete" not in policy.split(","):
            continue
        hours = brokers.get("log.retention.hours", "168")
        minutes = brokers.get("log.retention.minutes", str(int(hours) * 60))
        ms = brokers.get("log.retention.ms", str(int(minutes) * 60_000))
        size = own.get("retention.bytes", brokers.get("log.retention.bytes", "-1"))
        found.append((int(own.get("retention.ms", ms)), int(size)))
    return found


def _by_time(plain: Plain, cluster: str, one: Any, before: int, milliseconds: int) -> bool:
    if milliseconds < 0:
        return False
    now = one["returned"] // 1_000_000
    if any(
        w.fault == "clock-skew" and w.target.split("/")[0] == cluster for w in plain.view.windows
    ):
        now += HOUR
    times = [
        r.timestamp
        for log in [*plain.replicas, *plain.earlier]
        if log.cluster == cluster or plain.keeps
        for r in log.records
        if before <= r.offset < one["start"]
    ]
    times += [
        s.invoked // 1_000_000
        for s in plain.sends
        if s.cluster == cluster and any(before <= o < one["start"] for o in s.offsets)
    ]
    if not times and plain.topic in plain.view.partition_facts.facts.programs:
        return True
    firsts = [m.time // 1_000_000 for marks in plain.marks.values() for m in marks]
    if not times and not firsts:
        return True
    times = times or [min(firsts)]
    return bool(max(times) + milliseconds <= now)


def _by_size(plain: Plain, cluster: str, one: Any, size: int) -> bool:
    if size < 0:
        return False
    later = [m for m in plain.marks.get(cluster, []) if m.time >= one["returned"] + 1_000_000_000]
    if later:
        end = min(later, key=lambda m: m.time).high_watermark
    else:
        end = max(
            log.end
            for log in [*plain.replicas, *plain.earlier]
            if log.cluster == cluster
            and (log in plain.replicas or log.captured in (0, one["returned"]))
        )
    left = {
        b.base_offset: b
        for log in [*plain.replicas, *plain.earlier]
        if log.cluster == cluster or plain.keeps
        for b in log.batches
        if one["start"] <= b.base_offset < end
    }
    if sum(b.last_offset - b.base_offset + 1 for b in left.values()) < end - one["start"]:
        return True
    return bool(sum(b.length for b in left.values()) >= size)
