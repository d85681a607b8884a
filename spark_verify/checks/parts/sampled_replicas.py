"""Samples of single replicas, follower or leader, against each other and the leaders' high
watermarks: which replica lost committed records that it had.

A replica that grows under a leader and leader epoch fetches that leader's batches. What it has then
below a high watermark of that leader is committed, and no clean election takes it away (KIP-101).
Whatever it had before may have been another leader's, and uncommitted. So may what it appends as an
old leader that does not know yet that it is none: a fault of that broker, or the fault `partition`,
may have kept it from learning that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from linkflap.harness.model.faults import UNCLEAN
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.partition_facts import ReplicaSample
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks

KIND: Final = "replica-end-regression"
LEARNS: Final = 10 * 10**9
"""How long after a fault a broker may not know that it leads no more, in nanoseconds: more than
three session timeouts (3 s here)."""


def shortened(view: PartitionView, cluster: str, marks: Watermarks) -> Iterator[Found]:
    """Each time that a replica of a cluster ended below its own earlier end and below what it had
    of a leader's committed records."""
    samples = [each for each in view.replica_samples if each.cluster == cluster]
    tenures = list(_tenures(marks)) if samples else []
    for broker in sorted({each.broker for each in samples}):
        mine = sorted((s for s in samples if s.broker == broker), key=lambda s: s.asked)
        for number, (before, after) in enumerate(pairwise(mine), start=1):
            if after.log_end < before.log_end:
                found = [
                    each
                    for leader, rows in tenures
                    for each in _lost(view, marks, leader, rows, mine[:number], after)
                ]
                yield from sorted(found, key=lambda each: -_high(each))[:1]


def _high(found: Found) -> int:
    return int(str(found.evidence["high_watermark"]))


def _tenures(marks: Watermarks) -> Iterator[tuple[int, Ints]]:
    """Each leader and the samples of its epoch. The first sample of an epoch often has no name
    (`harness.capture.watermarks`). Where samples name two leaders, one of the names is old, or
    the epochs are those of a mirror's source; neither is used."""
    for epoch in np.unique(marks.leader_epoch[marks.leader_epoch >= 0]):
        rows = np.flatnonzero(marks.leader_epoch == epoch)
        leaders = np.setdiff1d(marks.leader[rows], -1)
        if len(leaders) == 1:
            yield int(leaders[0]), rows


def _lost(
    view: PartitionView,
    marks: Watermarks,
    leader: int,
    rows: Ints,
    earlier: Sequence[ReplicaSample],
    after: ReplicaSample,
) -> Iterator[Found]:
    """What a replica lost of that which it had, and which was committed, in one leader's epoch."""
    before = earlier[-1]
    began, ended = int(marks.returned[rows[0]]), int(marks.time[rows[-1]])
    inside = [each for each in earlier if began <= each.asked and each.returned <= ended]
    fetched = [
        each
        for each in inside
        if each.broker == leader
        or any(s.asked < each.asked and s.log_end < each.log_end for s in inside)
    ]
    known = rows[marks.returned[rows] <= after.asked]
    if not fetched or not len(known):
        return
    had = max(fetched, key=lambda each: each.log_end)
    high = int(marks.high_watermark[known].max())
    if after.log_end >= min(before.log_end, had.log_end, high):
        return
    start = int(marks.time[rows[0]])
    if not (_excused(view, before.cluster, start, after) or _alone(view, start, had)):
        evidence = {
            "broker": before.broker, "leader": leader,
            "leader_epoch": int(marks.leader_epoch[rows[0]]),
            "high_watermark": high, "time": after.asked, "log_end": after.log_end,
            "before": {"log_end": before.log_end},
        }  # fmt: skip
        yield Found(kind=KIND, cluster=before.cluster, offset=after.log_end, evidence=evidence)


def _excused(view: PartitionView, cluster: str, start: int, after: ReplicaSample) -> bool:
    """Whether something may have taken committed records, or given a replica others: a mirror's
    truncation, an unclean election, a partition."""
    times = [(t.time, t.time) for t in view.truncations if t.cluster == cluster]
    times += [(stop.time, stop.time) for stop in view.stops if stop.cluster == cluster]
    times += [
        (window.start, window.end)
        for window in view.windows
        if (window.name.reverses and window.on.source == cluster)
        or (window.fault in (UNCLEAN, "partition") and window.on.cluster == cluster)
    ]
    return any(began <= after.returned and ended + LEARNS >= start for began, ended in times)


def _alone(view: PartitionView, start: int, had: ReplicaSample) -> bool:
    """Whether a fault of the replica's broker may have kept it from learning of this leader."""
    return any(
        window.on.broker in (0, had.broker)
        and window.start <= had.returned
        and window.end + LEARNS >= start
        for window in on_cluster(view.windows, had.cluster)
    )
