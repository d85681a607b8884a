"""leader-epochs: an epoch and an offset name one batch, on a cluster, for ever (KIP-101, KIP-279, KIP-320).

Within a log the leader epoch of batches never falls with the offset. Over all replicas of a cluster, and over all captures of
it, batches with the same (epoch, base offset) are the same bytes: else followers and consumers take a log that was cut and
written again for the one they know. And where a mirror keeps the source's epochs, the destination's leader epoch is never below
those in the bytes it serves (KIP-1279: DLE >= SLE), or consumers wait for ever for an epoch that they have read of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from spark_verify.checks.lives import every, examined, log_of, marks_in
from spark_verify.eras import KEEP_OFFSETS
from spark_verify.view import PartitionView, Replica


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Looks at the epochs of every captured log, and compares those of one cluster."""
    findings: list[Finding] = []
    for replica in (*view.replicas, *view.earlier):
        findings += _falls(replica)
    for cluster in sorted({r.cluster for r in view.replicas}):
        findings += _reuse([r for r in (*view.replicas, *view.earlier) if r.cluster == cluster])
    for life in every(view):
        log = log_of(view, life)
        if log is not None:
            findings += examined(life, log.replica.batches.base_offset)
    if view.mirror.kind in KEEP_OFFSETS and view.mirror.options.get("leader_epochs") == "keep":
        findings += _behind(view)
    return findings


def _falls(replica: Replica) -> Sequence[Finding]:
    epochs = replica.batches.leader_epoch
    highest = np.maximum.accumulate(epochs) if len(epochs) else epochs
    rows = np.flatnonzero(epochs[1:] < highest[:-1]) + 1
    # One stretch below the mark is one anomaly.
    first = rows[np.concatenate(([True], np.diff(rows) != 1))] if len(rows) else rows
    return [
        Found(
            kind="leader-epoch-regression",
            cluster=replica.cluster,
            offset=int(replica.batches.base_offset[row]),
            evidence={
                "broker": replica.broker,
                "capture": replica.moment,
                "epoch": int(epochs[row]),
                "before": int(highest[row - 1]),
            },
        )
        for row in first.tolist()
    ]


def _reuse(replicas: Sequence[Replica]) -> Sequence[Finding]:
    """Batches of one cluster that have the epoch and base offset of another with other bytes; one finding per stretch."""
    good = [np.flatnonzero(r.batches.crc_ok) for r in replicas]
    columns = [
        np.concatenate([getattr(r.batches, name)[rows] for r, rows in zip(replicas, good, strict=True)])
        for name in ("leader_epoch", "base_offset", "crc", "length")
    ]
    which = np.concatenate([np.full(len(rows), n, np.int64) for n, rows in enumerate(good)])
    order = np.lexsort((which, columns[1], columns[0]))
    epoch, base, crc, length = (column[order] for column in columns)
    same = (epoch[1:] == epoch[:-1]) & (base[1:] == base[:-1])
    other = np.flatnonzero(same & ((crc[1:] != crc[:-1]) | (length[1:] != length[:-1])))
    found = []
    for place in other[np.unique(np.stack((epoch[other], base[other])), axis=1, return_index=True)[1]].tolist():
        one, two = replicas[int(which[order[place]])], replicas[int(which[order[place + 1]])]
        evidence = {
            "epoch": int(epoch[place]),
            "brokers": [one.broker, two.broker],
            "captures": [one.moment, two.moment],
            "crcs": [int(crc[place]), int(crc[place + 1])],
        }
        found.append(Found(kind="epoch-reuse", cluster=one.cluster, offset=int(base[place]), evidence=evidence))
    return found


def _behind(view: PartitionView) -> Sequence[Finding]:
    """Samples whose leader epoch is below that of a batch under their high watermark; the first of each life."""
    findings: list[Finding] = []
    for life in every(view):
        log, marks = log_of(view, life), marks_in(view, life)
        if log is None or marks is None or not len(log.replica.batches):
            continue
        batches = log.replica.batches
        highest = np.concatenate(([-1], np.maximum.accumulate(batches.leader_epoch)))
        served = highest[np.searchsorted(batches.last_offset, marks.high_watermark)]
        low = np.flatnonzero((marks.leader_epoch >= 0) & (marks.leader_epoch < served))
        if len(low):
            row = int(low[0])
            place = int(np.argmax(batches.leader_epoch > marks.leader_epoch[row]))
            evidence = {
                "leader_epoch": int(marks.leader_epoch[row]),
                "batch_epoch": int(batches.leader_epoch[place]),
                "time": int(marks.time[row]),
                "samples": len(low),
            }
            offset = int(batches.base_offset[place])
            findings.append(Found(kind="epoch-behind", cluster=life.cluster, offset=offset, evidence=evidence))
    return findings


CHECK = Check(
    name="leader-epochs",
    guarantee="A batch's leader epoch never falls with its offset, names one batch with it, and is not above the leader's.",
    source="KIP-101; KIP-279; KIP-320 (consumers fence by epoch); KIP-1279 (DLE >= SLE)",
    inputs=frozenset({"batches", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="leader-epoch-regression",
            meaning="A batch has a lower leader epoch than one before it in the same log.",
            smallest="A has a batch of epoch 2 at offset 0 and one of epoch 1 at offset 1: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-reuse",
            meaning="Two batches of one cluster, on two brokers or in two captures, have one epoch and offset and other bytes.",
            smallest="A had 1 at offset 0 in epoch 0 before it was cut, and has 2 there in epoch 0: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-behind",
            meaning="A leader that serves kept epochs told a leader epoch below that of a batch under its high watermark.",
            smallest="B has 1 in epoch 5, a sample says high watermark 1, leader epoch 3: at the offset of 1.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    from_bytes=True,
    unit="batches",
)
