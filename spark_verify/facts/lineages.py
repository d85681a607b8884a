"""Lineages: the eras, log generations and mirrored ranges of a partition, made by replaying
promotions and reversals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from linkflap.spark_verify.facts.eras import FOREVER, Era, History, LogGeneration, MirroredRange
from linkflap.spark_verify.facts.partition_facts import LogPromotion, PartitionFacts, Window

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
        # LogPromotion offsets of the source are no offsets of a destination that has others.
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
        """`destination`, which was failed over from before, follows the cluster that was promoted
        over its link."""
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
        # What was there before the last truncation had come the way it had come.
        before = {
            (e.owner, e.start): e.source
            for generation in self.generations[cluster]
            for e in generation.eras
            if e.start < generation.truncated_to
        }
        ends = [*(s.start for s in lineage[1:]), FOREVER]
        found = tuple(
            Era(
                cluster=cluster,
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
    """Plays promotions and reversals in time order; of each cluster, when its generations began and
    when that was settled."""
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


def eras(partition_facts: PartitionFacts, cluster: str) -> Sequence[Era]:
    """The eras of a cluster's last log, in offset order, without gaps."""
    generations = history(partition_facts).generations.get(cluster)
    if generations:
        return generations[-1].eras
    return (
        Era(
            cluster=cluster,
            owner=partition_facts.home,
            source=partition_facts.home,
            start=0,
            end=FOREVER,
            began=0,
            ended=FOREVER,
        ),
    )
