"""Where records are known by their contents alone, behind a mirror that moves offsets: whether any
way to copy the source leads to what came, and so what may be found there.

Every way is followed record by record. The mirror began among the records that the source has
deleted, of which it had as many as offsets, or among those that are there; it copies in order, and
one that delivers at least once may write again what it has copied. The first records of the
destination may be deleted. Of deleted records the contents are unknown until one of them comes.

If none leads there, a record is lost, strange or out of order. A deleted record that had the
content of one that the source still has is a coincidence: four for each repeat that the source
shows prove nothing, nor do as many as a source of fewer than sixteen records lacks to that. Where
a mirror may have written the source's records again, none of them proves anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.oracles.mirrored_ranges import Compared, may_repeat, mirrored_ranges
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import Story

_FEW = 16
KINDS = (
    "mirror-hole", "mirror-inversion", "mirror-divergence", "mirror-phantom", "mirrored-aborted",
)  # fmt: skip


class _Way(NamedTuple):
    """How far a mirror has come: `deleted` records of the source and `copied` of those that it
    still has; the contents that are `known` of the deleted ones, and how many are `unknown`."""

    deleted: int
    copied: int
    known: frozenset[int]
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copying:
    """One mirrored range by contents; `later`: what the source may have got since it was copied."""

    source: list[int]
    hidden: set[int]
    deleted: int
    came: list[int]
    deleted_there: int
    later: list[bool]
    repeats: bool

    def begins(self) -> set[_Way]:
        """Every way to write what the destination has deleted. In a source of many records it ends
        where the first that is known came."""
        first = next((c for c in self.came if c in self.source), None)
        ways = {
            _Way(n, 0, frozenset(), n if self.repeats else 0)
            for n in range(min(self.deleted, self.deleted_there) + 1)
        }
        for copied in range(min(self.deleted_there, len(self.source)) + 1):
            left = min(self.deleted, self.deleted_there - copied) if self.repeats else 0
            goes_on = self.source[copied : copied + 1] == [first]
            if not self.repeats or goes_on or first is None or len(self.source) < _FEW:
                ways |= {_Way(self.deleted, copied, frozenset(), n) for n in range(left + 1)}
        return ways

    def after(self, way: _Way, index: int) -> Iterator[_Way]:
        """Every way to write the next record."""
        content, known = self.came[index], way.known | {self.came[index]}
        if way.copied > len(self.source) and (self.repeats or self.later[index]):
            yield way
        if way.copied == 0 and way.deleted < self.deleted:
            yield way._replace(deleted=way.deleted + 1, known=known)
        if self.source[way.copied : way.copied + 1] == [content]:
            yield way._replace(copied=way.copied + 1, deleted=self.deleted)
        if way.copied == len(self.source) and self.later[index]:
            yield way._replace(copied=way.copied + 1)
        if self.repeats and content in (*way.known, *self.source[: way.copied]):
            yield way
        elif self.repeats and way.unknown:
            yield way._replace(known=known, unknown=way.unknown - 1)

    def explained(self, coincidences: int) -> bool:
        """Whether a way with at most so many coincidences leads to all that came."""
        ways = self.begins()
        for index in range(len(self.came)):
            ways = {
                after
                for way in ways
                for after in self.after(way, index)
                if len(after.known & {*self.source, *self.hidden}) <= coincidences
            }
        return bool(ways)

    def left_by_cleaners(self, gone: list[int], hidden: list[int], coincidences: int) -> bool:
        """Whether a way that repeats nothing leads to what cleaners left of both logs, of which so
        many offsets are missing before each record: records of the source of unknown contents, and
        copies that the destination had. Per way, how many of the source's records are copied, how
        many of those that are gone before the next, and the coincidences."""
        ways, end = {(0, 0, 0)}, len(self.source)
        for index, content in enumerate(self.came):
            for _ in range(hidden[index]):
                ways |= {(at + 1, 0, k) for at, _, k in ways if at < end}
                ways |= {(at, n + 1, k) for at, n, k in ways if n < gone[at]}
            if self.later[index] and any(at == end for at, _, _ in ways):
                return True
            again = content in (*self.source, *self.hidden)
            ways = {
                (at + 1, 0, k) for at, _, k in ways if [content] == self.source[at : at + 1]
            } | {
                (at, n + 1, k + again)
                for at, n, k in ways
                if n < gone[at] and k + again <= coincidences
            }
        return bool(ways)


def possible(plain: Plain) -> Iterator[tuple[tuple[str, str, int], set[Anomaly], set[Anomaly]]]:
    """Per destination whose records are known by their contents, where these are ambiguous: what
    may be found there, and of what at least one must be found if that is not empty."""
    facts = plain.view.partition_facts.facts
    if plain.keeps or (plain.view.recorded and plain.topic not in facts.programs):
        return
    for compared in mirrored_ranges(plain, Story(plain)):
        cluster = compared.destination.cluster
        if any(end.torn for end in _ends(compared)):
            continue
        if all(compared.generation.sources) and any(s.cluster == cluster for s in plain.sends):
            continue
        copying, offsets = _copying(plain, compared)
        several = _most(copying.source) > 1
        cleaned = any(plain.cleaned(end) for end in _ends(compared))
        most = _coincidences(copying, likely=may_repeat(plain, compared.source.cluster))
        impossible = cleaned and not copying.repeats
        if impossible:
            seen = [r.offset for r in compared.source.records if r.visible]
            gone = _missing(compared.source, seen, 0)
            hidden = _missing(compared.destination, offsets, copying.deleted_there)
            impossible = not copying.left_by_cleaners(gone, hidden, most)
        if cleaned and not (impossible or several or _most(copying.came) > 1):
            continue
        if not (cleaned or copying.deleted or copying.deleted_there or several):
            continue
        there = [r.offset for r in compared.destination.records] + [-1]
        again = {
            plain.anomaly("mirrored-duplicate", cluster, offset)
            for index, offset in enumerate(offsets)
            if copying.came[index] in copying.came[:index] or copying.deleted_there
        }
        wrong = {plain.anomaly(kind, cluster, offset) for kind in KINDS for offset in there}
        where = (cluster, plain.topic, plain.partition)
        if cleaned:
            yield where, again | wrong, again | wrong if impossible else set()
        elif copying.explained(most if copying.deleted else 0):
            yield where, again, set()
        else:
            yield where, again | wrong, wrong if copying.repeats else again | wrong


def _coincidences(copying: _Copying, *, likely: bool) -> int:
    """How many coincidences prove nothing; `likely`: the source's deleted records may be the first
    copies of those that it still has."""
    repeated = len(copying.source) - len(set(copying.source))
    return len(copying.came) if likely else 4 * repeated + max(_FEW - len(copying.source), 0)


def _missing(log: PlainLog, offsets: list[int], since: int) -> list[int]:
    """How many offsets are missing before each of these, and behind them."""
    there = {r.offset for r in log.records} | {
        b.base_offset for b in log.batches if not b.data and b.count
    }
    there = {offset for offset in there if offset >= since}
    begins, ends = [-1, *offsets], [*offsets, max(log.end, since)]
    return [
        sum(offset not in there for offset in range(begin + 1, end))
        for begin, end in zip(begins, ends, strict=True)
    ]


def _ends(compared: Compared) -> Sequence[PlainLog]:
    return compared.source, compared.destination


def _most(contents: list[int]) -> int:
    return max(Counter(contents).values(), default=0)


def _copying(plain: Plain, compared: Compared) -> tuple[_Copying, list[int]]:
    """The copies of each source, and their offsets."""
    source, destination, over = compared.source, compared.destination, compared.mirrored_range
    came = [
        r
        for r in destination.records
        if r.visible and over.start <= r.offset < over.end and r.offset >= destination.log_start
    ]
    seen = [r.digest for r in source.records if r.visible]
    grows = not (plain.view.recorded or source.high_watermark_from == "sampled")
    return _Copying(
        source=seen,
        hidden={r.digest for r in source.records if not r.visible and r.batch.data},
        deleted=source.begins,
        came=[r.digest for r in came],
        deleted_there=destination.log_start,
        later=[grows and (_most(seen) > 1 or r.digest not in seen) for r in came],
        repeats=may_repeat(plain, destination.cluster),
    ), [r.offset for r in came]
