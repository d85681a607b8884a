"""group-offsets: a consumer group that fails over skips nothing and repeats little (KIP-545; MirrorMaker 2's group offset sync).

P is the last position that the group committed on the source, D the first offset it got on the destination. Skipped is what the
destination has below D, the source has at or above P, and no member ever got. Repeated is what a member got on the destination
although it is below P at the source. MirrorMaker 2 translates P to the last offset sync at or below it, so that
it may step back but never ahead: by what was committed since the last checkpoint and sync, by offset.lag.max, and by as much
again as the group was behind the end (KAFKA-12468: syncs are kept ever sparser further back).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found
from spark_verify.checks.logs import Log, among, canonical, distinct, locate
from spark_verify.eras import promoted_at
from spark_verify.view import Ints, PartitionView, Promotion, Read

OFFSET_LAG_MAX: Final = 100
"""MirrorMaker 2's default of offset.lag.max: records between two offset syncs."""
SYNC_REACH: Final = 5_000_000_000
"""Nanoseconds that a committed offset may need to reach the destination: refresh, checkpoint, sync (1 s each) and 2 s more."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Judges every group that read on the source before a failover and on the destination only after it."""
    if not view.mirror.options.get("groups", ".*"):
        return []
    logs = canonical(view)
    findings: list[Finding] = []
    for promotion in view.promotions:
        if promotion.source not in logs or promotion.cluster not in logs:
            continue
        for group in sorted({r.group for r in view.reads if r.group}):
            findings += _judge(view, promotion, group, logs[promotion.source], logs[promotion.cluster])
    return findings


def _judge(view: PartitionView, promotion: Promotion, group: str, source: Log, destination: Log) -> Sequence[Finding]:
    own = [r for r in view.reads if r.group == group]
    commits = [r for r in own if r.cluster == promotion.source and r.kind == "commit" and r.position >= 0]
    after = [r for r in own if r.cluster == promotion.cluster and r.kind == "poll" and len(r.uids)]
    if not commits or not after or min(r.returned for r in after) < promotion.fault_time:
        return []
    committed = max(commits, key=lambda r: r.returned)
    ours = destination.replica.records
    mirrored = np.flatnonzero(destination.visible & (ours.uid >= 0) & (ours.offset < (promoted_at(view, promotion.cluster) or 0)))
    at = locate(source.replica.records.uid, ours.uid[mirrored])
    mirrored, at = mirrored[at >= 0], at[at >= 0]
    origin = source.replica.records.offset[at]
    start = int(min(after, key=lambda r: r.returned).offsets[0])
    got = _uids(r for r in own if r.kind == "poll")
    skipped = mirrored[(ours.offset[mirrored] < start) & (origin >= committed.position) & ~among(ours.uid[mirrored], got)]
    again = mirrored[(origin < committed.position) & among(ours.uid[mirrored], _uids(after))]
    bound = _bound(commits, committed, origin)
    findings: list[Finding] = [Examined(cluster=promotion.cluster, origin="mirrored", count=len(mirrored))]
    evidence = {"group": group, "committed_on_source": committed.position, "began_at": start}
    for kind, rows, more in (("group-skip", skipped, {}), ("group-replay", again, {"bound": bound})):
        if len(rows):
            told = evidence | {"records": len(rows), "uid": int(ours.uid[rows[0]])} | more
            findings.append(Found(kind=kind, cluster=promotion.cluster, offset=int(ours.offset[rows[0]]), evidence=told))
    return findings


def _uids(reads: Iterable[Read]) -> Ints:
    parts = [r.uids for r in reads]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _bound(commits: Sequence[Read], committed: Read, origin: Ints) -> int:
    """How many mirrored records the group may get again."""
    settled = [r.position for r in commits if r.returned <= committed.returned - SYNC_REACH]
    since = max(settled, default=0)
    recent = int(np.count_nonzero((origin >= since) & (origin < committed.position)))
    behind = int(np.count_nonzero(origin >= committed.position))
    return recent + OFFSET_LAG_MAX + behind


CHECK = Check(
    name="group-offsets",
    guarantee="A consumer group that fails over skips no record, and gets again no more than offset translation gives back.",
    source="KIP-545 (group offset sync); KAFKA-12468 (translation steps back, never ahead)",
    inputs=frozenset({"batches", "records", "reads", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="group-skip",
            meaning="A record that the group had not committed on the source lies below where it began on the destination.",
            smallest="A and B have 1 2 3, the group committed position 1 on A and began with 3 on B: at offset 1, that of 2.",
        ),
        AnomalyKind(
            name="group-replay",
            meaning="The group got a record on the destination that it had committed on the source.",
            smallest="A has 1 2, the group committed position 2, B has 1 2, the group began at offset 0: at offset 0.",
        ),
    ),
    kernel=kernel,
    due=frozenset(),
)
