"""The numbers of a run's timeline: rates and lags over time, fault windows, promotions; from a run
directory alone.

Times are seconds since the run's first moment. Missing or torn parts of the directory are left out:
the verdict, not the picture, reports damage. Histories are read row by row. Only a few numbers of
each row stay in memory: of an operation, when it began, how long it took, and its outcome.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.model.events import (
    BrokerDied,
    ClientCrash,
    ClientDied,
    ClientRestarted,
    ClientsMoved,
    ClientStalled,
    Event,
    Failover,
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    HostStall,
    Interrupted,
    MirrorCrashed,
    MirrorStarted,
    OfFault,
    ProducerReplaced,
    Promotion,
    ProxyRebuilt,
    TopicGivenUp,
    Truncation,
    of_kind,
)
from linkflap.harness.model.history import Operation, Poll, Watermark
from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.rundir import Damage, RunReader

_MOMENTS: Final = 10**18
"""Numbers from here on are nanoseconds since 1970."""
_LATEST: Final = 2 * 10**18
"""Numbers from here on are no times of a run."""


def in_words(value: object) -> str:
    """The value as text, with names before values. Semicolons separate parts that have parts."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        deep = any(isinstance(each, Mapping | list | tuple) for each in value)
        return ("; " if deep else ", ").join(map(in_words, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, int) and _MOMENTS <= value < _LATEST:
        return (
            datetime.fromtimestamp(value / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
        )
    return str(value)


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OUTCOMES: Final = ("ok", "fail", "info")
ENDINGS: Final = ("commit", "abort", "open", "none")
NANO: Final = 1e9
"""Nanoseconds in a second."""


@dataclass(slots=True)
class ReturnedOperations:
    """Returned operations, as columns. `open` has the operations that have not returned yet.

    `clients` are labels of producer incarnations by their number. `ids` maps a cluster's producer
    id and epoch to the number of their incarnation.
    """

    start: array[int] = field(default_factory=lambda: array("q"))
    took: array[int] = field(default_factory=lambda: array("q"))
    process: array[int] = field(default_factory=lambda: array("q"))
    outcome: array[int] = field(default_factory=lambda: array("b"))
    ending: array[int] = field(default_factory=lambda: array("b"))
    cluster: array[int] = field(default_factory=lambda: array("b"))
    number: array[int] = field(default_factory=lambda: array("q"))
    open: dict[int, tuple[int, int, str, str]] = field(default_factory=dict)
    clusters: dict[str, int] = field(default_factory=dict)
    clients: dict[int, str] = field(default_factory=dict)
    ids: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _incarnations: dict[str, int] = field(default_factory=dict)

    def operation(self, row: Operation) -> None:
        """Takes in one of an operation's two rows."""
        if row.process not in self.clients:
            turn = self._incarnations[row.client] = self._incarnations.get(row.client, 0) + 1
            self.clients[row.process] = row.client if turn == 1 else f"{row.client}/{turn}"
        if row.producer_id >= 0:
            self.ids.setdefault((row.cluster, row.producer_id, row.producer_epoch), row.process)
        if row.phase == "invoke":
            self.open[row.number] = (row.time, row.process, row.ending, row.cluster)
        else:
            start = self.open.pop(row.number, (row.time, 0, "", ""))[0]
            self._add(
                start,
                row.time - start,
                row.process,
                row.outcome,
                row.ending,
                row.cluster,
                row.number,
            )

    def _add(
        self,
        start: int,
        took: int,
        process: int,
        outcome: str,
        ending: str,
        cluster: str,
        number: int,
    ) -> None:
        self.start.append(start)
        self.took.append(took)
        self.process.append(process)
        self.outcome.append(OUTCOMES.index(outcome))
        self.ending.append(ENDINGS.index(ending))
        self.cluster.append(self.clusters.setdefault(cluster, len(self.clusters)))
        self.number.append(number)

    def close(self, ended: int) -> None:
        """Gives operations that never returned the outcome info, and lets them last to the end."""
        for number, (start, process, ending, cluster) in self.open.items():
            self._add(start, max(0, ended - start), process, "info", ending, cluster, number)
        self.open.clear()

    def ends(self, number: int) -> int | None:
        """The time when an operation returned; None if it is not known."""
        at = (
            np.flatnonzero(np.frombuffer(self.number, np.int64) == number)
            if len(self.number)
            else np.empty(0)
        )
        return self.start[int(at[0])] + self.took[int(at[0])] if len(at) else None


def label(clients: Mapping[int, str], number: object) -> str:
    """The name of a payload or an operation by its client (`idempotent-5 #3`); empty if the client
    is not known."""
    if not isinstance(number, int) or number < 0 or number >> PROCESS_SHIFT not in clients:
        return ""
    return f"{clients[number >> PROCESS_SHIFT]} #{number & ((1 << PROCESS_SHIFT) - 1)}"


def latency(done: ReturnedOperations, began: int, edges: Floats) -> Mapping[str, Floats]:
    """Median and 99th percentile of the operations that returned ok in each bin, in milliseconds;
    NaN for a bin without any."""
    found = {name: np.full(len(edges) - 1, np.nan) for name in ("p50", "p99")}
    if not len(done.start):
        return found
    took = np.frombuffer(done.took, np.int64) / 1e6
    ended = (np.frombuffer(done.start, np.int64) - began) / NANO + took / 1e3
    ok = np.frombuffer(done.outcome, np.int8) == OUTCOMES.index("ok")
    at = np.searchsorted(edges, ended, side="right") - 1
    for each in np.unique(at[ok & (at >= 0) & (at < len(edges) - 1)]).tolist():
        found["p50"][each], found["p99"][each] = np.percentile(took[ok & (at == each)], [50, 99])
    return found


def errors(done: ReturnedOperations, began: int, edges: Floats) -> Mapping[str, Floats]:
    """Failed operations, and those of unknown outcome, per second in the bin of their return."""
    width = float(edges[1] - edges[0])
    outcome = np.frombuffer(done.outcome, np.int8) if len(done.outcome) else np.empty(0, np.int8)
    start, took = (
        np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)
        for column in (done.start, done.took)
    )
    ended = np.minimum((start + took - began) / NANO, edges[-1])
    return {
        name: np.histogram(ended[outcome == OUTCOMES.index(name)], bins=edges)[0] / width
        for name in ("fail", "info")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWindow:
    """The window of a fault. `bit` is None if nothing was measured. `end` is the end of the run if
    no heal was recorded.

    `bite` and `heal` are the times of their measurements. `lasting`: the fault is never healed,
    like a failover or a broker that stays dead."""

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
    bite: float | None = None
    heal: float | None = None


def windows(events: Sequence[Event], began: int, ended: int) -> list[DrawnWindow]:
    """The windows of all faults that started, in order of their starts."""
    steps: dict[str, list[OfFault]] = defaultdict(list)
    for event in of_kind(events, OfFault):
        steps[event.id].append(event)
    found = [
        _window(of_kind(each, FaultStart)[0], each, began, ended)
        for each in steps.values()
        if of_kind(each, FaultStart)
    ]
    return sorted(found, key=lambda window: window.start)


def _window(start: FaultStart, steps: Sequence[OfFault], began: int, ended: int) -> DrawnWindow:
    bite = next(iter(of_kind(steps, FaultBite)), None)
    heal = next(iter(of_kind(steps, FaultHeal)), None)
    end = next(iter(of_kind(steps, FaultEnd)), None) or heal
    return DrawnWindow(
        id=start.id,
        fault=start.fault,
        target=start.target,
        start=(start.time - began) / NANO,
        end=((end.time if end else ended) - began) / NANO,
        ended=end is not None,
        lasting=start.restores is False,
        bit=bite.bit if bite else None,
        observable=bite.observable if bite else "",
        measured=in_words(bite.measured) if bite else "",
        expected=in_words(bite.expected) if bite else "",
        healed=", ".join(heal.checked) if heal else "",
        bite=(bite.time - began) / NANO if bite else None,
        heal=(heal.time - began) / NANO if heal else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment worth a line. `kind` is that of its event, or `election`."""

    at: float
    label: str
    kind: str = ""


def _label(event: Event) -> str:
    """The label of an event on the time axis; empty for most kinds."""
    match event:
        case BrokerDied():
            return f"broker {event.broker} died"
        case MirrorStarted():
            return f"mirror {event.link} started"
        case MirrorCrashed():
            return f"mirror {event.link} crashed ({event.by})"
        case Truncation():
            return f"{event.cluster} truncated {event.topic}-{event.partition} to {event.offset}"
        case ProxyRebuilt():
            return f"proxies of {event.link} rebuilt"
        case HostStall():
            return f"the host stalled for {event.seconds} s"
        case TopicGivenUp():
            return f"{event.link} gave up {event.topic}"
        case Interrupted():
            return "interrupted"
    return _label_of_clients(event)


def _label_of_clients(event: Event) -> str:
    match event:
        case ClientDied():
            return f"{event.process} died ({event.by})"
        case ClientRestarted():
            return f"{event.process} started again"
        case ClientCrash():
            return f"{event.client} crashed"
        case ClientStalled():
            return f"{event.client} stalled"
        case ProducerReplaced():
            return f"{event.client} replaced"
        case ClientsMoved():
            return f"clients of {event.cluster} moved to {event.to}"
    return ""


def marks(
    events: Sequence[Event], elections: Sequence[tuple[int, str]], began: int, ended: int
) -> list[Mark]:
    """The marks on the time axis: failovers first, then the first promotion of each link without a
    failover (not one per partition), then all other events with a label, and elections."""
    marks: list[Mark] = []
    seen: set[str] = set()
    for event in sorted(events, key=lambda event: not isinstance(event, Failover)):
        at = (event.time - began) / NANO
        match event:
            case Failover():
                marks.append(
                    Mark(at=at, label=f"failover {event.link} ({event.mode})", kind=event.kind)
                )
            case Promotion() if event.link not in seen:
                seen.add(event.link)
                marks.append(Mark(at=at, label=f"{event.cluster} promoted", kind=event.kind))
            case _ if (label := _label(event)) and began <= event.time <= ended:
                marks.append(Mark(at=at, label=label, kind=event.kind))
    # Elections within a second are one mark: a broker that dies led many partitions.
    last = -NANO
    for time, label in sorted(elections):
        if time - last > NANO and began <= time <= ended:
            marks.append(Mark(at=(time - began) / NANO, label=label, kind="election"))
        last = time
    return marks


Key = TypeVar("Key", bound=Hashable)
Levels = Mapping[tuple[str, str, int], tuple[Floats, Floats, Floats]]
_BINS: Final = 160
_MOST_SAMPLES: Final = 400
"""For a partition on one cluster."""
_MOST_OF_ALL: Final = 24_000
"""Samples of all partitions."""
_FEWEST: Final = 8
_FINEST: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The data of the timelines. `at` has the middle of each bin. Rates are per second. Lag is NaN
    where it is unknown.

    `began` is the first moment, in nanoseconds; `latency` is in milliseconds. `damage` lists the
    parts of the history that could not be read.
    """

    length: float
    began: int
    at: Floats
    acknowledged: Mapping[str, Floats]
    read: Mapping[str, Floats]
    lag: Mapping[str, Floats]
    windows: Sequence[DrawnWindow]
    marks: Sequence[Mark]
    latency: Mapping[str, Floats]
    errors: Mapping[str, Floats]
    done: ReturnedOperations
    levels: Levels
    damage: Sequence[Damage]

    @property
    def empty(self) -> bool:
        return not (self.acknowledged or self.read or self.lag or self.windows or self.marks)


class Points(Generic[Key]):
    """Times (nanoseconds) with one number each, by key."""

    def __init__(self) -> None:
        self._columns: dict[Key, tuple[array[int], array[int]]] = defaultdict(
            lambda: (array("q"), array("q"))
        )

    def add(self, key: Key, time: int, number: int) -> None:
        times, numbers = self._columns[key]
        times.append(time)
        numbers.append(number)

    def since(self, began: int) -> Iterator[tuple[Key, Floats, Floats]]:
        """For each key, the seconds since `began`, and the numbers."""
        for key, (times, numbers) in self._columns.items():
            yield (
                key,
                (np.frombuffer(times, np.int64) - began) / NANO,
                np.frombuffer(numbers, np.int64).astype(np.float64),
            )


@dataclass(slots=True)
class DrawnHistory:
    """The numbers that the page draws of a history. `levels` are high watermarks and `stable` last
    stable offsets, by (cluster, topic, partition). `acknowledged` and `read` are counts by cluster.

    `first` and `last` are the times of the first and the last row of any kind, `began` is that of
    the first operation; None while there is none.
    """

    acknowledged: Points[str] = field(default_factory=Points)
    read: Points[str] = field(default_factory=Points)
    levels: Points[tuple[str, str, int]] = field(default_factory=Points)
    stable: Points[tuple[str, str, int]] = field(default_factory=Points)
    done: ReturnedOperations = field(default_factory=ReturnedOperations)
    elections: list[tuple[int, str]] = field(default_factory=list)
    leaders: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    began: int | None = None

    def at(self, time: int) -> None:
        """Notes that a row was written at this time."""
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)

    def operation(self, row: Operation) -> None:
        self.at(row.time)
        self.began = row.time if self.began is None else min(self.began, row.time)
        self.done.operation(row)
        count = sum(run[1] for group in row.sends for run in group.acks)
        # An operation of unknown outcome returned when its client gave up, perhaps long after its
        # cluster died.
        if row.phase == "return" and row.outcome != "info" and count:
            self.acknowledged.add(row.cluster, row.time, count)

    def poll(self, row: Poll) -> None:
        self.at(row.time)
        count = sum(run[2] for fetched in row.fetched for run in fetched.runs)
        if row.kind in ("poll", "drained") and count:
            self.read.add(row.cluster, row.returned, count)

    def watermark(self, row: Watermark) -> None:
        self.at(row.time)
        if row.high_watermark >= 0:
            self.levels.add(
                (row.cluster, row.topic, row.partition), row.returned, row.high_watermark
            )
        if row.last_stable >= 0:
            self.stable.add((row.cluster, row.topic, row.partition), row.returned, row.last_stable)
        self._leader(row)

    def _leader(self, row: Watermark) -> None:
        """Notes an election if the leader is not that of the sample before."""
        key, now = (row.cluster, row.topic, row.partition), (row.leader, row.leader_epoch)
        before = self.leaders.get(key, now)
        if before != now and row.leader >= 0 and before[0] >= 0:
            epoch = f", epoch {row.leader_epoch}" if row.leader_epoch >= 0 else ""
            self.elections.append(
                (
                    row.returned,
                    f"{row.cluster}/{row.leader} leads {row.topic}-{row.partition}{epoch}",
                )
            )
        self.leaders[key] = now


def series(reader: RunReader) -> Series:
    """Reads the run directory."""
    events, damage = reader.events()
    seen = DrawnHistory()
    for operation in reader.each(Operation, damage):
        seen.operation(operation)
    for poll in reader.each(Poll, damage):
        seen.poll(poll)
    for watermark in reader.each(Watermark, damage):
        seen.watermark(watermark)
    began, ended = _bounds(reader, events, seen)
    edges = _edges(began, ended)
    seen.done.close(ended)
    return Series(
        length=(ended - began) / NANO,
        began=began,
        at=(edges[:-1] + edges[1:]) / 2,
        acknowledged=_rates(began, edges, seen.acknowledged),
        read=_rates(began, edges, seen.read),
        lag=_lags(reader.run.scenario.topology, began, edges, seen.levels, events),
        windows=windows(events, began, ended),
        marks=marks(events, seen.elections, began, ended),
        latency=latency(seen.done, began, edges),
        errors=errors(seen.done, began, edges),
        done=seen.done,
        levels=_sampled(seen, began),
        damage=damage,
    )


def _bounds(reader: RunReader, events: Sequence[Event], seen: DrawnHistory) -> tuple[int, int]:
    """The first and the last moment. The timeline begins with the first operation, and leaves out
    the start of clusters and mirrors."""
    times = [
        event.time
        for event in events
        if isinstance(event, FaultStart | FaultEnd | Failover | Promotion)
    ]
    times += [time for time in (seen.first, seen.last) if time is not None]
    if not times:
        return reader.run.started, max(reader.run.ended, reader.run.started + int(NANO))
    first = min(times) if seen.began is None else seen.began
    return first, max(*times, first + int(NANO / 10))


def _edges(began: int, ended: int) -> Floats:
    length = (ended - began) / NANO
    return np.linspace(0.0, length, num=max(2, min(_BINS, int(length / _FINEST)) + 1))


def _rates(began: int, edges: Floats, counted: Points[str]) -> dict[str, Floats]:
    """For each cluster, counts per second in each bin."""
    width = float(edges[1] - edges[0])
    rates = {
        cluster: np.histogram(times, bins=edges, weights=counts)[0] / width
        for cluster, times, counts in counted.since(began)
    }
    return dict(sorted(rates.items()))


def _lags(
    topology: Topology,
    began: int,
    edges: Floats,
    samples: Points[tuple[str, str, int]],
    events: Sequence[Event],
) -> dict[str, Floats]:
    """For each link, the source's high watermarks less the destination's, summed over the topics of
    the link.

    Offsets, not records: a mirror that does not keep offsets (markers are not mirrored) shows its
    offset difference as lag. From a link's failover on there is no lag to tell.
    """
    levels = _levels(began, edges, samples)
    found: dict[str, Floats] = {}
    for link in topology.links:
        homes = topology.named(*topology.homes_over(link))
        total: Floats | None = None
        for (cluster, topic, partition), source in levels.items():
            there = levels.get((link.destination, topic, partition))
            if cluster == link.source and is_data_topic(topic, homes) and there is not None:
                behind = np.maximum(source - there, 0.0)
                total = behind if total is None else total + behind
        if total is not None:
            over = [
                (e.time - began) / NANO for e in of_kind(events, Failover) if e.link == link.name
            ]
            total[edges[1:] > min(over, default=np.inf)] = np.nan
            found[link.name] = total
    return found


def _levels(
    began: int, edges: Floats, samples: Points[tuple[str, str, int]]
) -> dict[tuple[str, str, int], Floats]:
    """For each (cluster, topic, partition), the last high watermark known at the end of each bin;
    NaN before the first sample."""
    levels: dict[tuple[str, str, int], Floats] = {}
    for key, times, high in samples.since(began):
        order = np.lexsort((high, times))
        last = np.searchsorted(times[order], edges[1:], side="right")
        levels[key] = np.where(last > 0, high[order][last - 1], np.nan)
    return levels


def _sampled(seen: DrawnHistory, began: int) -> Levels:
    """For each partition of a cluster: seconds, high watermarks and last stable offsets, at each
    change of one of them."""
    stable = {key: (times, values) for key, times, values in seen.stable.since(began)}
    found: dict[tuple[str, str, int], tuple[Floats, Floats, Floats]] = {}
    every = list(seen.levels.since(began))
    most = min(_MOST_SAMPLES, max(_FEWEST, _MOST_OF_ALL // max(1, len(every))))
    for key, times, high in every:
        order = np.argsort(times, kind="stable")
        times, high = times[order], high[order]
        their_times, values = stable.get(key, (times[:0], times[:0]))
        at = np.searchsorted(np.sort(their_times), times, side="right")
        low = (
            np.where(at > 0, values[np.argsort(their_times, kind="stable")][at - 1], -1.0)
            if len(values)
            else high * 0 - 1
        )
        changed = np.flatnonzero(np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1])))
        chosen = changed[
            np.unique(np.linspace(0, len(changed) - 1, min(len(changed), most)).astype(np.int64))
        ]
        found[key] = (times[chosen], high[chosen], low[chosen])
    return found
