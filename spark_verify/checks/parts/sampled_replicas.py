"""Samples of single replicas, follower or leader, against each other and the leader's high
watermark: which replica lost committed records that it had.

A replica that has grown under a leader and leader epoch had fetched that leader's batches: it never
needs to truncate them while the epoch lasts. Whatever it had before may have been another leader's,
and uncommitted (KIP-101). So may what an old leader appends while the fault `partition` keeps it
from learning that it is none: nothing is judged around that. A truncation across an election is not
judged either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.facts.partition_facts import ReplicaSample
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks

KIND = "replica-end-regression"


def shortened(view: PartitionView, cluster: str, marks: Watermarks) -> Iterator[Found]:
    """Each replica of a cluster that ended below a high watermark and below its own earlier end,
    under one leader and leader epoch."""
    samples = [each for each in view.replica_samples if each.cluster == cluster]
    for broker in sorted({each.broker for each in samples}):
        mine = sorted((s for s in samples if s.broker == broker), key=lambda s: s.asked)
        for before, after in pairwise(mine):
            if after.log_end < before.log_end:
                yield from _lost(view, marks, mine, before, after)


def _lost(
    view: PartitionView,
    marks: Watermarks,
    mine: Sequence[ReplicaSample],
    before: ReplicaSample,
    after: ReplicaSample,
) -> Iterator[Found]:
    rows = _tenure(marks, before, after)
    if not len(rows) or _truncated(view, before.cluster, marks, rows):
        return
    leader, began = int(marks.leader[rows[-1]]), int(marks.returned[rows[0]])
    grew = any(
        began <= each.asked < before.asked and each.log_end < before.log_end for each in mine
    )
    known = rows[marks.returned[rows] <= after.asked]
    high = int(marks.high_watermark[known].max(initial=-1))
    if (grew or before.broker == leader) and after.log_end < min(before.log_end, high):
        evidence = {
            "broker": before.broker, "leader": leader,
            "leader_epoch": int(marks.leader_epoch[rows[-1]]),
            "high_watermark": high, "time": after.asked, "log_end": after.log_end,
            "before": {"log_end": before.log_end},
        }  # fmt: skip
        yield Found(kind=KIND, cluster=before.cluster, offset=after.log_end, evidence=evidence)


def _tenure(marks: Watermarks, before: ReplicaSample, after: ReplicaSample) -> Ints:
    """The samples of the leader from the beginning of its epoch until after two samples of a
    replica; none where it may have changed between those."""
    earlier = np.flatnonzero(marks.returned <= before.asked)
    later = np.flatnonzero(marks.time >= after.returned)
    if not len(earlier) or not len(later):
        return earlier[:0]
    first, last = int(earlier[-1]), int(later[0])
    same = (
        (marks.leader == marks.leader[last])
        & (marks.leader_epoch == marks.leader_epoch[last])
        & (marks.leader >= 0)
        & (marks.leader_epoch >= 0)
    )
    if not same[first : last + 1].all():
        return earlier[:0]
    if (same != (marks.leader_epoch == marks.leader_epoch[last])).any():
        return earlier[:0]  # an epoch has one leader: some of its samples have an old leader's name
    others = np.flatnonzero(~same[:first])
    return np.arange(others[-1] + 1 if len(others) else 0, last + 1)


def _truncated(view: PartitionView, cluster: str, marks: Watermarks, rows: Ints) -> bool:
    """Whether a mirror may have truncated the cluster's log meanwhile, or an old leader may have
    appended to its own."""
    start, end = int(marks.time[rows[0]]), int(marks.returned[rows[-1]])
    times = [(t.time, t.time) for t in view.truncations if t.cluster == cluster]
    times += [(stop.time, stop.time) for stop in view.stops if stop.cluster == cluster]
    times += [
        (window.start, window.end)
        for window in view.windows
        if (window.name.reverses and window.on.source == cluster)
        or (window.fault == "partition" and window.on.cluster == cluster)
    ]
    return any(began <= end and ended >= start for began, ended in times)
