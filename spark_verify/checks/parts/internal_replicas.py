"""Replicas of one of Kafka's own topics, held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.replicas import copied_while_running, missing, within
from linkflap.spark_verify.facts.view import PartitionView, Replica

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
    # What a wrong base offset puts above the end lies, in the file, before something that is below.
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
