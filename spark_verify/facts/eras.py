"""The owners of a partition over time: eras, log generations and mirrored ranges of every cluster
(made by `facts.lineages`).

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.facts.partition_facts import LogPromotion, Window
from linkflap.spark_verify.facts.view import Origin

FOREVER: Final = 2**62
"""The end, in offsets and in time, of what has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Offsets [start, end) of one cluster's log, all written by clients of `owner` between `began`
    and `ended`.

    `source` is the cluster that they were mirrored from, empty where they are native.
    """

    cluster: str
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
    either (`spark_verify.checks.parts.generations`). `lost` is when a forced failover abandoned the
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
        """Whether this is what the cluster had in the end."""
        return self.ended == FOREVER

    def era(self, offset: int) -> Era:
        """The era that holds an offset."""
        return next((e for e in self.eras if e.start <= offset < e.end), self.eras[-1])

    def native(self, offset: int) -> bool:
        """Whether clients of this cluster wrote what is there."""
        return self.era(offset).origin == "native"


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

    def generation(self, cluster: str, time: int) -> LogGeneration:
        """The generation of a cluster's log at some time; until it is truncated, the one that
        ends."""
        generations = self.generations[cluster]
        return next((one for one in reversed(generations) if one.began <= time), generations[0])


def touches(window: Window, link: str) -> bool:
    """Whether a fault is on this link, on its mirror, or on a broker of either of its ends."""
    return window.target == link or window.on.cluster in LinkSpec.parse(link).ends


def on_cluster(windows_: Sequence[Window], cluster: str) -> Iterator[Window]:
    """The windows of faults on brokers of a cluster."""
    return (w for w in windows_ if w.on.cluster == cluster)


def skew(windows_: Sequence[Window], cluster: str) -> int:
    """By how many milliseconds a clock of a cluster's brokers may be off at most: the fault
    clock-skew sets it less than an hour ahead or behind."""
    skewed = any(w.fault == "clock-skew" for w in on_cluster(windows_, cluster))
    return 3600 * 1000 if skewed else 0
