"""Kafka's own topics are undamaged, and agree with the data and the clients about transactions and
groups.

Logs are checked one at a time, batch by batch, and states of transactional ids one after the other.
For the decisions of coordinators, it tries every way to leave out what need not be there; one of
them must agree with the markers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from linkflap.harness.log.coordinators import GroupMembers, TransactionState
from tests.oracles.checks.leader_epochs import _falls
from tests.oracles.checks.replica_agreement import _alone, _between
from tests.oracles.decisions import (
    can_agree,
    decided_by,
    exactly,
    impossible,
    states_of,
    written_again,
)
from tests.oracles.plain import Anomaly, Plain, PlainLog

KNOWS_TORN = True


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    internal = [plain for plain in views if plain.view.internal]
    for plain in internal:
        found += _logs(plain)
    for cluster in sorted({r.cluster for plain in views for r in plain.replicas}):
        found += _outcomes(
            cluster, views, [p for p in internal if p.topic == "__transaction_state"]
        )
        found += _groups(cluster, views, [p for p in internal if p.topic == "__consumer_offsets"])
    return found


def _logs(plain: Plain) -> Iterator[Anomaly]:
    metadata = plain.topic == "__cluster_metadata"
    for cluster in sorted({r.cluster for r in plain.replicas}):
        logs = [_below(r) for r in plain.replicas if r.cluster == cluster]
        for log in logs:
            yield from (plain.anomaly(kind, cluster, offset) for kind, offset in _wrong(plain, log))
        model = next((r for r in logs if r.canonical), logs[0])
        ends = [_followed(r, model) if metadata else r.high_watermark for r in logs]
        start, end = max(r.log_start for r in logs), min(ends)
        for other in logs:
            for kind, offset in _between(model, other, start, end) if other is not model else ():
                if offset >= plain.compacted.get(cluster, 0):
                    yield plain.anomaly(kind, cluster, offset)


def _followed(log: PlainLog, model: PlainLog) -> int:
    """The offset up to which a replica of the metadata log follows its leader's: its end, or where
    batches begin that only a deposed leader had."""
    ahead = [
        (mine.base_offset, theirs.leader_epoch)
        for mine in log.batches
        for theirs in model.batches
        if theirs.base_offset == mine.base_offset and mine.leader_epoch < theirs.leader_epoch
    ]
    if ahead:
        begin, epoch = ahead[0]
        shared = {b.base_offset for b in model.batches}
        tail = [b for b in log.batches if b.base_offset >= begin and b.base_offset in shared]
        if all(b.leader_epoch < epoch for b in tail):
            return int(min(begin, log.high_watermark))
    return min(log.end, log.high_watermark)


def _below(log: PlainLog) -> PlainLog:
    """The batches up to the last one below the high watermark."""
    while log.batches and log.batches[-1].last_offset >= log.high_watermark:
        log.batches.pop()
    return log


def _wrong(plain: Plain, log: PlainLog) -> list[tuple[str, int]]:
    found = [*_alone(log), *(("leader-epoch-regression", offset) for offset in _falls(log))]
    if log.torn:
        return found
    cleaned = max(plain.compacted.get(log.cluster, 0), log.log_start)
    held = {offset for b in log.batches for offset in range(b.base_offset, b.last_offset + 1)}
    absent = [offset for offset in range(cleaned, log.end) if offset not in held]
    found += [("offsets-missing", absent[0])] if absent else []
    return [*found, ("ends-early", log.end)] if log.end < log.high_watermark else found


def _sound(plain: Plain, cluster: str) -> PlainLog | None:
    log = plain.final(cluster)
    if log is None or log.torn:
        return None
    # A new epoch removes nothing from a log.
    return (
        None
        if any(kind != "leader-epoch-regression" for kind, _ in _wrong(plain, _below(log)))
        else log
    )


def _outcomes(cluster: str, views: Sequence[Plain], states: Sequence[Plain]) -> Iterator[Anomaly]:
    logs = [(plain, plain.final(cluster)) for plain in states]
    logs = [(plain, log) for plain, log in logs if log is not None]
    if not logs or any(_sound(plain, cluster) is None for plain, _ in logs):
        return
    every = all(
        log.log_start == 0 and not plain.compacted.get(cluster) for plain, log in logs if log
    )
    decided = [row for plain, log in logs for row in decided_by(plain, cluster)]
    lowest: dict[int, int] = {}
    for plain, log in logs:
        assert log is not None
        yield from (
            plain.anomaly("impossible-state", cluster, at) for at in impossible(plain, cluster, log)
        )
        for state in states_of(plain, cluster):
            pid = state.producer_id
            if state.producer_epoch >= 0:
                lowest[pid] = min(state.producer_epoch, lowest.get(pid, state.producer_epoch))
    yield from _shared(cluster, states)
    for plain in views:
        if plain.topic in ("__transaction_state", "__cluster_metadata"):
            continue
        rows = [row for row in decided if (plain.topic, plain.partition) in row["partitions"]]
        for log, own, from_start, to_end in _markers(plain, cluster):
            given = [row if to_end else row | {"complete": False} for row in rows]
            yield from _compared(plain, log, own, given, lowest, every=every, start=from_start)


def _shared(cluster: str, states: Sequence[Plain]) -> Iterator[Anomaly]:
    """The first record in each partition of a producer id that is another transactional id's."""
    owners: dict[int, str] = {}
    for plain in states:
        reported = set()
        for state in states_of(plain, cluster) if plain.final(cluster) else ():
            pid = state.producer_id
            other = pid >= 0 and owners.setdefault(pid, state.transactional_id)
            if other not in (False, state.transactional_id) and pid not in reported:
                reported.add(pid)
                yield plain.anomaly("impossible-state", cluster, state.offset)


def _compared(
    plain: Plain, log: PlainLog, own: Sequence[Any], rows: Sequence[dict[str, Any]],
    lowest: dict[int, int], *, every: bool, start: bool,
) -> Iterator[Anomaly]:  # fmt: skip
    """The markers of one log, by producer id and epoch, with what was decided."""
    first: dict[int, int] = {}
    # No producer has an epoch below 0, so such a marker says nothing of what was before another.
    for b in (marker for marker in own if marker.producer_epoch >= 0):
        first[b.producer_id] = min(b.producer_epoch, first.get(b.producer_id, 1 << 15))
    producers = {(b.producer_id, b.producer_epoch) for b in own}
    for producer in sorted(producers | {row["producer"] for row in rows}):
        pid, epoch = producer
        mine = [b for b in own if (b.producer_id, b.producer_epoch) == producer]
        wanted = [row for row in rows if row["producer"] == producer]
        if not plain.view.recorded and epoch > _last_shared(pid, own, rows):
            # Copied logs may be of two moments: what only one of them has may be later.
            continue
        has_all = every or (pid in lowest and lowest[pid] < epoch)
        whole = start or (pid in first and first[pid] < epoch)
        again = written_again(log, mine)
        if can_agree(wanted, mine, again, every=has_all, from_start=whole):
            continue
        for kind, at in _difference(wanted, mine, has_all=has_all, whole=whole):
            yield plain.anomaly(kind, log.cluster, at)


def _last_shared(pid: int, own: Sequence[Any], rows: Sequence[dict[str, Any]]) -> int:
    """The highest epoch of a producer id that both logs have come to."""
    marked = [b.producer_epoch for b in own if b.producer_id == pid]
    decided = [row["producer"][1] for row in rows if row["producer"][0] == pid]
    return min(max(marked, default=-1), max(decided, default=-1))


def _difference(
    wanted: Sequence[dict[str, Any]], mine: Sequence[Any], *, has_all: bool, whole: bool
) -> Sequence[tuple[str, int]]:
    if has_all and whole:
        return exactly(wanted, mine)
    if whole and len(mine) < sum(row["complete"] for row in wanted):
        return [("marker-missing", -1)]
    extra = not wanted or (has_all and len(mine) > len(wanted))
    kind = "marker-unexplained" if extra else "outcome-disagreement"
    return [(kind, mine[-1].base_offset)] if mine else []


def _markers(plain: Plain, cluster: str) -> Iterator[tuple[PlainLog, list[Any], bool, bool]]:
    """Each log of a cluster, what its own coordinators marked in it, whether that is all from the
    beginning on, and whether it is all to the end."""
    if plain.view.internal:
        log = plain.final(cluster)
        if log is not None and _sound(plain, cluster) is not None:
            whole = log.log_start == 0 and not plain.compacted.get(cluster)
            yield log, [b for b in log.batches if b.ends and b.crc_ok], whole, True
        return
    from tests.oracles.story import Story

    story = Story(plain)
    stops = [s for s in plain.view.stops if s.cluster == cluster]
    appended = {offset for s in stops for offset, _ in s.appended}
    cleaned = plain.compacted.get(cluster, 0)
    for generation in story.generations.get(cluster, ()):
        log = story.log(generation)
        if log is None or log.torn:
            continue
        if not plain.view.recorded and any(b.reset for b in log.batches):
            # Markers behind a reset may be of any cluster's producer ids.
            continue
        truncations = [
            t.offset
            for t in plain.view.truncations
            if t.cluster == cluster and t.time <= generation.ended
        ]
        truncations += [to for s in stops if s.time <= generation.ended for _, to in s.truncated]
        floor = max([*truncations, *generation.earlier], default=-1)
        markers = [
            b
            for b in log.batches
            if b.ends
            and b.crc_ok
            and b.base_offset not in appended
            and b.base_offset >= max(cleaned, floor)
            and (not plain.keeps or generation.native(b.base_offset))
        ]
        whole = floor < 0 and not (log.log_start or cleaned) and plain.view.recorded
        yield log, markers, whole, generation.last


def _groups(cluster: str, views: Sequence[Plain], offsets: Sequence[Plain]) -> Iterator[Anomaly]:
    logs = [
        (plain, _sound(plain, cluster)) for plain in offsets if plain.final(cluster) is not None
    ]
    if not logs or any(
        log is None or log.log_start or plain.compacted.get(cluster) for plain, log in logs
    ):
        return
    written: dict[Any, list[tuple[int, bool]]] = defaultdict(list)
    pending: dict[Any, list[int]] = defaultdict(list)
    for plain, log in logs:
        replica = next(
            r for r in reversed(plain.view.replicas) if r.cluster == cluster and r.canonical
        )
        last = max(replica.batches.leader_epoch.tolist(), default=-1)
        for entry in replica.entries:
            assert not isinstance(entry, TransactionState)
            if isinstance(entry, GroupMembers):
                continue
            batches = reversed(log.batches if log else [])
            batch: Any = next((b for b in batches if b.base_offset <= entry.offset), None)
            key = entry.group, entry.topic, entry.partition
            if _in_force(batch):
                written[key].append((entry.committed, bool(batch) and batch.leader_epoch < last))
            elif batch.marker is None:
                pending[key].append(entry.committed)
    for plain in views:
        sampled = [
            (g.group, g.offset, disturbed(plain, cluster, g.time))
            for g in plain.groups
            if g.cluster == cluster
        ]
        rows = [
            r
            for r in plain.reads
            if r.kind == "commit" and r.cluster == cluster and r.group and r.position >= 0
        ]
        acknowledged = [(r.group, r.position) for r in rows]
        for group in dict.fromkeys(group for group, *_ in (*sampled, *acknowledged)):
            log_ = written[group, plain.topic, plain.partition]
            lost = _lost(log_, [(offset, late) for g, offset, late in sampled if g == group])
            there = [committed for committed, _ in log_] + pending[
                group, plain.topic, plain.partition
            ]
            lost += [o for g, o in acknowledged if g == group and o not in there]
            if lost:
                yield plain.anomaly("commit-missing", cluster, lost[0])


def _in_force(batch: Any) -> bool:
    """Whether a commit in this batch counts: outside a transaction, in a committed one, or above
    the bounds of the log (None), where it is in the bytes all the same."""
    return not batch or not batch.inside or (batch.marker is not None and batch.marker.control == 1)


def disturbed(plain: Plain, cluster: str, time: int) -> bool:
    """Whether brokers of a cluster were under a fault at that time, or had been."""
    began = [w for w in plain.windows if w.start <= time]
    return any(
        w.target.split("/")[0] == cluster
        or (w.fault, w.target.split("->")[0]) == ("failover-forced", cluster)
        for w in began
    )


def _lost(log: Sequence[tuple[int, bool]], seen: Sequence[tuple[int, bool]]) -> list[int]:
    """The first sample that is not behind the one before it; not at all where a coordinator loaded
    the log again meanwhile."""
    left = list(log)
    for n, (offset, late) in enumerate(seen):
        if n and offset == seen[n - 1][0]:
            continue
        if offset not in [o for o, _ in left] and left and (late or left[0][1]):
            left = list(log)
        while left and left[0][0] != offset:
            left.pop(0)
        if not left:
            return [offset]
    return []
