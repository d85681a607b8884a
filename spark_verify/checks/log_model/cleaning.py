"""The effects of Kafka's log cleaner on a log (cleanup.policy=compact; `LogCleaner`, `Cleaner`,
`MemoryRecords.filterTo`). Decides which missing records of a mirrored range a cleaner, retention or
DeleteRecords may have removed.

A cleaner removes records, and so changes bytes, count and CRC. It also writes a delete horizon into
batches with tombstones or markers (KIP-534, attributes bit 6), instead of the base timestamp.
Every broker chooses its own horizon, so that one marker has 78 bytes on one replica and 80 on
another. The first and last offset of a batch, its leader epoch, its producer, its kind and its type
of timestamps stay. So below the cleaner's checkpoint two batches at one offset are the same if
those agree, and the maximum timestamp where it is that of every record (LogAppendTime); else it
becomes that of the records that are left.

Every broker cleans its own log, at its own time, below its first open transaction and never in the
active segment, and writes its progress to a checkpoint. But all brokers may remove only the same
records: a record whose key occurs again below the checkpoint in a record that was not aborted; a
tombstone after delete.retention.ms; aborted records; and records without a key. A cleaner removes a
marker once no batch of its transaction is left. It keeps the last batch of each producer that the
broker remembers, even if that batch becomes empty (KIP-98). So the last record of each key is on
every replica, and at the other end of a mirror that keeps offsets, and two logs have the same
content at one offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from linkflap.harness.model.faults import FORCED, PLANNED
from linkflap.spark_verify.checks.log_model.generations import compacted
from linkflap.spark_verify.checks.log_model.logs import (
    NOWHERE,
    Log,
    among,
    copies,
    each_at,
    locate,
)
from linkflap.spark_verify.facts.eras import FOREVER, MirroredRange, skew, touches
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
    "log_append_time",
)
"""Columns of `spark_verify.facts.view.Batches` that no cleaner changes; the base offset is what
batches are compared at."""
TIME: Final = "max_timestamp"
"""The column that no cleaner changes where it is the time of every record."""
Explained = Literal["compaction", "nothing", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """Why one replica lacks records of a batch that another has. `offset` and `uid` name the first
    unexplained record."""

    explained: Explained
    offset: int = -1
    uid: int = -1


class Cleaned:
    """The records that a cleaner may have removed from one log. The known contents are those of the
    cluster's replicas, and of the other end of a mirror at the same offsets.

    The checkpoint `upto` is how far the cleaner came: below it, later records replace earlier ones.
    The cleaner may have come further, if its broker was captured or killed before the next
    checkpoint. Each pass begins at the log's start, so a record that such a pass would have
    removed, but that is still there, disproves it. `expired` is the time in milliseconds at which a
    tombstone was old enough to be removed; None if unknown. `perhaps` are records that the log may
    or may not have had.
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
        """Why the log has only the records at the offsets `others` of a batch that another log has
        in full."""
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
        """Per key and offset, the first later record that replaces it, or `NOWHERE`; `unended`: the
        first one that may replace it once its transaction has ended."""
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
        """Per record, whether the log still has an earlier record that a cleaner would have removed
        if it had come as far as the record's replacement."""
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
    """The fields in which two batches differ. A marker that a cleaner has emptied no longer shows
    its type."""
    emptied = (
        min(ours.count[row], theirs.count[partner]) == 0
        and DATA not in (ours.control[row], theirs.control[partner])
    )  # fmt: skip
    changed = [
        name
        for name in names
        if getattr(ours, name)[row] != getattr(theirs, name)[partner]
        and not (emptied and name in ("control", "coordinator_epoch"))
    ]
    another = ours.max_timestamp[row] != theirs.max_timestamp[partner]
    return [*changed, TIME] if ours.log_append_time[row] and another else changed


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
    """Per record of `parts`: 1 if its transaction was aborted, 0 if not, -1 if the marker is
    missing. `markers_of` is the log with the markers, if that is another one with the same
    offsets."""
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
    """Key and offset of every record that may replace another, and whether its transaction is still
    open. Aborted records replace nothing."""
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
    """Whether a log still has a batch of the transaction whose marker only the other log has. A
    cleaner removes a marker only after all batches of its transaction (KIP-98)."""
    ours, theirs = holder.batches, lacking.batches
    producer, base = ours.producer_id[row], ours.base_offset[row]
    before = (ours.producer_id[:row] == producer) & (ours.control[:row] != DATA)
    since = int(ours.base_offset[:row][before].max(initial=-1))
    inside = (theirs.base_offset > since) & (theirs.base_offset < base)
    mine = (theirs.producer_id == producer) & theirs.transactional & (theirs.control == DATA)
    return bool((inside & mine & theirs.crc_ok).any())


def last_of_producer(holder: Replica, row: int, lacking: Replica) -> bool:
    """Whether a batch is the last of its producer, both in its own log and in the log that lacks
    it. If a marker with a higher epoch or a reset follows, the broker remembers that instead of the
    batch."""
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
    """The part of a log below an offset."""
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

    The holder has everything that was mirrored, up to `since`. If the tombstone were among that,
    the holder's cleaner would have removed the record too. So the tombstone was written from
    `since` on, and the sends of clients show it.
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
    """The keys of tombstones that clients sent to a log and that its cleaner may have removed, in
    two columns: acknowledged within the offsets, and possibly written there."""
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


def deleted_keys(
    view: PartitionView, clusters: Collection[str], expired: int | None = None
) -> list[int]:
    """The keys of the tombstones that clients sent to some clusters, and that can have expired."""
    until = FOREVER if expired is None else expired
    sends = [s for s in view.sends if s.cluster in clusters and s.invoked // 1_000_000 <= until]
    return [
        k
        for s in sends
        for n in range(len(s.offsets))
        for k in _deleted_keys(view, s.first_uid + n)
    ]


def _deleted_keys(view: PartitionView, uid: int) -> Iterator[int]:
    """The key of a payload that is a tombstone, in each way in which clients may have written
    it."""
    for values in set(view.partition_facts.facts.values.values()):
        if values.value(uid) is None:
            yield digested(values.key(uid))


def tombstones_expired(view: PartitionView, replica: Replica) -> int | None:
    """The time, in milliseconds, of the last tombstone that can be gone: delete.retention.ms, of
    the topic or of its brokers, before the capture. None in copied logs: nobody knows it."""
    if not view.recorded:
        return None
    brokers = view.brokers_config(replica.cluster)
    topic = view.partition_facts.facts.topic_config
    of_brokers = brokers.get("log.cleaner.delete.retention.ms", "86400000")
    given = [topic.get("delete.retention.ms", of_brokers)]
    given += [of_brokers] if replica.cluster != view.home else []
    now = (replica.captured or view.ended) // 1_000_000 + skew(view.windows, replica.cluster)
    return now - min(int(each) for each in given if each.isdecimal())


def kept_since(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Log,
    destination: Log,
    sent: Ints,
    uids: Ints,
) -> int:
    """The first source offset whose record the destination may still have, although the
    destination's log may have lost its beginning.

    Where the mirror moves offsets, that is the source offset of the first record that the
    destination still has, because records arrive in order; `sent` are the rows of the source that
    should arrive, and `uids` the payload ids that did. If the source itself has that record several
    times, as behind a mirror that repeats, the destination may have deleted all copies but the last
    one.
    """
    start = destination.replica.log_start
    if start <= (mirrored_range.start if view.guarantee.offsets_kept else 0):
        return mirrored_range.start
    if view.guarantee.offsets_kept:
        return start
    theirs = source.records
    known = uids[among(uids, theirs.uid[sent])]
    if not len(known):
        return FOREVER
    copies_there = theirs.offset[sent][theirs.uid[sent] == known[0]]
    return int(copies_there[-1 if may_have_repeated(view, mirrored_range.destination) else 0])


def unsettled_payloads(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, uids: Ints
) -> Ints:
    """Payload ids whose destination record may be a copy of a source record that was deleted with
    the beginning of the source's log.

    That can happen in two ways: the mirror into the source may have written records twice around a
    fault, or payloads are known by content and several source records share one. Records arrive in
    order, so at most as many different payloads can come before a first copy as the source has
    offsets before it. Once that number exceeds the deleted offsets, the copy is of a record that
    the source still has.
    """
    start, contents = source.replica.log_start, source.records.digest[source.visible]
    several = start > 0 and by_content(view) and bool(copies(contents)[1].any())
    if start == 0 or not (several or may_have_repeated(view, mirrored_range.source)):
        return np.empty(0, np.int64)
    number = copies(uids)[1]
    return np.concatenate((uids[number == 0][:start], uids[(number > 0) & several]))


def by_content(view: PartitionView) -> bool:
    """Whether records on a mirror's destination are known by their contents."""
    facts = view.partition_facts.facts
    named = not view.recorded or view.topic in facts.programs
    return named and not view.guarantee.offsets_kept


def deleted_behind(
    view: PartitionView, mirrored_range: MirroredRange, destination: Log, behind: Ints, older: int
) -> Ints:
    """The out-of-order positions of `behind` that may have arrived before the mirror began again;
    `older` records precede the first one.

    A log that lost its beginning may now begin among records that were mirrored again, with the
    first copies deleted. As in `unsettled_payloads`, the deleted part had at most as many different
    payloads as it had offsets.
    """
    if not may_have_repeated(view, mirrored_range.destination):
        return behind[:0]
    return behind[behind + older < destination.replica.log_start]


def may_have_repeated(view: PartitionView, cluster: str, *, but: Collection[str] = ()) -> bool:
    """Whether a mirror upstream of a cluster may have written records twice: it delivers at least
    once, and a fault touched its link, or faults were not recorded. Faults named in `but` do not
    count."""
    if view.guarantee.offsets_kept or view.guarantee.delivery == "exactly-once":
        return False
    behind = view.upstream(cluster) | {cluster}
    into = [f"{source}->{end}" for source, end in view.hops() if end in behind]
    if not view.recorded:
        return bool(into)
    faults = [window for window in view.windows if window.fault not in but]
    return any(touches(window, link) for window in faults for link in into)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """Indexes of records that one end of a mirror has and the other lacks below its cleaner's
    checkpoint. `may`: the cleaner removed them or may have; `unknown`: the part of these that
    cannot be decided; `kept`: a cleaner never removes them."""

    may: Ints
    unknown: Ints
    kept: Ints


def cleaned_at_destination(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Replica,
    destination: Replica,
    sequence: Ints,
    arrived_at: Ints,
) -> Cleared:
    """The records that the destination's cleaner may have taken, among those that the source sent
    and the destination lacks.

    If the mirror keeps offsets, those are all records below the checkpoint: `record-equality`
    compares them. A planned failover waits until every record has arrived. Otherwise a record
    behind the destination's last one may never have arrived, which is unknown if the mirror may
    have written records twice or writes markers, or if others wrote there.
    """
    upto = cleaned_up_to(view, destination)
    end = min(upto, mirrored_range.end)
    last = np.flatnonzero(arrived_at >= 0).max(initial=-1)
    if view.guarantee.offsets_kept:
        tail = np.flatnonzero(source.records.offset[sequence[last + 1 :]] < end) + last + 1
        may = np.concatenate((_below(arrived_at, upto, -1), tail))
        return Cleared(may=may, unknown=may[:0], kept=may[:0])
    before = {mirrored_range.source} | view.upstream(mirrored_range.source)
    others = view.upstream(mirrored_range.destination) - before
    once = not may_have_repeated(view, mirrored_range.destination, but=(PLANNED, FORCED))
    asked = _below(arrived_at, upto, end)
    # Records that were mirrored after the source was copied are on the destination alone.
    arrived_to = int(arrived_at.max(initial=-1)) + 1
    since = mirrored_range.end if view.recorded else min(mirrored_range.end, arrived_to)
    lacking = _Lacking(
        log=destination,
        at=arrived_at,
        since=since,
        others=others,
        # Everything that precedes a record on the source arrived before it, however often the
        # mirror wrote it.
        least=None if once else np.arange(len(sequence)),
        deleted=None
        if once
        else _deleted_before(view, mirrored_range, source, destination)[sequence],
    )
    said = _may_go(view, lacking, source, sequence, asked)
    drained = mirrored_range.promotion is not None and mirrored_range.promotion.kind == "planned"
    arrived = drained or (once and not others and view.guarantee.delivery != "exactly-once")
    said[(asked > last) & (said == 0) & (not arrived)] = -1
    return Cleared(may=asked[said != 0], unknown=asked[said < 0], kept=asked[said == 0])


def _deleted_before(
    view: PartitionView, mirrored_range: MirroredRange, source: Replica, destination: Replica
) -> Bools:
    """Per record of the source, whether the mirror may have repeated an earlier tombstone of its
    key behind the record, which has expired on the destination since."""
    if not view.recorded and cleaned_up_to(view, source):
        return np.ones(len(source.records), np.bool_)
    parts, expired = source.parts, tombstones_expired(view, destination)
    old = parts.timestamp <= (FOREVER if expired is None else expired)
    clusters = {mirrored_range.source} | view.upstream(mirrored_range.source)
    keys = np.append(parts.key[(parts.value == NULL) & old], deleted_keys(view, clusters, expired))
    at = locate(parts.offset, source.records.offset)
    return np.asarray((at < 0) | among(each_at(parts.key, at, NULL), keys))


def cleaned_at_source(
    view: PartitionView,
    mirrored_range: MirroredRange,
    source: Replica,
    destination: Replica,
    mirrored: Ints,
    sent_at: Ints,
) -> Cleared:
    """The records that the source's cleaner may have taken, among the mirrored records that the
    source lacks. `sent_at` are offsets at the source, or -1."""
    upto = cleaned_up_to(view, source)
    asked = _below(sent_at, upto, upto)
    lacking = _Lacking(
        log=source,
        at=sent_at,
        others=view.upstream(mirrored_range.source),
        least=(
            np.zeros(len(sent_at), np.int64)
            if may_have_repeated(view, mirrored_range.destination, but=(PLANNED, FORCED))
            else None
        ),
    )
    said = _may_go(view, lacking, destination, mirrored, asked)
    return Cleared(may=asked[said != 0], unknown=asked[said < 0], kept=asked[said == 0])


def cleaned_up_to(view: PartitionView, replica: Replica) -> int:
    """As `compacted`; of copied logs up to the last offset that is missing."""
    noted, batches = compacted(view, replica), replica.batches
    if view.recorded or not noted:
        return noted
    gaps = batches.base_offset[1:] > batches.last_offset[:-1] + 1
    return max(noted, int(batches.base_offset[1:][gaps].max(initial=0)))


def _below(at: Ints, compacted: int, end: int) -> Ints:
    """The missing records (without an offset in the log) whose predecessor is below `compacted`.
    Behind the last present record, at most as many as there are offsets before `end`."""
    present, missing = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
    index = np.searchsorted(present, missing)
    before: Ints = np.concatenate(([-1], at[present]))[index]
    nth = np.arange(len(missing)) - np.searchsorted(index, len(present))
    inside = np.where(index < len(present), before + 1 < compacted, nth < end - before - 1)
    return missing[inside]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lacking:
    """The end of a mirror that lacks records. `at` are the offsets of the mirrored records in its
    log, -1 for a missing one.

    A missing record was once between its neighbours. If nothing was mirrored twice (`least` is
    None), it was never there unless an offset is free between them. Otherwise `least` is the first
    offset at which each record can have been, and `deleted` are the records that a repeated
    tombstone may have replaced. From offset `since` on clients wrote their own records; -1:
    everywhere. `others` are the clusters that other records came from.
    """

    log: Replica
    at: Ints
    since: int = -1
    others: frozenset[str]
    least: Ints | None = None
    deleted: Bools | None = None


def _may_go(
    view: PartitionView, lacking: _Lacking, holder: Replica, rows: Ints, asked: Ints
) -> Ints:
    """Per record asked for (an index into `rows`, records of the other end in the order in which
    they were mirrored), 1 where the cleaner of the log that lacks it may have taken it, 0 where
    not, -1 where that cannot be known."""
    if not len(asked):
        return asked
    crossed = max(int(asked[-1]), int(np.flatnonzero(lacking.at >= 0).max(initial=-1))) + 1
    offsets = _Offsets(lacking.at[:crossed], once=lacking.least is None)
    said = _may_go_from(view, lacking, _at_offsets(holder, rows[:crossed], offsets.first), asked)
    if lacking.least is None:
        said[offsets.beyond(asked, said != 0)] = 0
    else:
        first = np.where(lacking.at < 0, lacking.least, lacking.at)[:crossed]
        anywhere = _may_go_from(view, lacking, _at_offsets(holder, rows[:crossed], first), asked)
        said[(said == 0) & (anywhere != 0)] = -1
    if lacking.deleted is not None:
        said[(said == 0) & lacking.deleted[asked]] = -1
    # Each removed record had an offset that is now missing, so their number is limited.
    said[np.cumsum(said != 0) > offsets_missing(view, lacking.log)] = 0
    return said


def _may_go_from(
    view: PartitionView, lacking: _Lacking, there: tuple[Replica, Bools], asked: Ints
) -> Ints:
    """`_may_go` for records that were at these offsets or behind them, in the form of
    `_at_offsets`."""
    every, has_key = there
    # The record that replaced another may lie above the checkpoint that was copied, or that the
    # bytes show.
    upto = cleaned_up_to(view, lacking.log) if view.recorded else lacking.log.end
    wanted = np.flatnonzero(np.isin(np.flatnonzero(has_key), asked))
    cleaner = Cleaned(
        lacking.log, [every], upto=upto, expired=tombstones_expired(view, lacking.log)
    )
    certain = cleaner.may_go(every, wanted)
    for index in np.flatnonzero(certain < 1).tolist():
        row = wanted[index : index + 1]
        since = lacking.since if lacking.since >= 0 else int(every.parts.offset[row[0]]) + 1
        (gone,) = gone_tombstones(view, every, row, lacking=lacking.log, since=since, upto=upto)
        certain[index] = gone or certain[index]
    unread = (
        not has_key.all() or not among(lacking.log.records.offset, lacking.log.parts.offset).all()
    )
    unread |= bool(lacking.others) and not view.recorded
    unsure = np.isin(every.parts.key[wanted], deleted_keys(view, lacking.others)) | unread
    certain[unsure & (certain == 0)] = -1
    said = np.full(len(asked), -1, np.int64)
    said[has_key[asked]] = certain
    return said


def offsets_missing(view: PartitionView, replica: Replica) -> int:
    """The number of offsets without a record or marker, below the log's end or the cleaner's
    checkpoint."""
    end = max(replica.end, cleaned_up_to(view, replica))
    return end - int(replica.batches.count.sum())


def written_again(view: PartitionView, replica: Replica, rows: Ints, behind: Ints) -> Bools:
    """Per mirrored record, whether it may be a second copy, with the first one, before the record
    `behind`, removed by a cleaner. `rows` and `behind` index the log's records."""
    if not may_have_repeated(view, replica.cluster, but=(PLANNED, FORCED)):
        return np.zeros(len(rows), np.bool_)
    if any(view.compacted.get(cluster) for cluster in view.upstream(replica.cluster)):
        return np.ones(len(rows), np.bool_)
    batches, offsets = replica.batches, replica.records.offset
    markers = batches.base_offset[(batches.control != DATA) & (batches.count > 0)]
    there = np.sort(np.concatenate((offsets, markers)))
    missing = offsets[behind] > np.searchsorted(there, offsets[behind])
    return np.asarray((offsets[rows] < cleaned_up_to(view, replica)) & missing)


def perhaps_again(count: int, cluster: str) -> str:
    """The reason why out-of-order records are not judged (`written_again`)."""
    return (
        f"{count} records of {cluster} are behind later ones, where a log is compacted: whether "
        "the mirror wrote them again, and a cleaner took the first copies, cannot be known"
    )


class _Offsets:
    """Per record, the first offset at which it can have been, given its neighbours."""

    def __init__(self, at: Ints, *, once: bool) -> None:
        present, missing = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        self._gap = np.searchsorted(present, np.arange(len(at)))
        gap = self._gap[missing]
        begin, end = np.searchsorted(gap, gap), np.searchsorted(gap, gap, side="right")
        before: Ints = np.concatenate(([-1], np.maximum.accumulate(at[present])))
        after: Ints = np.concatenate((np.minimum.accumulate(at[present][::-1])[::-1], [FOREVER]))
        self._room = np.maximum(after - before - 1, 0)
        nth = np.arange(len(missing)) - begin
        self.first = at.copy()
        self.first[missing] = (
            before[gap] + 1 + np.minimum(nth, np.maximum(self._room[gap] - 1, 0))
            if once
            else np.minimum(before[gap], after[gap] - (end - begin) - 1) + 1 + nth
        )

    def beyond(self, rows: Ints, had: Bools) -> Bools:
        """The last rows that have no room between their neighbours; `had`: the rows that need an
        offset."""
        gap = self._gap[rows]
        before: Ints = np.cumsum(had) - had
        begin = np.searchsorted(gap, gap)
        return np.asarray(had & (before - before[begin] >= self._room[gap]))


def _at_offsets(holder: Replica, rows: Ints, offsets: Ints) -> tuple[Replica, Bools]:
    """Records of `holder` moved to their offsets in another log, and per row whether its key was
    read; rows without keys are left out."""
    at = locate(holder.parts.offset, holder.records.offset[rows])
    known = at >= 0
    moved = replace(holder.parts.take(at[known]), offset=offsets[known])
    return replace(up_to(holder, 0), parts=moved), known
