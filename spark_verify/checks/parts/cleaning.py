"""The effects of Kafka's log cleaner on a log (cleanup.policy=compact; `LogCleaner`, `Cleaner`,
`MemoryRecords.filterTo`).

A cleaner removes records, and so changes bytes, count and CRC. It also writes a delete horizon into
batches with tombstones or markers (KIP-534, attributes bit 6), in place of the base timestamp.
Every broker chooses its own horizon, so that one marker has 78 bytes on one replica and 80 on
another. The first and last offset of a batch, its leader epoch, its producer and its kind stay. So
below the cleaner's checkpoint two batches at one offset are the same if those agree.

Every broker cleans its own log, at its own time. But all may remove only the same records: one
whose key a later record has that was not aborted, a tombstone whose horizon has passed, aborted
records, and records without a key. So the last record of each key is on every replica, and two
replicas have the same content at one offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from linkflap.spark_verify.checks.parts.logs import locate
from linkflap.spark_verify.facts.view import ABORT, COMMIT, DATA, NULL, Bools, Ints, Replica

KEPT: Final = (
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "control",
    "transactional",
)
"""Columns of `spark_verify.facts.view.Batches` that no cleaner changes; the base offset is what
batches are compared at."""
Explained = Literal["compaction", "nothing", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """Why one replica lacks records of a batch that another has. `offset` and `uid` are of the
    first that nothing explains."""

    explained: Explained
    offset: int = -1
    uid: int = -1


class Cleaned:
    """The replicas of a cluster whose cleaners were there, with the records of what they compacted
    (`differing_batches`)."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._aborted = {r.broker: _aborted(r) for r in replicas}
        self._last = _last_of_each_key(replicas, self._aborted)

    def lacks(self, holder: Replica, base: int, others: Ints) -> MissingRecords:
        """Why another replica has, of the records of this batch, those at these offsets alone."""
        row = int(np.flatnonzero(holder.batches.base_offset == base)[0])
        control, last = int(holder.batches.control[row]), int(holder.batches.last_offset[row])
        if control != DATA:
            # Markers go when all is gone that they ended.
            return MissingRecords(
                explained="compaction" if control in (COMMIT, ABORT) else "unknown"
            )
        if not readable(holder, base):
            return MissingRecords(explained="unknown")
        mine = np.flatnonzero((holder.parts.offset >= base) & (holder.parts.offset <= last))
        mine = mine[~np.isin(holder.parts.offset[mine], others)]
        certain = self._may_go(holder, mine)
        left = mine[certain == 0]
        if len(left):
            return MissingRecords(
                explained="nothing",
                offset=int(holder.parts.offset[left[0]]),
                uid=int(holder.parts.uid[left[0]]),
            )
        return MissingRecords(explained="unknown" if bool((certain < 0).any()) else "compaction")

    def _may_go(self, holder: Replica, rows: Ints) -> Ints:
        """Per record 1 where a cleaner may take it, 0 where none may, -1 where that cannot be
        known."""
        parts, aborted = holder.parts, self._aborted[holder.broker][rows]
        keys, last = self._last
        at = locate(keys, parts.key[rows])
        later = (
            (at >= 0) & (last[np.maximum(at, 0)] > parts.offset[rows])
            if len(keys)
            else np.zeros(len(rows), np.bool_)
        )
        free = later | (parts.key[rows] == NULL) | (parts.value[rows] == NULL) | (aborted == 1)
        return np.where(free, 1, np.where(aborted < 0, -1, 0))


def readable(replica: Replica, base: int) -> bool:
    """Whether all records of a batch are among `parts`, and it is known which batch each is of."""
    batches = replica.batches
    row = int(np.flatnonzero(batches.base_offset == base)[0])
    inside = (replica.parts.offset >= base) & (replica.parts.offset <= batches.last_offset[row])
    return (
        _rising(replica)
        and bool(batches.crc_ok[row])
        and int(np.count_nonzero(inside)) == int(batches.count[row])
    )


def _rising(replica: Replica) -> bool:
    return bool((replica.batches.base_offset[1:] > replica.batches.base_offset[:-1]).all())


def _aborted(replica: Replica) -> Ints:
    """Per record of `parts`: 1 where its transaction was aborted, 0 where it was not, -1 where it
    has no marker here."""
    batches, offsets = replica.batches, replica.parts.offset
    if not _rising(replica):
        return np.zeros(len(offsets), np.int64)
    at = np.searchsorted(batches.base_offset, offsets, side="right") - 1
    ends: Bools = batches.crc_ok & ((batches.control == COMMIT) | (batches.control == ABORT))
    found = np.zeros(len(offsets), np.int64)
    for producer in np.unique(batches.producer_id[at][batches.transactional[at]]).tolist():
        markers = np.flatnonzero(ends & (batches.producer_id == producer))
        mine = np.flatnonzero(batches.transactional[at] & (batches.producer_id[at] == producer))
        index = np.searchsorted(batches.base_offset[markers], offsets[mine])
        there = index < len(markers)
        found[mine] = -1
        found[mine[there]] = batches.control[markers[index[there]]] == ABORT
    return found


def _last_of_each_key(replicas: Sequence[Replica], aborted: dict[int, Ints]) -> tuple[Ints, Ints]:
    """Keys, and the highest offset that any replica has of each; a cleaner does not look at what
    was aborted."""
    key = np.concatenate(
        [np.empty(0, np.int64), *(r.parts.key[aborted[r.broker] != 1] for r in replicas)]
    )
    offset = np.concatenate(
        [np.empty(0, np.int64), *(r.parts.offset[aborted[r.broker] != 1] for r in replicas)]
    )
    order = np.lexsort((offset, key))
    key, offset = key[order], offset[order]
    last = np.append(key[1:] != key[:-1], True)[: len(key)]
    return key[last], offset[last]
