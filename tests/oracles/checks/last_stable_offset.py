"""The LSO that leaders report never goes back, and agrees with some possible high watermark at that
time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.oracles.checks.internal_topics import _sound
from tests.oracles.decisions import (
    COMPLETE_ABORT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    states_of,
)
from tests.oracles.plain import NEVER, Anomaly, Plain, PlainLog, of_send, pair, transactions
from tests.oracles.story import PlainGeneration, Story

LEARNS = 10_000_000_000
SECOND = 1_000_000_000


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
    above = _replica_above(plain, cluster)
    spans = []
    shortening = [stop for stop in view.stops if [end for end, to in stop.truncated if to < end]]
    reports: list[Any] = [*view.truncations, *shortening]
    for report in reports:
        if report.cluster == cluster:
            spans.append((report.time, report.time + LEARNS))
        elif report.cluster in above:
            spans.append((report.time, NEVER))
    for window in plain.windows:
        at = window.on.source if window.fault == "mirror-reverse" else window.target.split("/")[0]
        if window.fault in ("mirror-reverse", "unclean-election") and at in above:
            spans.append((window.start, NEVER))
        elif window.fault in ("mirror-reverse", "unclean-election", "partition") and at == cluster:
            spans.append((window.start, window.end + LEARNS))
    return any(began <= after.returned and over > since for began, over in spans)


def _replica_above(plain: Plain, cluster: str) -> set[str]:
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
    for window in plain.windows:
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
    for window in plain.windows:
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


DESPITE_TORN = frozenset(
    {
        "lso-above-high-watermark",
        "lso-regression",
        "high-watermark-regression",
        "log-start-regression",
        "log-start-above-lso",
        "replica-end-regression",
        "high-watermark-ahead",
        "hanging-transaction",
        "lingering-transaction",
    }
)
SWEEP, GRACE = 10 * SECOND, 5 * SECOND
"""transaction.abort.timed.out.transaction.cleanup.interval.ms, and what a coordinator may take."""
LONGEST = 900 * SECOND
"""transaction.max.timeout.ms."""


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in (each for each in views if not each.view.internal):
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            marks = [
                m for m in story.marks(generation) if m.last_stable >= 0 and m.high_watermark >= 0
            ]
            suspects = list(_order(plain, generation, marks))
            suspects += list(_above(plain, story, generation))
            suspects += list(_sent_later(plain, story, generation))
            suspects += list(shortened(plain, generation.cluster, story.marks(generation)))
            suspects += list(ahead(plain, generation.cluster, story.marks(generation)))
            if log is not None:
                dead = generation.lost is not None or generation.cluster in plain.view.deaths
                if generation.last and not dead and not log.torn:
                    suspects += list(_hanging(plain, story, generation, log, views))
            suspects += list(_mismatches(plain, story, generation, marks))
            found += [plain.anomaly(kind, generation.cluster, offset) for kind, offset in suspects]
    return found


def _tenure(plain: Plain, generation: PlainGeneration, before: Any, after: Any) -> bool:
    """Whether two samples are certainly from one leader in one epoch."""
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        return False
    view = plain.view
    moved = [
        (w.start, w.end) for w in plain.windows if w.target.split("/")[0] == generation.cluster
    ]
    moved += [(p.fault_time, p.time) for p in view.promotions if p.cluster == generation.cluster]
    moved += [(s.time, s.time) for s in view.stops if s.cluster == generation.cluster]
    moved += [(t.time, t.time) for t in view.truncations if t.cluster == generation.cluster]
    return after.leader_epoch >= 0 or not any(
        before.time <= end and after.returned >= start for start, end in moved
    )


def _order(
    plain: Plain, generation: PlainGeneration, marks: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    for before, after in pairwise(marks):
        same = _tenure(plain, generation, before, after)
        lowest = _stepping(plain, generation, before, after)
        reopened = lowest <= after.high_watermark < before.high_watermark
        if same and after.last_stable < min(before.last_stable, lowest) and not reopened:
            yield "lso-regression", after.last_stable
        if same and after.high_watermark < min(before.high_watermark, lowest):
            yield "high-watermark-regression", after.last_stable
        if same and 0 <= after.log_start < before.log_start:
            yield "log-start-regression", after.log_start
        if same and after.log_start > max(after.last_stable, -1):
            yield "log-start-above-lso", after.log_start
        # Another leader may have had any high watermark.
        if same and before.last_stable > max(before.high_watermark, after.high_watermark):
            yield "lso-above-high-watermark", before.last_stable


def _stepping(plain: Plain, generation: PlainGeneration, before: Any, after: Any) -> int:
    """How far two samples may go back while a reversal truncates their log, possibly in several
    steps."""
    mine = generation.cluster
    reversals = [
        w
        for w in plain.windows
        if w.fault == "mirror-reverse" and w.took_effect and w.on.source == mine
    ]
    offsets = [
        t.offset
        for w in reversals
        for t in plain.view.truncations
        if t.cluster == mine and w.start <= t.time <= w.end
        if before.time <= t.time and w.start <= after.returned
    ]
    return min(offsets, default=NEVER)


def _above(plain: Plain, story: Story, generation: PlainGeneration) -> Iterator[tuple[str, int]]:
    logs = [
        log
        for log in (
            story.log(generation),
            None if generation.last else story.before_truncation(generation),
        )
        if log is not None
    ]
    if not logs:
        return
    until = max(log.captured for log in logs) or NEVER
    end = story.end(generation)
    for mark in story.marks(generation):
        if mark.returned <= until and end < mark.high_watermark <= _truncated_since(
            plain, generation, mark
        ):
            yield "high-watermark-above-log", end
            return


def _sent_later(
    plain: Plain, story: Story, generation: PlainGeneration
) -> Iterator[tuple[str, int]]:
    """A record that was sent after a sample whose high watermark is above it."""
    log = story.log(generation)
    if log is None or log.torn:
        return
    sent = {uid: s.invoked for s in plain.sends for uid, _, _ in of_send(s)}
    for mark in story.marks(generation):
        if mark.high_watermark > min(
            story.end(generation), _truncated_since(plain, generation, mark)
        ):
            continue
        later = [r.offset for r in log.records if sent.get(r.uid, -1) > mark.returned]
        if later and min(later) < mark.high_watermark:
            yield "high-watermark-above-log", min(later)
            return


def _mismatches(
    plain: Plain, story: Story, generation: PlainGeneration, marks: Sequence[Any]
) -> Iterator[tuple[str, int]]:
    """Each sample with the first capture that has all that it can be about."""
    logs = [
        log
        for log in (
            story.log(generation),
            None if generation.last else story.before_truncation(generation),
        )
        if log is not None
    ]
    found = [dict(_recomputed(plain, generation, log, marks)) for log in logs]
    for n in range(len(marks)):
        shown = [
            wrong
            for log, wrong in zip(logs, found, strict=True)
            if _shows(generation, log, marks[n : n + 2])
        ]
        if shown and n in shown[0]:
            yield shown[0][n]


def _shows(generation: PlainGeneration, log: PlainLog, marks: Sequence[Any]) -> bool:
    """Whether a log has everything that existed at a request: it was captured after that and before
    a reversal, or has all that existed then and at the request of the next sample."""
    later = marks[0].returned <= (log.captured or NEVER)
    return (later and marks[0].time < generation.ended) or (
        len(marks) > 1 and all(mark.high_watermark <= log.end for mark in marks)
    )


def _recomputed(
    plain: Plain, generation: PlainGeneration, log: PlainLog, marks: Sequence[Any]
) -> Iterator[tuple[int, tuple[str, int]]]:
    """Tries every high watermark that the log can have had when its LSO was requested, and still
    has."""
    pair(log, untracked=True)
    every = transactions(log)
    pair(log)
    for index, mark in enumerate(marks):
        before = marks[index - 1] if index else None
        after = marks[index + 1] if index + 1 < len(marks) else None
        lowest = (
            min(before.high_watermark, mark.high_watermark) if before and _same(before, mark) else 0
        )
        highest = max(
            mark.high_watermark, after.high_watermark if after and _same(mark, after) else log.end
        )
        truncated = [
            generation.began,
            *(t.time for t in plain.view.truncations if t.cluster == generation.cluster),
        ]
        if highest > _truncated_since(plain, generation, mark) or any(
            mark.time <= time <= mark.returned for time in truncated
        ):
            continue
        if mark.last_stable < max(log.log_start, plain.cleaned(log)):
            continue
        if all(_lso(every, high) != mark.last_stable for high in range(lowest, highest + 1)):
            yield index, ("lso-mismatch", mark.last_stable)


def _truncated_since(plain: Plain, generation: PlainGeneration, mark: Any) -> int:
    """The offset to which a mirror truncated this generation's log after a sample was requested."""
    reported = [(t.cluster, t.time, t.offset) for t in plain.view.truncations]
    reported += [(s.cluster, s.time, at) for s in plain.view.stops for _, at in s.truncated]
    mine = [
        at
        for cluster, time, at in reported
        if cluster == generation.cluster
        and max(generation.settled, mark.time) <= time <= generation.ended
    ]
    return min(mine, default=NEVER)


def _same(before: Any, after: Any) -> bool:
    return None not in (before, after) and (before.leader, before.leader_epoch) == (
        after.leader,
        after.leader_epoch,
    )


def _lso(every: Sequence[Any], high: int) -> int:
    open_ones = [
        t.first
        for t in every
        if t.first < high and (t.marker is None or t.marker.base_offset >= high)
    ]
    return int(min([high, *open_ones]))


def _hanging(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog, views: Sequence[Plain]
) -> Iterator[tuple[str, int]]:
    own = (
        [start for start, _, _, source in generation.eras()[1:] if not source]
        if plain.keeps
        else []
    )
    _, _, owner, follows = generation.eras()[-1]
    refused = [
        r.link
        for r in plain.view.refusals
        if r.kind == "forced" and r.link.partition("->")[0] in plain.view.deaths
    ]
    never_promoted = (
        plain.keeps
        and generation.last
        and bool(follows)
        and (
            f"{follows}->{generation.cluster}" in refused
            or any(link.startswith(f"{owner[0]}->") for link in refused)
        )
    )
    for each in transactions(log):
        if each.marker is not None:
            continue
        first = next((r for r in log.records if r.offset >= each.first), None)
        if first is None:
            continue
        if never_promoted or each.first < max(own, default=0):
            yield "hanging-transaction", each.first
            continue
        begun = _sent(plain, first, story.marks(generation))
        over = (
            NEVER
            if plain.keeps and follows and {follows, owner[0]} & plain.view.deaths.keys()
            else begun + LONGEST
            if plain.keeps and follows
            else _over(plain, generation.cluster, each, views, begun)
        )
        healed = [w.end for w in plain.windows if w.on.cluster == generation.cluster]
        if over is None:
            continue
        if over < 0 or plain.ended > max([over, *healed]) + SWEEP + GRACE:
            yield "hanging-transaction", each.first
        elif plain.ended - begun > SWEEP:
            yield "lingering-transaction", each.first


def _over(
    plain: Plain, cluster: str, transaction: Any, views: Sequence[Plain], begun: int
) -> int | None:
    """When the coordinator may end a transaction at the latest; -1 if it knows of none, None if
    nobody can know."""
    longest = begun + LONGEST
    topics = {
        v.partition: v for v in views if v.topic == "__transaction_state" and v.final(cluster)
    }
    if not topics:
        return longest
    copied = [log.captured or plain.ended for v in topics.values() if (log := v.final(cluster))]
    some_lack = set(topics) != set(range(max(topics) + 1)) or min(copied) < begun
    if some_lack or any(_sound(v, cluster) is None for v in topics.values()):
        return longest if plain.ended > longest + SWEEP + GRACE else None
    last = {s.transactional_id: s for v in topics.values() for s in states_of(v, cluster)}
    mine = [s for s in last.values() if s.producer_id == transaction.pid]
    if not mine:
        return -1
    state = mine[-1]
    listed = (plain.topic, plain.partition) in state.partitions
    epoch = max(b.producer_epoch for b in transaction.batches)
    if listed and state.state == ONGOING and state.producer_epoch == epoch:
        return (state.started + state.timeout) * 1_000_000
    if listed and state.state in (PREPARE_COMMIT, PREPARE_ABORT) and state.producer_epoch >= epoch:
        return int(state.updated) * 1_000_000
    log = plain.final(cluster)
    captured = (log.captured if log else 0) or plain.ended
    aborted = state.state == COMPLETE_ABORT
    return None if aborted and state.updated * 1_000_000 + 2 * SECOND >= captured else -1


def _sent(plain: Plain, record: Any, marks: Sequence[Any]) -> int:
    """The time, by the harness's clock; if the harness did not record it by the client's clock, but
    not after the run, nor while the log was sampled without the record."""
    invoked = [s.invoked for s in plain.sends if record.uid in [uid for uid, _, _ in of_send(s)]]
    if invoked:
        return int(invoked[0])
    sent = int(record.timestamp) * 1_000_000
    if sent > plain.ended:
        had = [m.returned for m in marks if m.high_watermark > record.offset]
        return int(min(had or [plain.ended]))
    return int(max([sent, *(m.time for m in marks if m.high_watermark <= record.offset)]))
