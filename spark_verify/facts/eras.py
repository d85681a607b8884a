"""The owners of a partition over time: eras, log generations and mirrored ranges of every cluster,
made by replaying promotions and reversals.

A topic belongs to its home. A promotion (cluster c, offset o) gives everything from o on to c, on c
and on every cluster that mirrors from c. The cluster that was failed over from keeps its log, tail
included, until it follows the new owner (fault `mirror-reverse`). Then it is truncated where the
two histories diverge, and has the new owner's records from there on. So after A->B, and back:

    A   native [0, p1)     mirrored from B [p1, p2)   native [p2, ..)      and, in its first
        generation, a native tail [p1, ..)
    B   mirrored [0, p1)   native [p1, p2)            a mirrored one only once it follows A again

A **log generation** ends with such a truncation. It is judged by a capture of that generation,
because other records have the same offsets in the next one. A **mirrored range** is the part that
one mirror copied over one link from when its destination began to follow until it was promoted.
With a mirror that moves offsets, two histories have no offset in common: a cluster that follows
again is emptied, and gets everything of the new owner, including its own older records:

    A   mirrored from B [0, p2)   native [p2, ..)   and, in its first generation, native throughout
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from linkflap.harness.model.faults import PARTITIONS_ADDED
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.facts.partition_facts import LogPromotion, PartitionFacts, Window
from linkflap.spark_verify.facts.view import Origin

FOREVER: Final = 2**62
"""The end, in offsets and in time, of an era or generation that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Offsets [start, end) of one cluster's log, all written by clients of `owner` between `began`
    and `ended`.

    `source` is the cluster that they were mirrored from, empty where they are native.
    """

    owner: str
    source: str
    start: int
    end: int
    began: int
    ended: int

    @property
    def origin(self) -> Origin:
        """Whether clients wrote it here, or a mirror."""
        return "mirrored" if self.source else "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGeneration:
    """A cluster's log from when it began to follow (or from the start) until it was truncated to
    `truncated_to` to follow another.

    `began` is the time of the truncation before it, as its mirror recorded it, and `settled` the
    time when that was certainly over: the end of the reversal. `ended` is when the next reversal
    began: from then until the next log generation is settled, clients may have got records of
    either (`log_model.generations`). `lost` is when a forced failover abandoned the
    cluster, or it died by itself and stayed dead. `last`: it was never truncated again. `before` is
    the moment of the capture right before that. `earlier` are the offsets of the truncations before
    this generation: records that were acknowledged below one are still there.
    """

    cluster: str
    number: int
    began: int
    ended: int
    truncated_to: int
    before: str
    lost: int | None
    eras: Sequence[Era]
    earlier: Sequence[int] = ()
    settled: int = 0

    @property
    def last(self) -> bool:
        """Whether this is the cluster's last generation."""
        return self.ended == FOREVER

    def era(self, offset: int) -> Era:
        """The era that holds an offset."""
        return next((e for e in self.eras if e.start <= offset < e.end), self.eras[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredRange:
    """Offsets [start, end) of the destination that came over one link, until `promotion` (None: it
    went on to the end).

    `generation` is the number of the destination's generation in which they came,
    `source_generation` that of the source's in which they went. `began` is when the destination's
    log was truncated for it, `settled` when that was over for certain. `far`: over how many links,
    where that is more than one; then only what both ends have is compared.
    """

    source: str
    destination: str
    start: int
    end: int
    began: int
    ended: int
    promotion: LogPromotion | None
    generation: int
    source_generation: int
    far: int = 0
    settled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All generations by cluster, in time order; mirrored ranges by when they began."""

    generations: Mapping[str, Sequence[LogGeneration]]
    mirrored_ranges: Sequence[MirroredRange]


def touches(window: Window, link: str) -> bool:
    """Whether a fault is on this link, on its mirror, or on a broker of either of its ends; or adds
    partitions there, for which MirrorMaker 2 restarts its tasks."""
    ends = LinkSpec.parse(link).ends
    added = window.fault == PARTITIONS_ADDED and window.on.cluster in ends
    broken = any(window in on_cluster([window], end) for end in ends)
    return window.target == link or added or broken


def on_cluster(windows_: Sequence[Window], cluster: str) -> Iterator[Window]:
    """The windows of faults on brokers of a cluster, and not of those that only change topics."""
    return (
        w
        for w in windows_
        if w.on.cluster == cluster and not (w.name.of_clients or w.name.of_topics)
    )


def skew(windows_: Sequence[Window], cluster: str) -> int:
    """The largest error in milliseconds of a clock of the cluster's brokers: the fault clock-skew
    sets clocks less than an hour ahead or behind."""
    skewed = any(w.fault == "clock-skew" for w in on_cluster(windows_, cluster))
    return 3600 * 1000 if skewed else 0


_PARTITIONS: Final = 4096
"""Partitions whose history is cached: more than a run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ownership:
    """The records of a lineage from `start` on were written on `owner`."""

    start: int
    owner: str
    began: int


@dataclass(slots=True)
class _Lineages:
    """The state while events are replayed: lineages, which cluster follows which, and the
    generations that ended so far."""

    keeps: bool
    own: dict[str, tuple[_Ownership, ...]] = field(default_factory=dict)
    follows: dict[str, str] = field(default_factory=dict)
    followed: dict[str, str] = field(default_factory=dict)
    generations: dict[str, list[LogGeneration]] = field(default_factory=lambda: defaultdict(list))
    open: list[MirroredRange] = field(default_factory=list)
    mirrored_ranges: list[MirroredRange] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    ended: dict[tuple[str, int], int] = field(default_factory=dict)

    def lineage(self, cluster: str) -> tuple[_Ownership, ...]:
        """The owner of each range of offsets in a lineage."""
        source = self.follows.get(cluster)
        if source is None:
            return self.own.get(cluster, (_Ownership(start=0, owner=cluster, began=0),))
        through = self.lineage(source)
        if self.keeps:
            return through
        # Promotion offsets of the source mean nothing on a destination with other offsets.
        first = through[0]
        return (replace(first, owner=source) if first.owner == cluster else first,)

    def follow(
        self, source: str, destination: str, start: int, time: int, settled: int = 0
    ) -> None:
        self.follows.setdefault(destination, source)
        self.followed[destination] = source
        self.open.append(
            MirroredRange(
                source=source, destination=destination, start=start, end=FOREVER, began=time,
                ended=FOREVER, promotion=None,
                generation=len(self.generations[destination]),
                source_generation=len(self.generations[source]), settled=settled,
            )
        )  # fmt: skip

    def promote(self, promotion: LogPromotion) -> None:
        cluster, lineage = promotion.cluster, self.lineage(promotion.cluster)
        offset = promotion.offset
        if cluster not in self.follows and lineage[-1].owner == cluster:
            offset = min(offset, lineage[-1].start)
        kept = tuple(s for s in lineage if s.start < offset)
        self.own[cluster] = (*kept, _Ownership(start=offset, owner=cluster, began=promotion.time))
        self.follows.pop(cluster, None)
        if promotion.kind == "forced":
            self.lost.setdefault(promotion.source, promotion.fault_time)
        last = self.lineage(promotion.source)[-1]
        if last.owner == promotion.source:
            self.ended.setdefault((last.owner, last.began), promotion.fault_time)
        for mirrored_range in [c for c in self.open if c.destination == cluster]:
            self.open.remove(mirrored_range)
            self.mirrored_ranges.append(
                replace(
                    mirrored_range, end=offset, ended=promotion.fault_time, promotion=promotion,
                    source_generation=len(self.generations[mirrored_range.source]),
                )
            )  # fmt: skip

    def turn_back(self, source: str, destination: str, window: Window, began: int) -> None:
        """`destination`, which was the source of an earlier failover, now follows the promoted
        cluster."""
        ours, theirs = self.lineage(destination), self.lineage(source)
        truncated_to = _part(ours, theirs) if self.keeps else 0
        self.close(
            destination, ended=window.start, truncated_to=truncated_to, before=f"1-{window.id}"
        )
        self.follows.pop(destination, None)
        self.follow(source, destination, truncated_to, began, window.end)

    def close(
        self, cluster: str, *, ended: int = FOREVER, truncated_to: int = FOREVER, before: str = ""
    ) -> None:
        generations = self.generations[cluster]
        generations.append(
            LogGeneration(
                cluster=cluster, number=len(generations), began=0, ended=ended,
                truncated_to=truncated_to, before=before,
                lost=self.lost.pop(cluster, None), eras=self._eras(cluster),
                earlier=tuple(generation.truncated_to for generation
                in generations),
            )
        )  # fmt: skip

    def _eras(self, cluster: str) -> tuple[Era, ...]:
        lineage = self.lineage(cluster)
        # Records below the last truncation keep their earlier origin.
        before = {
            (e.owner, e.start): e.source
            for generation in self.generations[cluster]
            for e in generation.eras
            if e.start < generation.truncated_to
        }
        ends = [*(s.start for s in lineage[1:]), FOREVER]
        found = tuple(
            Era(
                owner=owned.owner,
                source=(
                    ""
                    if owned.owner == cluster
                    else before.get(
                        (owned.owner, owned.start), self.followed.get(cluster, owned.owner)
                    )
                ),
                start=owned.start,
                end=end,
                began=owned.began,
                ended=self.ended.get((owned.owner, owned.began), FOREVER),
            )
            for owned, end in zip(lineage, ends, strict=True)
            if owned.start < end
        )
        return found


def _part(ours: Sequence[_Ownership], theirs: Sequence[_Ownership]) -> int:
    """The first offset at which two lineages differ."""
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return min(one.start, other.start)
    rest = (*ours[len(theirs) :], *theirs[len(ours) :])
    return rest[0].start if rest else FOREVER


@lru_cache(maxsize=_PARTITIONS)
def history(partition_facts: PartitionFacts) -> History:
    """The generations and mirrored ranges of a partition on every cluster; computed once for each
    partition."""
    lineages = _Lineages(keeps=partition_facts.facts.mirror.guarantee.offsets_kept)
    hops = list(partition_facts.hops())
    for source, destination in hops:
        lineages.follow(source, destination, 0, 0)
    began = _played(partition_facts, lineages)
    clusters = dict.fromkeys(
        (
            partition_facts.home,
            *(d for _, d in hops),
            *(p.cluster for p in partition_facts.promotions),
        )
    )
    for cluster in clusters:
        if cluster in partition_facts.facts.deaths:
            lineages.lost.setdefault(cluster, partition_facts.facts.deaths[cluster])
        lineages.close(cluster)
    generations = {
        cluster: tuple(
            replace(generation, began=time, settled=settled)
            for generation, (time, settled) in zip(
                lineages.generations[cluster], began[cluster], strict=True
            )
        )
        for cluster in clusters
    }
    still = [
        replace(c, source_generation=len(generations[c.source]) - 1)
        for c in lineages.open
        if c.source in generations
    ]
    mirrored_ranges = sorted(
        (*lineages.mirrored_ranges, *still), key=lambda c: (c.began, c.source, c.destination)
    )
    return History(generations=generations, mirrored_ranges=mirrored_ranges)


def _played(
    partition_facts: PartitionFacts, lineages: _Lineages
) -> Mapping[str, list[tuple[int, int]]]:
    """Replays promotions and reversals in time order. Returns, per cluster, the times at which its
    generations began and were settled."""
    reversals = [w for w in partition_facts.facts.windows if w.name.reverses and w.took_effect]
    began: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)])
    steps: list[tuple[int, int, LogPromotion | Window]] = [
        *((p.time, 0, p) for p in partition_facts.promotions),
        *((w.start, 1, w) for w in reversals),
    ]
    for _, _, step in sorted(steps, key=lambda s: s[:2]):
        if isinstance(step, LogPromotion):
            lineages.promote(step)
            continue
        old, new = step.on.source, step.on.destination
        if any(
            p.cluster == new and p.source == old and p.time <= step.start
            for p in partition_facts.promotions
        ):
            time = truncated_at(partition_facts, old, step)
            lineages.turn_back(new, old, step, time)
            began[old].append((time, step.end))
    return began


def truncated_at(partition_facts: PartitionFacts, cluster: str, window: Window) -> int:
    """When the log of a cluster was truncated within a reversal: by its mirror's record, else the
    end of the reversal."""
    times = [
        t.time
        for t in partition_facts.truncations
        if t.cluster == cluster and window.start <= t.time <= window.end
    ]
    return min(times, default=window.end)
