"""A consumer group that fails over skips no record, and gets only records again that it had
committed. Its synced offsets only rise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from linkflap.harness.log.coordinators import GroupMembers, TransactionState
from tests.oracles.checks.internal_topics import disturbed
from tests.oracles.group_commits import from_bytes
from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story

EACH = frozenset({"group-skip", "group-replay", "checkpoint-ahead"})
DESPITE_TORN = frozenset(
    {"checkpoint-regression", "checkpoint-beyond-commit", "checkpoint-stranger"}
)
FAITHFUL_TOO = True
BESIDE = (
    "a group's records are identified by payload, and the payloads moved; or the change also "
    "exceeds another bound of the group"
)


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    offsets = [plain for plain in views if plain.topic == "__consumer_offsets"]
    for plain in views:
        for compared in (
            mirrored_ranges(plain, Story(plain))
            if plain.options.get("groups", ".*") and not plain.view.internal
            else ()
        ):
            if compared.mirrored_range.promotion is not None:
                for group in {r.group for r in plain.reads if r.group}:
                    suspects = _judge(plain, compared, group, offsets)
                    found += [
                        plain.anomaly(kind, compared.mirrored_range.promotion.cluster, offset)
                        for kind, offset in suspects
                    ]
        found += from_bytes(plain, offsets)
    return found


def _judge(
    plain: Plain, compared: Compared, group: str, offsets: Sequence[Plain]
) -> Iterator[tuple[str, int]]:
    promotion, there, began = (
        compared.mirrored_range.promotion,
        compared.mirrored_range.destination,
        compared.mirrored_range.settled,
    )
    ended = min(
        (p.fault_time for p in plain.view.promotions if p.source == there and p.time > began),
        default=NEVER,
    )
    reads = [
        r
        for r in plain.reads
        if r.group == group and (r.cluster != there or r.time >= began) and r.returned <= ended
    ]
    after = [r for r in reads if r.cluster == promotion.cluster and r.kind == "poll" and r.offsets]
    if not reads or any(r.returned < promotion.fault_time for r in after):
        return
    got = [r for r in plain.reads if r.group == group and r.kind == "poll"]
    mirrored = [
        r
        for r in compared.destination.records
        if r.visible and r.uid >= 0 and r.offset < promotion.offset
    ]
    yield from _skips(compared, reads, after, got, mirrored)
    synced = [
        g
        for g in plain.groups
        if g.group == group and g.cluster == promotion.cluster and g.time < promotion.fault_time
    ]
    synced = [g for g in synced if (g.cluster != there or g.time >= began) and g.time <= ended]
    marks = [
        m for m in plain.marks.get(promotion.cluster, []) if _within(plain, m, there, began, ended)
    ]
    for kind, offset, time, before in _checkpoints(synced, marks, got, mirrored, promotion.offset):
        loaded = kind == "checkpoint-regression" and disturbed(plain, promotion.cluster, time)
        if not (loaded and _again(plain, promotion.cluster, offsets, group, offset, before)):
            yield kind, offset


def _again(
    plain: Plain, cluster: str, offsets: Sequence[Plain], group: str, offset: int, before: int
) -> bool:
    """Whether a coordinator that loaded the group again may have answered this, or whether that is
    unknown."""
    logs = [(each, each.final(cluster)) for each in offsets if each.final(cluster) is not None]
    if not logs or any(
        log is None or log.torn or log.log_start or each.compacted.get(cluster)
        for each, log in logs
    ):
        return True
    seen = False
    for each, log in logs:
        replica = next(
            r for r in reversed(each.view.replicas) if r.cluster == cluster and r.canonical
        )
        for entry in replica.entries if log else ():
            assert log is not None
            assert not isinstance(entry, TransactionState)
            batch = [b for b in log.batches if b.base_offset <= entry.offset][-1:]
            if isinstance(entry, GroupMembers):
                continue
            there = batch and (
                not batch[0].inside
                or (batch[0].marker is not None and batch[0].marker.control == 1)
            )
            if there and (entry.group, entry.topic, entry.partition) == (
                group,
                plain.topic,
                plain.partition,
            ):
                seen = seen or entry.committed == offset
                if seen and entry.committed == before:
                    return True
    return False


def _within(plain: Plain, mark: Any, there: str, began: int, ended: int) -> bool:
    return bool(mark.time >= began and mark.returned <= ended)


def _skips(
    compared: Compared,
    reads: Sequence[Any],
    after: Sequence[Any],
    got: Sequence[Any],
    mirrored: Sequence[Any],
) -> Iterator[tuple[str, int]]:
    promotion = compared.mirrored_range.promotion
    commits = [
        r for r in reads if r.cluster == promotion.source and r.kind == "commit" and r.position >= 0
    ]
    if not commits or not after:
        return
    committed = max(commits, key=lambda r: r.returned).position
    start = min(after, key=lambda r: r.returned).offsets[0]
    ever, later = (
        {u for r in got for u in r.uids},
        {read for r in after for read in zip(r.offsets, r.uids, strict=True)},
    )
    for record in mirrored:
        origin = compared.source.of(record.uid)
        if origin is None:
            continue
        if record.offset < start and origin.offset >= committed and record.uid not in ever:
            yield "group-skip", record.offset
        if origin.offset < committed and (record.offset, record.uid) in later:
            yield "group-replay", record.offset


def _checkpoints(
    synced: Sequence[Any],
    marks: Sequence[Any],
    got: Sequence[Any],
    mirrored: Sequence[Any],
    promoted: int,
) -> Iterator[tuple[str, int, int, int]]:
    """(kind, offset, time, the highest offset before it)."""
    highest = -1
    for row in synced:
        if row.offset < highest:
            yield "checkpoint-regression", row.offset, row.time, highest
        after = next((n for n, m in enumerate(marks) if m.time >= row.time), None)
        end = promoted if after is None else max(m.high_watermark for m in marks[: after + 1])
        if row.offset > end:
            yield "checkpoint-beyond-end", row.offset, row.time, highest
        had = {u for r in got if r.time <= row.time for u in r.uids}
        for record in mirrored:
            if highest <= record.offset < row.offset and record.uid not in had:
                yield "checkpoint-ahead", record.offset, row.time, highest
        highest = max(highest, row.offset)
