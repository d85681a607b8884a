"""Kafka's own topics are undamaged, and agree with the data and the clients about transactions and
groups.

Logs are checked one at a time, batch by batch. For the decisions of coordinators, it tries every
way to leave out decisions that are incomplete at the end; one of them must agree with the markers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from linkflap.harness.log.coordinators import GroupMembers, TransactionState
from tests.oracles.checks.leader_epochs import _falls
from tests.oracles.checks.replica_agreement import _alone, _between
from tests.oracles.decisions import decided_by, ends_alike, exactly, leaving_out, written_again
from tests.oracles.plain import Anomaly, Plain, PlainLog

EACH: frozenset[str] = frozenset()
DESPITE_TORN = frozenset(
    {
        "corrupt-batch",
        "log-disorder",
        "replica-disagreement",
        "replica-missing",
        "leader-epoch-regression",
        "outcome-disagreement",
        "marker-missing",
        "marker-unexplained",
        "commit-missing",
    }
)
KNOWS_TORN = True
BESIDE = (
    "the coordinator's own topics were not changed with the data, so they still have its original "
    "decision"
)


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
    for cluster in sorted({r.cluster for r in plain.replicas}):
        logs = [_below(r) for r in plain.replicas if r.cluster == cluster]
        for log in logs:
            yield from (plain.anomaly(kind, cluster, offset) for kind, offset in _wrong(plain, log))
        model = next((r for r in logs if r.canonical), logs[0])
        start, end = max(r.log_start for r in logs), min(r.high_watermark for r in logs)
        for other in logs:
            for kind, offset in _between(model, other, start, end) if other is not model else ():
                if offset >= plain.compacted.get(cluster, 0):
                    yield plain.anomaly(kind, cluster, offset)


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
    for plain in views:
        log = plain.final(cluster)
        if log is None or plain.topic in ("__transaction_state", "__cluster_metadata"):
            continue
        exact, known, own = _markers(plain, log)
        producers = {(b.producer_id, b.producer_epoch) for b in own}
        producers |= {
            row["producer"]
            for row in decided
            if (plain.topic, plain.partition) in row["partitions"]
        }
        for producer in sorted(producers):
            mine = [b for b in own if (b.producer_id, b.producer_epoch) == producer]
            wanted = [
                r
                for r in decided
                if r["producer"] == producer and (plain.topic, plain.partition) in r["partitions"]
            ]
            again = written_again(log, mine)
            if (
                exact
                and every
                and any(not exactly(wanted, some) for some in leaving_out(mine, again))
            ):
                continue
            if exact and every:
                yield from (
                    plain.anomaly(kind, cluster, offset) for kind, offset in exactly(wanted, mine)
                )
            elif (
                known
                and mine
                and wanted
                and not any(ends_alike(wanted, some) for some in leaving_out(mine, again))
            ):
                yield plain.anomaly("outcome-disagreement", cluster, mine[-1].base_offset)


def _markers(plain: Plain, log: PlainLog) -> tuple[bool, bool, list[Any]]:
    """Whether all markers ever written are there, whether the last ones are, and those of the
    cluster's own coordinators."""
    markers = [b for b in log.batches if b.ends and b.crc_ok]
    if plain.view.internal:
        sound = _sound(plain, log.cluster) is not None
        return sound and log.log_start == 0 and not plain.compacted.get(log.cluster), sound, markers
    from tests.oracles.story import Story

    generations = Story(plain).generations[log.cluster]
    stops = [s for s in plain.view.stops if s.cluster == log.cluster]
    truncated = (
        len(generations) > 1
        or any(t.cluster == log.cluster for t in plain.view.truncations)
        or any(s.truncated for s in stops)
    )
    appended = {offset for s in stops for offset, _ in s.appended}
    if plain.keeps:
        markers = [b for b in markers if generations[-1].native(b.base_offset)]
    cleaned = plain.compacted.get(log.cluster, 0)
    markers = [b for b in markers if b.base_offset not in appended and b.base_offset >= cleaned]
    whole = (
        not (truncated or log.torn or log.log_start or plain.compacted.get(log.cluster))
        and plain.view.recorded
    )
    return whole, not (truncated or log.torn), markers


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
            batch = [b for b in log.batches if b.base_offset <= entry.offset][-1] if log else None
            key = entry.group, entry.topic, entry.partition
            if batch and (
                not batch.inside or (batch.marker is not None and batch.marker.control == 1)
            ):
                written[key].append((entry.committed, batch.leader_epoch < last))
            elif batch and batch.marker is None:
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


def disturbed(plain: Plain, cluster: str, time: int) -> bool:
    """Whether brokers of a cluster were under a fault at that time, or had been."""
    began = [w for w in plain.view.windows if w.start <= time]
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
