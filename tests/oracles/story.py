"""Log generations: a cluster's log between two truncations, with an owner of every offset; what a
mirror copied over a link; what clients saw of each generation.

`owners[o]` is the cluster that owns offset o, and the time since when it does. A promotion makes a
cluster the owner of the rest of its list. A mirror's destination has the list of its source. A
reversal truncates at the first offset where two lists differ. The last entry also stands for all
later offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from tests.oracles.plain import NEVER, Plain, PlainLog

Owner = tuple[str, int]


@dataclass(slots=True, eq=False)
class PlainGeneration:
    """A cluster's log between two truncations. `sources[o]` is the cluster from which offset o was
    mirrored; empty for the cluster's own records."""

    cluster: str
    number: int
    began: int
    ended: int
    truncated_to: int
    before: str
    lost: int | None
    owners: list[Owner]
    sources: list[str]
    earlier: list[int]
    settled: int = 0

    @property
    def last(self) -> bool:
        return self.ended == NEVER

    def at(self, offset: int) -> int:
        return max(0, min(offset, len(self.owners) - 1))

    def owner(self, offset: int) -> str:
        return self.owners[self.at(offset)][0]

    def native(self, offset: int) -> bool:
        return not self.sources[self.at(offset)]

    def eras(self) -> list[tuple[int, int, Owner, str]]:
        """(start, end, owner, source) of each range."""
        edges = [
            o for o in range(len(self.owners)) if o == 0 or self.owners[o] != self.owners[o - 1]
        ]
        ends = [*edges[1:], NEVER]
        return [(s, e, self.owners[s], self.sources[s]) for s, e in zip(edges, ends, strict=True)]


@dataclass(slots=True, eq=False)
class PlainMirroredRange:
    """The range that one mirror copied over one link: offsets [start, end) of the destination."""

    source: str
    destination: str
    start: int
    end: int
    began: int
    promotion: Any
    source_generation: int
    far: int = 0
    generation: int = 0
    settled: int = 0


def size_of(plain: Plain) -> int:
    """Higher than any offset in use."""
    ends = [r.end for r in (*plain.replicas, *plain.earlier)] + [
        p.offset for p in plain.view.promotions
    ]
    ends += [o for s in plain.sends for o in s.offsets] + [
        o for r in (*plain.reads, *plain.shares) for o in r.offsets
    ]
    return max([*ends, 0]) + 3


def kept(generation: PlainGeneration, offset: int) -> bool:
    """Whether this generation determines the record at an offset: it is below every later
    truncation."""
    return generation.last or not 0 <= offset < generation.truncated_to


Reversal = tuple[int, int, int, int, PlainLog | None, PlainLog | None]
"""When a reversal began, when it truncated the log, and when it ended; the offset it truncated to;
the log before and after."""


def reads_by_log(reads: Sequence[Any], turns: Sequence[Reversal]) -> list[list[Any]]:
    """The reads of one cluster, for each of its logs."""
    found: list[list[Any]] = []
    for began, truncated, ended, _, before, after in turns:
        mine = [r for r in reads if r.returned <= began]
        during = [r for r in reads if r.returned > began and r.time < ended]
        rest = [r for r in reads if r.returned > began and r.time >= ended]
        for who in {(r.reader, r.process) for r in during}:
            rows = sorted(
                (r for r in during if (r.reader, r.process) == who), key=lambda r: r.returned
            )
            parts = _separated(rows, truncated, before, after)
            last = max((row.returned for row, old, _ in parts if old), default=-1)
            for row, old, new in parts:
                # The last poll with records of the old log may return after the truncation: its
                # position may be one of the new log.
                mine += _only(row, old, sure=row.returned < last or row.returned <= truncated)
                rest += _only(row, new)
        found.append(sorted(mine, key=_order))
        reads = sorted(rest, key=_order)
    return [*found, list(reads)]


def _order(read: Any) -> tuple[int, int, str]:
    return read.returned, read.time, read.reader


def _separated(
    rows: Sequence[Any], truncated: int, before: PlainLog | None, after: PlainLog | None
) -> list[Any]:
    """Per row, the indexes of the records from the log before the truncation and of those from the
    log after it ([None]: a row without records)."""
    items = [(row, i) for row in rows for i in (range(len(row.offsets)) or [None])]
    old_ones = [i is not None and _has(before, r, i) and not _has(after, r, i) for r, i in items]
    new_ones = [i is not None and _has(after, r, i) and not _has(before, r, i) for r, i in items]
    proofs = [
        n for n, (r, i) in enumerate(items) if new_ones[n] or (i is None and r.time >= truncated)
    ]
    end = min(proofs, default=len(items))
    late = [n for n, (r, _) in enumerate(items) if r.returned > truncated]
    turn = min(
        [end, max([min(late, default=len(items)), *(n + 1 for n in range(end) if old_ones[n])])]
    )
    return [
        (
            row,
            [i for n, (r, i) in enumerate(items) if r is row and n < turn],
            [i for n, (r, i) in enumerate(items) if r is row and n >= turn],
        )
        for row in rows
    ]


def _has(log: PlainLog | None, row: Any, i: int) -> bool:
    record = None if log is None else log.at(row.offsets[i])
    return (
        record is not None
        and record.uid == row.uids[i]
        and (record.visible or row.isolation != "read_committed")
    )


def _only(row: Any, some: Sequence[int | None], *, sure: bool = True) -> list[Any]:
    """A row with some of its records. Unless its position is `sure`, it becomes the one after these
    records."""
    if not some or some == [None]:
        return [row] if some else []
    if len(some) == len(row.offsets) and sure:
        return [row]
    offsets, uids = ([values[i] for i in some] for values in (row.offsets, row.uids))
    position = row.position if sure and some[-1] == len(row.offsets) - 1 else offsets[-1] + 1
    return [SimpleNamespace(**vars(row) | {"offsets": offsets, "uids": uids, "position": position})]


def marks_by_log(marks: Sequence[Any], turns: Sequence[Reversal]) -> list[list[Any]]:
    """The samples of one cluster, per log that it had."""
    edges, marks = [0], list(marks)
    for began, truncated, ended, truncated_to, _, _ in turns:
        first = next(
            (n for n, m in enumerate(marks) if m.returned > truncated and m.high_watermark >= 0),
            len(marks),
        )
        epoch = marks[first].leader_epoch if first < len(marks) else None
        near = [
            n
            for n, m in enumerate(marks)
            if m.returned > began
            and m.time < ended
            and m.leader_epoch in (epoch, -1)
            and m.high_watermark >= 0
        ]
        falls = [
            n
            for last, n in pairwise(near)
            if max(truncated_to, marks[n].high_watermark) < marks[last].high_watermark
        ]
        known = [n for n, m in enumerate(marks) if m.high_watermark >= 0]
        stood = [
            n
            for n in known
            if first < len(marks)
            and marks[n].high_watermark == marks[first].high_watermark
            and marks[n].leader_epoch == epoch
        ]
        before = [n for n in known if n < first][-1:]
        later = [n for n in known if n > first and n not in stood][:1]
        if first < len(marks) and marks[first].high_watermark <= truncated_to:
            falls = [n for n in falls if n <= first]
        elif (
            later
            and (marks[first].time <= truncated or (before and before[0] in stood))
            and marks[later[0]].time < ended
            and marks[later[0]].high_watermark <= truncated_to
        ):
            falls = later
        falls = [n for n in falls if marks[n].high_watermark <= truncated_to] or falls
        edge = falls[0] if falls and epoch is not None else first
        if edge < len(marks) and marks[edge].time < ended:
            # Only its high watermark was surely read after the truncation.
            unsaid = {"log_start": -1, "last_stable": -1}
            marks[edge] = SimpleNamespace(**vars(marks[edge]) | unsaid)
        edges.append(edge)
    ends = [*edges[1:], len(marks)]
    return [list(marks[start : max(start, end)]) for start, end in zip(edges, ends, strict=True)]


class Story:
    """The generations of every cluster's log, and the mirrored ranges of every link."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._size = size_of(plain)
        self._own: dict[str, list[Owner]] = {}
        self._follows: dict[str, str] = {}
        self._followed: dict[str, str] = {}
        self._lost: dict[str, int] = {}
        self._began: dict[str, tuple[int, int]] = {}
        self._open: list[PlainMirroredRange] = []
        self.generations: dict[str, list[PlainGeneration]] = {}
        self.mirrored_ranges: list[PlainMirroredRange] = []
        self.ended: dict[Owner, int] = {}
        self._tell()

    def _owners(self, cluster: str) -> list[Owner]:
        source = self._follows.get(cluster)
        if source is None:
            return self._own.get(cluster, [(cluster, 0)] * self._size)
        through = self._owners(source)
        if self._plain.keeps:
            return through
        owner, since = through[0]
        return [(source if owner == cluster else owner, since)] * self._size

    def _tell(self) -> None:
        view = self._plain.view
        for source, destination in self._plain.hops:
            self._follow(source, destination, 0, 0)
        steps: list[tuple[int, int, Any]] = [(p.time, 0, p) for p in view.promotions]
        steps += [
            (w.start, 1, w) for w in view.windows if w.fault == "mirror-reverse" and w.took_effect
        ]
        for time, kind, step in sorted(steps, key=lambda s: s[:2]):
            if kind == 0:
                self._promote(step)
                continue
            old, new = step.target.split("->")
            if any(
                p.cluster == new and p.source == old and p.time <= time for p in view.promotions
            ):
                self._turn_back(new, old, step)
        known = [
            self._plain.home,
            *(d for _, d in self._plain.hops),
            *(p.cluster for p in view.promotions),
        ]
        for cluster in dict.fromkeys(known):
            if cluster in view.deaths:
                self._lost.setdefault(cluster, view.deaths[cluster])
            self._close(cluster, NEVER, NEVER, "")
        for mirrored_range in self._open:
            if mirrored_range.source in self.generations:
                mirrored_range.source_generation = len(self.generations[mirrored_range.source]) - 1
                self.mirrored_ranges.append(mirrored_range)
        self.mirrored_ranges.sort(key=lambda c: (c.began, c.source, c.destination))
        self._strangers()

    def _strangers(self) -> None:
        """Clusters to which no link leads: they own no offset."""
        plain = self._plain
        seen = {
            x.cluster
            for rows in (plain.replicas, plain.sends, plain.reads, plain.shares)
            for x in rows
        } | plain.marks.keys()
        for cluster in seen - self.generations.keys():
            owners, sources = [(plain.home, 0)] * self._size, [plain.home] * self._size
            self.generations[cluster] = [
                PlainGeneration(cluster, 0, 0, NEVER, NEVER, "", None, owners, sources, [])
            ]

    def _follow(self, source: str, destination: str, start: int, time: int) -> None:
        self._follows.setdefault(destination, source)
        self._followed[destination] = source
        settled = self._began.get(destination, (0, 0))[1]
        generation = len(self.generations.get(destination, []))
        self._open.append(
            PlainMirroredRange(
                source,
                destination,
                start,
                NEVER,
                time,
                None,
                0,
                generation=generation,
                settled=settled,
            )
        )

    def _promote(self, promotion: Any) -> None:
        cluster, owners, offset = (
            promotion.cluster,
            self._owners(promotion.cluster),
            promotion.offset,
        )
        if cluster not in self._follows and owners[-1][0] == cluster:
            offset = min(offset, owners.index(owners[-1]))
        self._own[cluster] = owners[:offset] + [(cluster, promotion.time)] * (self._size - offset)
        self._follows.pop(cluster, None)
        if promotion.kind == "forced":
            self._lost.setdefault(promotion.source, promotion.fault_time)
        last = self._owners(promotion.source)[-1]
        if last[0] == promotion.source:
            self.ended.setdefault(last, promotion.fault_time)
        for mirrored_range in [c for c in self._open if c.destination == cluster]:
            self._open.remove(mirrored_range)
            mirrored_range.end, mirrored_range.promotion = offset, promotion
            mirrored_range.source_generation = len(self.generations.get(mirrored_range.source, []))
            self.mirrored_ranges.append(mirrored_range)

    def _turn_back(self, source: str, destination: str, window: Any) -> None:
        ours, theirs = self._owners(destination), self._owners(source)
        truncated_to = (
            next((o for o in range(self._size) if ours[o] != theirs[o]), NEVER)
            if self._plain.keeps
            else 0
        )
        self._close(destination, window.start, truncated_to, f"1-{window.id}")
        said = [
            t.time
            for t in self._plain.view.truncations
            if t.cluster == destination and window.start <= t.time <= window.end
        ]
        self._began[destination] = min(said, default=window.end), window.end
        self._follows.pop(destination, None)
        self._follow(source, destination, truncated_to, self._began[destination][0])

    def _close(self, cluster: str, ended: int, truncated_to: int, before: str) -> None:
        mine = self.generations.setdefault(cluster, [])
        owners = list(self._owners(cluster))
        sources = [self._source(cluster, owners, offset) for offset in range(self._size)]
        earlier = [generation.truncated_to for generation in mine]
        (began, settled), lost = self._began.get(cluster, (0, 0)), self._lost.pop(cluster, None)
        mine.append(
            PlainGeneration(
                cluster,
                len(mine),
                began,
                ended,
                truncated_to,
                before,
                lost,
                owners,
                sources,
                earlier,
                settled,
            )
        )

    def _source(self, cluster: str, owners: list[Owner], offset: int) -> str:
        if owners[offset][0] == cluster:
            return ""
        first = owners.index(owners[offset])
        # What was there before the last truncation had come the way it had come.
        for generation in reversed(self.generations.get(cluster, [])):
            if (
                first < generation.truncated_to
                and generation.owners[first][0] == owners[first][0]
                and generation.owners.index(generation.owners[first]) == first
            ):
                return generation.sources[first]
        return self._followed.get(cluster, owners[offset][0])

    def every(self) -> list[PlainGeneration]:
        return [generation for _, mine in sorted(self.generations.items()) for generation in mine]

    def number_at(self, cluster: str, time: int) -> int:
        return max(
            (
                generation.number
                for generation in self.generations[cluster]
                if generation.began <= time
            ),
            default=0,
        )

    def log(self, generation: PlainGeneration) -> PlainLog | None:
        """The captured log of a generation. If it was truncated: the first capture after its
        cluster was lost, else the one before the truncation."""
        if generation.last:
            return self._plain.final(generation.cluster)
        mine = [r for r in self._plain.earlier if r.cluster == generation.cluster]
        if generation.lost is not None:
            taken = [r for r in mine if generation.lost <= r.captured <= generation.ended]
            if taken:
                return min(taken, key=lambda r: r.captured)
        return self.before_truncation(generation)

    def before_truncation(self, generation: PlainGeneration) -> PlainLog | None:
        mine = [r for r in self._plain.earlier if r.cluster == generation.cluster]
        taken = [r for r in mine if r.moment == generation.before] or [
            r for r in mine if generation.began <= r.captured <= generation.ended
        ]
        return max(taken, key=lambda r: r.captured, default=None)

    def end(self, generation: PlainGeneration) -> int:
        """The highest offset at which its log may have ended. Its mirror may have truncated records
        that were never captured."""
        logs = [
            log
            for log in (
                self.log(generation),
                None if generation.last else self.before_truncation(generation),
            )
            if log is not None
        ]
        return int(
            max([0, *(t.end for t in self.truncations(generation)), *(log.end for log in logs)])
        )

    def truncations(self, generation: PlainGeneration) -> list[Any]:
        """The recorded truncations with which a generation ended."""
        times = [
            other.began
            for other in self.generations[generation.cluster]
            if other.number == generation.number + 1
        ]
        return [
            t
            for t in self._plain.view.truncations
            if t.cluster == generation.cluster and t.time in times
        ]

    def source_log(self, mirrored_range: PlainMirroredRange) -> PlainLog | None:
        mine = self.generations[mirrored_range.source]
        return self.log(mine[mirrored_range.source_generation]) or self.log(mine[-1])

    def sends(self, generation: PlainGeneration) -> list[Any]:
        mine = [s for s in self._plain.sends if s.cluster == generation.cluster]
        return [s for s in mine if self.number_at(s.cluster, s.invoked) == generation.number]

    def reads(self, generation: PlainGeneration) -> list[Any]:
        return self._by_log(generation, self._plain.reads)

    def polls(self, generation: PlainGeneration) -> list[Any]:
        """The polls of readers, and the acquisitions of members of share groups."""
        acquired = [
            SimpleNamespace(**vars(r) | {"kind": "poll", "position": -1})
            for r in self._plain.shares
            if r.kind == "acquire"
        ]
        rows = self._by_log(generation, [*self._plain.reads, *acquired])
        return [r for r in rows if r.kind == "poll" and r.offsets]

    def _by_log(self, generation: PlainGeneration, reads: list[Any]) -> list[Any]:
        mine = [r for r in reads if r.cluster == generation.cluster]
        return reads_by_log(mine, self._turns(generation.cluster))[generation.number]

    def marks(self, generation: PlainGeneration) -> list[Any]:
        return marks_by_log(
            self._plain.marks.get(generation.cluster, []), self._turns(generation.cluster)
        )[generation.number]

    def _turns(self, cluster: str) -> list[Reversal]:
        """Every reversal onto a cluster."""
        mine = self.generations[cluster]
        shown = [
            self.log(generation) if generation.last else self.before_truncation(generation)
            for generation in mine
        ]
        numbers = range(len(mine) - 1)
        return [
            (
                mine[n].ended,
                mine[n + 1].began,
                mine[n + 1].settled,
                mine[n].truncated_to,
                shown[n],
                shown[n + 1],
            )
            for n in numbers
        ]

    def stops(self, generation: PlainGeneration) -> list[Any]:
        """The reports of mirrors that ended in a generation."""
        mine = [s for s in self._plain.view.stops if s.cluster == generation.cluster]
        return [s for s in mine if generation.began <= s.time <= generation.ended]
