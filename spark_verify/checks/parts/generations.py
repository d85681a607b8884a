"""The log generations of a partition (`spark_verify.facts.eras`), the captured bytes of each, and
the clients' operations in each.

The cluster's last capture shows the last generation. An earlier generation ended with a truncation.
The capture next to the forced failover of the cluster shows it, else the one right before the
truncation. Of an earlier generation only offsets above the truncation are judged: everything below
is still there, and is judged in the next generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, Found
from linkflap.spark_verify.checks.parts.logs import Log, read
from linkflap.spark_verify.checks.parts.reversals import Reversal, turns
from linkflap.spark_verify.facts.eras import FOREVER, Era, History, LogGeneration
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.facts.partition_facts import Truncation
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.view import DATA, Bools, Ints, PartitionView, Replica


def generations(view: PartitionView) -> Mapping[str, Sequence[LogGeneration]]:
    """Per cluster its log generations in time order; also of clusters that no link leads to but
    that clients used."""
    known = history(view.partition_facts).generations
    seen = (
        {r.cluster for r in view.replicas}
        | Sends.of(view.sends).words("cluster")
        | {r.cluster for r in (*view.reads, *view.shares)}
    )
    strangers = sorted((seen | view.watermarks.keys()) - known.keys())
    return {**known, **{cluster: (_stranger(view, cluster),) for cluster in strangers}}


def _stranger(view: PartitionView, cluster: str) -> LogGeneration:
    owner = view.home
    era = Era(
        cluster=cluster, owner=owner, source=owner, start=0, end=FOREVER, began=0, ended=FOREVER
    )
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
    """The last that was captured of a generation before it was truncated."""
    named = [
        r for r in view.earlier if r.cluster == generation.cluster and r.moment == generation.before
    ]
    taken = named or [
        r
        for r in view.earlier
        if r.cluster == generation.cluster and generation.began <= r.captured <= generation.ended
    ]
    return max(taken, key=lambda r: r.captured, default=None)


def end_of(view: PartitionView, generation: LogGeneration) -> int:
    """The end offset of a generation's log, or its maximum: for a truncated one, also the end that
    its mirror recorded.

    A cluster that is started to be truncated may append to its log once more after its capture:
    markers of its coordinator.
    """
    shown = [
        replica_of(view, generation),
        None if generation.last else before_truncation(view, generation),
    ]
    reported = [t.end for t in truncated(view, generation)]
    return max([*(replica.end for replica in shown if replica is not None), *reported], default=0)


def truncated(view: PartitionView, generation: LogGeneration) -> Sequence[Truncation]:
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
    if view.mirror.guarantee.offsets_kept or len(mine) < 2:
        return [taken]
    early = {id(r): number_at(mine, r.captured) for r in view.earlier}
    numbers = [early.get(id(r), mine[-1].number) for r in taken]
    return [
        [r for r, number in zip(taken, numbers, strict=True) if number == which]
        for which in sorted(set(numbers))
    ]


def log_of(view: PartitionView, generation: LogGeneration) -> Log | None:
    """The log of a generation, worked out."""
    replica = replica_of(view, generation)
    return None if replica is None else read(replica)


def source_log(view: PartitionView, past: History, cluster: str, number: int) -> Log | None:
    """The log of a numbered generation; of one that was not captured, what the cluster had in the
    end."""
    found = log_of(view, past.generations[cluster][number])
    return found or log_of(view, past.generations[cluster][-1])


def judged(
    view: PartitionView, judge: Callable[[LogGeneration, Log], Sequence[Finding]]
) -> Iterator[Finding]:
    """What `judge` finds in every generation of which a log was captured, each place once."""
    for generation in every(view):
        log = log_of(view, generation)
        if log is not None:
            yield from own(generation, log.replica, judge(generation, log))


def own(
    generation: LogGeneration, replica: Replica | None, findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Findings without those below the truncation, which the next generation answers for; those of
    an earlier capture name it."""
    for finding in findings:
        if generation.last or not isinstance(finding, Found):
            yield finding
        elif not 0 <= finding.offset < generation.truncated_to:
            moment = replica.moment if replica is not None else ""
            yield replace(finding, evidence={**finding.evidence, "capture": moment})


def apart(generation: LogGeneration, offsets: Ints) -> Ints:
    """A column for `runs`: it splits runs at the truncation, because the next generation answers
    for what is below."""
    return np.asarray(
        np.arange(len(offsets), dtype=np.int64) + (offsets >= generation.truncated_to)
    )


def examined(
    generation: LogGeneration, offsets: Ints, *, whole: bool = False
) -> Sequence[Examined]:
    """One count per era that has any of these offsets; for a truncated generation, of those behind
    the truncation, or of all if `whole`.
    """
    floor = 0 if generation.last or whole else generation.truncated_to
    found = []
    for era in generation.eras:
        count = int(np.count_nonzero((offsets >= max(era.start, floor)) & (offsets < era.end)))
        if count:
            start = max(era.start, floor)
            found.append(
                Examined(
                    cluster=generation.cluster,
                    origin=era.origin,
                    count=count,
                    generation=generation.number,
                    start=start,
                )
            )
    return found


def native(generation: LogGeneration, offsets: Ints) -> Bools:
    """Per offset, whether clients of this cluster wrote it."""
    return np.asarray(eras_of(generation, offsets) % 2 == 1)


def eras_of(generation: LogGeneration, offsets: Ints) -> Ints:
    """Per offset twice the place of its era, plus one where that is native."""
    starts = np.array([e.start for e in generation.eras], np.int64)
    index = np.maximum(np.searchsorted(starts, offsets, side="right") - 1, 0)
    own_ones = np.array([e.origin == "native" for e in generation.eras], np.int64)
    return 2 * index + own_ones[index]


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
    return turns(
        mine,
        {
            number: read(replica) if replica is not None else None
            for number, replica in shown.items()
        },
    )


def compacted(view: PartitionView, replica: Replica) -> int:
    """The offset below which a log may lack what its cleaner took: as its broker noted, or, of
    copied logs, as the bytes tell.

    Nobody but a cleaner leaves a batch with fewer records than offsets.
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
            else (
                f"the leader of {view.topic}-{view.partition} on {replica.cluster} is unknown at "
                f"{replica.moment}"
            )
        )
    brokers = min(
        (c.brokers for c in view.topology.clusters if c.name == replica.cluster), default=1
    )
    if not replica.leader and copies < min(3, brokers):
        return (
            f"the leader of {view.topic}-{view.partition} on {replica.cluster} is unknown and not "
            "all its replicas were captured"
        )
    return ""
