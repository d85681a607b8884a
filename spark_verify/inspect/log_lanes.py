"""The logs of a run as the report draws them: for every data partition one lane per cluster and log
generation, from batch headers.

Headers only, no CRC and no record. A run of more than RAW batches is binned. At most RAW of its
batches are then kept one by one, around anomalies, promotions, truncations, and the beginning and
end of faults. Plain JSON values; columns of numbers, so that it stays small.

Acknowledged commits and their markers: for every transaction whose commit returned ok, and every
partition that it wrote to, the marker that ends it in the log of the cluster that acknowledged it.

From batch headers and the clients' own rows; nothing is judged here. A cluster that was failed over
by force may lack the markers of its last moments (check commit-aborted), and such a commit has no
marker here either. The marker of a transaction is the first one of its producer id behind its
records. A COMMIT behind the first record of that producer's next transaction belongs to that one,
while an ABORT there hides the records of both.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import batches, layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.model.history import Operation
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration, history
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.plan import RunPlan, plan

RAW: Final = 24_000
AROUND: Final = (60, 20, 6, 2)
"""Batches kept on each side of a point of interest. The first of these numbers is used that keeps
at most RAW batches of the run."""
BINS: Final = 320
MOST_BINS: Final = 30_000
"""The limit of all logs together."""
MOST_LOGS: Final = 96
MOST_POINTS: Final = 40
Ints = NDArray[np.int64]


class Bins(TypedDict):
    """Offsets, markers among them, and the last timestamp (ms), per bin of offsets of one width."""

    records: list[int]
    markers: list[int]
    time: list[int]


class LaneEra(TypedDict):
    """Offsets from `start` to before `end`, None: the last era. `owner` wrote them, `source` is
    what it mirrored."""

    start: int
    end: int | None
    owner: str
    source: str


class Lane(TypedDict):
    """One log as it is drawn; the lists from `base` to `time` have an element per drawn batch,
    timestamps in ms."""

    topic: str
    partition: int
    cluster: str
    generation: int
    truncated: int | None
    broker: int
    start: int
    end: int
    high: int
    batches: int
    base: list[int]
    count: list[int]
    kind: list[int]
    producers: list[list[int]]
    who: list[int]
    time: list[int]
    gaps: list[int]
    bins: Bins | None
    eras: list[LaneEra]
    promoted: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePoints:
    """Points of interest: offsets per partition, and times (nanoseconds) for all partitions."""

    offsets: Mapping[TopicPartition, Collection[int]]
    times: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """One log that is drawn: of one partition, cluster and generation."""

    key: TopicPartition
    generation: LogGeneration
    captured: CapturedReplica
    headers: Headers


def lanes_around(root: Path, anomalies: Sequence[Anomaly]) -> Sequence[Lane]:
    """The lanes of a run directory, in detail around its anomalies, promotions, truncations and
    faults."""
    planned = plan(root)
    offsets: dict[TopicPartition, set[int]] = defaultdict(set)
    for anomaly in anomalies:
        seen = offsets[anomaly.topic, anomaly.partition]
        if len(seen) < MOST_POINTS:
            seen |= {
                n
                for n in (anomaly.offset, anomaly.evidence.get("source_offset"))
                if isinstance(n, int) and n >= 0
            }
    for key, partition_facts in planned.partition_facts.items():
        offsets[key] |= {truncation.offset for truncation in partition_facts.truncations}
    times = {time for window in planned.facts.windows for time in (window.start, window.end)}
    return lanes(planned, LanePoints(offsets=offsets, times=times))


def lanes(planned: RunPlan, points: LanePoints) -> Sequence[Lane]:
    """One lane per log, by topic, partition, cluster and generation. The logs are read twice, to
    choose and to draw, so that the headers of only one log are in memory."""
    kept = chosen(drawn_logs(planned), points)
    bins = min(BINS, max(1, MOST_BINS // max(1, len(kept))))
    return [
        _lane(log, planned, rows, bins) for log, rows in zip(drawn_logs(planned), kept, strict=True)
    ]


def drawn_logs(planned: RunPlan) -> Iterator[Drawn]:
    """The headers of every log that is drawn, one log at a time."""
    held: dict[tuple[str, int, str, str], CapturedReplica] = {}
    for captured in (*planned.earlier, *planned.replicas):
        bounds = captured.bounds
        if captured.canonical and planned.judges(bounds.topic):
            moment = "" if captured.last else captured.moment
            held.setdefault((bounds.topic, bounds.partition, bounds.cluster, moment), captured)
    for key in sorted({(topic, partition) for topic, partition, _, _ in held})[:MOST_LOGS]:
        for cluster, generations in sorted(history(planned.facts_of(*key)).generations.items()):
            for generation in reversed(generations):
                replica = held.get((*key, cluster, "" if generation.last else generation.before))
                if replica is not None:
                    paths = [Path(path) for path in replica.paths]
                    yield Drawn(key, generation, replica, batches.scan(paths, sums=False).headers)


def chosen(logs: Iterable[Drawn], points: LanePoints) -> Sequence[Ints | None]:
    """The rows of each log that are drawn one by one: None (all) if the run has no more than RAW;
    else at most RAW around anomalies, promotions, truncations and faults, preferring anomalies to
    faults."""
    worth = (points, LanePoints(offsets=points.offsets))
    counts: list[int] = []
    near: list[list[Ints]] = []
    for log in logs:
        counts.append(len(log.headers))
        near.append([_near(log, each, around) for each in worth for around in AROUND])
    if sum(counts) <= RAW:
        return [None] * len(counts)
    kept: Sequence[Ints] = ()
    for kept in zip(*near, strict=True):
        if sum(map(len, kept)) <= RAW:
            return kept
    share = RAW // len(counts)
    return [
        rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), share)).astype(np.int64))]
        for rows in kept
    ]


def _near(log: Drawn, points: LanePoints, around: int) -> Ints:
    h = log.headers
    offsets = np.array(
        [*points.offsets.get(log.key, ()), *(era.start for era in log.generation.eras)], np.int64
    )
    at = np.searchsorted(np.maximum.accumulate(h.last_offset), offsets) if len(h) else offsets[:0]
    risen = np.maximum.accumulate(h.max_timestamp) if len(h) else h.max_timestamp
    moments = (
        np.searchsorted(risen, np.array([time // 1_000_000 for time in points.times], np.int64))
        if len(h)
        else at
    )
    rows = np.concatenate((at, moments))
    # How many of the neighbourhoods begin here, less those that end here.
    edges = np.zeros(len(h) + 1, np.int64)
    np.add.at(edges, np.clip(rows - around, 0, len(h)), 1)
    np.add.at(edges, np.clip(rows + around, 0, len(h)), -1)
    return np.flatnonzero(np.cumsum(edges[:-1]))


def _lane(log: Drawn, planned: RunPlan, rows: Ints | None, bins: int) -> Lane:
    h, generation, bounds = log.headers, log.generation, log.captured.bounds
    shown = np.arange(len(h)) if rows is None else rows
    mapped = h.control[shown]
    kind = np.select(
        [
            mapped == layout.ABORT,
            mapped == layout.COMMIT,
            mapped != layout.DATA,
            h.transactional[shown],
        ],
        [2, 3, 4, 1],
        0,
    )
    ids, who = np.unique(
        np.stack((h.producer_id[shown], h.producer_epoch[shown]), axis=1),
        axis=0,
        return_inverse=True,
    )
    end = int(h.last_offset.max()) + 1 if len(h) else bounds.log_start
    return {
        "topic": bounds.topic,
        "partition": bounds.partition,
        "cluster": bounds.cluster,
        "generation": generation.number,
        "truncated": None if generation.last else generation.truncated_to,
        "broker": bounds.broker,
        "start": bounds.log_start,
        "end": end,
        "high": bounds.high_watermark,
        "batches": len(h),
        "base": h.base_offset[shown].tolist(),
        "count": (h.last_offset[shown] - h.base_offset[shown] + 1).tolist(),
        "kind": kind.tolist(),
        "producers": ids.tolist(),
        "who": who.ravel().tolist(),
        "time": h.max_timestamp[shown].tolist(),
        # Rows followed by batches that are only counted: a line across these would be a guess.
        "gaps": (
            np.flatnonzero(np.diff(shown, append=len(h)) > 1) if rows is not None else shown[:0]
        ).tolist(),
        "bins": None if rows is None else _bins(h, bounds.log_start, end, bins),
        "eras": [
            {
                "start": era.start,
                "end": None if era.end == FOREVER else era.end,
                "owner": era.owner,
                "source": era.source,
            }
            for era in generation.eras
        ],
        "promoted": [
            p.offset for p in planned.promotions.get(log.key, ()) if p.cluster == bounds.cluster
        ],
    }


def _bins(h: Headers, start: int, end: int, count: int) -> Bins:
    """How many offsets, how many of them markers, and the last timestamp, per bin of offsets."""
    edges = np.linspace(start, max(end, start + 1), count + 1)
    at = np.clip(np.searchsorted(edges, h.base_offset, side="right") - 1, 0, count - 1)
    width = h.last_offset - h.base_offset + 1
    latest = np.zeros(count, np.int64)
    np.maximum.at(latest, at, h.max_timestamp)
    return {
        "records": np.bincount(at, weights=width, minlength=count).astype(np.int64).tolist(),
        "markers": np.bincount(at[h.control != layout.DATA], minlength=count).tolist(),
        "time": latest.tolist(),
    }


NONE, ABORT, COMMIT, UNKNOWN = "none", "ABORT", "COMMIT", "unknown"
MOST: Final = 2_000
"""Commits of each ending that are listed; all of them are counted."""
LogKey = tuple[str, str, int]
"""Cluster, topic, partition."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One acknowledged commit in one partition. `returned` is when it was acknowledged, in
    nanoseconds; `marker` is the offset of its marker and `written` the marker's timestamp in
    milliseconds, -1 where it has none.
    """

    operation: int
    cluster: str
    topic: str
    partition: int
    first: int
    returned: int
    ending: str
    marker: int = -1
    written: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The listed commits, in acknowledgement order; `counted` has the number of all commits, by
    ending."""

    listed: Sequence[Commit] = ()
    counted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The transactions that wrote to one partition, whatever their ending."""

    operation: array[int] = field(default_factory=lambda: array("q"))
    producer: array[int] = field(default_factory=lambda: array("q"))
    first: array[int] = field(default_factory=lambda: array("q"))
    last: array[int] = field(default_factory=lambda: array("q"))
    returned: array[int] = field(default_factory=lambda: array("q"))
    committed: array[int] = field(default_factory=lambda: array("b"))

    def arrays(self) -> Mapping[str, Ints]:
        columns = {
            name: np.array(getattr(self, name), np.int64) for name in self.__dataclass_fields__
        }
        order = np.argsort(columns["first"], kind="stable")
        return {name: column[order] for name, column in columns.items()}


def commits(root: Path) -> Commits:
    """The acknowledged commits of a run directory, with their markers."""
    written = _written(root)
    listed: dict[str, list[Commit]] = defaultdict(list)
    counted: Counter[str] = Counter()

    def follow(key: LogKey, logs: Sequence[Drawn]) -> None:
        for each in _followed(key, written.pop(key, _Columns()).arrays(), logs):
            counted[each.ending] += 1
            if len(listed[each.ending]) < MOST:
                listed[each.ending].append(each)

    # In memory are the headers of one partition on one cluster.
    for key, logs in groupby(drawn_logs(plan(root)), _key):
        follow(key, list(logs))
    for key in list(written):
        follow(key, ())
    every = [each for rows in listed.values() for each in rows]
    return Commits(
        listed=sorted(every, key=lambda each: (each.returned, each.operation)), counted=counted
    )


def _key(log: Drawn) -> LogKey:
    return log.captured.bounds.cluster, *log.key


def _written(root: Path) -> dict[LogKey, _Columns]:
    found: dict[LogKey, _Columns] = defaultdict(_Columns)
    damage: list[Damage] = []
    for row in RunReader(root).each(Operation, damage):
        if row.phase != "return" or row.kind != "transaction":
            continue
        for group in row.sends:
            if group.acks:
                mine = found[row.cluster, group.topic, group.partition]
                mine.operation.append(row.number)
                mine.producer.append(row.producer_id)
                mine.first.append(min(offset for _, _, offset in group.acks))
                mine.last.append(max(offset + count - 1 for _, count, offset in group.acks))
                mine.returned.append(row.time)
                mine.committed.append(row.ending == "commit" and row.outcome == "ok")
    return found


def _followed(key: LogKey, columns: Mapping[str, Ints], logs: Sequence[Drawn]) -> Iterator[Commit]:
    """The commits of one partition, each with the marker in the log generation that has its
    records."""
    count = len(columns["first"])
    marker, control, written = np.full(count, -1), np.full(count, -1), np.full(count, -1)
    # If no undamaged log could have a commit's records, its marker is unknown.
    known = np.zeros(count, np.bool_)
    for log in logs:
        there = _holds(log.headers, columns)
        known |= (columns["first"] >= log.captured.bounds.log_start) & (not log.captured.damage)
        rows = np.flatnonzero(there)
        at = _markers(log.headers, {name: column[rows] for name, column in columns.items()})
        rows, at = rows[at >= 0], at[at >= 0]
        marker[rows], control[rows] = log.headers.base_offset[at], log.headers.control[at]
        written[rows] = log.headers.max_timestamp[at]
    for n in np.flatnonzero(columns["committed"]).tolist():
        ending = {layout.COMMIT: COMMIT, layout.ABORT: ABORT}.get(int(control[n]), NONE)
        yield Commit(
            operation=int(columns["operation"][n]),
            cluster=key[0],
            topic=key[1],
            partition=key[2],
            first=int(columns["first"][n]),
            returned=int(columns["returned"][n]),
            ending=ending if known[n] or ending != NONE else UNKNOWN,
            marker=int(marker[n]),
            written=int(written[n]),
        )


def _holds(h: Headers, columns: Mapping[str, Ints]) -> Bools:
    """Whether the log has a batch of the transaction's producer id at its first offset."""
    if not len(h):
        return np.zeros(len(columns["first"]), np.bool_)
    order = np.argsort(h.base_offset, kind="stable")
    at = order[
        np.maximum(np.searchsorted(h.base_offset[order], columns["first"], side="right") - 1, 0)
    ]
    inside = (h.base_offset[at] <= columns["first"]) & (columns["first"] <= h.last_offset[at])
    return np.asarray(
        inside & (h.producer_id[at] == columns["producer"]) & (h.control[at] == layout.DATA)
    )


def _markers(h: Headers, columns: Mapping[str, Ints]) -> Ints:
    """Per transaction the row of its marker, -1 where it has none."""
    found = np.full(len(columns["first"]), -1)
    ends = (h.control == layout.COMMIT) | (h.control == layout.ABORT)
    for producer in np.unique(columns["producer"]).tolist():
        mine = np.flatnonzero(columns["producer"] == producer)
        theirs = np.flatnonzero(ends & (h.producer_id == producer))
        theirs = theirs[np.argsort(h.base_offset[theirs], kind="stable")]
        following = np.append(columns["first"][mine][1:], np.iinfo(np.int64).max)
        at = np.searchsorted(h.base_offset[theirs], columns["last"][mine], side="right")
        inside = at < len(theirs)
        rows = (
            theirs[np.minimum(at, len(theirs) - 1)]
            if len(theirs)
            else np.zeros(len(mine), np.int64)
        )
        if len(theirs):
            inside &= (h.base_offset[rows] < following) | (h.control[rows] == layout.ABORT)
        found[mine[inside]] = rows[inside]
    return found
