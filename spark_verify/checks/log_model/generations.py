"""The log generations of a partition (`spark_verify.facts.eras`), the captured bytes of each, and
the clients' operations in each.

The cluster's last capture shows the last generation. An earlier generation ended with a truncation.
Its log is the capture next to the cluster's forced failover, else the capture right before the
truncation. Only its offsets above the truncation are judged: the log still has everything below,
which the next generation judges.

A reversal truncates the cluster: its brokers start and serve their old log, then the mirror
truncates their logs, then it copies. So a poll or a sample of that time shows either the ending log
generation or the new one. The time of the event `truncation` is not exact: the mirror's journal has
the truncation first, the harness reads it there later, and followers truncate meanwhile. A consumer
also hands over records that it fetched before the truncation.

The content of records decides to which generation they belong. A consumer hands records over in the
order in which it fetched them, so one point in its records separates the old generation from the
new one. By default that point is the recorded truncation. The point is later if records that only
the old generation has follow it (fetched before, handed over after), and earlier if a record that
only the new generation has precedes it. Once a consumer has got a record of the new generation, or
has read the end of the log after the truncation, old records that it still returns cannot be
leftovers: the new generation judges them.

The first sample of the new generation is the first one, in the leader epoch of the recorded
truncation, whose high watermark stepped back from above the truncation. A log may be truncated in
steps, so a step back to the truncation itself is preferred. If no sample stepped back, the new
generation begins with the first sample that was not complete at the recorded time, unless the next
one proves that this was too early. A broker truncates the log first and corrects its high watermark
up to half a second later (`UnifiedLog.truncateTo`). So a sample that was requested after the
truncation and repeats its predecessor may still be of the old generation. The log start and the LSO
of the first sample of a generation were requested before its high watermark, and so perhaps before
the truncation: they are of neither generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np

from linkflap.harness.model.scenario import OWN_PRODUCER
from linkflap.spark_verify.checks.base import Examined, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.logs import Log, each_at, read
from linkflap.spark_verify.facts.eras import FOREVER, Era, History, LogGeneration, history
from linkflap.spark_verify.facts.partition_facts import LogTruncation
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends, consumers
from linkflap.spark_verify.facts.view import DATA, Bools, Ints, PartitionView, Replica, Watermarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """A reversal onto a cluster: its [start, end], the recorded `time` of its truncation to
    `offset`, and the logs before and after."""

    start: int
    end: int
    time: int
    offset: int
    before: Log | None
    after: Log | None


def reversals_between(
    generations: Sequence[LogGeneration], logs: Mapping[int, Log | None]
) -> Sequence[Reversal]:
    """The reversals onto a cluster; `logs` has each generation's log, of an earlier generation as
    it was before its truncation."""
    return [
        Reversal(
            start=generation.ended,
            end=following.settled,
            time=following.began,
            offset=generation.truncated_to,
            before=logs.get(generation.number),
            after=logs.get(following.number),
        )
        for generation, following in pairwise(generations)
    ]


def by_generation(reads: Sequence[Read], reversals: Sequence[Reversal]) -> Sequence[Sequence[Read]]:
    """The rows of one cluster's readers, split by log generation, in the given order; a poll may be
    split between two."""
    found: list[list[Read]] = [[] for _ in range(len(reversals) + 1)]
    rest = list(reads)
    for number, turn in enumerate(reversals):
        rows, rest = rest, []
        unclear: list[Read] = []
        for each in rows:
            (
                found[number]
                if each.returned <= turn.start
                else rest
                if each.time >= turn.end
                else unclear
            ).append(each)
        for old, new in _parted(unclear, turn):
            found[number] += old
            rest += new
    found[-1] += rest
    # Every part goes where its poll was.
    return [sorted(mine, key=attrgetter("returned", "time", "reader")) for mine in found]


def _parted(reads: Sequence[Read], turn: Reversal) -> Iterator[tuple[list[Read], list[Read]]]:
    """Per consumer, its rows before and after it saw the truncation."""
    for rows in consumers(reads):
        index, records = _point(rows, turn)
        old, new = rows[:index], rows[index + 1 :]
        if index < len(rows):
            old += _part(rows[index], slice(0, records))
            new[:0] = _part(rows[index], slice(records, None)) if records else [rows[index]]
        yield old, new


def _part(read: Read, some: slice) -> list[Read]:
    """Some of the records of a poll; nothing where there are none."""
    uids, offsets = read.uids[some], read.offsets[some]
    if not len(uids):
        return []
    return [
        replace(
            read,
            uids=uids,
            offsets=offsets,
            position=read.position if some.stop is None else int(offsets[-1]) + 1,
        )
    ]


def _point(rows: Sequence[Read], turn: Reversal) -> tuple[int, int]:
    """The first row, and the first record in it, at which a consumer saw the new log generation."""
    old, new = _seen(rows, turn)
    point = next((n for n, row in enumerate(rows) if row.returned > turn.time), len(rows)), 0
    end = 0
    for number, row in enumerate(rows):
        start, end = end, end + len(row.uids)
        if row.time >= turn.time and not len(row.uids):
            # the consumer read to the end of the log or was set to an offset: no old records are
            # left
            return min((number, 0), point)
        first = next(iter(np.flatnonzero(new[start:end] & ~old[start:end]).tolist()), end - start)
        left = np.flatnonzero(old[start : start + first] & ~new[start : start + first])
        point = max(point, (number, int(left[-1]) + 1)) if len(left) else point
        if start + first < end:
            return min((number, first), point)
    return point


def _seen(rows: Sequence[Read], turn: Reversal) -> tuple[Bools, Bools]:
    """Per record that was read, whether the log before the truncation has it, and whether the log
    after it has it. If one of the logs is torn, records below the truncation prove nothing."""
    offsets, uids = (
        np.concatenate([getattr(row, name) for row in rows]) for name in ("offsets", "uids")
    )
    committed = np.repeat(
        [row.isolation == "read_committed" for row in rows], [len(row.uids) for row in rows]
    )
    logs = turn.before, turn.after
    shows = (offsets >= turn.offset) | all(log is not None and log.whole for log in logs)
    old, new = (_holds(log, offsets, uids, committed) & shows for log in logs)
    return old, new


def _holds(log: Log | None, offsets: Ints, uids: Ints, committed: Bools) -> Bools:
    """Per record that was read, whether a log has it at that offset and shows it to its reader;
    `committed`: the reader was read_committed.

    A transaction that was open where the logs part may have been committed in one and aborted in
    the other.
    """
    if log is None:
        return np.zeros(len(offsets), np.bool_)
    at = log.holds(offsets, uids)
    return np.asarray((at >= 0) & (each_at(log.visible, at, False) | ~committed))


def sampled(marks: Watermarks, reversals: Sequence[Reversal]) -> Sequence[Watermarks]:
    """The samples of one cluster, by log generation."""
    firsts = [_first_of_the_new(marks, turn) for turn in reversals]
    across = [
        first
        for first, turn in zip(firsts, reversals, strict=True)
        if first < len(marks.time) and marks.time[first] < turn.end
    ]
    marks = replace(
        marks,
        log_start=_without(marks.log_start, across),
        last_stable=_without(marks.last_stable, across),
    )
    edges = [0, *firsts, len(marks.time)]
    return [marks.take(slice(start, max(start, end))) for start, end in pairwise(edges)]


def _without(column: Ints, rows: Sequence[int]) -> Ints:
    """The column with -1 (unknown) in some rows."""
    column = column.copy()
    column[list(rows)] = -1
    return column


def _first_of_the_new(marks: Watermarks, turn: Reversal) -> int:
    """The index of the first sample that is of the new log generation."""
    known = marks.high_watermark >= 0
    first = int(next(iter(np.flatnonzero(known & (marks.returned > turn.time))), len(known)))
    if first >= len(known):
        return first
    within = (marks.returned > turn.start) & (marks.time < turn.end)
    # A sample without a leader epoch belongs to the epoch of the samples around it.
    same = (marks.leader_epoch == marks.leader_epoch[first]) | (marks.leader_epoch < 0)
    rows = np.flatnonzero(within & same & known)
    if marks.high_watermark[first] <= turn.offset:
        rows = rows[rows <= first]
    elif _of_the_old(
        marks, turn, known, first, following := _next(known & _other(marks, first), first)
    ):
        return following
    high = marks.high_watermark[rows]
    fell = np.flatnonzero((high[1:] < high[:-1]) & (high[:-1] > turn.offset))
    # A step back that ends above the truncation counts only if no other step goes further.
    whole = fell[high[fell + 1] <= turn.offset]
    fell = whole if len(whole) else fell
    return int(rows[fell[0] + 1]) if len(fell) else first


def _next(some: Bools, index: int) -> int:
    """The index of the next true row from `index` on, or the length."""
    return int(next(iter(index + 1 + np.flatnonzero(some[index + 1 :])), len(some)))


def _other(marks: Watermarks, index: int) -> Bools:
    """Per sample, whether its high watermark or leader epoch differs from those of one."""
    return np.asarray(
        (marks.high_watermark != marks.high_watermark[index])
        | (marks.leader_epoch != marks.leader_epoch[index])
    )


def _of_the_old(
    marks: Watermarks, turn: Reversal, known: Bools, index: int, following: int
) -> bool:
    """Whether a sample is of the old log generation although it was not complete when the
    truncation was recorded.

    Such a sample was requested before that time or repeats its predecessor, and the next different
    sample, in any leader epoch, is not above the truncation.
    """
    before = np.flatnonzero(known[:index])
    repeats = len(before) > 0 and not _other(marks, index)[before[-1]]
    return (
        following < len(marks.time)
        and bool(repeats or marks.time[index] <= turn.time)
        and bool(marks.time[following] < turn.end)
        and bool(marks.high_watermark[following] <= turn.offset)
    )


def generations(view: PartitionView) -> Mapping[str, Sequence[LogGeneration]]:
    """Per cluster its log generations in time order, including clusters that clients used and no
    link reaches."""
    known = history(view.partition_facts).generations
    seen = (
        {r.cluster for r in view.replicas}
        | Sends.of(view.sends).words("cluster")
        | {r.cluster for r in (*view.reads, *view.shares)}
    )
    strangers = sorted((seen | view.watermarks.keys()) - known.keys())
    return {**known, **{cluster: (_stranger(view, cluster),) for cluster in strangers}}


def _stranger(view: PartitionView, cluster: str) -> LogGeneration:
    era = Era(owner=view.home, source=view.home, start=0, end=FOREVER, began=0, ended=FOREVER)
    return LogGeneration(
        cluster=cluster,
        number=0,
        began=0,
        ended=FOREVER,
        truncated_to=FOREVER,
        before="",
        lost=None,
        eras=(era,),
    )


def every(view: PartitionView) -> Iterator[LogGeneration]:
    """All generations, by cluster and time."""
    for _, mine in sorted(generations(view).items()):
        yield from mine


def replica_of(view: PartitionView, generation: LogGeneration) -> Replica | None:
    """The replica that shows a generation; None where none was captured."""
    if generation.last:
        return view.canonical().get(generation.cluster)
    if generation.lost is not None:
        taken = [
            r
            for r in view.earlier
            if r.cluster == generation.cluster and generation.lost <= r.captured <= generation.ended
        ]
        if taken:
            return min(taken, key=lambda r: r.captured)
    return before_truncation(view, generation)


def before_truncation(view: PartitionView, generation: LogGeneration) -> Replica | None:
    """The last capture of a generation before its truncation."""
    named = [
        r for r in view.earlier if r.cluster == generation.cluster and r.moment == generation.before
    ]
    taken = named or [
        r
        for r in view.earlier
        if r.cluster == generation.cluster and generation.began <= r.captured <= generation.ended
    ]
    return max(taken, key=lambda r: r.captured, default=None)


def captures_of(view: PartitionView, generation: LogGeneration) -> list[Replica]:
    """The replica that shows a generation, and the last one from before it was truncated."""
    last = None if generation.last else before_truncation(view, generation)
    return [r for r in (replica_of(view, generation), last) if r is not None]


def end_of(view: PartitionView, generation: LogGeneration) -> int:
    """The end offset of a generation's log, or its maximum: for a truncated one, also the end that
    its mirror recorded.

    A cluster that is started to be truncated may append to its log once more after its capture:
    markers of its coordinator.
    """
    reported = [t.end for t in truncated(view, generation)]
    return max([*(r.end for r in captures_of(view, generation)), *reported], default=0)


def truncated(view: PartitionView, generation: LogGeneration) -> Sequence[LogTruncation]:
    """The record of the truncation that ended a generation."""
    times = [
        following.began
        for following in generations(view)[generation.cluster]
        if following.number == generation.number + 1
    ]
    return [t for t in view.truncations if t.cluster == generation.cluster and t.time in times]


def replicas_by_log(view: PartitionView, cluster: str) -> Sequence[Sequence[Replica]]:
    """Every capture of a cluster, grouped by log. A cluster that was emptied to follow again with
    other offsets has a new log, whose offsets and leader epochs begin anew."""
    taken = [r for r in (*view.replicas, *view.earlier) if r.cluster == cluster]
    mine = generations(view).get(cluster, ())
    if view.guarantee.offsets_kept or len(mine) < 2:
        return [taken]
    early = {id(r): number_at(mine, r.captured) for r in view.earlier}
    numbers = [early.get(id(r), mine[-1].number) for r in taken]
    return [
        [r for r, number in zip(taken, numbers, strict=True) if number == which]
        for which in sorted(set(numbers))
    ]


def log_of(view: PartitionView, generation: LogGeneration) -> Log | None:
    """The log of a generation, with its transactions and payloads worked out."""
    replica = replica_of(view, generation)
    return None if replica is None else read(replica)


def source_log(view: PartitionView, past: History, cluster: str, number: int) -> Log | None:
    """The log of a generation by number; if that generation was not captured, the cluster's last
    log."""
    found = log_of(view, past.generations[cluster][number])
    return found or log_of(view, past.generations[cluster][-1])


def judged(
    view: PartitionView, judge: Callable[[PartitionView, LogGeneration, Log], Iterable[Finding]]
) -> Iterator[Finding]:
    """The findings of `judge` in every generation with a captured log, one per offset."""
    for generation in every(view):
        log = log_of(view, generation)
        if log is not None:
            yield from own(view, generation, judge(view, generation, log))


def own(
    view: PartitionView,
    generation: LogGeneration,
    findings: Iterable[Finding],
    *,
    of_readers: bool = False,
) -> Iterator[Finding]:
    """The findings that belong to this generation; those of an earlier capture name it. Findings
    below the truncation belong to the next generation. A finding about a reader belongs to the
    generation in which it read, at any offset."""
    replica = replica_of(view, generation)
    for finding in findings:
        if generation.last or not isinstance(finding, Found):
            yield finding
        elif not 0 <= finding.offset < generation.truncated_to:
            moment = replica.moment if replica is not None else ""
            yield replace(finding, evidence={**finding.evidence, "capture": moment})
        elif of_readers:
            yield finding


def not_captured(view: PartitionView, cluster: str) -> Unjudged:
    return Unjudged(f"no log of {cluster} was captured for {view.tp}")


def apart(generation: LogGeneration, offsets: Ints) -> Ints:
    """A column for `runs` that splits runs at the truncation, because the next generation judges
    the part below."""
    return np.asarray(
        np.arange(len(offsets), dtype=np.int64) + (offsets >= generation.truncated_to)
    )


def examined(
    generation: LogGeneration, offsets: Ints, *, whole: bool = False
) -> Iterator[Examined]:
    """One count per era that has any of these offsets; for a truncated generation, of those behind
    the truncation, or of all if `whole`.
    """
    floor = 0 if generation.last or whole else generation.truncated_to
    for era in generation.eras:
        count = int(np.count_nonzero((offsets >= max(era.start, floor)) & (offsets < era.end)))
        if count:
            start = max(era.start, floor)
            yield Examined(
                cluster=generation.cluster,
                origin=era.origin,
                count=count,
                generation=generation.number,
                start=start,
            )


def native(generation: LogGeneration, offsets: Ints) -> Bools:
    """Per offset, whether clients of this cluster wrote it."""
    return np.asarray(eras_of(generation, offsets) % 2 == 1)


def eras_of(generation: LogGeneration, offsets: Ints) -> Ints:
    """Per offset, twice the index of its era, plus one if the era is native."""
    starts = np.array([e.start for e in generation.eras], np.int64)
    index = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
    own_ones = np.array([e.origin == "native" for e in generation.eras], np.int64)
    return 2 * index + own_ones[index]


def promoted_at(view: PartitionView, generation: LogGeneration) -> int:
    """The offset from which this cluster's clients wrote since its last promotion; 0 without such
    records, or if the mirror moves offsets."""
    if not view.guarantee.offsets_kept:
        return 0
    return max((e.start for e in generation.eras[1:] if e.origin == "native"), default=0)


def owners_of(generation: LogGeneration, offsets: Ints) -> Ints:
    """Per offset a number that stands for the cluster whose clients wrote it; equal for equal
    owners."""
    names = sorted({e.owner for e in generation.eras})
    return np.array([names.index(e.owner) for e in generation.eras], np.int64)[
        eras_of(generation, offsets) // 2
    ]


def number_at(known: Sequence[LogGeneration], time: int) -> int:
    """The number of the generation at the time of a request; until the log is truncated, that of
    the ending one."""
    return max((generation.number for generation in known if generation.began <= time), default=0)


def numbers_at(known: Sequence[LogGeneration], times: Ints) -> Ints:
    """`number_at` for many times at once."""
    found = np.zeros(len(times), np.int64)
    for generation in known:
        found[times >= generation.began] = np.maximum(
            found[times >= generation.began], generation.number
        )
    return found


def reversals_onto(view: PartitionView, cluster: str) -> Sequence[Reversal]:
    """The reversals onto a cluster, each with the logs right before and after it."""
    mine = generations(view)[cluster]
    if len(mine) == 1:
        return ()
    shown = {
        generation.number: (
            replica_of(view, generation) if generation.last else before_truncation(view, generation)
        )
        for generation in mine
    }
    return reversals_between(
        mine,
        {
            number: read(replica) if replica is not None else None
            for number, replica in shown.items()
        },
    )


BY_BROKERS: Final = "LogAppendTime"
"""The type of timestamp that a broker gives; else clients do."""


def settings_on(view: PartitionView, cluster: str) -> Sequence[Mapping[str, str]]:
    """The settings that this topic may have had on a cluster."""
    topic = view.partition_facts.facts.topic_config
    sampled = [each.settings for each in view.settings if each.cluster == cluster]
    return [topic, *sampled] if cluster == view.home else [topic, {}, *sampled]


def timestamp_types(view: PartitionView, cluster: str) -> Set[str]:
    """The types of timestamps that this topic may have had on a cluster."""
    default = view.brokers_config(cluster).get("log.message.timestamp.type", "CreateTime")
    return {way.get("message.timestamp.type", default) for way in settings_on(view, cluster)}


def of_own_clients(view: PartitionView) -> bool:
    """Whether users' own code wrote this partition, with clients of `linkflap.deploy`."""
    clients = Sends.of(view.sends).words("client")
    return any(client.startswith(OWN_PRODUCER) for client in clients)


def compacted(view: PartitionView, replica: Replica) -> int:
    """The offset below which a cleaner may have removed records: the broker's checkpoint, or for
    copied logs the bytes show it.

    Only a cleaner leaves a batch with fewer records than offsets.
    """
    batches, noted = replica.batches, view.compacted.get(replica.cluster, 0)
    thinned = (
        (batches.control == DATA)
        & (batches.count <= batches.last_offset - batches.base_offset)
        & batches.crc_ok
    )
    if view.recorded or not thinned.any():
        return noted
    return max(noted, int(batches.last_offset[thinned].max()) + 1)


def thinned_below(view: PartitionView, cluster: str) -> int:
    """The offset below which records may be missing because a cleaner removed them: the cluster's
    own, or before the copy that of a cluster upstream. Where mirrors move offsets, the offset is
    one of the upstream log."""
    theirs = max((view.compacted.get(each, 0) for each in view.upstream(cluster)), default=0)
    if view.guarantee.offsets_kept:
        ranges = history(view.partition_facts).mirrored_ranges
        theirs = min(
            theirs, max((each.end for each in ranges if each.destination == cluster), default=0)
        )
    return max(view.compacted.get(cluster, 0), theirs)


def incomplete(view: PartitionView, log: Log) -> str:
    """Why absence from this log proves nothing; empty when it does."""
    replica = log.replica
    if not log.whole:
        return f"the log of {replica.cluster} is torn, so what is missing may have been there"
    copies = sum(1 for r in view.replicas if r.cluster == replica.cluster)
    if any(replica is r for r in view.earlier):
        return (
            ""
            if replica.leader
            else (f"the leader of {view.tp} on {replica.cluster} is unknown at {replica.moment}")
        )
    brokers = min(
        (c.brokers for c in view.topology.clusters if c.name == replica.cluster), default=1
    )
    if not replica.leader and copies < min(3, brokers):
        return (
            f"the leader of {view.tp} on {replica.cluster} is unknown and not "
            "all its replicas were captured"
        )
    return ""


def sends_to(view: PartitionView, cluster: str) -> Sends:
    """The sends of clients to a cluster."""
    every = Sends.of(view.sends)
    return every.take(every.says("cluster", cluster))


def sends_of(view: PartitionView, generation: LogGeneration) -> Sends:
    """The sends of clients to a cluster in one of its generations."""
    there = sends_to(view, generation.cluster)
    return there.take(
        numbers_at(generations(view)[generation.cluster], there.column("invoked"))
        == generation.number
    )


def reads_in(view: PartitionView, generation: LogGeneration) -> Sequence[Read]:
    """The polls of readers of a cluster in one of its generations; a poll while it was truncated
    may have a part in two (`reversals`)."""
    return _in(view, generation, view.reads)


def polls_in(view: PartitionView, generation: LogGeneration) -> list[Read]:
    """Polls that returned records in one generation: of readers, and of members of share groups,
    which acquired what they returned."""
    acquired = [replace(r, kind="poll", position=-1) for r in view.shares if r.kind == "acquire"]
    return [
        r
        for r in _in(view, generation, [*view.reads, *acquired])
        if r.kind == "poll" and len(r.uids)
    ]


def _in(view: PartitionView, generation: LogGeneration, reads: Sequence[Read]) -> Sequence[Read]:
    return by_generation(
        [r for r in reads if r.cluster == generation.cluster],
        reversals_onto(view, generation.cluster),
    )[generation.number]


def kept_since(view: PartitionView, read: Read) -> int:
    """The offset below which a poll's records are still there although a mirror that ended later
    truncated its destination and recorded that. Records above were of another era, which no
    generation of the log shows.
    """
    offsets = [
        at
        for stop in view.stops
        if stop.cluster == read.cluster and read.time <= stop.time
        for _, at in stop.truncated
    ]
    return min(offsets, default=FOREVER)


def recorded_truncations(view: PartitionView, cluster: str) -> Iterator[tuple[int, int]]:
    """(time, offset) of each truncation of a cluster's log that a mirror recorded when it began or
    ended."""
    yield from ((t.time, t.offset) for t in view.truncations if t.cluster == cluster)
    for stop in view.stops:
        if stop.cluster == cluster:
            yield from ((stop.time, offset) for _, offset in stop.truncated)


def truncations_in(view: PartitionView, generation: LogGeneration) -> list[tuple[int, int]]:
    """The recorded truncations inside a generation.

    Requests up to that time may concern the truncated part, which no capture of this generation
    shows.
    """
    recorded = recorded_truncations(view, generation.cluster)
    return sorted(each for each in recorded if generation.settled <= each[0] <= generation.ended)


def marks_in(view: PartitionView, generation: LogGeneration) -> Watermarks | None:
    """The samples of one generation."""
    marks = view.watermarks.get(generation.cluster)
    return (
        None
        if marks is None
        else sampled(marks, reversals_onto(view, generation.cluster))[generation.number]
    )


def maybe_truncated(view: PartitionView, generation: LogGeneration, marks: Watermarks) -> Bools:
    """Per sample of a generation, whether it may be from after a truncation by a mirror that ended
    later. The time of the truncation is not recorded, only the mirror's end. A high watermark above
    the truncation is from before it.
    """
    late = np.zeros(len(marks.time), np.bool_)
    for stop in view.stops:
        targets = [at for end, at in stop.truncated if at < end]
        if (
            targets
            and stop.cluster == generation.cluster
            and generation.began <= stop.time <= generation.ended
        ):
            before = marks.time <= stop.time
            whole = np.flatnonzero(before & (marks.high_watermark > max(targets)))
            late |= before & (np.arange(len(late)) > (whole[-1] if len(whole) else -1))
    return late


def eras_captured(seen: PartitionView, replica: Replica) -> Sequence[Era]:
    """The eras of a replica's log when it was captured."""
    generations = history(seen.partition_facts).generations.get(replica.cluster, ())
    chosen = [
        *(g for g in generations if g.before and g.before == replica.moment),
        *(g for g in generations if 0 < replica.captured <= g.ended),
        *generations[-1:],
    ]
    return chosen[0].eras if chosen else ()
