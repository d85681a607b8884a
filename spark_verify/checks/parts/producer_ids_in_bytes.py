"""Producer ids that two clusters, or two producers, have used, by the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.checks.base import Finding, Found, PartialFinding
from linkflap.spark_verify.checks.parts.generation_clients import sends_of
from linkflap.spark_verify.checks.parts.generations import examined, native, owners_of
from linkflap.spark_verify.checks.parts.logs import Log
from linkflap.spark_verify.checks.parts.producer_sessions import NEW, beginnings, sessions
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import (
    DATA,
    OTHER_CONTROL,
    Bools,
    Ints,
    PartitionView,
    Replica,
)

KIND = "producer-id-collision"


def uses_in_bytes(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    replica, batches, records = log.replica, log.replica.batches, log.replica.records
    with_id = (batches.producer_id >= 0) & (batches.control == DATA)
    here = with_id & native(generation, batches.base_offset)
    process = np.full(len(batches), -1, np.int64)
    ours = np.flatnonzero(records.uid >= 0)
    process[records.batch[ours][::-1]] = records.uid[ours][::-1] >> PROCESS_SHIFT
    taken = _twice(generation, replica, with_id, process)
    taken += _adopted(
        view,
        generation,
        replica,
        with_id,
        process,
        {int(str(f.evidence["producer_id"])) for f in taken},
    )
    findings: list[Finding] = [*examined(generation, batches.base_offset[with_id]), *taken]
    if here.any() or any(e.origin == "native" for e in generation.eras):
        findings += _refused(
            view,
            generation,
            replica,
            with_id & ~here,
            {int(str(f.evidence["producer_id"])) for f in taken},
        )
    return [
        *findings,
        *_partials(generation.cluster, replica, np.flatnonzero(here & (process >= 0)), process),
    ]


def _twice(
    generation: LogGeneration, replica: Replica, with_id: Bools, process: Ints
) -> list[Found]:
    """Batches with an id that another cluster's producer wrote with after the last reset before
    them; one finding per id.

    Both may have been mirrored: then two clusters upstream handed it out (KIP-1279, chains).
    """
    batches = replica.batches
    owner, resets = (
        owners_of(generation, batches.base_offset),
        np.cumsum(batches.control == OTHER_CONTROL),
    )
    names = sorted({e.owner for e in generation.eras})
    order = np.flatnonzero(with_id)
    order = order[np.lexsort((order, resets[order], batches.producer_id[order]))]
    pid, whose = batches.producer_id[order], owner[order]
    same = (pid[1:] == pid[:-1]) & (resets[order][1:] == resets[order][:-1])
    found: dict[int, Found] = {}
    for i in np.flatnonzero(same & (whose[1:] != whose[:-1])).tolist():
        by = [names[int(whose[i])], names[int(whose[i + 1])]]
        found.setdefault(
            int(pid[i]),
            _taken(generation, replica, process, (int(order[i]), int(order[i + 1])), by),
        )
    return list(found.values())


def _taken(
    generation: LogGeneration,
    replica: Replica,
    process: Ints,
    rows: tuple[int, int],
    by: Sequence[str],
) -> Found:
    """An id that two clusters handed out: the batch of the one before, and that of the other
    one."""
    batches, (before, index) = replica.batches, rows
    evidence = {
        "producer_id": int(batches.producer_id[index]),
        "producer_epoch": int(batches.producer_epoch[index]),
        "mirrored_offset": int(batches.base_offset[before]),
        "handed_out_by": by,
        "processes": [int(process[before]), int(process[index])],
    }
    return Found(
        kind=KIND,
        cluster=generation.cluster,
        offset=int(batches.base_offset[index]),
        evidence=evidence,
    )


def _adopted(
    view: PartitionView,
    generation: LogGeneration,
    replica: Replica,
    with_id: Bools,
    process: Ints,
    known: set[int],
) -> Sequence[Found]:
    """Ids that go on behind a reset where another cluster's producer ended, and did not begin
    there; one finding per id."""
    batches, found = replica.batches, dict[int, Found]()
    every = sessions(
        generation, replica, np.flatnonzero(with_id & batches.crc_ok & (batches.base_sequence >= 0))
    )
    first = batches.base_sequence[every.row]
    chosen = (every.adopted >= 0) & (first != 0) & ~(every.follows | every.owned | every.deleted)
    chosen &= beginnings(view, generation, replica, every, chosen) == NEW
    for i in np.flatnonzero(chosen).tolist():
        rows = int(every.adopted[i]), int(every.row[i])
        pid = int(batches.producer_id[rows[1]])
        if pid not in known:
            by = [generation.era(int(batches.base_offset[row])).owner for row in rows]
            found.setdefault(pid, _taken(generation, replica, process, rows, by))
    return list(found.values())


def _refused(
    view: PartitionView,
    generation: LogGeneration,
    replica: Replica,
    mirrored: Bools,
    known: set[int],
) -> Sequence[Found]:
    """Mirrored ids that the cluster handed out as well, whose producers have nothing in the bytes:
    refused, or acknowledged as repeats. One finding per id, at the first offset that was
    acknowledged, -1 when none was."""
    batches, found = replica.batches, dict[int, Found]()
    resets = batches.base_offset[batches.control == OTHER_CONTROL]
    sends = sends_of(view, generation)
    sends = sends.take(np.argsort(sends.column("invoked"), kind="stable"))
    for send in sends.take(np.sort(np.unique(sends.column("producer_id"), return_index=True)[1])):
        if send.producer_id in known:
            continue
        theirs = np.flatnonzero(mirrored & (batches.producer_id == send.producer_id))
        if not len(theirs) or (resets > (last := int(batches.base_offset[theirs[-1]]))).any():
            continue
        acked = send.offsets[send.offsets >= 0]
        evidence = {
            "producer_id": send.producer_id,
            "producer_epoch": send.producer_epoch,
            "mirrored_offset": last,
            "client": send.client,
            "operation": send.number,
            "outcome": send.outcome,
        }
        offset = int(acked[0]) if len(acked) else -1
        found[send.producer_id] = Found(
            kind=KIND, cluster=replica.cluster, offset=offset, evidence=evidence
        )
    return list(found.values())


def _partials(
    cluster: str, replica: Replica, chosen: Ints, process: Ints
) -> Iterator[PartialFinding]:
    """One partial finding per (producer id, process) of this partition."""
    batches = replica.batches
    pairs = (
        np.stack((batches.producer_id[chosen], process[chosen]), axis=1)
        if len(chosen)
        else np.empty((0, 2), np.int64)
    )
    keys, which = np.unique(pairs, axis=0, return_inverse=True)
    for i, (pid, owner) in enumerate(keys.tolist()):
        mine = chosen[which.ravel() == i]
        epochs = batches.producer_epoch[mine]
        data = {
            "from": "bytes",
            "producer_id": pid,
            "process": owner,
            "epochs": [int(epochs.min()), int(epochs.max())],
            "batches": len(mine),
        }
        yield PartialFinding(cluster=cluster, offset=int(batches.base_offset[mine[0]]), data=data)
