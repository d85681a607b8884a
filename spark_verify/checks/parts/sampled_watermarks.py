"""Compares the samples of one log's offsets with each other: which went back, and which are
impossible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.logs import NOWHERE
from linkflap.spark_verify.facts.eras import on_cluster
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Watermarks


def found_at(kind: str, cluster: str, marks: Watermarks, row: int, **evidence: object) -> Found:
    lso, high = int(marks.last_stable[row]), int(marks.high_watermark[row])
    sample = {
        "last_stable": lso,
        "high_watermark": high,
        "time": int(marks.time[row]),
        "leader_epoch": int(marks.leader_epoch[row]),
    }
    return Found(kind=kind, cluster=cluster, offset=lso, evidence=sample | evidence)


def _same_tenure(view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints) -> Bools:
    """Per sample but the first: whether the one before is surely of the same leader's same
    epoch."""
    before, after = sampled[:-1], sampled[1:]
    same = (marks.leader[before] == marks.leader[after]) & (
        marks.leader_epoch[before] == marks.leader_epoch[after]
    )
    unknown = marks.leader_epoch[after] < 0
    for start, end in _leaders_moved(view, cluster):
        same &= ~(unknown & (marks.time[before] <= end) & (marks.returned[after] >= start))
    return np.asarray(same)


def _leaders_moved(view: PartitionView, cluster: str) -> Iterator[tuple[int, int]]:
    """[start, end] of all that may have given a partition another leader: broken brokers, and a
    mirror that ends or begins."""
    yield from ((window.start, window.end) for window in on_cluster(view.windows, cluster))
    yield from ((p.fault_time, p.time) for p in view.promotions if p.cluster == cluster)
    yield from ((stop.time, stop.time) for stop in view.stops if stop.cluster == cluster)
    yield from ((t.time, t.time) for t in view.truncations if t.cluster == cluster)


def truncating(view: PartitionView, cluster: str) -> list[tuple[int, int, int]]:
    """(start, end, offset): from the start of a log's reversal until its truncation to `offset` was
    recorded. It may be truncated in steps, each in a new leader epoch."""
    return [
        (window.start, t.time, t.offset)
        for window in view.windows
        if window.name.reverses and window.took_effect and window.on.source == cluster
        for t in view.truncations
        if t.cluster == cluster and window.start <= t.time <= window.end
    ]


def out_of_order(
    view: PartitionView, cluster: str, marks: Watermarks, sampled: Ints
) -> Sequence[Finding]:
    if not len(sampled):
        return []
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    same = _same_tenure(view, cluster, marks, sampled)
    before, after = sampled[:-1], sampled[1:]
    findings: list[Finding] = []
    for name, values, kind in (
        ("last_stable", lso, "lso-regression"),
        ("high_watermark", high, "high-watermark-regression"),
    ):
        back = same & (values[1:] < values[:-1])
        for start, end, offset in truncating(view, cluster):
            meanwhile = (marks.time[before] <= end) & (marks.returned[after] >= start)
            # Without its end a transaction is open again, from wherever it began: such an LSO is
            # held against the bytes.
            stepped = (values[1:] >= offset) | ((high[1:] >= offset) & (high[1:] < high[:-1]))
            back &= ~(meanwhile & stepped)
        for i in np.flatnonzero(back).tolist():
            findings.append(
                found_at(kind, cluster, marks, int(sampled[i + 1]), before={name: int(values[i])})
            )
    findings += _log_starts(cluster, marks, sampled, same)
    # The LSO may have been requested after the high watermark: the next sample bounds what that had
    # become by then.
    bound = np.maximum(high[:-1], np.where(same, high[1:], NOWHERE))
    findings += [
        found_at("lso-above-high-watermark", cluster, marks, int(sampled[i]))
        for i in np.flatnonzero(lso[:-1] > bound).tolist()
    ]
    return findings


def _log_starts(cluster: str, marks: Watermarks, sampled: Ints, same: Bools) -> Iterator[Finding]:
    """Log starts that went back, or were above the LSO, which is requested next: it is raised with
    the log start."""
    start, lso = marks.log_start[sampled], marks.last_stable[sampled]
    known = same & (start[1:] >= 0)
    for kind, wrong in (
        ("log-start-regression", start[1:] < start[:-1]),
        ("log-start-above-lso", start[1:] > lso[1:]),
    ):
        for i in np.flatnonzero(known & wrong).tolist():
            evidence = {"log_start": int(start[i + 1]), "before": {"log_start": int(start[i])}}
            yield replace(
                found_at(kind, cluster, marks, int(sampled[i + 1]), **evidence),
                offset=int(start[i + 1]),
            )
