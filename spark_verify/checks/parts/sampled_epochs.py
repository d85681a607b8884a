"""Leader epochs that leaders reported in samples, held against the last one that a cluster reported
(KIP-101, KIP-595).

The controller only ever raises the leader epoch of a partition, and a mirror that is promoted or
reversed raises it too. But a deposed leader answers in its old epoch until it learns of the
election, and metadata may name it meanwhile. So that one sample is below the one before it proves
nothing. The last sample of a cluster is from after the drain: it is of the leader that there is. An
epoch above that one was never assigned. A last sample from within the window of a fault on the
cluster's brokers may be of a deposed leader, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.generations import generations, marks_in
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.view import PartitionView, Watermarks

REGRESSION = "sampled-epoch-regression"


def _of_last_logs(view: PartitionView) -> Mapping[str, Watermarks]:
    """The samples of each cluster. Of one that was emptied to follow again with other offsets,
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
        said = np.flatnonzero(marks.leader_epoch >= 0)
        if not len(said):
            continue
        epochs, last = marks.leader_epoch[said], int(said[-1])
        asked, answered = int(marks.time[last]), int(marks.returned[last])
        if any(
            window.start <= answered and asked <= window.end
            for window in on_cluster(view.windows, cluster)
        ):
            continue
        above = said[epochs > epochs[-1]]
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
