"""producer-id-uniqueness: a producer id belongs to one producer (KIP-98; the consequences of a
collision: Redpanda PR 31659, KIP-1279).

Within a cluster, two producer incarnations may share an id only one after the other, with rising
epochs, as when a transactional id fences its predecessor. Two transactional ids never share a
producer id. Within a partition, an id that the cluster assigned must differ from every id that the
mirror wrote there, unless the partition's producer state was reset in between. Otherwise the broker
takes new batches for repeated ones, acknowledges them, and appends nothing; or it refuses them as
out of order. Behind a reset an id may be used again. But if it continues exactly where the mirrored
id ended, the broker took both for one producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Finding,
    Found,
    PartialFinding,
    grouped,
)
from linkflap.spark_verify.checks.log_model.generations import (
    examined,
    judged,
    native,
    owners_of,
    sends_of,
)
from linkflap.spark_verify.checks.log_model.logs import Log
from linkflap.spark_verify.checks.log_model.producer_sessions import NEW, beginnings, sessions
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Sends
from linkflap.spark_verify.facts.view import (
    DATA,
    OTHER_CONTROL,
    Bools,
    Ints,
    PartitionView,
    Replica,
)

KIND = "producer-id-collision"


def uses_in_bytes(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    replica, batches, records = log.replica, log.batches, log.records
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
        {f.evidence["producer_id"] for f in taken},
    )
    yield from examined(generation, batches.base_offset[with_id])
    yield from taken
    if here.any() or any(e.origin == "native" for e in generation.eras):
        yield from _refused(
            view,
            generation,
            replica,
            with_id & ~here,
            {f.evidence["producer_id"] for f in taken},
        )
    yield from _partials(
        generation.cluster, replica, np.flatnonzero(here & (process >= 0)), process
    )


def _twice(
    generation: LogGeneration, replica: Replica, with_id: Bools, process: Ints
) -> list[Found]:
    """Batches whose id another cluster's producer used since the last reset; one finding per id.

    If both were mirrored, two upstream clusters assigned the id (KIP-1279, chains).
    """
    batches = replica.batches
    owner = owners_of(generation, batches.base_offset)
    resets = np.cumsum(batches.control == OTHER_CONTROL)
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
    """The finding of an id that two clusters assigned, with the earlier and the later batch."""
    batches, (before, index) = replica.batches, rows
    return Found.at(
        KIND,
        generation.cluster,
        batches.base_offset[index],
        producer_id=batches.producer_id[index],
        producer_epoch=batches.producer_epoch[index],
        mirrored_offset=batches.base_offset[before],
        handed_out_by=by,
        processes=[process[before], process[index]],
    )


def _adopted(
    view: PartitionView,
    generation: LogGeneration,
    replica: Replica,
    with_id: Bools,
    process: Ints,
    known: set[int],
) -> Sequence[Found]:
    """Ids that continue behind a reset where another cluster's producer ended, instead of beginning
    at 0; one finding per id."""
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
    """Mirrored ids that the cluster assigned too, to producers without any batch in the log: the
    broker refused their batches, or acknowledged them as repeats. One finding per id, at the first
    offset that was acknowledged, -1 when none was."""
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
        found[send.producer_id] = Found.at(KIND, replica.cluster, offset, **evidence)
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


def kernel(view: PartitionView) -> Sequence[Finding]:
    """The uses of producer ids in this partition's bytes and in clients' reports, as partial
    findings; ids that two clusters assigned, as findings."""
    return [*judged(view, uses_in_bytes), *_reported(view)]


def _reported(view: PartitionView) -> Iterator[PartialFinding]:
    """The producers' own reports of their ids: the only trace of a producer whose records never
    reached a log."""
    sends = Sends.of(view.sends)
    sends = sends.take(sends.column("producer_id") >= 0)
    clusters, ids = sends.codes("cluster")[0], sends.codes("transactional_id")[0]
    keys = np.stack((clusters, sends.column("producer_id"), sends.column("process"), ids), axis=1)
    for key in np.unique(keys, axis=0) if len(sends) else ():
        mine = sends.take((keys == key).all(axis=1))
        first, epochs = mine[0], mine.column("producer_epoch")
        acked = first.offsets[first.offsets >= 0]
        data = {
            "from": "client",
            "producer_id": first.producer_id,
            "process": first.process,
            "transactional_id": first.transactional_id,
            "epochs": [int(epochs.min()), int(epochs.max())],
            "batches": len(mine),
        }
        yield PartialFinding(
            cluster=first.cluster, offset=int(acked[0]) if len(acked) else -1, data=data
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdUse:
    """One incarnation's use of one producer id on one cluster, over all partitions.

    `claimed`: its client reported that the id was its own. `partial finding` is where it has the
    fewest batches.
    """

    process: int
    transactional_ids: frozenset[str]
    lowest: int
    highest: int
    batches: int
    claimed: bool
    partial: PartialFinding


def combine(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """Two incarnations with one id whose epochs overlap, or with different transactional ids."""
    owners = grouped(partials, lambda each: (each.cluster, each.data["producer_id"]))
    for (cluster, pid), theirs in sorted(owners.items()):
        by_process = grouped(theirs, lambda each: each.data["process"])
        uses = [_use(process, mine) for process, mine in sorted(by_process.items())]
        for one, other in combinations(uses, 2):
            if _clash(one, other):
                yield _collision(cluster, pid, one, other)


def _use(process: int, partials: Sequence[PartialFinding]) -> IdUse:
    epochs = [epoch for each in partials for epoch in each.data["epochs"]]
    in_bytes = [each for each in partials if each.data["from"] == "bytes"]
    return IdUse(
        process=process,
        transactional_ids=frozenset(
            c.data["transactional_id"] for c in partials if "transactional_id" in c.data
        ),
        lowest=min(epochs),
        highest=max(epochs),
        batches=sum(c.data["batches"] for c in in_bytes or partials),
        claimed=len(in_bytes) < len(partials),
        partial=min(in_bytes or partials, key=lambda c: (c.data["batches"], c.topic, c.partition)),
    )


def _clash(one: IdUse, other: IdUse) -> bool:
    strangers = (
        one.transactional_ids
        and other.transactional_ids
        and not one.transactional_ids & other.transactional_ids
    )
    return bool(strangers) or (one.lowest <= other.highest and other.lowest <= one.highest)


def _collision(cluster: str, pid: int, one: IdUse, other: IdUse) -> Combined:
    """Blames the incarnation whose client did not claim the id; else that with fewer batches; else
    the later one."""
    intruder, owner = sorted((one, other), key=lambda u: (u.claimed, u.batches, -u.process))
    found = Found.at(
        KIND,
        cluster,
        intruder.partial.offset,
        producer_id=pid,
        processes=[owner.process, intruder.process],
        epochs=[[owner.lowest, owner.highest], [intruder.lowest, intruder.highest]],
        transactional_ids=sorted(owner.transactional_ids | intruder.transactional_ids),
        other={
            "topic": owner.partial.topic,
            "partition": owner.partial.partition,
            "offset": owner.partial.offset,
        },
    )
    return intruder.partial.combined(found)


CHECK = Check(
    name="producer-id-uniqueness",
    guarantee="""No two producers share a producer id and epoch on a cluster, and no native producer
        has a mirrored id.""",
    source="KIP-98; KIP-360; Redpanda PR 31659; KIP-1279 (MIRROR_PID_RESET)",
    wire="""A producer id of a cluster is one producer, with the last transactional id that
        InitProducerId named for it: two idempotent clients of one cluster that share an id
        count as one.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""Two producers use one producer id at once, or a native producer uses an id
                that the mirror had written with. Behind a reset of the producer state: a native
                producer continues where the mirrored one ended.""",
            sentence="""on {cluster} producer id {producer_id} belongs to two producers at {at}
                ({users})""",
            latent=True,
            alone="""where epoch and sequence meet, a broker takes a record of the one for a repeat
                of the other's, acknowledges it and does not append it""",
            smallest="""B has native batches of processes 1 and 2, both with producer id 7 and epoch
                0: at the later process's.""",
        ),
    ),
    kernel=kernel,
    from_bytes=True,
    combine=combine,
    unit="batches",
    only_of="producer ids",
    due={"native"},
    only_our_records=True,
)
