"""The cluster whose producers continue with an id behind a reset of the partition's producer state
(KIP-1279, MIRROR_PID_RESET).

A mirror that ends appends a reset: the clients of another cluster wrote what follows, and the
leader knows none of the ids before it. An id may continue above sequence 0 behind a reset for two
reasons. It is of an earlier session of this cluster (a session of A survives a failover from A and
the failback to it). Or the leader took the first records of a new producer for repeats of mirrored
ones, acknowledged them, and appended nothing (Redpanda PR 31659).

A **section** is the part of a log between two resets. If the eras of a log are known, so are the
owners of its sections. If they are not (only one cluster's logs), neighbouring sections have
different owners, and others may have the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from linkflap.spark_verify.checks.log_model.generations import (
    eras_of,
    generations,
    owners_of,
    replica_of,
)
from linkflap.spark_verify.checks.log_model.logs import changes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import (
    DATA,
    OTHER_CONTROL,
    Bools,
    Ints,
    PartitionView,
    Replica,
)

WRAP = 2**31
"""Sequence numbers go from 0 to 2^31 - 1, and on with 0."""
NEW, TRUNCATED, UNKNOWN = range(3)
"""Where a session that is not seen to begin began: nowhere, in what was truncated of its cluster's
log, or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Data batches by producer id, owner and place in the log, one element each; `row` is an index
    into the log's batches.

    `follows`: the element before is the same owner's, in the same section. `goes_on`: the element
    before is the same owner's of an earlier era, in the same epoch. `owned`: the owner had this id
    and epoch in an earlier section, or may have had them there and ended below this. `adopted`: the
    row of the batch of another cluster, with the same id and epoch and in an earlier section,
    behind whose last sequence this one begins; else -1. `deleted`: an earlier batch of the owner
    may have been deleted with the log's beginning. `maybe_truncated`: the owner had, or may have
    had, an earlier era, whose end may have been truncated.
    """

    row: Ints
    section: Ints
    follows: Bools
    goes_on: Bools
    owned: Bools
    adopted: Ints
    deleted: Bools
    maybe_truncated: Bools


def sections_of(replica: Replica) -> Ints:
    """Per batch, how many resets of the producer state lie before it."""
    return np.cumsum(replica.batches.control == OTHER_CONTROL)


def sessions(generation: LogGeneration, replica: Replica, rows: Ints) -> Sessions:
    """Sorts data batches (`rows`, in file order) into sessions."""
    batches = replica.batches
    section, offset = sections_of(replica)[rows], batches.base_offset[rows]
    pid, owner = batches.producer_id[rows], owners_of(generation, offset)
    era = eras_of(generation, offset) // 2
    order = np.lexsort((rows, owner, pid))
    rows, section = rows[order], section[order]
    owner, era = owner[order], era[order]
    offset = offset[order]
    pid, epoch = batches.producer_id[rows], batches.producer_epoch[rows]
    alike = ~changes(pid, owner)
    owned, known = _owned(pid, owner, epoch, section, era)
    owned = known | _behind_an_owner(replica, rows, (pid, owner, epoch), section, owned & ~known)
    first_era, starts = _first_eras(generation, owner), np.array([e.start for e in generation.eras])
    return Sessions(
        row=rows,
        section=section,
        follows=alike & ~changes(section),
        goes_on=alike & ~changes(epoch) & known & changes(section),
        owned=owned,
        adopted=_adopted(replica, rows, section, owner, era),
        deleted=starts[first_era] < replica.log_start,
        maybe_truncated=(first_era < era)
        | (section - _sections_before(generation, replica)[era] > 1),
    )


def _owned(pid: Ints, owner: Ints, epoch: Ints, section: Ints, era: Ints) -> tuple[Bools, Bools]:
    """Whether the owner had the id and epoch in an earlier section, or may have; and whether it is
    known: in an earlier era."""
    if not section.any():
        return np.zeros(len(pid), np.bool_), np.zeros(len(pid), np.bool_)
    order = np.lexsort((np.arange(len(pid)), epoch, owner, pid))
    heads = changes(pid[order], owner[order], epoch[order])
    first = np.empty(len(pid), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(heads, np.arange(len(pid)), 0))]
    known = (era[first] < era) & (section[first] < section)
    return known | (section - section[first] > 1), known


def _behind_an_owner(
    replica: Replica, rows: Ints, key: tuple[Ints, Ints, Ints], section: Ints, chosen: Bools
) -> Bools:
    """Per batch of `chosen` that begins a session, whether it is behind the end of one in a section
    that may have its owner.

    Where no such session ended below it, it repeats that one's sequences or another producer's
    begin above 0: both are wrong.
    """
    found = chosen.copy()
    first, last = replica.batches.base_sequence[rows], replica.batches.last_sequence[rows]
    begins = chosen & (first > 0) & changes(*key, section)
    order = np.lexsort((rows, *reversed(key)))
    heads = np.flatnonzero(changes(*(column[order] for column in key)))
    for index in np.flatnonzero(begins[order]).tolist():
        head = heads[np.searchsorted(heads, index, "right") - 1]
        earlier, at = order[head:index], order[index]
        ends = earlier[np.diff(section[earlier], append=section[at]) > 0]
        ends = ends[section[ends] < section[at] - 1]
        found[at] = bool(((first[at] - last[ends] - 1) % WRAP < WRAP // 2).any())
    return found


def _adopted(replica: Replica, rows: Ints, section: Ints, owner: Ints, era: Ints) -> Ints:
    """Per batch the row before it with its id and epoch, of another cluster and section, whose
    sequence it continues; else -1."""
    found = np.full(len(rows), -1, np.int64)
    if not section.any():
        return found
    batches = replica.batches
    order = np.lexsort((rows, batches.producer_epoch[rows], batches.producer_id[rows]))
    at = rows[order]
    alike = ~changes(batches.producer_id[at], batches.producer_epoch[at])
    stranger = changes(owner[order]) | (
        ~changes(era[order]) & (np.diff(section[order], prepend=0) == 1)
    )
    expected = (np.concatenate(([0], batches.last_sequence[at][:-1])) + 1) % WRAP
    chosen = alike & stranger & changes(section[order]) & (batches.base_sequence[at] == expected)
    found[order[chosen]] = at[np.flatnonzero(chosen) - 1]
    return found


def _first_eras(generation: LogGeneration, owner: Ints) -> Ints:
    """The number of the first era of each owner."""
    names = [each.owner for each in generation.eras]
    first = np.array([names.index(name) for name in sorted({*names})], np.int64)
    return first[owner]


def _sections_before(generation: LogGeneration, replica: Replica) -> Ints:
    """Per era, how many resets lie before it."""
    resets = replica.batches.base_offset[replica.batches.control == OTHER_CONTROL]
    return np.array([np.count_nonzero(resets < era.start) for era in generation.eras], np.int64)


def truncated(view: PartitionView, owner: str) -> Collection[tuple[int, int]] | None:
    """Ids and epochs of data in what was truncated of a cluster's log; None where that was not
    captured."""
    mine = generations(view).get(owner, ())
    found: set[tuple[int, int]] = set()
    for before in mine[:-1]:
        replica = replica_of(view, before)
        if replica is None or replica.damage:
            return None
        batches = replica.batches
        tail = (batches.control == DATA) & (batches.base_offset >= before.truncated_to)
        found |= set(
            zip(
                batches.producer_id[tail].tolist(),
                batches.producer_epoch[tail].tolist(),
                strict=True,
            )
        )
    return found if len(mine) > 1 else None


def beginnings(
    view: PartitionView, generation: LogGeneration, replica: Replica, among: Sessions, chosen: Bools
) -> Ints:
    """Per element of `chosen`, whose owner is not known to have had its id and epoch: NEW,
    TRUNCATED or UNKNOWN.

    What goes on exactly where another cluster's producer ended was not truncated.
    """
    found, batches = np.full(len(chosen), NEW, np.int64), replica.batches
    for i in np.flatnonzero(chosen & among.maybe_truncated).tolist():
        row = among.row[i]
        tail = truncated(view, generation.era(int(batches.base_offset[row])).owner)
        if tail is None and among.adopted[i] < 0:
            found[i] = UNKNOWN
        elif (
            tail is not None
            and (int(batches.producer_id[row]), int(batches.producer_epoch[row])) in tail
        ):
            found[i] = TRUNCATED
    return found
