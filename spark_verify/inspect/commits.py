"""Acknowledged commits and their markers: for every transaction whose commit returned ok, and every
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.model.history import Operation
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.inspect.log_lanes import Drawn, drawn_logs
from linkflap.spark_verify.read.plan import plan

NONE, ABORT, COMMIT, UNKNOWN = "none", "ABORT", "COMMIT", "unknown"
MOST: Final = 2_000
"""Commits of each ending that are listed; all of them are counted."""
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Key = tuple[str, str, int]
"""Cluster, topic, partition."""


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
    logs: dict[Key, list[Drawn]] = defaultdict(list)
    for log in drawn_logs(plan(root)):
        logs[log.captured.bounds.cluster, *log.key].append(log)
    listed: dict[str, list[Commit]] = defaultdict(list)
    counted: Counter[str] = Counter()
    for key, columns in _written(root).items():
        for each in _followed(key, columns.arrays(), logs.get(key, ())):
            counted[each.ending] += 1
            if len(listed[each.ending]) < MOST:
                listed[each.ending].append(each)
    every = [each for rows in listed.values() for each in rows]
    return Commits(
        listed=sorted(every, key=lambda each: (each.returned, each.operation)), counted=counted
    )


def _written(root: Path) -> Mapping[Key, _Columns]:
    found: dict[Key, _Columns] = defaultdict(_Columns)
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


def _followed(key: Key, columns: Mapping[str, Ints], logs: Sequence[Drawn]) -> Iterator[Commit]:
    """The commits of one partition, each with the marker in the log generation that has its
    records."""
    count = len(columns["first"])
    marker, control, written = np.full(count, -1), np.full(count, -1), np.full(count, -1)
    # Where no log could have its records, or the one that could is damaged, it is unknown whether
    # it has a marker.
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
