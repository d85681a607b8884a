"""Payload ids of records without linkflap's header: from recordings of the wire, by content, or by
offset.

Programs of the user's write records without linkflap's header. With `record = "wire"` a batch is
identified by its producer id, epoch, first sequence and number of records, on the cluster whose
clients wrote it; where a mirror maps producer ids, by the id at the source. Where a client has used
these numbers for several batches, by the CRC too. A batch without a
producer id is identified by its acknowledged offset if its CRC is that of the produced batch, or by
its CRC alone if no offset was acknowledged. (Brokers that rewrite batches, for instance for
LogAppendTime, change every CRC: then the offset alone counts.) Equal batches without an
acknowledged offset have no name. A batch that was produced once and is also at another offset was
written twice. An unacknowledged batch of a transaction is judged only if the log has it, because a
client may commit without it. If a mirror moves offsets, a mirrored record has the name of the
source's record with the same content. A reader got the record that its cluster had at that offset
at that time; for a fetch on the wire this holds only if the CRC of the batch agrees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from linkflap.harness.model.guarantee import ProducerIds
from linkflap.harness.model.history import SHARE_KINDS
from linkflap.harness.model.payload import FOREIGN, PROCESS_SHIFT
from linkflap.spark_verify.checks.log_model.cleaning import offsets_missing
from linkflap.spark_verify.checks.log_model.generations import (
    compacted,
    eras_captured,
    recorded_truncations,
)
from linkflap.spark_verify.checks.log_model.logs import (
    among,
    changes,
    copies,
    each_at,
    locate,
    read,
)
from linkflap.spark_verify.checks.log_model.outcomes import uids_of
from linkflap.spark_verify.facts.eras import Era, history
from linkflap.spark_verify.facts.sends_and_reads import Read, Send, Sends
from linkflap.spark_verify.facts.view import DATA, Bools, Ints, PartitionView, Records, Replica
from linkflap.spark_verify.read.leader_acks import promised

_NO_ID: Final = -1
_LARGEST: Final = 2**63 - 1
_LOW: Final = 0x7FFFFFFF
_ABOVE_ALL: Final = 1 << 62
"""Names from here on: records that only a destination has."""
_OF_NOBODY: Final = _ABOVE_ALL + (1 << 61)
"""Names from here on: records that were fetched although no client produced them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """A batch that a client produced: its first payload id, and its operation."""

    uid: int
    operation: int


@dataclass(slots=True)
class _Asked:
    """The batches that the clients of one cluster produced."""

    by_sequence: dict[tuple[int, int, int, int], dict[int, _Name]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    by_offset: dict[int, list[tuple[int, int, _Name]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    by_crc: dict[tuple[int, int], list[_Name]] = field(default_factory=lambda: defaultdict(list))
    again: dict[tuple[int, int], list[_Name]] = field(default_factory=lambda: defaultdict(list))
    rewritten: bool = True
    crcs: set[int] = field(default_factory=set)

    def add(self, send: Send) -> None:
        name, size = _Name(uid=send.first_uid, operation=send.number), len(send.offsets)
        if send.producer_id != _NO_ID:
            key = send.producer_id, send.producer_epoch, send.sequence, size
            self.by_sequence[key].setdefault(send.crc, name)
        elif size and send.offsets[0] >= 0:
            self.by_offset[int(send.offsets[0])].append((send.crc, size, name))
            self.again[send.crc, size].append(name)
        else:
            self.by_crc[send.crc, size].append(name)

    def look_at(self, replica: Replica) -> None:
        """Finds out which of the batches the cluster's log has, and whether its brokers rewrite
        them."""
        batches = replica.batches
        self.crcs.update(batches.crc.tolist())
        for offset, crc in zip(batches.base_offset.tolist(), batches.crc.tolist(), strict=True):
            if any(there[0] == crc for there in self.by_offset.get(offset, ())):
                self.rewritten = False
                return

    def name(
        self, identity: tuple[int, int, int], offset: int, size: int, crc: int
    ) -> _Name | None:
        """The name of a batch, if these clients produced it. `identity`: producer id, epoch, first
        sequence."""
        if identity[0] != _NO_ID:
            equal = self.by_sequence.get((*identity, size), {})
            there = (each for of, each in equal.items() if of in self.crcs)
            return equal.get(crc) or next(chain(there, equal.values()), None)
        for of, count, name in reversed(self.by_offset.get(offset, ())):
            if count == size and (self.rewritten or of == crc):
                return name
        same = self.by_crc.get((crc, size), []) or self.again.get((crc, size), [])
        return same[0] if len(same) == 1 else None


def named_on_the_wire(seen: PartitionView) -> PartitionView:
    """The partition, with names for its records, which have none yet."""
    asked: dict[str, _Asked] = defaultdict(_Asked)
    for send in seen.sends:
        asked[send.cluster].add(send)
    for cluster, replica in seen.canonical().items():
        asked[cluster].look_at(replica)
    return _with_copies(
        seen,
        (_named(seen, replica, asked) for replica in seen.replicas),
        (_named(seen, replica, asked) for replica in seen.earlier),
    )


def named_by_offset(seen: PartitionView) -> PartitionView:
    """Names the records of a partition that has neither names nor a history, behind a mirror that
    moves offsets: native records by their cluster and offset, copies by their content. After a
    failback it is unknown from which log readers got their records, so nothing is named."""
    if seen.guarantee.offsets_kept or seen.earlier:
        return seen
    clusters = [cluster.name for cluster in seen.topology.clusters]

    def named(replica: Replica) -> Replica:
        offset = replica.records.offset
        uid = np.full(len(offset), FOREIGN, np.int64)
        shortened = replica.log_start > 0 or replica.cluster in seen.compacted
        unsure = (_copies(replica.records.digest) > 1) & shortened
        for era in eras_captured(seen, replica):
            own = (offset >= era.start) & (offset < era.end) & (not era.source)
            own &= ~unsure
            uid[own] = (clusters.index(replica.cluster) + 1 << PROCESS_SHIFT) + offset[own]
        return replace(replica, records=replace(replica.records, uid=uid))

    return _with_copies(seen, map(named, seen.replicas), ())


def _with_copies(
    seen: PartitionView, replicas: Iterable[Replica], earlier: Iterable[Replica]
) -> PartitionView:
    """The partition with these replicas. Named records of a source give their names to the copies
    at other offsets, and to the records of readers."""
    last, before = tuple(replicas), tuple(earlier)
    for _ in () if seen.guarantee.offsets_kept else seen.topology.clusters:
        last, before = _after_mirrors(seen, last, before)
    logs = [*sorted(before, key=lambda r: r.captured), *(r for r in last if r.canonical)]
    seen = replace(seen, sends=_promised_or_there(promised(seen, logs), logs))
    return replace(
        seen,
        replicas=last,
        earlier=before,
        reads=tuple(_read(seen, read, logs) for read in seen.reads),
        shares=tuple(_read(seen, read, logs) for read in seen.shares),
    )


def _promised_or_there(sends: Sequence[Send], logs: Sequence[Replica]) -> Sequence[Send]:
    """The sends without unacknowledged batches of transactions that their cluster lacks: a client
    may commit without them."""
    every = Sends.of(sends)
    keep = ~every.says("kind", "transaction")
    acknowledged = every.each("offsets") >= 0
    keep[np.repeat(np.arange(len(every)), every.sizes)[acknowledged]] = True
    for cluster in every.words("cluster"):
        there = [log.records.uid for log in logs if log.cluster == cluster]
        mine = every.says("cluster", cluster)
        uids = np.concatenate([np.empty(0, np.int64), *there])
        keep |= mine & np.isin(every.column("first_uid"), uids)
    return every.take(keep)


def _named(seen: PartitionView, replica: Replica, asked: Mapping[str, _Asked]) -> Replica:
    if not len(replica.records):
        return replica
    batches, how = replica.batches, seen.guarantee.producer_ids
    uids = np.full(len(batches), FOREIGN, np.int64)
    operations = uids.copy()
    eras = eras_captured(seen, replica)
    columns = (
        batches.base_offset,
        batches.last_offset,
        batches.crc,
        _at_source(batches.producer_id, how),
        batches.producer_epoch,
        batches.base_sequence,
        batches.control,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (base, last, crc, producer_id, epoch, sequence, control) in enumerate(rows):
        identity = producer_id, epoch, sequence
        if control == DATA:
            for cluster in _owners(eras, base, asked, replica.cluster, seen):
                found = asked[cluster].name(identity, base, last - base + 1, crc)
                if found is not None:
                    uids[row], operations[row] = found.uid, found.operation
                    break
    records = replica.records
    first = uids[records.batch]
    index = records.offset - batches.base_offset[records.batch]
    return replace(
        replica,
        records=replace(
            records,
            uid=np.where(first == FOREIGN, FOREIGN, first + index),
            operation=operations[records.batch],
        ),
    )


def _owners(
    eras: Sequence[Era], offset: int, asked: Iterable[str], cluster: str, seen: PartitionView
) -> Iterable[str]:
    """The clusters whose clients may have written the record at an offset, the most likely one
    first. A mirror that moves offsets writes as a client."""
    owner = next((era.owner for era in eras if era.start <= offset < era.end), "")
    if not seen.guarantee.offsets_kept:
        return [cluster] if owner == cluster and cluster in asked else []
    return sorted(asked, key=lambda name: (name != owner, name))


def _after_mirrors(seen: PartitionView, *some: Sequence[Replica]) -> Iterator[tuple[Replica, ...]]:
    """Replicas and earlier ones, with what is mirrored from those replicas named."""
    sources = {r.cluster: r for r in some[0] if r.canonical}
    for each in some:
        yield tuple(_mirrored(seen, replica, sources) for replica in each)


def _mirrored(seen: PartitionView, replica: Replica, sources: Mapping[str, Replica]) -> Replica:
    """A replica with the names of the records that were mirrored to it, by their content. A record
    that the source never had is named by its own offset, above all others."""
    records = replica.records
    uids, operations = records.uid.copy(), records.operation.copy()
    for era in eras_captured(seen, replica):
        source = sources.get(era.source)
        if source is None or not len(records):
            continue
        mine = np.flatnonzero((records.offset >= era.start) & (records.offset < era.end))
        theirs = records.take(mine)
        visible = read(replica).visible[mine]
        names, known = content_names(source, theirs, visible)
        shortened = source.log_start > 0 or source.cluster in seen.compacted
        begun_later = _lacks(seen, replica)
        unsure = _ambiguous(seen, theirs.digest, visible, known, shortened, begun_later)
        if shortened or replica.log_start > 0:
            unsure |= known == 0
        names = np.where(unsure, FOREIGN, names)
        uids[mine] = names
        at = locate(source.records.uid, names)
        operations[mine] = each_at(source.records.operation, at, FOREIGN)
    return replace(replica, records=replace(records, uid=uids, operation=operations))


def _at_source(ids: Ints, how: ProducerIds) -> Ints:
    """The producer ids that mapped ones have at the source."""
    if how == "negate":
        return np.where(ids < _NO_ID, -(ids + 2), ids)
    if how == "complement":
        return np.where(ids > _LARGEST // 2, _LARGEST - ids - 1, ids)
    return np.where(ids < _NO_ID, ids & _LOW, ids) if how == "region" else ids


def _read(seen: PartitionView, read: Read, logs: Sequence[Replica]) -> Read:
    """A read with the names that the log of its cluster has at its offsets. A record that was
    deleted since has the name of the one that was acknowledged there; any other that may
    be gone since is left out. (What was fetched on the wire is named by `fetched_on_the_wire`.)"""
    mine = [log for log in logs if log.cluster == read.cluster]
    log = _log_read(seen, read, mine)
    if log is None or not len(log.records):
        return read
    at = locate(log.records.offset, read.offsets)
    uids, known = each_at(log.records.uid, at, FOREIGN), at >= 0
    if len(read.crcs) or read.kind in SHARE_KINDS or known.all():
        return replace(read, uids=uids)
    _acknowledged_there(seen, read, uids, known, read.offsets < log.log_start)
    cleaned = read.offsets < seen.compacted.get(read.cluster, 0)
    kept = known | ~(cleaned | _perhaps_gone(seen, read, mine))
    return replace(read, uids=uids[kept], offsets=read.offsets[kept])


def _log_read(seen: PartitionView, got: Read, logs: Sequence[Replica]) -> Replica | None:
    """The captured log of its cluster that a reader read: the next one. Until a reversal is over it
    may be the one before the truncation, of which readers also hand over records afterwards: the
    log that has what the reader got, and least besides."""
    following = (log for log in logs if log.captured >= got.returned)
    after = next(following, logs[-1] if logs else None)
    for turn in history(seen.partition_facts).generations.get(got.cluster, ())[1:]:
        before = next((log for log in reversed(logs) if 0 < log.captured < turn.began), None)
        if after is None or before is None or before.captured >= got.returned:
            continue
        if got.time <= turn.settled:
            either = (before, after) if got.returned <= turn.began else (after, before)
            return min(either, key=lambda log: _apart(log, got))
    return after


def _apart(log: Replica, got: Read) -> int:
    """How many records a poll has that the log lacks, or the log has between the first and the last
    one of the poll that this lacks."""
    if not len(got.offsets):
        return 0
    offsets = log.records.offset
    there = (offsets >= got.offsets.min()) & (offsets <= got.offsets.max())
    if got.isolation == "read_committed":
        there &= read(log).visible
    return len(np.setxor1d(offsets[there], got.offsets))


def fetched_on_the_wire(seen: PartitionView) -> PartitionView:
    """The partition. Reads recorded on the wire get the payload ids that their cluster, or one that
    mirrors it, had at that offset in a batch with the same CRC; acknowledgements of share groups
    get those that it had at that offset.

    A cleaner changes the CRC of the batches that it shortens, so below its checkpoint the offset
    alone counts. A record that a cleaner or retention removed has the name of the record
    acknowledged at its offset. Any other record that no log has is named as the batch that a client
    produced, is left out if it may have been removed since, or else gets a name that no record has.
    """
    if not any(len(read.crcs) for read in (*seen.reads, *seen.shares)):
        return seen
    logs = [
        *sorted(seen.earlier, key=lambda r: r.captured),
        *(r for r in seen.replicas if r.canonical),
    ]
    asked: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for send in seen.sends:
        if send.crc >= 0:
            asked[send.crc].append((send.first_uid, len(send.offsets)))
    wired = {(r.reader, r.process) for r in seen.shares if len(r.crcs)}

    def named(read: Read) -> Read:
        if len(read.crcs):
            return _fetched(seen, read, logs, asked)
        return _read(seen, read, logs) if (read.reader, read.process) in wired else read

    return replace(seen, reads=tuple(map(named, seen.reads)), shares=tuple(map(named, seen.shares)))


def _fetched(
    seen: PartitionView,
    read: Read,
    logs: Sequence[Replica],
    asked: Mapping[int, Sequence[tuple[int, int]]],
) -> Read:
    mine = [log for log in logs if log.cluster == read.cluster]
    uids = _OF_NOBODY + read.offsets
    known = np.zeros(len(uids), np.bool_)
    cleaned = read.offsets < seen.compacted.get(read.cluster, 0)
    mirrored = [log for log in logs if log.cluster != read.cluster]
    for log in (*sorted(mine, key=lambda log: log.captured < read.returned), *mirrored):
        at = locate(log.records.offset, read.offsets)
        there = (at >= 0) & ~known
        same = log.batches.crc[log.records.batch[at[there]]] == read.crcs[there]
        there[there] &= same | (cleaned[there] & (log.cluster == read.cluster))
        uids[there] = log.records.uid[at[there]]
        known |= there
    if not known.all():
        _asked_for(read, uids, known, asked)
        start = max((log.log_start for log in mine), default=0)
        _acknowledged_there(seen, read, uids, known, cleaned | (read.offsets < start))
    kept = known | ~(cleaned | _perhaps_gone(seen, read, mine))
    return replace(read, uids=uids[kept], offsets=read.offsets[kept], crcs=read.crcs[kept])


def _acknowledged_there(
    seen: PartitionView, read: Read, uids: Ints, known: Bools, gone: Bools
) -> None:
    """Names records that were deleted or compacted since by the record acknowledged at their
    offset."""
    sends = Sends.of(seen.sends)
    sends = sends.take(sends.says("cluster", read.cluster))
    names = uids_of(sends)[0]
    at = locate(sends.each("offsets"), read.offsets)
    there = (at >= 0) & gone & ~known
    uids[there] = names[at[there]]
    known |= there


def _perhaps_gone(seen: PartitionView, read: Read, logs: Sequence[Replica]) -> Bools:
    """Per fetched record, whether the log may have had it at that time, although these captured
    logs lack it: the record was deleted, lost or truncated since, or the logs are torn."""
    if not logs or any(log.damage for log in logs):
        return np.ones(len(read.offsets), np.bool_)
    gone = read.offsets < max(log.log_start for log in logs)
    for loss in (loss for window in seen.windows for loss in window.lost):
        if (loss.cluster, loss.topic, loss.partition) == (read.cluster, seen.topic, seen.partition):
            gone |= (read.offsets >= loss.start) & (read.offsets < loss.end)
    for time, offset in recorded_truncations(seen, read.cluster):
        gone |= (read.offsets >= offset) & (read.time <= time)
    return np.asarray(gone)


def _asked_for(
    read: Read, uids: Ints, known: Bools, asked: Mapping[int, Sequence[tuple[int, int]]]
) -> None:
    """Names fetched records that no log has and exactly one client produced. A fetch returns the
    end of a batch."""
    begins = np.flatnonzero(changes(read.crcs, read.offsets - np.arange(len(uids))))
    for start, end in zip(begins, [*begins[1:], len(uids)], strict=True):
        sent = asked.get(int(read.crcs[start]), ())
        if not known[start] and len(sent) == 1 and end - start <= sent[0][1]:
            first, size = sent[0]
            uids[start:end] = first + np.arange(size - (end - start), size)
            known[start:end] = True


def named_by_content(seen: PartitionView) -> PartitionView:
    """Names the records of logs that linkflap did not record, where a mirror moves offsets: by the
    offset at the source of the record with the same content.

    Of several records with one content, the first visible copy is the source's first record, and so
    on; surplus copies repeat the last. If either log has lost its beginning or was compacted, it is
    unknown which copies are left. Then contents that the source has more than once get no name.
    Neither do contents that the destination has more than once, if the source may have deleted such
    records. A record that the source lacks is named by its own offset, above all others.
    """
    source = seen.canonical().get(seen.home)
    if source is None or len(seen.canonical()) < 2:
        return seen
    ours = source.records
    by_offset = replace(source, records=replace(ours, uid=ours.offset))

    def named(replica: Replica) -> Replica:
        theirs = replica.records
        visible = read(replica).visible
        uid, known = content_names(by_offset, theirs, visible)
        lost = _lacks(seen, source), _lacks(seen, replica)
        uid = np.where(_ambiguous(seen, theirs.digest, visible, known, *lost), FOREIGN, uid)
        nobody = np.full(len(theirs), FOREIGN, np.int64)
        return replace(replica, records=replace(theirs, uid=uid, operation=nobody))

    own = np.where(_lacks(seen, source) & (_copies(ours.digest) > 1), FOREIGN, ours.offset)
    nobody = np.full(len(ours), FOREIGN, np.int64)
    return replace(
        seen,
        replicas=tuple(
            named(replica)
            if replica.cluster != source.cluster
            else replace(replica, records=replace(ours, uid=own, operation=nobody))
            if replica is source
            else replica
            for replica in seen.replicas
        ),
    )


def _lacks(seen: PartitionView, replica: Replica) -> bool:
    """Whether a log may have had more records: its beginning was deleted, or a cleaner removed
    some."""
    cleaned = compacted(seen, replica) > 0
    return replica.log_start > 0 or (cleaned and offsets_missing(seen, replica) > 0)


def content_names(source: Replica, theirs: Records, visible: Bools) -> tuple[Ints, Ints]:
    """Per record of another log, the payload id of the source's record with the same content, and
    how many of these the source has; its own offset, above all others, where it has none."""
    ours, shown = source.records, read(source).visible
    rows = np.concatenate((np.flatnonzero(shown), np.flatnonzero(~shown)))
    order = np.argsort(ours.digest[rows], kind="stable")
    digests, names = ours.digest[rows][order], ours.uid[rows][order]
    first = np.searchsorted(digests, theirs.digest)
    count = np.searchsorted(digests, theirs.digest, side="right") - first
    seen = np.sort(ours.digest[shown])
    seen_there = np.searchsorted(seen, theirs.digest, side="right") - np.searchsorted(
        seen, theirs.digest
    )
    known = np.where(seen_there > 0, seen_there, count)
    nth = _occurrence(theirs.digest, visible)
    if not len(names):
        return _ABOVE_ALL + theirs.offset, known
    at = np.minimum(first + np.minimum(nth, known - 1), len(names) - 1)
    return np.where(count > 0, names[at], _ABOVE_ALL + theirs.offset), known


def _ambiguous(
    seen: PartitionView,
    digests: Ints,
    visible: Bools,
    known: Ints,
    deleted: bool,
    begun_later: bool,
) -> Bools:
    """Per record of a destination, whether it is unknown which source record is its original.
    `known`: the number of source records with its content; `deleted`: the source may have deleted
    some; `begun_later`: the destination may have lost its first ones."""
    again, nth = np.zeros(len(digests), np.bool_), copies(digests[visible])[1]
    several = known > 1
    if deleted and (several.any() or seen.guarantee.delivery == "exactly-once"):
        again = among(digests, digests[visible][nth > 0])
    return again | (several & (deleted or begun_later))


def _occurrence(digests: Ints, visible: Bools) -> Ints:
    """Per record, the number of earlier records with the same content; invisible records count as
    the last."""
    order = np.lexsort((np.arange(len(digests)), ~visible, digests))
    ordered = digests[order]
    begins = np.flatnonzero(changes(ordered))
    nth = np.empty(len(digests), np.int64)
    lengths = np.diff(np.append(begins, len(ordered)))
    nth[order] = np.arange(len(ordered)) - np.repeat(begins, lengths)
    return nth


def _copies(digests: Ints) -> Ints:
    """Per record, how many have the same content."""
    _, which, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return np.asarray(counts[which.ravel()], np.int64)
