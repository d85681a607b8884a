"""The reference of replicas that lost committed records: every offset that a replica ever had of a
leader's committed records must stay there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.plain import Plain

LEARNS = 10_000_000_000


def shortened(plain: Plain, cluster: str, marks: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for broker in {each.broker for each in plain.view.replica_samples}:
        replica = [
            s for s in plain.view.replica_samples if (s.cluster, s.broker) == (cluster, broker)
        ]
        replica.sort(key=lambda s: s.asked)
        for before, after in pairwise(replica):
            for epoch in sorted({m.leader_epoch for m in marks}):
                tenure = [m for m in marks if m.leader_epoch == epoch]
                kept = _committed(plain, tenure, replica, after)
                if after.log_end < before.log_end and after.log_end < kept:
                    yield "replica-end-regression", after.log_end
                    break


def _committed(plain: Plain, tenure: Sequence[Any], replica: Sequence[Any], after: Any) -> int:
    """How much the replica had of the records that this leader had committed when it was sampled
    again; 0 where that is not certain."""
    leaders = {m.leader for m in tenure if m.leader >= 0}
    if tenure[0].leader_epoch < 0 or len(leaders) != 1:
        return 0
    had = None
    lowest = None
    for sample in replica:
        if sample.asked >= after.asked:
            break
        if sample.asked < tenure[0].returned or sample.returned > tenure[-1].time:
            continue
        grew = lowest is not None and sample.log_end > lowest
        if (grew or sample.broker in leaders) and (had is None or sample.log_end > had.log_end):
            had = sample
        lowest = sample.log_end if lowest is None else min(lowest, sample.log_end)
    shown = [m.high_watermark for m in tenure if m.returned <= after.asked]
    if had is None or not shown or _may_be_lost(plain, tenure[0].time, had, after):
        return 0
    return int(min(had.log_end, max(shown)))


def _may_be_lost(plain: Plain, start: int, had: Any, after: Any) -> bool:
    view = plain.view
    reports: list[Any] = [*view.truncations, *view.stops]
    spans = [(r.time, r.time, after.returned) for r in reports if r.cluster == had.cluster]
    for window in view.windows:
        target = window.target.split("/")
        if window.fault == "mirror-reverse" and window.on.source == had.cluster:
            spans.append((window.start, window.end, after.returned))
        if target[0] == had.cluster and window.fault in ("unclean-election", "partition"):
            spans.append((window.start, window.end, after.returned))
        if target[0] == had.cluster and target[1:] in ([], [str(had.broker)]):
            spans.append((window.start, window.end, had.returned))
    return any(began <= over and ended + LEARNS >= start for began, ended, over in spans)
