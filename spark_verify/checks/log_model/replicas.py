"""Anomalies of one replica by itself, and differences between the replicas of a cluster below their
common high watermark. Kafka's own topics have a rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from linkflap.spark_verify.checks.base import Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.batch_differences import changed_records
from linkflap.spark_verify.checks.log_model.cleaning import changed_headers
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    NO_EPOCH,
    Batches,
    PartitionView,
    Replica,
)


def falls(replica: Replica) -> Sequence[Finding]:
    """Batches of one log with a lower leader epoch than one before them, each range once."""
    epochs = replica.batches.leader_epoch
    highest = np.maximum.accumulate(epochs) if len(epochs) else epochs
    rows = np.flatnonzero((epochs[1:] < highest[:-1]) & (epochs[1:] != NO_EPOCH)) + 1
    # One range below the mark is one anomaly.
    first = rows[np.diff(rows, prepend=-2) != 1]
    return [
        Found.at(
            "leader-epoch-regression",
            replica.cluster,
            replica.batches.base_offset[row],
            broker=replica.broker,
            capture=replica.moment,
            epoch=epochs[row],
            before=highest[row - 1],
        )
        for row in first.tolist()
    ]


def missing(replica: Replica, above: int = 0) -> tuple[int, int]:
    """How many offsets from `above` on a log lacks between its start and its end, and the first of
    them (-1: there is none).

    Where they are missing inside of a batch, that is where it begins.
    """
    batches = replica.batches
    # Nobody can tell where the next begins but by the furthest that was there before: base offsets
    # may be in disorder.
    start = np.maximum.accumulate(np.concatenate(([replica.log_start], batches.last_offset + 1)))[
        :-1
    ]
    start = np.maximum(start, above)
    before = np.maximum(batches.base_offset - start, 0)
    whole = (batches.control == DATA) & batches.crc_ok & (batches.base_offset >= above)
    inside = np.where(
        whole, np.maximum(batches.last_offset - batches.base_offset + 1 - batches.count, 0), 0
    )
    rows = np.flatnonzero(before + inside)
    if not len(rows):
        return 0, -1
    first = rows[0]
    return sum(before[rows].tolist()) + sum(inside[rows].tolist()), int(
        (start if before[first] else batches.base_offset)[first]
    )


def copied_while_running(view: PartitionView, replica: Replica, kind: str) -> Unjudged:
    """Why a log that ends below the high watermark in its broker's checkpoint file proves
    nothing."""
    return Unjudged(
        f"{kind}: the log of {replica.cluster}'s {view.tp} on broker "
        f"{replica.broker} ends at {replica.end}, below the high watermark "
        f"{replica.high_watermark} in its checkpoint file: the folder of a broker that runs "
        "while it is copied looks so (it has no .kafka_cleanshutdown); stop the broker, or copy"
        " the checkpoint files before the logs"
    )


def within(replica: Replica) -> Sequence[Finding]:
    """Batches of one log with a wrong CRC, and batches out of order."""
    batches = replica.batches
    corrupt = [
        _found(replica, "corrupt-batch", row, stored_crc=int(batches.crc[row]))
        for row in np.flatnonzero(~batches.crc_ok).tolist()
    ]
    disorder = (
        np.flatnonzero(batches.base_offset[1:] <= np.maximum.accumulate(batches.last_offset)[:-1])
        + 1
    )
    return [
        *corrupt,
        *(
            _found(replica, "log-disorder", row, after=int(batches.last_offset[row - 1]))
            for row in disorder.tolist()
        ),
    ]


def _found(replica: Replica, kind: str, row: int, **evidence: object) -> Found:
    batches = replica.batches
    base, last = int(batches.base_offset[row]), int(batches.last_offset[row])
    return Found.at(
        kind, replica.cluster, base, broker=replica.broker, batch=[base, last], **evidence
    )


def between(replicas: Sequence[Replica]) -> Iterator[Found]:
    """Compares every replica with the canonical one, between the higher log start and the lower
    high watermark of the two."""
    model = next((r for r in replicas if r.canonical), replicas[0])
    for other in replicas:
        if other is model:
            continue
        start = max(model.log_start, other.log_start)
        end = min(model.high_watermark, other.high_watermark)
        ours, theirs = (_table(r.batches, start, end) for r in (model, other))
        if other.damage or model.damage:
            ours, theirs = _common(ours, theirs)
        yield from _differences(replicas, model, other, ours, theirs)


def _common(
    one: NDArray[np.int64], other: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Only the batches that both have: what a torn log lacks is damage, not disagreement."""
    return one[np.isin(one[:, 0], other[:, 0])], other[np.isin(other[:, 0], one[:, 0])]


def _table(batches: Batches, start: int, end: int) -> NDArray[np.int64]:
    inside = (batches.base_offset >= start) & (batches.last_offset < end)
    columns = [getattr(batches, name)[inside].astype(np.int64) for name in NAMES]
    return np.stack(columns, axis=1)


NAMES = ("base_offset", "last_offset", "count", "length", "crc", "leader_epoch", "crc_ok")


PRODUCER = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "control",
    "transactional",
    "log_append_time",
)


def _differences(
    replicas: Sequence[Replica],
    model: Replica,
    other: Replica,
    ours: NDArray[np.int64],
    theirs: NDArray[np.int64],
) -> Iterator[Found]:
    """Batches (with how often they occur) that one has and the other has not, one finding per base
    offset."""
    if ours.shape == theirs.shape and bool((ours == theirs).all()):
        return
    rows, which = np.unique(np.concatenate((ours, theirs)), axis=0, return_inverse=True)
    sides = np.concatenate((np.ones(len(ours), np.int64), np.full(len(theirs), -1, np.int64)))
    balance = np.zeros(len(rows), np.int64)
    np.add.at(balance, which.ravel(), sides)
    for base in np.unique(rows[balance != 0, 0]).tolist():
        mine = rows[(rows[:, 0] == base) & (balance > 0)]
        yours = rows[(rows[:, 0] == base) & (balance < 0)]
        yield _disagreement(replicas, model, other, base, mine, yours)


def _disagreement(
    replicas: Sequence[Replica],
    model: Replica,
    other: Replica,
    base: int,
    mine: NDArray[np.int64],
    yours: NDArray[np.int64],
) -> Found:
    evidence: dict[str, object] = {"brokers": [model.broker, other.broker], "batch": base}
    if not len(mine) or not len(yours):
        evidence["missing_on"] = other.broker if not len(yours) else model.broker
        return Found.at("replica-missing", model.cluster, base, **evidence)
    evidence |= {
        name: [int(a), int(b)]
        for name, a, b in zip(NAMES, mine[0].tolist(), yours[0].tolist(), strict=True)
        if a != b
    }
    evidence["batch"] = [base, max(int(mine[0][1]), int(yours[0][1]))]
    changed = changed_records(model.parts, other.parts, base, int(mine[0][1]))
    evidence |= _producers(model, other, base)
    evidence |= {"marker": True} if _is_marker(model, base) else {}
    evidence["changed"] = changed
    evidence["records"] = offsets = [c["offset"] for c in changed]
    evidence["uids"] = [c["uid"] for c in changed] or _uids(model, *mine[0][:2].tolist())
    evidence["odd_one_out"] = _odd_one_out(replicas, base)
    return Found.at(
        "replica-disagreement", model.cluster, offsets[0] if offsets else base, **evidence
    )


def _uids(model: Replica, first: int, last: int) -> list[int]:
    """All payloads of a batch, where it is unknown which of them differ."""
    inside = (model.records.offset >= first) & (model.records.offset <= last)
    return [int(uid) for uid in model.records.uid[inside]]


def _producers(model: Replica, other: Replica, base: int) -> dict[str, object]:
    """The other fields of the batch's header that differ."""
    one, two = (int(np.flatnonzero(r.batches.base_offset == base)[0]) for r in (model, other))
    return {
        name: [int(getattr(r.batches, name)[row]) for r, row in ((model, one), (other, two))]
        for name in changed_headers(PRODUCER, model.batches, one, other.batches, two)
    }


def _is_marker(model: Replica, base: int) -> bool:
    row = np.flatnonzero(model.batches.base_offset == base)[0]
    return bool(model.batches.crc_ok[row]) and int(model.batches.control[row]) in (COMMIT, ABORT)


def _odd_one_out(replicas: Sequence[Replica], base: int) -> int | None:
    """The broker whose batch at this offset differs from what all others have, or None where it
    cannot be known."""
    seen: dict[tuple[int, ...], list[int]] = {}
    for replica in replicas:
        rows = np.flatnonzero(replica.batches.base_offset == base)
        if len(rows):
            row = rows[0]
            key = (
                int(replica.batches.crc[row]),
                int(replica.batches.length[row]),
                int(replica.batches.leader_epoch[row]),
            )
            seen.setdefault(key, []).append(replica.broker)
    groups = sorted(seen.values(), key=len)
    return groups[0][0] if len(groups) == 2 and len(groups[0]) == 1 and len(groups[1]) > 1 else None


METADATA = "__cluster_metadata"


def below_high_watermark(replica: Replica) -> Replica:
    """The part of a replica that is below its high watermark: what is above was being written when
    it was captured."""
    batches = replica.batches
    kept = (
        batches.last_offset < replica.high_watermark
        if replica.high_watermark >= 0
        else np.ones(len(batches), np.bool_)
    )
    # A batch that a wrong base offset puts above the end lies, in the file, before one below it.
    kept |= np.arange(len(batches)) < (np.flatnonzero(kept)[-1] if kept.any() else 0)
    return replace(replica, batches=batches.take(kept))


def absent_offsets(view: PartitionView, replica: Replica) -> Iterator[Finding]:
    """Offsets that are missing inside a log, and at its end. In a torn log that proves nothing."""
    evidence: dict[str, object] = {"broker": replica.broker}
    if replica.damage:
        where = f"{view.tp} on {replica.cluster}/{replica.broker}"
        yield Unjudged(f"the log of {where} is torn from offset {replica.torn_from} on")
        return
    count, first = missing(replica, view.compacted.get(replica.cluster, 0))
    if count:
        yield Found.at("offsets-missing", replica.cluster, first, **evidence, offsets=count)
    if replica.end < replica.high_watermark and replica.high_watermark_from == "copied":
        yield copied_while_running(view, replica, "ends-early")
    elif replica.end < replica.high_watermark:
        evidence |= {"high_watermark": replica.high_watermark, "from": replica.high_watermark_from}
        yield Found.at("ends-early", replica.cluster, replica.end, **evidence)


def sound(view: PartitionView, replica: Replica) -> bool:
    """Whether nothing is missing from a log below its high watermark, and its bytes are in order: a
    log with a hole says of nothing how it ended."""
    below = below_high_watermark(replica)
    return not [*absent_offsets(view, below), *within(below)]


def led(view: PartitionView, replicas: Sequence[Replica]) -> Sequence[Replica]:
    """Replicas up to the offset below which they must agree. The high watermark of the metadata log
    is in no file. Records that a deposed leader had not replicated are only in its own log, up to
    its end, in an epoch below that of the present records at those offsets.
    """
    if view.topic != METADATA:
        return replicas
    model = next((r for r in replicas if r.canonical), replicas[0])
    return [replace(r, high_watermark=min(r.high_watermark, deposed(r, model))) for r in replicas]


def deposed(replica: Replica, model: Replica) -> int:
    """Where the tail of a replica begins that has only batches of an older leader epoch than the
    model has at their offsets; its end without such a tail."""
    ours, theirs = replica.batches, model.batches
    _, here, there = np.intersect1d(ours.base_offset, theirs.base_offset, return_indices=True)
    behind = np.flatnonzero(ours.leader_epoch[here] < theirs.leader_epoch[there])
    tail = (
        behind.size
        and (ours.leader_epoch[here[behind[0]] :] < theirs.leader_epoch[there[behind[0]]]).all()
    )
    return int(ours.base_offset[here[behind[0]]]) if tail else replica.end
