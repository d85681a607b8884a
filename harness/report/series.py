"""What a run's timeline shows, as numbers: rates and lags over time, fault windows, promotions; from a run directory alone.

Times are seconds since the run's first moment. What is missing or torn in the directory is simply not there: the verdict, not
the picture, says what cannot be trusted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.model.history import Event, Operation, Poll, Watermark
from harness.model.topology import Topology
from harness.rundir import Damage, RunReader

Floats = NDArray[np.float64]
_BINS: Final = 160
_FINEST: Final = 0.1
_NANO: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault's window. `bit` is None when nothing was measured; `end` is that of the run where no heal was recorded.

    `lasting` is true of what is never healed, a failover or a broker killed for good.
    """

    id: str
    fault: str
    target: str
    start: float
    end: float
    ended: bool
    lasting: bool
    bit: bool | None
    observable: str
    measured: str
    expected: str
    healed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment worth a line."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Everything drawn. `at` holds the middle of each bin; rates are per second; lag is NaN where nobody knew.

    `damage` is what of the rows could not be read.
    """

    length: float
    at: Floats
    acknowledged: Mapping[str, Floats]
    read: Mapping[str, Floats]
    lag: Mapping[str, Floats]
    windows: Sequence[Window]
    marks: Sequence[Mark]
    damage: Sequence[Damage]

    @property
    def empty(self) -> bool:
        return not (self.acknowledged or self.read or self.lag or self.windows or self.marks)


def series(reader: RunReader) -> Series:
    """Reads the run directory."""
    (events, torn_events), (operations, torn_operations) = reader.events(), reader.operations()
    (polls, torn_polls), (watermarks, torn_watermarks) = reader.polls(), reader.watermarks()
    began, ended = _bounds(reader, events, operations, polls, watermarks)
    edges = _edges(began, ended)
    return Series(
        length=(ended - began) / _NANO,
        at=(edges[:-1] + edges[1:]) / 2,
        acknowledged=_rates(began, edges, _acknowledged(operations)),
        read=_rates(began, edges, _read(polls)),
        lag=_lags(reader.run.scenario.topology, began, edges, watermarks, events),
        windows=windows(events, began, ended),
        marks=_marks(events, began),
        damage=[*torn_events, *torn_operations, *torn_polls, *torn_watermarks],
    )


def _bounds(
    reader: RunReader,
    events: Sequence[Event],
    operations: Sequence[Operation],
    polls: Sequence[Poll],
    watermarks: Sequence[Watermark],
) -> tuple[int, int]:
    """First and last moment. The time before the first client did anything (starting clusters) is not shown."""
    worked = [row.time for rows in (operations, polls, watermarks) for row in rows]
    happened = [event.time for event in events if event.kind in ("fault-start", "fault-end", "failover", "promotion")]
    times = worked + happened
    if not times:
        return reader.run.started, max(reader.run.ended, reader.run.started + int(_NANO))
    return min(times), max(*times, min(times) + int(_NANO / 10))


def _edges(began: int, ended: int) -> Floats:
    length = (ended - began) / _NANO
    return np.linspace(0.0, length, num=max(2, min(_BINS, int(length / _FINEST)) + 1))


def _acknowledged(operations: Iterable[Operation]) -> Iterable[tuple[str, int, int]]:
    for row in operations:
        count = sum(run[1] for group in row.sends for run in group.acks)
        # An operation that nobody knows the end of returned when its client gave up, perhaps long after its cluster died.
        if row.phase == "return" and row.outcome != "info" and count:
            yield row.cluster, row.time, count


def _read(polls: Iterable[Poll]) -> Iterable[tuple[str, int, int]]:
    for poll in polls:
        count = sum(run[2] for fetched in poll.fetched for run in fetched.runs)
        if poll.kind in ("poll", "drained") and count:
            yield poll.cluster, poll.returned, count


def _rates(began: int, edges: Floats, counted: Iterable[tuple[str, int, int]]) -> dict[str, Floats]:
    """Per cluster, counts per second in each bin; of (cluster, nanoseconds, count)."""
    times: dict[str, list[float]] = defaultdict(list)
    counts: dict[str, list[int]] = defaultdict(list)
    for cluster, time, count in counted:
        times[cluster].append((time - began) / _NANO)
        counts[cluster].append(count)
    width = float(edges[1] - edges[0])
    return {
        cluster: np.histogram(times[cluster], bins=edges, weights=np.asarray(counts[cluster], dtype=np.float64))[0] / width
        for cluster in sorted(times)
    }


def _lags(
    topology: Topology, began: int, edges: Floats, watermarks: Sequence[Watermark], events: Sequence[Event]
) -> dict[str, Floats]:
    """Per link, the source's high watermarks less the destination's, summed over the topics that cross it.

    Offsets, not records: a mirror that does not keep offsets (markers are not mirrored) shows its offset difference as lag. From
    a link's failover on there is no lag to tell.
    """
    levels = _levels(began, edges, watermarks)
    found: dict[str, Floats] = {}
    for link in topology.links:
        homes = topology.homes_over(link)
        total: Floats | None = None
        for (cluster, topic, partition), source in levels.items():
            there = levels.get((link.destination, topic, partition))
            if cluster == link.source and topic.partition(".")[0] in homes and there is not None:
                behind = np.maximum(source - there, 0.0)
                total = behind if total is None else total + behind
        if total is not None:
            over = [(e.time - began) / _NANO for e in events if e.kind == "failover" and e.subject == link.name]
            total[edges[1:] > min(over, default=np.inf)] = np.nan
            found[link.name] = total
    return found


def _levels(began: int, edges: Floats, watermarks: Sequence[Watermark]) -> dict[tuple[str, str, int], Floats]:
    """Per (cluster, topic, partition), the last high watermark known at the end of each bin; NaN before the first sample."""
    samples: dict[tuple[str, str, int], list[tuple[float, int]]] = defaultdict(list)
    for row in watermarks:
        if row.high_watermark >= 0:
            samples[row.cluster, row.topic, row.partition].append(((row.returned - began) / _NANO, row.high_watermark))
    levels: dict[tuple[str, str, int], Floats] = {}
    for key, pairs in samples.items():
        pairs.sort()
        last = np.searchsorted([time for time, _ in pairs], edges[1:], side="right")
        levels[key] = np.array([pairs[n - 1][1] if n else np.nan for n in last], dtype=np.float64)
    return levels


def windows(events: Sequence[Event], began: int, ended: int) -> list[Window]:
    """Every fault that started, in order of its start."""
    by_id: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event.kind in ("fault-start", "fault-bite", "fault-heal", "fault-end"):
            by_id[str(event.data.get("id", event.subject))].setdefault(event.kind, event)
    found = [_window(id, seen, began, ended) for id, seen in by_id.items() if "fault-start" in seen]
    return sorted(found, key=lambda window: window.start)


def _window(id: str, seen: Mapping[str, Event], began: int, ended: int) -> Window:
    start = seen["fault-start"]
    end = seen.get("fault-end") or seen.get("fault-heal")
    bite = seen["fault-bite"].data if "fault-bite" in seen else {}
    heal = seen["fault-heal"].data if "fault-heal" in seen else {}
    checked = heal.get("checked")
    return Window(
        id=id,
        fault=str(start.data.get("fault", "")),
        target=start.subject,
        start=(start.time - began) / _NANO,
        end=((end.time if end else ended) - began) / _NANO,
        ended=end is not None,
        lasting=start.data.get("restores") is False,
        bit=bool(bite["bit"]) if "bit" in bite else None,
        observable=str(bite.get("observable", "")),
        measured=str(bite.get("measured", "")),
        expected=str(bite.get("expected", "")),
        healed=", ".join(map(str, checked)) if isinstance(checked, list | tuple) else "",
    )


def _marks(events: Sequence[Event], began: int) -> list[Mark]:
    """Failovers, and the first promotion of each link that has none (one line per link, not one per partition)."""
    marks = [
        Mark(at=(e.time - began) / _NANO, label=f"failover {e.subject} ({e.data.get('kind', '')})")
        for e in events
        if e.kind == "failover"
    ]
    seen: set[str] = set()
    for event in events:
        if event.kind == "promotion" and event.subject not in seen:
            seen.add(event.subject)
            marks.append(Mark(at=(event.time - began) / _NANO, label=f"{event.data.get('cluster', event.subject)} promoted"))
    return marks
