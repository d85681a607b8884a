"""Compares the leader epochs in samples with the last one that a cluster reported (KIP-101,
KIP-595).

The controller only ever raises the leader epoch of a partition, and so does the promotion or
reversal of a mirror. But a deposed leader answers in its old epoch until it learns of the election,
and metadata may still name it. So a sample that is below the previous one proves nothing. The last
sample of a cluster is from after the drain, and so from the current leader. An epoch above that one
was never assigned. A last sample from within the window of a fault on the cluster's brokers may be
from a deposed leader, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.generation_truncations import marks_in
from linkflap.spark_verify.checks.parts.generations import every, generations, log_of
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks

REGRESSION = "sampled-epoch-regression"


def _of_last_logs(view: PartitionView) -> Mapping[str, Watermarks]:
    """The samples of each cluster; for one that was emptied to follow again with other offsets,
    those since then."""
    if view.mirror.guarantee.offsets_kept:
        return view.watermarks
    last = {
        cluster: marks_in(view, mine[-1])
        for cluster, mine in generations(view).items()
        if len(mine) > 1
    }
    return {
        **view.watermarks,
        **{cluster: marks for cluster, marks in last.items() if marks is not None},
    }


def regressions(view: PartitionView) -> Iterator[Found]:
    """Per cluster the first sample of an epoch above that of the last sample."""
    for cluster, marks in sorted(_of_last_logs(view).items()):
        known = np.flatnonzero(marks.leader_epoch >= 0)
        if not len(known):
            continue
        epochs, last = marks.leader_epoch[known], int(known[-1])
        asked, answered = int(marks.time[last]), int(marks.returned[last])
        if any(
            window.start <= answered and asked <= window.end
            for window in on_cluster(view.windows, cluster)
        ):
            continue
        above = known[epochs > epochs[-1]]
        if len(above):
            first = int(above[0])
            evidence = {
                "leader_epoch": int(marks.leader_epoch[first]),
                "last_epoch": int(epochs[-1]),
                "time": int(marks.time[first]),
                "last_time": asked,
                "samples": len(above),
            }
            yield Found(
                kind=REGRESSION,
                cluster=cluster,
                offset=max(0, int(marks.high_watermark[first])),
                evidence=evidence,
            )


def behind_the_log(view: PartitionView, *, kept: bool) -> Sequence[Finding]:
    """Samples whose leader epoch is below that of a batch under their high watermark; the first of
    each generation."""
    findings: list[Finding] = []
    for generation in every(view):
        log, marks = log_of(view, generation), marks_in(view, generation)
        if log is None or marks is None or not len(log.replica.batches):
            continue
        batches = log.replica.batches
        highest = np.concatenate(([-1], np.maximum.accumulate(batches.leader_epoch)))
        known = np.flatnonzero((marks.leader_epoch >= 0) & (marks.high_watermark >= 0))
        known = known if kept else known[-1:]
        served = highest[
            np.searchsorted(batches.last_offset, _uncut(view, generation, marks)[known])
        ]
        low = known[marks.leader_epoch[known] < served]
        if len(low):
            row = int(low[0])
            index = int(np.argmax(batches.leader_epoch > marks.leader_epoch[row]))
            evidence = {
                "leader_epoch": int(marks.leader_epoch[row]),
                "batch_epoch": int(batches.leader_epoch[index]),
                "time": int(marks.time[row]),
                "samples": len(low),
            }
            offset = int(batches.base_offset[index])
            findings.append(
                Found(
                    kind="epoch-behind",
                    cluster=generation.cluster,
                    offset=offset,
                    evidence=evidence,
                )
            )
    return findings


def _uncut(view: PartitionView, generation: LogGeneration, marks: Watermarks) -> Ints:
    """Per sample up to where the log is still what it saw: a mirror that ends may truncate open
    transactions."""
    ends = marks.high_watermark
    for stop in view.stops:
        if stop.cluster == generation.cluster and stop.truncated:
            lowest = min(offset for _, offset in stop.truncated)
            ends = np.where(marks.time <= stop.time, np.minimum(ends, lowest), ends)
    return ends
