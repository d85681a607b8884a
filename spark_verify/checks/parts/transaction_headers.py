"""The required headers of a transactional producer's batches: transactional, and ended by a
coordinator that is not fenced.

A producer id is a transactional producer's or it is not (KIP-98). While a producer's transaction is
open, a leader refuses its batches without the bit. A batch without the bit is committed to every
reader, whatever the outcome of its transaction.

A marker has the epoch in which its transaction coordinator was elected (the leader epoch of a
partition of `__transaction_state`). One producer id has one such partition, so its coordinator's
epoch never goes back; leaders refuse the markers of an older coordinator (KIP-98,
TRANSACTION_COORDINATOR_FENCED). Coordinators of two clusters are independent, and so is a mirror
that aborts the transactions that it leaves open: the markers in its journal are its own. Without a
journal, and without a known promotion, the last marker of an id is not judged if it is an ABORT in
a new leader epoch.

A batch with a producer id has an epoch, a transactional batch has a producer id, and a marker is
transactional (KIP-98, message format). Where there is no producer id, epoch and sequence mean
nothing, and brokers ignore them: franz-go, sarama and aiokafka write sequence 0 there, KafkaJS and
older releases of sarama epoch 0 as well (`tests/data/logs/clients`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.generations import native, owners_of
from linkflap.spark_verify.checks.parts.logs import Log, among
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    OTHER_CONTROL,
    Batches,
    Bools,
    Ints,
    PartitionView,
)

NOT_TRANSACTIONAL = "not-transactional"
IMPOSSIBLE = "impossible-header"
COORDINATOR = "coordinator-epoch-regression"
_APART = 2**32
"""More than any coordinator epoch, which has 32 bits."""


def not_transactional(generation: LogGeneration, log: Log) -> Sequence[Found]:
    """Batches without the transactional bit of producers with markers; without any, those of the
    kind that it has fewer of."""
    batches = log.replica.batches
    order, group = _by_producer(generation, batches, batches.producer_id != -1)
    if not len(order):
        return []
    control = batches.control[order]
    plain = (control == DATA) & ~batches.transactional[order]
    inside = (control == DATA) & batches.transactional[order]
    marks, plains, insides = (
        np.bincount(group, which)
        for which in ((control == COMMIT) | (control == ABORT), plain, inside)
    )
    fewer = (plains > 0) & (marks == 0) & (insides > 0) & (insides < plains)
    wrong = (plain & ((marks > 0) | (insides > 0))[group] & ~fewer[group]) | (inside & fewer[group])
    return [
        Found(
            kind=NOT_TRANSACTIONAL,
            cluster=log.replica.cluster,
            offset=int(batches.base_offset[row]),
            evidence={
                "producer_id": int(batches.producer_id[row]),
                "producer_epoch": int(batches.producer_epoch[row]),
                "transactional": bool(batches.transactional[row]),
                "records": int(batches.count[row]),
                "markers": int(marks[g]),
            },
        )
        for row, g in zip(order[wrong].tolist(), group[wrong].tolist(), strict=True)
    ]


def impossible(log: Log) -> Sequence[Found]:
    """Transactional batches and markers without an id, batches with an id and without an epoch, and
    markers of no transaction."""
    batches = log.replica.batches
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    data = batches.control == DATA
    without = batches.producer_id == -1
    wrong = data & without & batches.transactional
    wrong |= (data | marker) & ~without & (batches.producer_epoch < 0)
    wrong |= marker & (without | ~batches.transactional)
    return [
        Found(
            kind=IMPOSSIBLE,
            cluster=log.replica.cluster,
            offset=int(batches.base_offset[row]),
            evidence={
                "producer_id": int(batches.producer_id[row]),
                "producer_epoch": int(batches.producer_epoch[row]),
                "base_sequence": int(batches.base_sequence[row]),
                "transactional": bool(batches.transactional[row]),
                "control": bool(marker[row]),
            },
        )
        for row in np.flatnonzero(wrong & batches.crc_ok).tolist()
    ]


def coordinators(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Found]:
    """Markers of a coordinator that an earlier marker of their producer id had fenced."""
    batches = log.replica.batches
    order, group = _by_producer(generation, batches, batches.producer_id != -1)
    if not len(order):
        return []
    marker = (batches.control[order] == COMMIT) | (batches.control[order] == ABORT)
    last = np.append(group[1:] != group[:-1], True)
    order, group, last = order[marker], group[marker], last[marker]
    epoch = batches.coordinator_epoch[order]
    highest = np.maximum.accumulate(epoch + group * _APART) - group * _APART
    back = (epoch >= 0) & (epoch < highest)
    offset, leader = batches.base_offset[order], batches.leader_epoch[order]
    if view.recorded:
        appended = [offset for stop in view.stops for offset, _ in stop.appended]
        back &= ~among(offset, np.array(appended, np.int64))
    else:
        raised = np.concatenate(([False], leader[1:] > leader[:-1]))
        promoted = native(generation, offset) & (len(generation.eras) > 1)
        back &= ~(last & raised & (batches.control[order] == ABORT) & ~promoted)
    return [
        Found(
            kind=COORDINATOR,
            cluster=log.replica.cluster,
            offset=int(batches.base_offset[order[i]]),
            evidence={
                "producer_id": int(batches.producer_id[order[i]]),
                "coordinator_epoch": int(epoch[i]),
                "fenced_by": int(highest[i]),
            },
        )
        for i in np.flatnonzero(back).tolist()
    ]


def _by_producer(generation: LogGeneration, batches: Batches, which: Bools) -> tuple[Ints, Ints]:
    """Sound data and markers of producers by producer: their rows, and a number for each owner's id
    between two resets."""
    sections = np.cumsum(batches.control == OTHER_CONTROL)
    rows = np.flatnonzero(which & batches.crc_ok & (batches.control != OTHER_CONTROL))
    owner = owners_of(generation, batches.base_offset[rows])
    order = np.lexsort((rows, owner, sections[rows], batches.producer_id[rows]))
    rows, owner = rows[order], owner[order]
    new = np.zeros(len(rows), np.bool_)
    for column in (batches.producer_id[rows], sections[rows], owner):
        new[1:] |= column[1:] != column[:-1]
    return rows, np.cumsum(new)
