"""The reference of replicas that lost committed records: every offset that a replica ever had of a
leader's committed records must stay there. And of mirrors that lead: every follower in sync has
what readers were shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.plain import Plain

LEARNS = 10_000_000_000
SECOND = 1_000_000_000
NEVER = 1 << 62


def shortened(plain: Plain, cluster: str, marks: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for broker in {each.broker for each in plain.view.replica_samples}:
        replica = [
            s for s in plain.view.replica_samples if (s.cluster, s.broker) == (cluster, broker)
        ]
        replica.sort(key=lambda s: s.asked)
        for before, after in pairwise(replica):
            for epoch in sorted({m.leader_epoch for m in marks}):
                tenure = [m for m in marks if m.leader_epoch == epoch]
                earlier = [m.leader for m in marks[: marks.index(tenure[0])] if m.leader >= 0]
                kept = _committed(plain, tenure, earlier[-1:], replica, after)
                if after.log_end < before.log_end and after.log_end < kept:
                    yield "replica-end-regression", after.log_end
                    break


def _committed(
    plain: Plain,
    tenure: Sequence[Any],
    previous: Sequence[int],
    replica: Sequence[Any],
    after: Any,
) -> int:
    """How much the replica had of the records that this leader had committed when it was sampled
    again; 0 where that is not certain. `previous` is the leader before, if it is known."""
    leaders = {m.leader for m in tenure if m.leader >= 0}
    if tenure[0].leader_epoch < 0 or len(leaders) != 1:
        return 0
    kept = None
    had: list[Any] = []
    for sample in replica:
        if sample.asked >= after.asked:
            break
        if sample.asked < tenure[0].returned or sample.returned > tenure[-1].time:
            continue
        if _may_be_lost(plain, sample.asked, after):
            continue
        had.append(sample)
        if _may_be_old(plain, tenure[0].time, previous, leaders, sample, sample):
            continue
        grew = [
            each
            for each in had
            if each.log_end < sample.log_end
            and not _may_be_old(plain, tenure[0].time, previous, leaders, sample, each)
        ]
        if grew or sample.broker in leaders:
            kept = sample.log_end if kept is None else max(kept, sample.log_end)
    shown = [
        m.high_watermark
        for m in tenure
        if m.returned <= after.asked and not _may_be_lost(plain, m.time, after)
    ]
    return 0 if kept is None or not shown else min(kept, max(shown))


def _may_be_lost(plain: Plain, since: int, after: Any) -> bool:
    """Whether something took committed records at this time or later, up to the sample."""
    view, cluster = plain.view, after.cluster
    above = _above(plain, cluster)
    spans = []
    shortening = [stop for stop in view.stops if [end for end, to in stop.truncated if to < end]]
    reports: list[Any] = [*view.truncations, *shortening]
    for report in reports:
        if report.cluster == cluster:
            spans.append((report.time, report.time + LEARNS))
        elif report.cluster in above:
            spans.append((report.time, NEVER))
    for window in view.windows:
        at = window.on.source if window.fault == "mirror-reverse" else window.target.split("/")[0]
        if window.fault in ("mirror-reverse", "unclean-election") and at in above:
            spans.append((window.start, NEVER))
        elif window.fault in ("mirror-reverse", "unclean-election", "partition") and at == cluster:
            spans.append((window.start, window.end + LEARNS))
    return any(began <= after.returned and over > since for began, over in spans)


def _above(plain: Plain, cluster: str) -> set[str]:
    """The clusters from which a way leads here."""
    found: set[str] = set()
    while True:
        more = {a for a, b in plain.view.hops() if b == cluster or b in found} - found - {cluster}
        if not more:
            return found
        found |= more


def _may_be_old(
    plain: Plain,
    start: int,
    previous: Sequence[int],
    leaders: set[int],
    sample: Any,
    each: Any,
) -> bool:
    """Whether the replica may not have learned of this leader when it was sampled; judged by all
    faults until `sample`."""
    if sample.broker in previous and sample.broker not in leaders and each.asked < start + LEARNS:
        return True
    for window in plain.view.windows:
        target = window.target.split("/")
        if target[0] == sample.cluster and target[1:] in ([], [str(sample.broker)]):
            known = window.start > start + LEARNS or window.end + LEARNS < start
            if window.start <= sample.returned and not known and each.asked < window.end + LEARNS:
                return True
    return False


def ahead(plain: Plain, cluster: str, marks: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Of each follower the first sample right after a high watermark that it does not reach."""
    known = [c.brokers for c in plain.view.topology.clusters if c.name == cluster]
    for broker in {each.broker for each in plain.view.replica_samples}:
        replica = [
            s for s in plain.view.replica_samples if (s.cluster, s.broker) == (cluster, broker)
        ]
        replica.sort(key=lambda s: s.asked)
        for number in range(1, len(marks) - 1):
            mark = marks[number]
            next_ones = [s for s in replica if s.asked >= mark.returned]
            if mark.leader <= known[0] or not next_ones:
                continue
            sample = next_ones[0]
            if sample.asked > mark.returned + SECOND or sample.log_end >= mark.high_watermark:
                continue
            if _fetches(replica, mark) and _undisturbed(plain, cluster, marks, number):
                yield "high-watermark-ahead", sample.log_end
                break


def _fetches(replica: Sequence[Any], mark: Any) -> bool:
    """Whether the follower grew in the last two and a half seconds."""
    return any(
        after.log_end > before.log_end
        and mark.time - before.asked <= 5 * SECOND // 2
        and after.returned <= mark.time
        for before, after in pairwise(replica)
    )


def _undisturbed(plain: Plain, cluster: str, marks: Sequence[Any], number: int) -> bool:
    """Whether one leader led in one epoch from well before this sample until the next."""
    mark, over = marks[number], marks[number + 1].returned
    began = mark.time - 7 * SECOND // 2
    near = [m for m in marks if began <= m.time <= over]
    if any((m.leader, m.leader_epoch) != (mark.leader, mark.leader_epoch) for m in near):
        return False
    if any(after.high_watermark < before.high_watermark for before, after in pairwise(near)):
        return False
    for window in plain.view.windows:
        here = window.target.split("/")[0] == cluster
        if here and window.start <= over and window.end + LEARNS >= mark.time:
            return False
        at = window.on.source if window.fault == "mirror-reverse" else window.target.split("/")[0]
        turns = window.fault in ("mirror-reverse", "unclean-election")
        if turns and at == cluster and window.start <= over:
            return False
    shortening = [s for s in plain.view.stops if [end for end, to in s.truncated if to < end]]
    reports: list[Any] = [*plain.view.truncations, *shortening]
    return not any(each.cluster == cluster and each.time <= over for each in reports)
