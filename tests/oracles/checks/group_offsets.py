"""A consumer group that fails over skips no record, and gets only records again that it had
committed. Its synced offsets only rise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from linkflap.harness.log.coordinators import GroupMembers, TransactionState
from tests.oracles.checks.internal_topics import disturbed
from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import NEVER, Anomaly, Plain
from tests.oracles.story import Story


def from_bytes(plain: Plain, offsets: Sequence[Plain]) -> Iterator[Anomaly]:
    """The anomalies in the commits of mirrors for groups."""
    if (
        plain.view.internal
        or not plain.options.get("groups", ".*")
        or not (plain.groups or any(r.group for r in plain.reads))
    ):
        return
    every = list(mirrored_ranges(plain, Story(plain)))
    for there in sorted({c.mirrored_range.destination for c in every}):
        mine = [c for c in every if c.mirrored_range.destination == there]
        sources = [c.mirrored_range.source for c in mine]
        if all(_all_there(cluster, offsets) for cluster in (there, *sources)):
            known = {g for cluster in sources for g in _written(cluster, offsets, plain)[1]}
            for group in sorted(known):
                yield from _of_group(plain, mine, there, group, offsets)


def _all_there(cluster: str, offsets: Sequence[Plain]) -> bool:
    logs = [(each, each.final(cluster)) for each in offsets if each.final(cluster) is not None]
    return bool(logs) and not any(
        log is None or log.torn or log.log_start or each.compacted.get(cluster)
        for each, log in logs
    )


def _written(
    cluster: str, offsets: Sequence[Plain], plain: Plain
) -> tuple[list[tuple[str, int, int]], set[str]]:
    """Commits of a partition as (group, offset, how often the group had become empty), and the
    groups that had members. The number is -1 while the group has members, or in a transaction."""
    found: list[tuple[str, int, int]] = []
    had: set[str] = set()
    for each in offsets:
        log = each.final(cluster)
        replica = next(
            (r for r in reversed(each.view.replicas) if r.cluster == cluster and r.canonical), None
        )
        inside: dict[str, set[str]] = {}
        emptied: dict[str, int] = {}
        for entry in replica.entries if log and replica else ():
            assert log is not None
            assert not isinstance(entry, TransactionState)
            now = inside.setdefault(entry.group, set())
            if isinstance(entry, GroupMembers):
                left = now == {entry.member} and not entry.present
                emptied[entry.group] = emptied.get(entry.group, 0) + left
                if entry.present:
                    now.add(entry.member)
                    had.add(entry.group)
                else:
                    now.discard(entry.member)
            elif (entry.topic, entry.partition) == (plain.topic, plain.partition):
                batch = [b for b in log.batches if b.base_offset <= entry.offset][-1]
                if not batch.inside or (batch.marker is not None and batch.marker.control == 1):
                    found.append(
                        (
                            entry.group,
                            entry.committed,
                            -1 if now or batch.inside else emptied.get(entry.group, 0),
                        )
                    )
    return found, had


def _of_group(
    plain: Plain, mine: Sequence[Compared], there: str, group: str, offsets: Sequence[Plain]
) -> Iterator[Anomaly]:
    exact = plain.mirror != "mm2"
    theirs = {
        c.mirrored_range.source: _mine(c.mirrored_range.source, offsets, plain, group) for c in mine
    }
    tops = {
        source: {0} | {o for o, _ in own} | _noticed(plain, source, group)
        for source, own in theirs.items()
    }
    bound = max(_bound(c, max(tops[c.mirrored_range.source]), exact=exact) for c in mine)
    rows = _mine(there, offsets, plain, group)
    for n, (offset, time) in enumerate(rows):
        if time < 0 or offset < 0:
            continue
        before = -1
        for earlier, when in reversed(rows[:n]):
            if when != time or earlier < 0:
                break
            before = max(before, earlier)
        known = exact or not disturbed(plain, there, NEVER)
        if (
            known
            and offset < before
            and not _may_go_back(plain, there, theirs, before, offset, exact=exact)
        ):
            yield plain.anomaly("checkpoint-regression", there, offset)
        if offset > bound:
            yield plain.anomaly("checkpoint-beyond-commit", there, offset)
        elif (
            exact
            and not _is_theirs(plain, theirs, group, offset)
            and not _may_end(plain, there, offset)
        ):
            yield plain.anomaly("checkpoint-stranger", there, offset)


def _noticed(plain: Plain, cluster: str, group: str) -> set[int]:
    """The group's commits there that clients or samplers recorded."""
    found = {
        r.position
        for r in plain.reads
        if (r.kind, r.group, r.cluster) == ("commit", group, cluster) and r.position >= 0
    }
    return found | {g.offset for g in plain.groups if (g.group, g.cluster) == (group, cluster)}


def _is_theirs(
    plain: Plain, theirs: dict[str, list[tuple[int, int]]], group: str, offset: int
) -> bool:
    return any(
        offset in [o for o, _ in own] or offset in _noticed(plain, source, group)
        for source, own in theirs.items()
    )


def _mine(
    cluster: str, offsets: Sequence[Plain], plain: Plain, group: str
) -> list[tuple[int, int]]:
    return [
        (offset, time)
        for name, offset, time in _written(cluster, offsets, plain)[0]
        if name == group
    ]


def _bound(compared: Compared, top: int, *, exact: bool) -> int:
    if exact:
        return max(top, compared.destination.log_start)
    last = {r.uid: r.offset for r in compared.came}
    sent = {r.uid: r.offset for r in reversed(compared.sent)}
    return min(
        (last[uid] for uid, origin in sent.items() if origin >= top and uid in last), default=NEVER
    )


def _may_go_back(
    plain: Plain,
    there: str,
    theirs: dict[str, list[tuple[int, int]]],
    before: int,
    offset: int,
    *,
    exact: bool,
) -> bool:
    if any(t.cluster == there and t.offset < before for t in plain.view.truncations):
        return True
    promoted = [p.offset for p in plain.view.promotions if p.cluster == there]
    if promoted and offset == max(promoted):
        return True
    for source, own in theirs.items():
        values = [o for o, _ in own]
        if exact and offset in values and disturbed(plain, source, NEVER):
            return True
        for n, earlier in enumerate(values):
            if any(
                (earlier >= before and later == offset) if exact else later < earlier
                for later in values[n:]
            ):
                return True
    return False


def _may_end(plain: Plain, there: str, offset: int) -> bool:
    """Whether the destination's log may have begun or ended at that offset."""
    log = plain.final(there)
    if (
        log is None
        or log.torn
        or plain.compacted.get(there)
        or plain.view.unclear.get(there)
        or offset <= log.log_start
    ):
        return True
    if any(t.cluster == there and t.offset <= offset for t in plain.view.truncations):
        return True
    return any(offset in (b.base_offset, b.last_offset + 1) for b in log.batches)


EACH = frozenset({"group-skip", "group-replay", "checkpoint-ahead"})
DESPITE_TORN = frozenset(
    {"checkpoint-regression", "checkpoint-beyond-commit", "checkpoint-stranger"}
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
