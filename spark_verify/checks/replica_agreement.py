"""replica-agreement: below their common high watermark the replicas of a partition have the same bytes (KIP-101, KIP-966).

Compared as (base offset, last offset, record count, length, CRC and whether it is right, leader epoch) of every batch. The CRC
covers everything from the attributes on but not base offset, length and leader epoch (message format v2), hence the tuple. Every
CRC is recomputed, so that a cluster with one replica has something examined too; and base offsets must rise in every file. Of
batches that differ, the records are compared, so that the one whose bytes changed is named.

Below a cleaner's checkpoint every broker compacts by itself (`spark_verify.checks.parts.cleaning`). There replicas may differ in
what a cleaner takes: records of which a later one has the key, tombstones, what was aborted. Every other record, and so the last
of each key, is on all of them, with one content at one offset. A marker that differs in nothing that a cleaner keeps is the same
one with another delete horizon. Only of batches whose records cannot be read is it unknown why they differ.

No log ends below its own high watermark. Of a recorded run that was asked for before the bytes were copied; of copied logs it is
what the broker of each noted in its checkpoint file, so of a running broker that file has to be copied before the logs.

Offsets of a log follow each other without a hole, those of markers included, until a cleaner takes some away. Of a recorded run
other checks know what was in a hole; of logs that linkflap did not record nobody does, and they are not called valid for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.changed import ABSENT, changed_records
from linkflap.spark_verify.checks.parts.cleaning import KEPT, Cleaned, Explained, Lacking, readable
from linkflap.spark_verify.checks.parts.generations import compacted, examined, generations
from linkflap.spark_verify.facts.view import ABORT, COMMIT, DATA, Batches, PartitionView, Replica


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Recomputes every replica's CRCs and compares replicas of one cluster."""
    findings: list[Finding] = []
    known = generations(view)
    for cluster in sorted({r.cluster for r in view.replicas}):
        replicas = [r for r in view.replicas if r.cluster == cluster]
        for replica in replicas:
            findings += examined(known[cluster][-1], replica.batches.base_offset)
            findings += [*within(replica), *_ends_early(replica)]
            if replica.damage:
                where = f"{view.topic}-{view.partition} on {cluster}/{replica.broker}"
                findings.append(Unjudged(reason=f"the log of {where} is torn, so not all of it could be compared"))
        if not view.recorded:
            # Replicas with the same hole say so once.
            findings += dict.fromkeys(each for replica in replicas for each in _holes(view, replica))
        if len(replicas) > 1:
            findings += _compared(view, replicas)
    return findings


def _compared(view: PartitionView, replicas: Sequence[Replica]) -> Iterator[Finding]:
    """How replicas of a cluster differ; below a cleaner's checkpoint only what no cleaner does, or what cannot be known."""
    cleaned = max(compacted(view, replica) for replica in replicas)
    cleaners, apart = Cleaned(replicas), 0
    by_broker = {r.broker: r for r in replicas}
    for found in between(replicas):
        said = _cleaned(cleaners, by_broker, found) if cleaned else found
        if _base(found) >= cleaned and (found.kind == "replica-missing" or view.recorded or said != "compaction"):
            said = found  # of copied logs a cleaner may have been beyond the last batch that it took something of
        if isinstance(said, Found):
            yield said
        apart += said == "unknown"
    if apart:
        reason = (
            f"{apart} batches differ between the brokers of {replicas[0].cluster} below offset {cleaned}, which are compacted"
        )
        yield Unjudged(reason=f"{reason}, and their records could not be read")


def _base(found: Found) -> int:
    """Where the batch begins that differs."""
    batch: Any = found.evidence["batch"]
    return int(batch[0] if isinstance(batch, list) else batch)


def _cleaned(cleaners: Cleaned, replicas: Mapping[int, Replica], found: Found) -> Found | Explained:
    """Of a batch that differs where cleaners were: what none of them does, or why it may differ."""
    model, other = (replicas[broker] for broker in found.evidence["brokers"])  # type: ignore[attr-defined]
    base = _base(found)
    if found.kind == "replica-missing":
        absent = replicas[found.evidence["missing_on"]]  # type: ignore[index]
        if (absent.batches.base_offset == base).any():
            return found  # more often on the one than on the other
        return _lacking(found, absent, cleaners.lacks(other if absent is model else model, base, np.empty(0, np.int64)))
    if any(name in found.evidence for name in (*KEPT, "crc_ok")):
        return found
    if found.evidence.get("marker"):
        return "compaction"
    if not (readable(model, base) and readable(other, base)):
        return "unknown"
    changed = [change for change in found.evidence["changed"] if change["fields"] != ABSENT]  # type: ignore[attr-defined]
    if changed:
        return replace(found, offset=changed[0]["offset"])
    said = [(lacks, cleaners.lacks(holder, base, lacks.parts.offset)) for holder, lacks in ((model, other), (other, model))]
    first = min((why for _, why in said if why.explained == "nothing"), key=lambda why: why.offset, default=None)
    if first is not None:
        return _lacking(found, next(lacks for lacks, why in said if why is first), first)
    return "unknown" if any(why.explained == "unknown" for _, why in said) else "compaction"


def _lacking(found: Found, absent: Replica, why: Lacking) -> Found | Explained:
    """A record is missing on one broker that no cleaner takes: the last of its key."""
    if why.explained != "nothing":
        return why.explained
    evidence = {
        "brokers": found.evidence["brokers"],
        "batch": found.evidence["batch"],
        "missing_on": absent.broker,
        "uids": [why.uid],
        "records": [why.offset],
        "last_of_its_key": True,
    }
    return Found(kind="replica-missing", cluster=found.cluster, offset=why.offset, evidence=evidence)


def missing(replica: Replica, above: int = 0) -> tuple[int, int]:
    """How many offsets from `above` on a log lacks between its start and its end, and the first of them (-1: there is none).

    Where they are missing inside of a batch, that is where it begins.
    """
    batches = replica.batches
    # Nobody can tell where the next begins but by the furthest that was there before: base offsets may be in disorder.
    start = np.maximum.accumulate(np.concatenate(([replica.log_start], batches.last_offset + 1)))[:-1]
    start = np.maximum(start, above)
    before = np.maximum(batches.base_offset - start, 0)
    whole = (batches.control == DATA) & batches.crc_ok & (batches.base_offset >= above)
    inside = np.where(whole, np.maximum(batches.last_offset - batches.base_offset + 1 - batches.count, 0), 0)
    rows = np.flatnonzero(before + inside)
    if not len(rows):
        return 0, -1
    first = rows[0]
    return sum(before[rows].tolist()) + sum(inside[rows].tolist()), int((start if before[first] else batches.base_offset)[first])


def _holes(view: PartitionView, replica: Replica) -> Iterator[Unjudged]:
    """Offsets that are missing where nobody knows of a cleaner; of a torn log that is no news."""
    count, first = (0, -1) if replica.damage else missing(replica, compacted(view, replica))
    if count:
        where = f"{replica.cluster}'s {view.topic}-{view.partition}"
        yield Unjudged(reason=f"{count} offsets of {where} are missing, first {first}: compaction, or loss")


def within(replica: Replica) -> Sequence[Finding]:
    """Batches of one log with a wrong CRC, and batches out of order."""
    batches = replica.batches
    corrupt = [
        _found(replica, "corrupt-batch", row, stored_crc=int(batches.crc[row]))
        for row in np.flatnonzero(~batches.crc_ok).tolist()
    ]
    disorder = np.flatnonzero(batches.base_offset[1:] <= np.maximum.accumulate(batches.last_offset)[:-1]) + 1
    return [
        *corrupt,
        *(_found(replica, "log-disorder", row, after=int(batches.last_offset[row - 1])) for row in disorder.tolist()),
    ]


def _ends_early(replica: Replica) -> Iterator[Found]:
    """A replica in sync has all that is below the high watermark, and no broker notes one that is above its own log's end."""
    if replica.high_watermark > replica.end and not replica.damage:
        evidence = {
            "broker": replica.broker,
            "capture": replica.moment,
            "high_watermark": replica.high_watermark,
            "from": replica.high_watermark_from,
            "missing": replica.high_watermark - replica.end,
        }
        yield Found(kind="log-ends-early", cluster=replica.cluster, offset=replica.end, evidence=evidence)


def _found(replica: Replica, kind: str, row: int, **evidence: object) -> Found:
    batches = replica.batches
    base, last = int(batches.base_offset[row]), int(batches.last_offset[row])
    return Found(
        kind=kind, cluster=replica.cluster, offset=base, evidence={"broker": replica.broker, "batch": [base, last], **evidence}
    )


def between(replicas: Sequence[Replica]) -> Sequence[Found]:
    """Compares every replica with the canonical one, between the highest log start and the lowest high watermark."""
    start = max(r.log_start for r in replicas)
    end = min(r.high_watermark for r in replicas)
    model = next((r for r in replicas if r.canonical), replicas[0])
    tables = {r.broker: _table(r.batches, start, end) for r in replicas}
    findings: list[Found] = []
    for other in replicas:
        if other is not model and not (other.damage or model.damage):
            findings += _differences(replicas, model, other, tables[model.broker], tables[other.broker])
        elif other is not model:
            findings += _differences(replicas, model, other, *_common(tables[model.broker], tables[other.broker]))
    return findings


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Only the batches that both have: what a torn log lacks is damage, not disagreement."""
    return one[np.isin(one[:, 0], other[:, 0])], other[np.isin(other[:, 0], one[:, 0])]


def _table(batches: Batches, start: int, end: int) -> NDArray[np.int64]:
    inside = (batches.base_offset >= start) & (batches.last_offset < end)
    columns = [getattr(batches, name)[inside].astype(np.int64) for name in NAMES]
    return np.stack(columns, axis=1)


NAMES = ("base_offset", "last_offset", "count", "length", "crc", "leader_epoch", "crc_ok")
PRODUCER = ("producer_id", "producer_epoch", "base_sequence", "control", "transactional")


def _differences(
    replicas: Sequence[Replica], model: Replica, other: Replica, ours: NDArray[np.int64], theirs: NDArray[np.int64]
) -> Sequence[Found]:
    """Batches (with how often they occur) that one has and the other has not, one finding per base offset."""
    if ours.shape == theirs.shape and bool((ours == theirs).all()):
        return []
    rows, which = np.unique(np.concatenate((ours, theirs)), axis=0, return_inverse=True)
    sides = np.concatenate((np.ones(len(ours), np.int64), np.full(len(theirs), -1, np.int64)))
    balance = np.zeros(len(rows), np.int64)
    np.add.at(balance, which.ravel(), sides)
    findings = []
    for base in np.unique(rows[balance != 0, 0]).tolist():
        mine, yours = rows[(rows[:, 0] == base) & (balance > 0)], rows[(rows[:, 0] == base) & (balance < 0)]
        findings.append(_disagreement(replicas, model, other, base, mine, yours))
    return findings


def _disagreement(
    replicas: Sequence[Replica], model: Replica, other: Replica, base: int, mine: NDArray[np.int64], yours: NDArray[np.int64]
) -> Found:
    evidence: dict[str, object] = {"brokers": [model.broker, other.broker], "batch": base}
    if not len(mine) or not len(yours):
        evidence["missing_on"] = other.broker if not len(yours) else model.broker
        return Found(kind="replica-missing", cluster=model.cluster, offset=base, evidence=evidence)
    evidence |= {name: [int(a), int(b)] for name, a, b in zip(NAMES, mine[0].tolist(), yours[0].tolist(), strict=True) if a != b}
    evidence["batch"] = [base, max(int(mine[0][1]), int(yours[0][1]))]
    changed = changed_records(model.parts, other.parts, base, int(mine[0][1]))
    evidence |= _producers(model, other, base)
    evidence |= {"marker": True} if _is_marker(model, base) else {}
    evidence["changed"] = changed
    evidence["records"] = offsets = [c["offset"] for c in changed]
    evidence["uids"] = [c["uid"] for c in changed] or _uids(model, *mine[0][:2].tolist())
    evidence["odd_one_out"] = _odd_one_out(replicas, base)
    return Found(kind="replica-disagreement", cluster=model.cluster, offset=offsets[0] if offsets else base, evidence=evidence)


def _uids(model: Replica, first: int, last: int) -> list[int]:
    """All payloads of a batch, where nobody can tell which of them differ."""
    inside = (model.records.offset >= first) & (model.records.offset <= last)
    return [int(uid) for uid in model.records.uid[inside]]


def _producers(model: Replica, other: Replica, base: int) -> dict[str, object]:
    """What else of the batch's header differs."""
    one, two = (int(np.flatnonzero(r.batches.base_offset == base)[0]) for r in (model, other))
    pairs = {name: [int(getattr(r.batches, name)[row]) for r, row in ((model, one), (other, two))] for name in PRODUCER}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _is_marker(model: Replica, base: int) -> bool:
    row = np.flatnonzero(model.batches.base_offset == base)[0]
    return bool(model.batches.crc_ok[row]) and int(model.batches.control[row]) in (COMMIT, ABORT)


def _odd_one_out(replicas: Sequence[Replica], base: int) -> int | None:
    """The broker whose batch at this offset differs from what all others have, or None where it cannot be known."""
    seen: dict[tuple[int, ...], list[int]] = {}
    for replica in replicas:
        rows = np.flatnonzero(replica.batches.base_offset == base)
        if len(rows):
            row = rows[0]
            key = (int(replica.batches.crc[row]), int(replica.batches.length[row]), int(replica.batches.leader_epoch[row]))
            seen.setdefault(key, []).append(replica.broker)
    groups = sorted(seen.values(), key=len)
    return groups[0][0] if len(groups) == 2 and len(groups[0]) == 1 and len(groups[1]) > 1 else None


CHECK = Check(
    name="replica-agreement",
    guarantee="Below their common high watermark all replicas of a partition have the same bytes, and every CRC is right.",
    source="KIP-101 (leader epochs); KIP-98 (message format v2)",
    inputs=frozenset({"batches", "records"}),
    anomalies=(
        AnomalyKind(
            name="replica-disagreement",
            meaning="Two replicas have different batches at one base offset; the offset is the first changed record's.",
            sentence="brokers {brokers} of {cluster} have different batches at {at}",
            counted="batch differs between replicas|batches differ between replicas",
            smallest="brokers 1 and 2 have batches at offset 0 whose CRCs differ: at the changed record.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-missing",
            meaning="A batch below the common high watermark is on one replica and not, or more often, on another. Where "
            "cleaners were: a record that none of them takes, such as the last of its key.",
            sentence="broker {missing_on} of {cluster} lacks what another replica has at {at}",
            counted="batch is missing on a replica|batches are missing on a replica",
            smallest="broker 1 has batches at 0 and 1, broker 2 only at 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="corrupt-batch",
            meaning="A batch's CRC-32C is not that of its bytes.",
            sentence="broker {broker} of {cluster} has a corrupt batch at {at}: the CRC in it ({stored_crc}) is not that of "
            "its bytes",
            counted="batch is corrupt|batches are corrupt",
            smallest="a batch at offset 0 whose stored CRC is wrong: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-disorder",
            meaning="A batch's base offset is not above everything before it in the file.",
            sentence="the log of broker {broker} of {cluster} is out of order at {at}: it follows offset {after}",
            smallest="a file with batches at offsets 0 and 0: at the second.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-ends-early",
            meaning="A log ends below its own high watermark: of its leader or of a replica in sync, or as its broker noted it.",
            sentence="the log of broker {broker} of {cluster} ends at {at}, below the high watermark {high_watermark}",
            smallest="broker 1 has 1 at offset 0, and its high watermark is 2: at offset 1.",
        ),
    ),
    kernel=kernel,
    from_bytes=True,
    of_replicas=True,
    unit="batches",
    examines_any_log=True,
    only_our_records=True,
    of_one_cluster=True,
)
