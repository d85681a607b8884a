"""The lives of a partition's logs (`spark_verify.facts.eras`) with the bytes that show each, and what clients did in each.

The last life is shown by what the cluster had in the end. An earlier one, which was cut, by the capture next to the forced
failover that gave the cluster up, else by the one right before the cut. Of an earlier life only what is behind the cut is judged:
what is below it is still there, and is judged in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, Found
from linkflap.spark_verify.checks.parts.logs import Log, read
from linkflap.spark_verify.checks.parts.reversals import Turn, by_generation, sampled, turns
from linkflap.spark_verify.facts.eras import FOREVER, Era, History, Life, history
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.story import Truncation
from linkflap.spark_verify.facts.view import DATA, Bools, Ints, PartitionView, Read, Replica, Watermarks


def lives(view: PartitionView) -> Mapping[str, Sequence[Life]]:
    """Per cluster its lives in time order, of clusters too that no link leads to and that somebody wrote to or read from."""
    told = history(view.story).lives
    seen = {r.cluster for r in view.replicas} | Sends.of(view.sends).said("cluster") | {r.cluster for r in view.reads}
    strangers = sorted((seen | view.watermarks.keys()) - told.keys())
    return {**told, **{cluster: (_stranger(view, cluster),) for cluster in strangers}}


def _stranger(view: PartitionView, cluster: str) -> Life:
    owner = view.home
    era = Era(cluster=cluster, owner=owner, source=owner, start=0, end=FOREVER, began=0, ended=FOREVER)
    return Life(cluster=cluster, number=0, began=0, ended=FOREVER, cut=FOREVER, before="", lost=None, eras=(era,))


def every(view: PartitionView) -> Iterator[Life]:
    """All lives, by cluster and time."""
    for _, mine in sorted(lives(view).items()):
        yield from mine


def replica_of(view: PartitionView, life: Life) -> Replica | None:
    """The replica that shows a life; None where none was captured."""
    if life.last:
        return view.canonical().get(life.cluster)
    if life.lost is not None:
        taken = [r for r in view.earlier if r.cluster == life.cluster and life.lost <= r.captured <= life.ended]
        if taken:
            return min(taken, key=lambda r: r.captured)
    return before_cut(view, life)


def before_cut(view: PartitionView, life: Life) -> Replica | None:
    """The last that was captured of a life before it was cut."""
    named = [r for r in view.earlier if r.cluster == life.cluster and r.moment == life.before]
    taken = named or [r for r in view.earlier if r.cluster == life.cluster and life.began <= r.captured <= life.ended]
    return max(taken, key=lambda r: r.captured, default=None)


def end_of(view: PartitionView, life: Life) -> int:
    """The offset that the log of a life ended at, or at the furthest: of one that was truncated also as its mirror wrote down.

    A cluster that is started to be truncated may append to its log once more after its capture: markers of its coordinator.
    """
    shown = [replica_of(view, life), None if life.last else before_cut(view, life)]
    told = [t.end for t in truncated(view, life)]
    return max([*(replica.end for replica in shown if replica is not None), *told], default=0)


def truncated(view: PartitionView, life: Life) -> Sequence[Truncation]:
    """What is written down of the truncation with which a life ended."""
    times = [following.began for following in lives(view)[life.cluster] if following.number == life.number + 1]
    return [t for t in view.truncations if t.cluster == life.cluster and t.time in times]


def log_of(view: PartitionView, life: Life) -> Log | None:
    """The log of a life, worked out."""
    replica = replica_of(view, life)
    return None if replica is None else read(replica)


def source_log(view: PartitionView, told: History, cluster: str, number: int) -> Log | None:
    """The log of a numbered life; of one that was not captured, what the cluster had in the end."""
    found = log_of(view, told.lives[cluster][number])
    return found or log_of(view, told.lives[cluster][-1])


def judged(view: PartitionView, judge: Callable[[Life, Log], Sequence[Finding]]) -> Iterator[Finding]:
    """What `judge` finds in every life of which a log was captured, each place once."""
    for life in every(view):
        log = log_of(view, life)
        if log is not None:
            yield from own(life, log.replica, judge(life, log))


def own(life: Life, replica: Replica | None, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings without those that the next life has to answer for; what an earlier capture shows says so."""
    for finding in findings:
        if life.last or not isinstance(finding, Found):
            yield finding
        elif not 0 <= finding.offset < life.cut:
            moment = replica.moment if replica is not None else ""
            yield replace(finding, evidence={**finding.evidence, "capture": moment})


def of_readers(life: Life, replica: Replica | None, findings: Sequence[Finding]) -> Iterator[Finding]:
    """As `own`; but what readers got in a life that was cut nobody else has to answer for, wherever in the log it was."""
    for finding in findings:
        if life.last or not isinstance(finding, Found) or 0 <= finding.offset < life.cut:
            yield finding
        else:
            moment = replica.moment if replica is not None else ""
            yield replace(finding, evidence={**finding.evidence, "capture": moment})


def apart(life: Life, offsets: Ints) -> Ints:
    """A column for `runs`: what lies on both sides of the cut makes no run, for the next life answers for what is below it."""
    return np.asarray(np.arange(len(offsets), dtype=np.int64) + (offsets >= life.cut))


def examined(life: Life, offsets: Ints, *, whole: bool = False) -> Sequence[Examined]:
    """One count per era that holds any of these offsets; of a life that was cut, of what is behind the cut, or `whole`."""
    floor = 0 if life.last or whole else life.cut
    found = []
    for era in life.eras:
        count = int(np.count_nonzero((offsets >= max(era.start, floor)) & (offsets < era.end)))
        if count:
            start = max(era.start, floor)
            found.append(Examined(cluster=life.cluster, origin=era.origin, count=count, life=life.number, start=start))
    return found


def native(life: Life, offsets: Ints) -> Bools:
    """Per offset, whether clients of this cluster wrote it."""
    return np.asarray(eras_of(life, offsets) % 2 == 1)


def eras_of(life: Life, offsets: Ints) -> Ints:
    """Per offset twice the place of its era, plus one where that is native."""
    starts = np.array([e.start for e in life.eras], np.int64)
    place = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
    own_ones = np.array([e.origin == "native" for e in life.eras], np.int64)
    return 2 * place + own_ones[place]


def owners_of(life: Life, offsets: Ints) -> Ints:
    """Per offset a number that stands for the cluster whose clients wrote it; equal for equal owners."""
    names = sorted({e.owner for e in life.eras})
    return np.array([names.index(e.owner) for e in life.eras], np.int64)[eras_of(life, offsets) // 2]


def number_at(view_lives: Sequence[Life], time: int) -> int:
    """The number of the life in which something was asked for; until its log is truncated, of the one that ends."""
    return max((life.number for life in view_lives if life.began <= time), default=0)


def numbers_at(view_lives: Sequence[Life], times: Ints) -> Ints:
    """`number_at` for many times at once."""
    found = np.zeros(len(times), np.int64)
    for life in view_lives:
        found[times >= life.began] = np.maximum(found[times >= life.began], life.number)
    return found


def sends_to(view: PartitionView, cluster: str) -> Sends:
    """What clients sent to a cluster."""
    every = Sends.of(view.sends)
    return every.take(every.says("cluster", cluster))


def sends_of(view: PartitionView, life: Life) -> Sends:
    """What clients sent to a cluster in one of its lives."""
    there = sends_to(view, life.cluster)
    return there.take(numbers_at(lives(view)[life.cluster], there.column("invoked")) == life.number)


def reads_in(view: PartitionView, life: Life) -> Sequence[Read]:
    """What readers of a cluster did in one of its lives; a poll while it was truncated may have a part in two (`reversals`)."""
    return by_generation([r for r in view.reads if r.cluster == life.cluster], _turns(view, life.cluster))[life.number]


def _turns(view: PartitionView, cluster: str) -> Sequence[Turn]:
    """The reversals onto a cluster, each with the logs right before and after it."""
    mine = lives(view)[cluster]
    if len(mine) == 1:
        return ()
    shown = {life.number: replica_of(view, life) if life.last else before_cut(view, life) for life in mine}
    return turns(mine, {number: read(replica) if replica is not None else None for number, replica in shown.items()})


def compacted(view: PartitionView, replica: Replica) -> int:
    """The offset below which a log may lack what its cleaner took: as its broker noted, or, of copied logs, as the bytes tell.

    Nobody but a cleaner leaves a batch with fewer records than offsets.
    """
    batches, noted = replica.batches, view.compacted.get(replica.cluster, 0)
    thinned = (batches.control == DATA) & (batches.count <= batches.last_offset - batches.base_offset) & batches.crc_ok
    if view.recorded or not thinned.any():
        return noted
    return max(noted, int(batches.last_offset[thinned].max()) + 1)


def kept_since(view: PartitionView, read: Read) -> int:
    """The offset below which what a poll saw is still there when a mirror, ending after that, cut its destination and said so.

    What lies above was of another era, which no life of the log shows.
    """
    cuts = [at for stop in view.stops if stop.cluster == read.cluster and read.time <= stop.time for _, at in stop.truncated]
    return min(cuts, default=FOREVER)


def cuts(view: PartitionView, life: Life) -> list[tuple[int, int]]:
    """(time, offset) of what mirrors, beginning or ending inside of a life, said that they cut its log back to.

    What was asked for up to that time may be of what was cut off, which no capture of this life shows.
    """
    told = [(t.time, t.offset) for t in view.truncations if t.cluster == life.cluster]
    told += [(stop.time, at) for stop in view.stops if stop.cluster == life.cluster for _, at in stop.truncated]
    return sorted(each for each in told if life.settled <= each[0] <= life.ended)


def marks_in(view: PartitionView, life: Life) -> Watermarks | None:
    """The samples of one life."""
    marks = view.watermarks.get(life.cluster)
    return None if marks is None else sampled(marks, _turns(view, life.cluster))[life.number]


def maybe_cut(view: PartitionView, life: Life, marks: Watermarks) -> Bools:
    """Per sample of a life, whether it may be of after a mirror, ending later than that, had cut the log.

    When it cut is not written down, only when it had ended. A high watermark above the cut is of before it.
    """
    late = np.zeros(len(marks.time), np.bool_)
    for stop in view.stops:
        cut = [at for end, at in stop.truncated if at < end]
        if cut and stop.cluster == life.cluster and life.began <= stop.time <= life.ended:
            before = marks.time <= stop.time
            whole = np.flatnonzero(before & (marks.high_watermark > max(cut)))
            late |= before & (np.arange(len(late)) > (whole[-1] if len(whole) else -1))
    return late
