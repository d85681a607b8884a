"""log-start: a log begins later than before only because somebody deleted its beginning.

A log start offset may move by DeleteRecords (KIP-107), to exactly the offset that was asked for; by
retention (cleanup.policy=delete); and on the destination of a mirror that keeps offsets, up to
where its source begins. Every other move is a loss. No other check would notice it, because none
looks for records below a log start.

Retention deletes segments whose newest record is older than retention.ms, and segments without
which at least retention.bytes remain (`UnifiedLog.deleteOldSegments`). It deletes entire segments,
so no broker keeps a batch below such a log start. A segment must have ended at the log start: it
was full, it was older than segment.ms, or the whole log had expired. The ends of segments are not
recorded, but a log may be too small and too new for any segment to have ended. Each broker applies
retention by itself, so every replica is compared with the same reasons. The limits are those of the
scenario's topics and brokers, else Kafka's defaults. A mirror may or may not copy the topic's
settings to its destination; sampled settings count too. If the remaining bytes were deleted later,
their size is unknown, and retention by size is accepted. Copied logs do not show the reason of a
deletion, and are not examined.

A record's age follows from its timestamp, which its producer chooses unless the topic has
message.timestamp.type=LogAppendTime: retention deletes a record dated last year at once, and keeps
one dated next year. The timestamp is that of another copy of the record. Without a copy, it is the
time of the send, if a broker or one of linkflap's workloads set the timestamp. Users' clients may
set any timestamp: then the remaining records show how old theirs may be, or the age is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Examined, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.generations import (
    BY_BROKERS,
    generations,
    of_own_clients,
    settings_on,
    timestamp_types,
)
from linkflap.spark_verify.checks.log_model.logs import locate
from linkflap.spark_verify.facts.eras import FOREVER, history, skew
from linkflap.spark_verify.facts.view import Ints, PartitionView, Replica

COORDINATORS: Final = ("__consumer_offsets", "__transaction_state")
"""Topics that Kafka compacts, and never deletes the beginning of."""
_LATER: Final = 1_000_000_000
"""A log may have grown by what a sample shows that is taken this much later."""
_DAYS: Final = 168 * 3600 * 1000
"""log.retention.hours and log.roll.hours by default."""
_DISKLESS: Final = "diskless.enable"
"""A topic without a log on disk (KIP-1163)."""
_INDEX: Final = 1 << 20
"""log.index.size.max.bytes of linkflap's brokers (`harness.runtimes.kraft`); Kafka's is more."""
_RETRIED: Final = 120_000
"""Milliseconds by which a batch's timestamp may precede its append (delivery.timeout.ms)."""
_LARGEST: Final = 1_048_588
"""message.max.bytes by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The log start that a broker reported between `asked` and `returned`. `replica`: the captured
    replica that shows it. `leads`: a leader reported it."""

    cluster: str
    broker: int
    asked: int
    returned: int
    offset: int
    leads: bool = False
    replica: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of retention: the age in milliseconds and the size in bytes of what stays (-1: no
    limit); the age and size at which a segment ends; `largest`: the size of the largest batch."""

    milliseconds: int
    size: int
    segment_milliseconds: int
    segment_size: int
    largest: int


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Asks for the reason of every move of a log start, on every cluster and replica."""
    if not view.recorded or (view.internal and view.topic not in COORDINATORS):
        return
    starts = [*_starts(view)]
    for cluster in sorted({start.cluster for start in starts}):
        mine = [start for start in starts if start.cluster == cluster]
        yield from _examined(view, cluster, len(mine))
        yield from _unexplained(view, mine, starts)


def _examined(view: PartitionView, cluster: str, count: int) -> Iterator[Examined]:
    known = () if view.internal else generations(view).get(cluster, ())
    for era in known[-1].eras if known else ():
        yield Examined(
            cluster=cluster,
            origin=era.origin,
            count=count,
            generation=known[-1].number,
            start=era.start,
        )


def _starts(view: PartitionView) -> Iterator[LogStart]:
    """Every sampled or captured log start, by time; captured ones without a time come last."""
    found: list[LogStart] = []
    for cluster, marks in view.watermarks.items():
        columns = (marks.leader, marks.time, marks.returned, marks.log_start)
        found += [
            LogStart(cluster=cluster, broker=b, asked=a, returned=r, offset=o, leads=True)
            for b, a, r, o in zip(*(column.tolist() for column in columns), strict=True)
            if o >= 0
        ]
    found += [
        LogStart(
            cluster=s.cluster,
            broker=s.broker,
            asked=s.asked,
            returned=s.returned,
            offset=s.log_start,
        )
        for s in view.replica_samples
        if s.log_start >= 0
    ]
    for replica in (*view.earlier, *view.replicas):
        if 0 < replica.log_start <= replica.since:
            continue  # the start of the capture, which is not the start of the log
        at = replica.captured or view.ended
        found.append(
            LogStart(
                cluster=replica.cluster,
                broker=replica.broker,
                asked=at,
                returned=at,
                offset=replica.log_start,
                replica=replica,
            )
        )
    yield from sorted(found, key=lambda start: start.returned)


def _unexplained(
    view: PartitionView, mine: Sequence[LogStart], starts: Sequence[LogStart]
) -> Iterator[Found | Unjudged]:
    """The moves of one cluster's log start that are unexplained, or whose explanation is uncertain;
    one finding per move, however many replicas show it."""
    known, last = _first(view, mine), 0
    for start in mine:
        if start.offset > known:
            explained = _explained(view, start, known, last, starts)
            if explained is None:
                yield Unjudged(
                    f"{view.tp} on {start.cluster} begins at {start.offset} instead of {known}; "
                    "retention may have deleted what was there, and nobody knows its bytes, or "
                    "the timestamps that users' clients gave to it"
                )
            elif not explained:
                yield _found(view, start, known)
            known = start.offset
        elif start.leads:
            # A leader that had not heard of a deletion, or the log of a topic that was made anew.
            known = start.offset
        last = max(last, start.asked)


def _first(view: PartitionView, mine: Sequence[LogStart]) -> int:
    """The first log start: 0; for one of Kafka's own topics in a round of a soak, the start of the
    round; for a topic that existed before the run, the first reported start, but not above any
    offset that was acknowledged or read."""
    cluster = mine[0].cluster
    if view.internal:
        return max((r.since for r in view.replicas if r.cluster == cluster), default=0)
    if cluster != view.home:
        return 0
    shown = [
        int(offsets[offsets >= 0].min())
        for offsets in (
            *(send.offsets for send in view.sends if send.cluster == cluster),
            *(read.offsets for read in view.reads if read.cluster == cluster),
        )
        if (offsets >= 0).any()
    ]
    return min([mine[0].offset, *shown])


def _explained(
    view: PartitionView, start: LogStart, known: int, last: int, starts: Sequence[LogStart]
) -> bool | None:
    """Whether a move is explained: by DeleteRecords, by the source's log start, or by retention;
    None if unknown."""
    if any(
        d.asked <= start.returned and d.offset == start.offset
        for d in view.deletions
        if d.cluster == start.cluster
    ):
        return True
    if _followed(view, start, last, starts):
        return True
    limits = _limits(view, start.cluster)
    if not limits or _kept_below(view, start):
        return False
    limits = [limit for limit in limits if _segment_ended(view, start, known, limit)]
    reached = {_too_much(view, start, limit.size) for limit in limits}
    reached |= {_too_old(view, start, known, limit.milliseconds) for limit in limits}
    return True if True in reached else None if None in reached else False


def _followed(view: PartitionView, start: LogStart, last: int, starts: Sequence[LogStart]) -> bool:
    """Whether the log of a source began at this offset or later by then, while the cluster mirrored
    it."""
    if view.internal or not view.guarantee.offsets_kept:
        return False
    sources = {
        r.source
        for r in history(view.partition_facts).mirrored_ranges
        if r.destination == start.cluster and r.began <= start.returned and last <= r.ended
    }
    return any(_began(view, source, start.returned, starts) >= start.offset for source in sources)


def _began(view: PartitionView, cluster: str, time: int, starts: Sequence[LogStart]) -> int:
    """The highest log start that is possible at a time: that of the next sample, or that of
    requested deletions."""
    theirs = [start for start in starts if start.cluster == cluster]
    after = [start.offset for start in theirs if start.asked >= time]
    before = [start.offset for start in theirs if start.asked < time]
    asked = [d.offset for d in view.deletions if d.cluster == cluster and d.asked <= time]
    return max([*before, *after[:1], *asked], default=-1)


def _kept_below(view: PartitionView, start: LogStart) -> bool:
    """Whether brokers that begin there have batches below it, or one that begins below it: then no
    segments were deleted, for each begins with a batch."""
    held = [
        r
        for r in view.replicas
        if r.cluster == start.cluster and r.log_start == start.offset and not r.damage
    ]
    return bool(held) and all((r.batches.base_offset < start.offset).any() for r in held)


def _segment_ended(view: PartitionView, start: LogStart, known: int, limit: Limits) -> bool:
    """Whether a segment can have ended at a log start: it was full, it was begun long before the
    next record was written, or the whole log had expired. Unknown are the settings of brokers that
    linkflap did not start, and timestamps of users' clients."""
    if view.topology.attached or _given_by_users(view, start.cluster):
        return True
    off = 2 * skew(view.windows, start.cluster)
    seen = [
        int(marks.time[0]) // 1_000_000 for marks in view.watermarks.values() if len(marks.time)
    ]
    first = min([*_timestamps(view, start, known), *_sent(view, start, known), *seen], default=0)
    if start.returned // 1_000_000 + off - first > limit.segment_milliseconds:
        return True
    if 0 <= limit.milliseconds < _next_written(view, start) + _RETRIED + off - first:
        return True
    return _most_below(view, start, limit.largest) > limit.segment_size


def _next_written(view: PartitionView, start: LogStart) -> int:
    """The timestamp in milliseconds of the first record above a log start; the time when the start
    was seen, if that record is deleted too."""
    follows = {FOREVER: start.returned // 1_000_000}
    for replica in (*view.replicas, *view.earlier):
        b = replica.batches
        there = np.flatnonzero((b.base_offset >= start.offset) & (b.max_timestamp >= 0))[:1]
        if replica.cluster == start.cluster and len(there):
            offset, time = int(b.base_offset[there[0]]), int(b.max_timestamp[there[0]])
            follows[offset] = max(time, follows.get(offset, 0))
    return follows[min(follows)]


def _most_below(view: PartitionView, start: LogStart, largest: int) -> int:
    """How many bytes the log can have had up to a log start, with what was appended next: by the
    batches that a copy has, and of each other offset the largest batch."""
    sizes: dict[int, tuple[int, int]] = {}
    for replica in (*view.replicas, *view.earlier):
        if replica.cluster == start.cluster or view.guarantee.offsets_kept:
            b = replica.batches
            for row in np.flatnonzero(b.base_offset < start.offset).tolist():
                offsets = int(min(b.last_offset[row] + 1, start.offset) - b.base_offset[row])
                _, length = sizes.get(int(b.base_offset[row]), (0, 0))
                sizes[int(b.base_offset[row])] = offsets, max(length, int(b.length[row]))
    unknown = max(0, start.offset - sum(offsets for offsets, _ in sizes.values()))
    return sum(length for _, length in sizes.values()) + (unknown + 1) * largest


def _limits(view: PartitionView, cluster: str) -> Sequence[Limits]:
    """The limits beyond which retention may delete records of this topic; empty if the policy lets
    it delete nothing."""
    brokers = view.brokers_config(cluster)
    if view.internal:
        return []
    return list(
        dict.fromkeys(limit for way in settings_on(view, cluster) for limit in _limit(way, brokers))
    )


def _limit(topic: Mapping[str, str], brokers: Mapping[str, str]) -> Sequence[Limits]:
    policy = topic.get("cleanup.policy", brokers.get("log.cleanup.policy", "delete"))
    if "delete" not in policy:
        return []
    for name, unit in (("ms", 1), ("minutes", 60_000), ("hours", 3_600_000)):
        if (given := _number(brokers, f"log.retention.{name}")) is not None:
            milliseconds = given * unit if given >= 0 else -1
            break
    else:
        milliseconds = _DAYS
    own, size = _number(topic, "retention.ms"), _number(topic, "retention.bytes")
    of_brokers = _number(brokers, "log.retention.bytes")
    size = size if size is not None else -1 if of_brokers is None else of_brokers
    segments = _segments(topic, brokers, policy)
    if topic.get(_DISKLESS) == "true":
        # It deletes single batches, until at most retention.bytes remain.
        segments = {**segments, "segment_size": 0}
        size = max(0, size - segments["largest"]) if size >= 0 else size
    return [
        Limits(milliseconds=milliseconds if own is None else own, size=size, **segments),
    ]


def _segments(
    topic: Mapping[str, str], brokers: Mapping[str, str], policy: str
) -> Mapping[str, int]:
    """When segments end, at the earliest, and the largest batch. A segment is full as well when one
    of its indexes is: it has an entry of 12 bytes for each index.interval.bytes. A cleaner makes
    segments of its own."""

    def setting(name: str, on_brokers: str, default: int) -> int:
        found = _number(topic, name)
        found = _number(brokers, on_brokers) if found is None else found
        return default if found is None else found

    hours = _number(brokers, "log.roll.hours")
    roll = setting("segment.ms", "log.roll.ms", _DAYS if hours is None else hours * 3600 * 1000)
    index = setting("segment.index.bytes", "log.index.size.max.bytes", _INDEX) // 12
    indexed = index * setting("index.interval.bytes", "log.index.interval.bytes", 4096)
    size = min(indexed, setting("segment.bytes", "log.segment.bytes", 1 << 30))
    return {
        "segment_milliseconds": roll - setting("segment.jitter.ms", "log.roll.jitter.ms", 0),
        "segment_size": 0 if "compact" in policy else size,
        "largest": setting("max.message.bytes", "message.max.bytes", _LARGEST),
    }


def _number(settings: Mapping[str, str], name: str) -> int | None:
    try:
        return int(settings[name])
    except (KeyError, ValueError):
        return None


def _too_old(view: PartitionView, start: LogStart, known: int, milliseconds: int) -> bool | None:
    """Whether every deleted record can have been that old; None if unknown."""
    if milliseconds < 0:
        return False
    off, by_users = skew(view.windows, start.cluster), _given_by_users(view, start.cluster)
    oldest_kept = start.returned // 1_000_000 + off - milliseconds
    times = _timestamps(view, start, known)
    times += [] if by_users else [time - off for time in _sent(view, start, known)]
    if times:
        return max(times) <= oldest_kept
    seen = [int(marks.time[0]) for marks in view.watermarks.values() if len(marks.time)]
    if min(seen, default=0) // 1_000_000 <= oldest_kept:
        return True
    left = [r.records.timestamp for r in view.replicas if by_users]
    return any((each <= oldest_kept).any() for each in left) or (None if by_users else False)


def _given_by_users(view: PartitionView, cluster: str) -> bool:
    """Whether users' clients wrote here, which may give records any time unless brokers do that."""
    written = of_own_clients(view) or view.topic in view.partition_facts.facts.programs
    return written and timestamp_types(view, cluster) != {BY_BROKERS}


def _timestamps(view: PartitionView, start: LogStart, known: int) -> list[int]:
    """The timestamps of deleted records in other copies, in milliseconds: by offset in other
    replicas and in copies of an offset-keeping mirror; for acknowledged records by payload id.
    """
    cluster = start.cluster
    truncated = [t.offset for t in view.truncations if t.cluster == cluster]
    below = {cluster: min(truncated, default=FOREVER)}
    if view.guarantee.offsets_kept:
        for copied in history(view.partition_facts).mirrored_ranges:
            if cluster in (ends := {copied.source, copied.destination}):
                (other,) = ends - {cluster}
                below[other] = max(copied.end, below.get(other, 0))
    gone = _acknowledged(view, start, known)
    found: list[int] = []
    for replica in (*view.replicas, *view.earlier):
        r, end = replica.records, min(start.offset, below.get(replica.cluster, 0))
        there = (r.offset >= known) & (r.offset < end)
        if replica.cluster != cluster and BY_BROKERS not in timestamp_types(view, replica.cluster):
            there |= locate(gone, r.uid) >= 0
        found += r.timestamp[there & (r.timestamp >= 0)].tolist()
    return found


def _acknowledged(view: PartitionView, start: LogStart, known: int) -> Ints:
    """The payload ids of deleted records that were acknowledged."""
    found = [
        send.first_uid + np.flatnonzero((send.offsets >= known) & (send.offsets < start.offset))
        for send in view.sends
        if send.cluster == start.cluster
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def _sent(view: PartitionView, start: LogStart, known: int) -> list[int]:
    """The times in milliseconds at which clients began to send the deleted records."""
    return [
        send.invoked // 1_000_000
        for send in view.sends
        if send.cluster == start.cluster
        and ((send.offsets >= known) & (send.offsets < start.offset)).any()
    ]


def _too_much(view: PartitionView, start: LogStart, size: int) -> bool | None:
    """Whether at least `size` bytes can have remained; None if the end of the log is unknown."""
    if size < 0:
        return False
    end = _end(view, start)
    if end is None:
        return None
    sizes: dict[int, tuple[int, int]] = {}
    for replica in (*view.replicas, *view.earlier):
        if replica.cluster == start.cluster or view.guarantee.offsets_kept:
            b = replica.batches
            rows = np.flatnonzero((b.base_offset >= start.offset) & (b.base_offset < end))
            for row in rows.tolist():
                count = int(b.last_offset[row] - b.base_offset[row]) + 1
                sizes[int(b.base_offset[row])] = count, int(b.length[row])
    if sum(count for count, _ in sizes.values()) < end - start.offset:
        return True  # the remaining part was deleted later, so its size is unknown
    if sum(length for _, length in sizes.values()) >= size:
        return True
    return False if _has_sound_copy(view, start.cluster) else None


def _has_sound_copy(view: PartitionView, cluster: str) -> bool:
    """Whether a log of the cluster was read to its end: a damaged one is shorter than it was."""
    return any(r.cluster == cluster and not r.damage for r in view.replicas)


def _end(view: PartitionView, start: LogStart) -> int | None:
    """How far the log can have reached then: up to the high watermark of a sample a little later,
    or up to the captures; None where there is neither, as of a dead cluster whose topics are on no
    disk. A leader appends while its high watermark waits for a follower, so only one that has grown
    since shows how far; a sample without an answer has -1."""
    marks = view.watermarks.get(start.cluster)
    if marks is not None:
        known = marks.high_watermark[marks.time < start.returned].max(initial=-1)
        grown = (marks.time >= start.returned + _LATER) & (marks.high_watermark > known)
        if grown.any():
            return int(marks.high_watermark[grown][0])
    ends = [
        r.end
        for r in (*view.replicas, *view.earlier)
        if r.cluster == start.cluster and r.captured in (0, start.returned)
    ]
    ends += [r.end for r in view.replicas if r.cluster == start.cluster]
    return max(ends, default=None)


def _found(view: PartitionView, start: LogStart, known: int) -> Found:
    evidence: dict[str, object] = {
        "broker": start.broker,
        "log_start": start.offset,
        "before": known,
        "records": start.offset - known,
        "time": start.returned,
        "limits": [
            f"retention.ms={limit.milliseconds}, retention.bytes={limit.size}"
            for limit in _limits(view, start.cluster)
        ],
    }
    if start.replica is not None:
        evidence["capture"] = start.replica.moment
    return Found.at("lost-beginning", start.cluster, known, **evidence)


CHECK = Check(
    name="log-start",
    guarantee="""A log begins later than before only because its records were deleted on request,
        were past the limits of retention, or are gone at the mirror's source.""",
    source="""KIP-107 (DeleteRecords); Kafka documentation, retention.ms and retention.bytes;
        KIP-1279 (a mirror follows its source's log start)""",
    wire="""Offsets that were acknowledged or fetched show what the log had. A program chooses its
        timestamps: where only they could explain a deletion, it is unknown.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="lost-beginning",
            meaning="""A log start offset moved, and nobody had deleted the records below, nor could
                retention: by their timestamps or their size, or because no segment can have ended
                there. Where users' clients chose timestamps that nobody knows, it is unknown. The
                offset is where the log had begun.""",
            sentence="""{tp} on broker {broker} of {cluster} begins at {log_start} instead of
                {before}: nobody had deleted what was there, and retention could not""",
            counted="beginning of a log is lost|beginnings of logs are lost",
            smallest="""A has 1 2 3 and keeps records for a week; in the end its log starts at 2: at
                offset 0.""",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    unit="log starts",
    internal=True,
)
