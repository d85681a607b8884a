"""The effects of Kafka's log cleaner on a log (cleanup.policy=compact; `LogCleaner`, `Cleaner`,
`MemoryRecords.filterTo`).

A cleaner removes records, and so changes bytes, count and CRC. It also writes a delete horizon into
batches with tombstones or markers (KIP-534, attributes bit 6), instead of the base timestamp.
Every broker chooses its own horizon, so that one marker has 78 bytes on one replica and 80 on
another. The first and last offset of a batch, its leader epoch, its producer and its kind stay. So
below the cleaner's checkpoint two batches at one offset are the same if those agree.

Every broker cleans its own log, at its own time, below its first open transaction and never in the
active segment; it notes in a checkpoint how far it came. But all may remove only the same records:
one whose key a later record below that has, which was not aborted; a tombstone after
delete.retention.ms; aborted records; and records without a key. A marker goes when no batch of its
transaction is left, and of each producer that a broker remembers the last batch stays, even if it
is empty (KIP-98). So the last record of each key is on every replica, and at the other end of a
mirror that keeps offsets, and two logs have the same content at one offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from linkflap.spark_verify.checks.parts.logs import NOWHERE
from linkflap.spark_verify.facts.eras import skew
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    NULL,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
    Parts,
    Replica,
    digested,
)

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
    """What cleaners may have removed from one log, by all that is known to have been in it: its own
    cluster's replicas, and what of the other end of a mirror it had at the same offsets.

    Below `upto` the cleaner was; it replaces records by later ones below that. It may have been
    further when its broker was captured or killed, before it noted that. It begins each time at the
    log's start: then no record before has been replaced below where it was. `expired` is the time,
    in milliseconds, at which a tombstone was old enough to go; None where that is unknown.
    `perhaps` are records of which nobody knows whether they were there.
    """

    def __init__(
        self,
        lacking: Replica,
        known: Sequence[Replica],
        *,
        upto: int = NOWHERE,
        expired: int | None = None,
        perhaps: Parts | None = None,
    ) -> None:
        self._lacking, self._upto, self._expired = lacking, upto, expired
        self._key, self._offset, self._open = _replacing([lacking, *known])
        if perhaps is not None:
            self._key = np.concatenate((self._key, perhaps.key))
            self._offset = np.concatenate((self._offset, perhaps.offset))
            self._open = np.append(self._open, np.ones(len(perhaps.key), np.bool_))

    def lacks(self, holder: Replica, base: int, others: Ints) -> MissingRecords:
        """Why the log has, of the records of this batch of another, those at these offsets
        alone."""
        row = int(np.flatnonzero(holder.batches.base_offset == base)[0])
        control, last = int(holder.batches.control[row]), int(holder.batches.last_offset[row])
        if control in (COMMIT, ABORT):
            kept = ended_is_there(holder, row, self._lacking)
            return MissingRecords(explained="nothing" if kept else "compaction", offset=base)
        if control != DATA:
            return MissingRecords(explained="unknown")
        if not readable(holder, base):
            return MissingRecords(explained="unknown")
        mine = np.flatnonzero((holder.parts.offset >= base) & (holder.parts.offset <= last))
        mine = mine[~np.isin(holder.parts.offset[mine], others)]
        certain = self.may_go(holder, mine)
        left = mine[certain == 0]
        if len(left):
            return MissingRecords(
                explained="nothing",
                offset=int(holder.parts.offset[left[0]]),
                uid=int(holder.parts.uid[left[0]]),
            )
        return MissingRecords(explained="unknown" if bool((certain < 0).any()) else "compaction")

    def may_go(self, holder: Replica, rows: Ints) -> Ints:
        """Per record of a log's `parts` 1 where the cleaner may take it, 0 where it may not, -1
        where that cannot be known."""
        parts = holder.parts
        aborted = _aborted(holder)[rows]
        unended = np.flatnonzero(aborted < 0)
        aborted[unended] = _aborted(holder, self._lacking)[rows[unended]]
        keys, offsets = parts.key[rows], parts.offset[rows]
        first = self._next(keys, offsets)
        replaced = first < self._upto
        tombstone = parts.value[rows] == NULL
        if self._expired is not None:
            tombstone &= parts.timestamp[rows] <= self._expired
        free = replaced | (keys == NULL) | tombstone | (aborted == 1)
        further = (first < NOWHERE) & ~self._passed_over(offsets, first)
        unsure = (aborted < 0) | further | (self._next(keys, offsets, unended=True) < NOWHERE)
        return np.where(free, 1, np.where(unsure, -1, 0))

    def _next(self, keys: Ints, offsets: Ints, *, unended: bool = False) -> Ints:
        """Per key and offset, the first record behind it that replaces it, or `NOWHERE`; `unended`:
        that may, once its transaction has ended."""
        which = self._open == unended
        key, offset = self._key[which], self._offset[which]
        every = np.concatenate((key, keys))
        order = np.lexsort(
            (np.arange(len(every)) >= len(key), np.concatenate((offset, offsets)), every)
        )
        index = np.arange(len(every))
        behind = np.minimum.accumulate(np.where(order < len(key), index, len(every))[::-1])[::-1]
        behind_at = np.empty(len(every), np.int64)
        behind_at[order] = behind
        at = np.append(order, 0)[behind_at[len(key) :]]
        same = (behind_at[len(key) :] < len(every)) & (np.append(every, 0)[at] == keys)
        found = np.full(len(keys), NOWHERE, np.int64)
        found[same] = offset[at[same]]
        return found

    def _passed_over(self, offsets: Ints, replacing: Ints) -> Bools:
        """Per record, whether one before it is there that a cleaner would have taken that had come
        as far as what replaces it."""
        parts = self._lacking.parts
        if not len(parts.offset) or not (replacing >= self._upto).any():
            return np.zeros(len(offsets), np.bool_)
        last = np.maximum(parts.offset, self._upto - 1)
        order = np.argsort(parts.offset, kind="stable")
        earliest = np.minimum.accumulate(self._next(parts.key[order], last[order]))
        before = np.searchsorted(parts.offset[order], offsets, side="left") - 1
        return np.where(before >= 0, earliest[np.maximum(before, 0)] <= replacing, False)


def changed_headers(
    names: Sequence[str], ours: Batches, row: int, theirs: Batches, partner: int
) -> list[str]:
    """The fields in which two batches differ. A cleaner may have emptied a marker, which then does
    not say any more what it was."""
    emptied = (
        min(ours.count[row], theirs.count[partner]) == 0
        and DATA not in (ours.control[row], theirs.control[partner])
    )  # fmt: skip
    return [
        name
        for name in names
        if getattr(ours, name)[row] != getattr(theirs, name)[partner]
        and not (emptied and name in ("control", "coordinator_epoch"))
    ]


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


def _aborted(replica: Replica, markers_of: Replica | None = None) -> Ints:
    """Per record of `parts`: 1 where its transaction was aborted, 0 where it was not, -1 where it
    has no marker here, or in another log of the same offsets."""
    batches, offsets = replica.batches, replica.parts.offset
    there = batches if markers_of is None else markers_of.batches
    if not _rising(replica) or not len(batches):
        return np.zeros(len(offsets), np.int64)
    at = np.searchsorted(batches.base_offset, offsets, side="right") - 1
    ends: Bools = there.crc_ok & ((there.control == COMMIT) | (there.control == ABORT))
    found = np.zeros(len(offsets), np.int64)
    for producer in np.unique(batches.producer_id[at][batches.transactional[at]]).tolist():
        markers = np.flatnonzero(ends & (there.producer_id == producer))
        mine = np.flatnonzero(batches.transactional[at] & (batches.producer_id[at] == producer))
        index = np.searchsorted(there.base_offset[markers], offsets[mine])
        known = index < len(markers)
        found[mine] = -1
        found[mine[known]] = there.control[markers[index[known]]] == ABORT
    return found


def _replacing(replicas: Sequence[Replica]) -> tuple[Ints, Ints, Bools]:
    """Key and offset of every record that may replace another, and whether its transaction has no
    end yet; a cleaner does not look at what was aborted."""
    none = np.empty(0, np.int64)
    keys, offsets, unended = [none], [none], [none]
    for replica in replicas:
        aborted = _aborted(replica)
        may = aborted != 1
        keys.append(replica.parts.key[may])
        offsets.append(replica.parts.offset[may])
        unended.append(aborted[may])
    return np.concatenate(keys), np.concatenate(offsets), np.concatenate(unended) < 0


def ended_is_there(holder: Replica, row: int, lacking: Replica) -> bool:
    """Whether a log still has a batch of the transaction that a marker of another log ended: a
    cleaner takes the marker only when all of that is gone (KIP-98)."""
    ours, theirs = holder.batches, lacking.batches
    producer, base = ours.producer_id[row], ours.base_offset[row]
    before = (ours.producer_id[:row] == producer) & (ours.control[:row] != DATA)
    since = int(ours.base_offset[:row][before].max(initial=-1))
    inside = (theirs.base_offset > since) & (theirs.base_offset < base)
    mine = (theirs.producer_id == producer) & theirs.transactional & (theirs.control == DATA)
    return bool((inside & mine & theirs.crc_ok).any())


def last_of_producer(holder: Replica, row: int, lacking: Replica) -> bool:
    """Whether a batch of one log is the last of its producer, also in another log that lacks it. A
    marker behind it with a higher epoch, or a reset, is what a broker remembers instead."""
    producer, base = holder.batches.producer_id[row], holder.batches.base_offset[row]
    for batches in (holder.batches, lacking.batches):
        mine = (batches.producer_id == producer) & (
            (batches.control == DATA)
            | (batches.producer_epoch > holder.batches.producer_epoch[row])
        )
        resets = batches.control == OTHER_CONTROL
        if ((batches.base_offset > base) & (mine | resets)).any():
            return False
    return True


def up_to(replica: Replica, end: int) -> Replica:
    """What of a log is below an offset."""
    return replace(
        replica,
        batches=replica.batches.take(replica.batches.base_offset < end),
        parts=replica.parts.take(replica.parts.offset < end),
    )


def gone_tombstones(
    view: PartitionView, holder: Replica, rows: Ints, *, lacking: Replica, since: int, upto: int
) -> Ints:
    """Per record of one log's `parts` 1 where a tombstone replaced it in the log that lacks both, 0
    where none did, -1 where that cannot be known.

    The first log has all that was mirrored, up to `since`: had it had the tombstone, it would have
    cleaned that record as well. So it was written behind, and what clients sent there tells.
    """
    batches = lacking.batches
    inside = (batches.base_offset >= since) & (batches.base_offset < upto)
    if int(batches.count[inside].sum()) >= upto - since or not len(rows):
        return np.zeros(len(rows), np.int64)
    if not (view.recorded and view.partition_facts.facts.values):
        return np.full(len(rows), -1, np.int64)
    known, possible = _tombstones_sent(view, lacking, since, upto)
    said = [
        1 if key in known else -1 if key in possible else 0
        for key in holder.parts.key[rows].tolist()
    ]
    return np.array(said, np.int64)


def _tombstones_sent(
    view: PartitionView, replica: Replica, since: int, upto: int
) -> tuple[set[int], set[int]]:
    """The keys of tombstones that clients sent to a log and that can be gone from it: those
    acknowledged within the offsets, and those that may have been written there."""
    expired = tombstones_expired(view, replica)
    known, possible = set[int](), set[int]()
    for send in view.sends:
        late = expired is not None and send.invoked // 1_000_000 > expired
        if send.cluster != replica.cluster or send.ending == "abort" or late:
            continue
        for index, offset in enumerate(send.offsets.tolist()):
            if not send.refused[index] and (offset < 0 or since <= offset < upto):
                keys = _deleted_keys(view, send.first_uid + index)
                (known if offset >= 0 and send.outcome == "ok" else possible).update(keys)
    return known, possible


def deleted_keys(view: PartitionView, clusters: Collection[str]) -> list[int]:
    """The keys of the tombstones that clients sent to some clusters."""
    sends = [send for send in view.sends if send.cluster in clusters]
    return [
        k
        for s in sends
        for n in range(len(s.offsets))
        for k in _deleted_keys(view, s.first_uid + n)
    ]


def _deleted_keys(view: PartitionView, uid: int) -> Iterator[int]:
    """The key of a payload that is a tombstone, in each way in which clients may have written
    it."""
    for values in view.partition_facts.facts.values:
        if values.value(uid) is None:
            yield digested(values.key(uid))


def tombstones_expired(view: PartitionView, replica: Replica) -> int | None:
    """The time, in milliseconds, of the last tombstone that can be gone: delete.retention.ms, of
    the topic or of its brokers, before the capture. None in copied logs: nobody knows it."""
    if not view.recorded:
        return None
    brokers = next((c.config for c in view.topology.clusters if c.name == replica.cluster), {})
    topic = view.partition_facts.facts.topic_config
    of_brokers = brokers.get("log.cleaner.delete.retention.ms", "86400000")
    given = [topic.get("delete.retention.ms", of_brokers)]
    given += [of_brokers] if replica.cluster != view.home else []
    now = (replica.captured or view.ended) // 1_000_000 + skew(view.windows, replica.cluster)
    return now - min(int(each) for each in given if each.isdecimal())
