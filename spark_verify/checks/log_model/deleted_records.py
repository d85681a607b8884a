"""Records that are absent because the start of their log was deleted, or a cleaner removed them.

For a record with an acknowledged offset the start of the log decides. A record whose client died
before the acknowledgement has none, and still has to be there if its transaction was committed. A
poll may have returned it with its offset. Otherwise it lies between the records that the same
producer wrote before and after it: a producer's records are in a log in the order of its sequence
numbers (KIP-98). Between a record below the start of the log and one above it, or behind the last
known one, it is unknown whether it was deleted.

A cleaner takes a committed record for two reasons only (`log_model/cleaning.py`): a later record of
its key, which may itself be gone; or it is a tombstone that has expired. So the last record of a
key is there unless it was a tombstone. The bytes no longer say what key an absent record had.
Another copy of it does, or else the seed, from which linkflap's clients make their keys. A client
is believed to have done that if its records that are left have the keys that the seed says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT, Values
from linkflap.spark_verify.checks.log_model.cleaning import Cleaned, tombstones_expired, up_to
from linkflap.spark_verify.checks.log_model.generations import every
from linkflap.spark_verify.checks.log_model.logs import Log, among, changes, locate, together
from linkflap.spark_verify.checks.log_model.outcomes import (
    Outcomes,
    committed_uids,
    outcomes,
    planner,
    reads_of,
)
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import (
    DATA,
    NULL,
    Bools,
    Columns,
    Ints,
    PartitionView,
    Parts,
    Replica,
    digested,
)

COMPARED: Final = 256
"""Records of one client that are compared with what the seed says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent(Columns):
    """Records that clients sent, each at an offset from `first` to `last`. `must`: it was
    committed; `may`: it may have been; `read`: a read_committed poll returned it. `invoked` is in
    milliseconds."""

    uid: Ints
    first: Ints
    last: Ints
    invoked: Ints
    must: Bools
    may: Bools
    read: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """Per record, its key and value as `Parts` has them, and whether they are known. Of a value
    that only the seed tells, it is known whether it is null."""

    key: Ints
    value: Ints
    known: Bools


def deleted(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes, absent: Bools
) -> tuple[Bools, Bools]:
    """Per record of `what`: whether it was deleted, and whether it may have been.

    `absent` says of each whether the log lacks it. Records that are there, or were at or above
    everything deleted, are neither. Nor is a record that no cleaner takes.
    """
    start, floor = log.replica.log_start, view.compacted.get(generation.cluster, 0)
    certain = (what.acked >= 0) & (what.acked < start)
    doubtful = np.zeros(len(what), np.bool_)
    if not max(start, floor) or not absent.any():
        return certain, doubtful
    sent = _sent(view, generation, what)
    certain |= absent & (sent.last < start)
    asked = absent & ~certain & (sent.first < max(start, floor))
    below = asked & (sent.last < max(start, floor))
    doubtful = asked & ~below
    rows = np.flatnonzero(asked & what.must) if floor > start else np.empty(0, np.int64)
    if len(rows):
        taken = _taken(view, generation, log, sent, rows)
        below[rows] &= taken > 0
        doubtful[rows] &= taken > 0
        doubtful[rows] |= (taken < 0) | ((taken == 0) & (sent.first[rows] < start))
    return certain | below, doubtful


def _sent(view: PartitionView, generation: LogGeneration, what: Outcomes) -> _Sent:
    """Where records are, or were: behind an earlier and before a later one of their producer."""
    known = _known_offsets(view, generation, what)
    before, after = _between(what.uid, known)
    return _Sent(
        uid=what.uid,
        first=np.where(known >= 0, known, before + 1),
        last=np.where(known >= 0, known, after - 1),
        invoked=what.sends.column("invoked")[what.send] // 1_000_000,
        must=what.must,
        may=~what.refused & ~what.never,
        read=among(what.uid, committed_uids(view, generation)),
    )


def _taken(
    view: PartitionView, generation: LogGeneration, log: Log, sent: _Sent, rows: Ints
) -> Ints:
    """Per absent record that was committed, 1 where a cleaner may have taken it, 0 where none did,
    -1 where that cannot be known."""
    lacking, unnamed = _with_keys(view, log.replica)
    others = _others(view, generation, log, sent)
    expired = tombstones_expired(view, lacking)
    old = others.invoked <= (FOREVER if expired is None else expired)
    content = _contents(view, others.uid)
    exact = (others.must | others.read) & (others.first == others.last)
    deleting = np.flatnonzero(content.known & ~exact & old & (content.value == NULL))
    unnamed = max(unnamed, others.last[~content.known & old].max(initial=-1))
    copies = [r for r in view.replicas if r.cluster == lacking.cluster] if generation.last else []
    cleaner = Cleaned(
        lacking,
        [*copies, _gone(lacking, others, content, np.flatnonzero(content.known & exact))],
        upto=view.compacted[generation.cluster],
        expired=expired,
        perhaps=_gone(lacking, others, content, deleting).parts,
    )
    mine = sent.take(rows)
    said, index = _contents(view, mine.uid), np.arange(len(rows))
    at_most = cleaner.may_go(_gone(lacking, mine, said, index), index)
    at_least = cleaner.may_go(_gone(lacking, replace(mine, last=mine.first), said, index), index)
    found = np.where(at_most == 1, 1, np.where(at_least == 0, 0, -1))
    found[(found == 0) & (mine.first < unnamed)] = -1
    found[~said.known] = -1
    found[(mine.first == mine.last) & _held(lacking, mine.first)] = 0
    return found


def _others(view: PartitionView, generation: LogGeneration, log: Log, sent: _Sent) -> _Sent:
    """The records that clients wrote to a log, or may have, and that the log lacks. Where a mirror
    keeps offsets, also the records that it brought from clients of other clusters."""
    every_one = [sent]
    for other in every(view) if view.guarantee.offsets_kept else ():
        owned = [e for e in generation.eras if e.source and e.owner == other.cluster]
        if owned and other.cluster != generation.cluster:
            theirs = _sent(view, other, outcomes(view, other, earlier=False))
            for era in owned:
                came = theirs.take((theirs.last >= era.start) & (theirs.first < era.end))
                every_one.append(replace(came, last=np.minimum(came.last, era.end - 1)))
    sent = _Sent.one_after_the_other(every_one)
    return sent.take(sent.may & ~among(sent.uid, log.records.uid))


def _with_keys(view: PartitionView, replica: Replica) -> tuple[Replica, int]:
    """A log with every key that is known, and the last offset whose key is not."""
    records = replica.records
    rows = np.flatnonzero(locate(replica.parts.offset, records.offset) < 0)
    said = _contents(view, records.uid[rows])
    named = rows[said.known]
    more = Parts(
        offset=records.offset[named],
        uid=records.uid[named],
        timestamp=records.timestamp[named],
        key=said.key[said.known],
        value=said.value[said.known],
        headers=np.zeros(len(named), np.int64),
    )
    unnamed = int(records.offset[rows[~said.known]].max(initial=-1))
    return replace(replica, parts=Parts.one_after_the_other([replica.parts, more])), unnamed


def _gone(lacking: Replica, sent: _Sent, content: _Contents, rows: Ints) -> Replica:
    """Some records that a log lacks, as if they were all that is left of it."""
    parts = Parts(
        offset=sent.last[rows],
        uid=sent.uid[rows],
        timestamp=sent.invoked[rows],
        key=content.key[rows],
        value=content.value[rows],
        headers=np.zeros(len(rows), np.int64),
    )
    return replace(up_to(lacking, -1), parts=parts)


def _held(replica: Replica, offsets: Ints) -> Bools:
    """Per offset, whether a log has another record there, or a control record: then it never had
    the absent one."""
    controls = replica.batches.base_offset[replica.batches.control != DATA]
    return among(offsets, replica.records.offset) | among(offsets, controls)


def _contents(view: PartitionView, uids: Ints) -> _Contents:
    """The contents of records, also of those that are gone: from a copy, or else from the seed."""
    copies = [r.parts for r in view.replicas]
    uid, key, value = (
        together(getattr(c, name) for c in copies) for name in ("uid", "key", "value")
    )
    at, none = locate(uid, uids), np.zeros(len(uids), np.int64)
    found = _Contents(key=none, value=none.copy(), known=(at >= 0) & (uids >= 0))
    found.key[found.known], found.value[found.known] = (
        column[at[found.known]] for column in (key, value)
    )
    rest = np.flatnonzero(~found.known & (uids >= 0))
    clients, of_copies = _clients(view, uids[rest]), _clients(view, uid)
    for client in np.unique(clients[clients >= 0]).tolist():
        left = np.flatnonzero(of_copies == client)
        left = left[:: len(left) // COMPARED + 1]
        ways = _agreeing(view, *(column[left].tolist() for column in (uid, key, value)))
        for row in rest[clients == client].tolist():
            written = {_as_written(way, int(uids[row])) for way in ways}
            if len(written) == 1:
                (found.key[row], found.value[row]), found.known[row] = written.pop(), True
    return found


def _agreeing(
    view: PartitionView, uids: Sequence[int], keys: Sequence[int], values: Sequence[int]
) -> Sequence[Values]:
    """The ways to derive payloads from a seed that give what these records of a client have; none
    without records."""
    rows = [
        (uid, (key, NULL if value == NULL else 0))
        for uid, key, value in zip(uids, keys, values, strict=True)
    ]
    return [
        way
        for way in set(view.partition_facts.facts.values.values())
        if rows and all(_as_written(way, uid) == parts for uid, parts in rows)
    ]


def _clients(view: PartitionView, uids: Ints) -> Ints:
    """Per payload id, a number of the client that sent it, or -1."""
    at, clients = planner(uids, view.sends), Sends.of(view.sends).codes("client")[0]
    return np.where(at >= 0, np.append(clients, -1)[at], -1)


def _as_written(way: Values, uid: int) -> tuple[int, int]:
    return digested(way.key(uid)), NULL if way.value(uid) is None else 0


def _known_offsets(view: PartitionView, generation: LogGeneration, what: Outcomes) -> Ints:
    """The offset of each record as it was acknowledged, or as a poll returned it, or as the other
    end of a mirror has it that keeps offsets; else -1."""
    offsets = what.acked.copy()
    kept = view.guarantee.offsets_kept
    copies = [r.records for r in view.replicas if kept and r.cluster != generation.cluster]
    shown = [(read.uids, read.offsets) for read in reads_of(view, generation)]
    for uids, there in [*shown, *((records.uid, records.offset) for records in copies)]:
        at = locate(uids, what.uid)
        found = (at >= 0) & (offsets < 0)
        offsets[found] = there[at[found]]
    return offsets


def _between(uids: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Per record, the last offset up to it that is known of the same producer, or -1; and the end
    of where it may be: behind its own offset, or else at the next that is known, or `FOREVER`."""
    order = np.argsort(uids, kind="stable")
    known, process = offsets[order], uids[order] >> PROCESS_SHIFT
    # Offsets of one producer grow with its payload ids, so the maximum so far is the last known;
    # a new process number means a new producer.
    begins = np.flatnonzero(changes(process))
    ends = np.r_[begins[1:], len(order)][: len(begins)]
    before, after = np.empty_like(known), np.empty_like(known)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        mine = known[begin:end]
        before[begin:end] = np.maximum.accumulate(mine)
        later = np.where(mine >= 0, mine, FOREVER)
        follows = np.r_[np.minimum.accumulate(later[::-1])[::-1][1:], FOREVER]
        after[begin:end] = np.where(mine >= 0, mine + 1, follows)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return before[back], after[back]


def may_be_deleted(view: PartitionView, log: Log, records: int) -> str:
    """The reason why nothing is reported about records that may have been deleted."""
    where = f"{view.tp} of {log.cluster}"
    return (
        f"{records} records that had to be there have no acknowledged offset and are absent from "
        f"{where}, from which older records were deleted; they may be among those"
    )


def may_be_cleaned(view: PartitionView, log: Log, records: int) -> str:
    """The reason why nothing is reported about records that a cleaner may have taken."""
    cluster = log.cluster
    return (
        f"{records} acknowledged records are absent from {view.tp} of "
        f"{cluster}, below offset {view.compacted.get(cluster, 0)}, which is compacted, and whether"
        " a cleaner took them cannot be known"
    )
