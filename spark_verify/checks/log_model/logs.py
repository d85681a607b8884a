"""One log, from its bytes: the state of each batch, the transactions, the offset of a payload, and
the last stable offset.

Kafka's rule (KIP-98): a transactional batch belongs to the first control record of its producer id
that follows it in the partition, and is committed or aborted with it. While there is none, it is
open. A reset of the producer state (KIP-1279) ends no transaction. A marker behind the reset cannot
end one from before it, because the leader then treats the id as a new producer. So a control record
belongs to the batches after the last reset before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from linkflap.spark_verify.checks.base import PartialFinding
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Records,
    Replica,
)

PLAIN, COMMITTED, ABORTED, OPEN, CONTROL = range(5)
States = NDArray[np.int8]
Number = TypeVar("Number", bound=np.generic)
STATE_NAMES = ("plain", "committed", "aborted", "open", "control")
_AT_ONCE = 1 << 16
NOWHERE = 2**62
"""Marker offset of a transaction that has none: after everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Transactions of one log, in order of their first offset. `marker` is an offset, NOWHERE while
    open; epochs are of data."""

    producer_id: Ints
    first: Ints
    last: Ints
    lowest_epoch: Ints
    highest_epoch: Ints
    marker: Ints
    marker_epoch: Ints
    committed: Bools

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One replica with the state of every batch (`state`, `marker` offset or NOWHERE) and record
    (`record_state`)."""

    replica: Replica
    state: States
    marker: Ints
    record_state: States
    transactions: Transactions

    @property
    def cluster(self) -> str:
        return self.replica.cluster

    @property
    def batches(self) -> Batches:
        return self.replica.batches

    @property
    def records(self) -> Records:
        return self.replica.records

    @property
    def visible(self) -> Bools:
        """Per record: plain or committed, so that a read_committed reader gets it once the LSO has
        passed it."""
        return np.asarray((self.record_state == PLAIN) | (self.record_state == COMMITTED))

    @property
    def stable(self) -> int:
        """The last stable offset: where the oldest open transaction begins, or the end of the
        log."""
        unended = self.transactions.first[self.transactions.marker == NOWHERE]
        return int(unended.min()) if len(unended) else self.replica.end

    @property
    def whole(self) -> bool:
        """Whether all bytes of the log could be read. A record that is absent from a torn log may
        have been in it."""
        return not self.replica.damage

    def holds(self, offsets: Ints, uids: Ints) -> Ints:
        """Per offset, the index of the record there if it has that payload id, else -1."""
        at = locate(self.records.offset, offsets)
        return np.where((at >= 0) & (each_at(self.records.uid, at, -1) == uids), at, -1)

    def state_of(self, record: int) -> str:
        """The state of a record, as a word for evidence."""
        return STATE_NAMES[int(self.record_state[record])]


def read(replica: Replica, *, untracked: bool = False) -> Log:
    """Works out every transaction of a log, once for all checks. With `untracked` also those of
    negative producer ids, which brokers do not track."""
    name = "log with untracked ids" if untracked else "log"
    found = replica.worked_out.get(name)
    if not isinstance(found, Log):
        found = replica.worked_out[name] = _read(replica, untracked=untracked)
    return found


def _read(replica: Replica, *, untracked: bool) -> Log:
    batches = replica.batches
    data, marker_at, first_at = _pair(batches, untracked=untracked)
    state = np.where(batches.control == DATA, PLAIN, CONTROL).astype(np.int8)
    ended = marker_at >= 0
    committed = ended & (batches.control[marker_at] == COMMIT)
    state[data] = np.where(~ended[data], OPEN, np.where(committed[data], COMMITTED, ABORTED))
    marker = np.where(ended, batches.base_offset[marker_at] if len(batches) else 0, NOWHERE).astype(
        np.int64
    )
    return Log(
        replica=replica,
        state=state,
        marker=marker,
        record_state=state[replica.records.batch] if len(batches) else np.empty(0, np.int8),
        transactions=_transactions(batches, data, first_at, marker_at),
    )


def _pair(batches: Batches, *, untracked: bool) -> tuple[Ints, Ints, Ints]:
    """Indices of transactional data batches; per batch, indices of its marker and of its
    transaction's first batch, or -1.

    A batch whose CRC is wrong may never have been of the producer that it names.
    """
    n = len(batches)
    is_marker = (batches.control == COMMIT) | (batches.control == ABORT)
    is_data = batches.transactional & (batches.control == DATA)
    tracked = batches.producer_id != -1 if untracked else batches.producer_id >= 0
    taking_part = np.flatnonzero((is_marker | is_data) & tracked & batches.crc_ok)
    section = np.cumsum((batches.control == OTHER_CONTROL) & batches.crc_ok)
    order = taking_part[np.lexsort((section[taking_part], batches.producer_id[taking_part]))]
    marker_at, first_at = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    if not len(order):
        return order, marker_at, first_at
    pid = np.cumsum(changes(batches.producer_id[order], section[order]))
    marks = is_marker[order]
    index = np.arange(len(order))
    following = np.minimum.accumulate(np.where(marks, index, len(order))[::-1])[::-1]
    inside = following < len(order)
    mine = inside & (pid[np.where(inside, following, 0)] == pid)
    marker_at[order[mine]] = order[following[mine]]
    new = (changes(pid) | np.append(False, marks[:-1])) & ~marks
    first_at[order] = order[np.maximum.accumulate(np.where(new, index, 0))]
    data = order[~marks]
    marker_at[order[marks]] = -1
    return np.sort(data), marker_at, first_at


def _transactions(batches: Batches, data: Ints, first_at: Ints, marker_at: Ints) -> Transactions:
    by_first = data[np.argsort(first_at[data], kind="stable")]
    groups = first_at[by_first]
    starts = np.flatnonzero(changes(groups))
    heads = groups[starts]
    ends = np.concatenate((starts[1:], [len(groups)]))[: len(starts)] - 1
    markers = marker_at[heads]
    closed = markers >= 0
    epochs = batches.producer_epoch[by_first]
    none = np.empty(0, np.int64)
    return Transactions(
        producer_id=batches.producer_id[heads],
        first=batches.base_offset[heads],
        last=batches.last_offset[by_first[ends]],
        lowest_epoch=np.minimum.reduceat(epochs, starts) if len(starts) else none,
        highest_epoch=np.maximum.reduceat(epochs, starts) if len(starts) else none,
        marker=np.where(closed, batches.base_offset[markers], NOWHERE) if len(starts) else none,
        marker_epoch=np.where(closed, batches.producer_epoch[markers], -1) if len(starts) else none,
        committed=closed & (batches.control[markers] == COMMIT)
        if len(starts)
        else np.empty(0, np.bool_),
    )


def followed(log: Log) -> Ints:
    """Per record of a transaction, the record of its producer id's next operation if no marker is
    between the two, else -1.

    Markers cannot show it: if one is missing, its data belong to the next marker of that producer
    id. But a record names the operation that wrote it, and each operation has its own marker.
    Indices into the log's records; records that are not linkflap's have -1.
    """
    records, next_of = log.records, np.full(len(log.records), -1, np.int64)
    part = np.flatnonzero((log.record_state != PLAIN) & (records.operation >= 0))
    pid = log.batches.producer_id[records.batch[part]]
    order = part[np.argsort(pid, kind="stable")]
    if not len(order):
        return next_of
    pid, operation = log.batches.producer_id[records.batch[order]], records.operation[order]
    marker = log.marker[records.batch[order]]
    together = (pid[1:] == pid[:-1]) & (marker[1:] == marker[:-1])
    overrun = np.append(together & (operation[1:] != operation[:-1]), False)
    edge = np.append(~together, True) | overrun
    index = np.arange(len(order))
    last = np.minimum.accumulate(np.where(edge, index, len(order))[::-1])[::-1]
    next_of[order] = np.where(overrun[last], order[np.minimum(last + 1, len(order) - 1)], -1)
    return next_of


def locate(keys: Ints, wanted: Ints) -> Ints:
    """Per wanted key, the index of its first occurrence in `keys`, or -1."""
    found = np.full(len(wanted), -1, np.int64)
    if not len(keys) or not len(wanted):
        return found
    # Offsets rise along a log; payload ids of several producers do not.
    order = None if (keys[1:] >= keys[:-1]).all() else np.argsort(keys, kind="stable")
    ordered = keys if order is None else keys[order]
    for some in chunks(wanted):
        index = np.minimum(np.searchsorted(ordered, wanted[some], side="left"), len(keys) - 1)
        found[some] = np.where(
            ordered[index] == wanted[some], index if order is None else order[index], -1
        )
    return found


def each_at(column: NDArray[Number], at: Ints, missing: int) -> NDArray[Number]:
    """Per index the value of a column there; `missing` where the index is -1."""
    return np.asarray(np.append(column, np.array(missing, column.dtype))[at], column.dtype)


def together(parts: Iterable[Ints]) -> Ints:
    """The arrays, concatenated; empty for no arrays."""
    return np.concatenate([np.empty(0, np.int64), *parts])


def column_of(parts: Iterable[PartialFinding], name: str) -> Ints:
    """One column of numbers of all partial findings that have it."""
    return together(np.asarray(part.data.get(name, ()), np.int64) for part in parts)


def chunks(values: Ints) -> Iterator[slice]:
    """Slices of an array, small enough that temporary arrays of a slice need little memory."""
    yield from (slice(start, start + _AT_ONCE) for start in range(0, len(values), _AT_ONCE))


def distinct(values: Ints) -> Ints:
    """The values once each, sorted. `np.unique` hashes, and payload ids collide in its table: 20
    times slower."""
    ordered = np.sort(values)
    return ordered[changes(ordered)]


def among(values: Ints, others: Ints) -> Bools:
    """Per value, whether it is one of the others; `np.isin` hashes as well."""
    found = np.zeros(len(values), np.bool_)
    if not len(others):
        return found
    ordered = np.sort(others)
    for some in chunks(values):
        index = np.minimum(np.searchsorted(ordered, values[some]), len(ordered) - 1)
        found[some] = ordered[index] == values[some]
    return found


def copies(keys: Ints) -> tuple[Ints, Ints]:
    """Per element, in the order given: the index of the first element with its key, and its copy
    index (0 for the first)."""
    n = len(keys)
    first, number = np.arange(n, dtype=np.int64), np.zeros(n, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    if not len(again):
        return first, number
    # Among the repeated elements, those of one key follow its first element.
    begins = np.diff(again, prepend=-1) != 1
    head = np.maximum.accumulate(np.where(begins, again - 1, 0))
    first[order[again]], number[order[again]] = order[head], again - head
    return first, number


def changes(*columns: Ints | Bools) -> Bools:
    """Per row, whether it is the first, or differs from the one before in any column."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def runs(*columns: Ints) -> Iterator[tuple[int, int]]:
    """(start, end) index ranges in which every column rises by exactly one: how anomalies of
    neighbours become one."""
    n = len(columns[0])
    if not n:
        return
    breaks = np.zeros(n - 1, np.bool_)
    for column in columns:
        breaks |= np.diff(column) != 1
    edges = np.concatenate(([0], np.flatnonzero(breaks) + 1, [n]))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def joined(numbers: Ints) -> Ints:
    """A column for `runs`: neighbours stay together where these numbers are equal."""
    return np.asarray(np.arange(len(numbers)) + 2 * numbers)


def written(view: PartitionView, cluster: str, offset: int) -> list[int]:
    """[earliest, latest] time at which this offset came to be on a cluster, as its sampled high
    watermarks bracket it."""
    marks = view.watermarks.get(cluster)
    if marks is None:
        return [0, view.ended]
    marks = marks.with_high_watermark()
    after = int(np.searchsorted(np.maximum.accumulate(marks.high_watermark), offset, side="right"))
    earliest = int(marks.time[after - 1]) if after else 0
    latest = int(marks.returned[after]) if after < len(marks.time) else view.ended
    return [earliest, latest]


def outside(batches: Batches, rows: Ints, start: int, end: int) -> Ints:
    """The rows of batches that have no offset in [start, end)."""
    return rows[(batches.last_offset[rows] < start) | (batches.base_offset[rows] >= end)]


def recompute_last_stable(log: Log, high_watermark: int) -> int:
    """The LSO that this log has when its high watermark is `high_watermark`."""
    every = log.transactions
    unended = (every.first < high_watermark) & (every.marker >= high_watermark)
    return min(high_watermark, int(every.first[unended].min())) if unended.any() else high_watermark


def high_watermarks_of(log: Log, values: Ints) -> tuple[Ints, Ints]:
    """Per value v, the interval (first, last) of high watermarks whose LSO is v; empty (first >
    last) where v is never the LSO.

    v is the LSO while no transaction that began before v is unended, and either h = v or one that
    began at v is unended.
    """
    every = log.transactions
    order = np.argsort(every.first, kind="stable")
    begins, ends = every.first[order], every.marker[order]
    latest = (
        np.concatenate(([-1], np.maximum.accumulate(ends)))
        if len(ends)
        else np.array([-1], np.int64)
    )
    index = np.searchsorted(begins, values, side="left")
    first = np.maximum(values, latest[index] + 1)
    here = np.minimum(index, max(len(begins) - 1, 0))
    opens = (
        (index < len(begins)) & (begins[here] == values)
        if len(begins)
        else np.zeros(len(values), np.bool_)
    )
    last = np.where(opens, ends[here], values) if len(begins) else values
    return first.astype(np.int64), last.astype(np.int64)
