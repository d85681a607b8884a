"""No two producers share a producer id and epoch on a cluster, and no native producer uses a
mirrored id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tests.oracles import sections
from tests.oracles.plain import Anomaly, Plain, PlainLog, incarnation
from tests.oracles.story import PlainGeneration, Story, kept

KNOWS_TORN = True
KIND = "producer-id-collision"


@dataclass(slots=True)
class Trace:
    """Evidence that a process used an id on a cluster: batches of one partition, or what a client
    reported."""

    cluster: str
    pid: int
    process: int
    epochs: list[int]
    count: int
    position: tuple[str, int, int]
    transactional_id: str | None


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    traces: list[Trace] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            if log is not None:
                twice = _twice(generation, log)
                twice |= {
                    pid: offset
                    for pid, offset in _adopted(plain, story, generation, log).items()
                    if pid not in twice
                }
                refused = _refused(story, generation, log, set(twice))
                # A torn log may have lost a reset between two batches. What two processes wrote is
                # still evidence.
                offsets = [] if plain.torn else [*twice.values(), *refused.values()]
                found += [
                    plain.anomaly(KIND, generation.cluster, offset)
                    for offset in offsets
                    if kept(generation, offset)
                ]
                traces += _in_bytes(plain, generation, log)
        traces += _reported(plain)
    return found + _between(traces)


def _twice(generation: PlainGeneration, log: PlainLog) -> dict[int, int]:
    """Ids of producers of two clusters without a reset in between: where the second producer
    began."""
    found: dict[int, int] = {}
    before: dict[int, Any] = {}
    for batch in log.batches:
        if batch.reset:
            before = {}
        if batch.data and batch.producer_id >= 0:
            last = before.get(batch.producer_id)
            if last is not None and generation.owner(last.base_offset) != generation.owner(
                batch.base_offset
            ):
                found.setdefault(batch.producer_id, batch.base_offset)
            before[batch.producer_id] = batch
    return found


def _adopted(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog
) -> dict[int, int]:
    """Ids that continue after a reset where another cluster's producer ended: where they do."""
    found: dict[int, int] = {}
    every = sections.tracked(log)
    for batch in every:
        if batch.base_sequence == 0 or sections.adopted(generation, log, batch) is None:
            continue
        owned = sections.known_before(generation, log, batch) or sections.maybe_before(
            generation, log, batch
        )
        here = [b for b in every if b.row < batch.row and b.producer_id == batch.producer_id]
        here = [
            b
            for b in here
            if generation.owner(b.base_offset) == generation.owner(batch.base_offset)
        ]
        here = [
            b for b in here if sections.resets_before(log, b) == sections.resets_before(log, batch)
        ]
        begun = bool(owned or here) or sections.deleted(generation, log, batch)
        if not begun and sections.beginning(plain, story, generation, log, batch) == "new":
            found.setdefault(batch.producer_id, batch.base_offset)
    return found


def _refused(
    story: Story, generation: PlainGeneration, log: PlainLog, known: set[int]
) -> dict[int, int]:
    """Ids that clients got from the cluster and that the mirror wrote with: where the first was
    acknowledged."""
    found: dict[int, int] = {}
    if all(generation.sources):
        return found
    for send in sorted(story.sends(generation), key=lambda s: s.invoked):
        pid = send.producer_id
        theirs = [
            b
            for b in log.batches
            if b.data and b.producer_id == pid >= 0 and not generation.native(b.base_offset)
        ]
        if (
            pid in known
            or pid in found
            or not theirs
            or any(b.reset and b.base_offset > theirs[-1].base_offset for b in log.batches)
        ):
            continue
        found[pid] = next((offset for offset in send.offsets if offset >= 0), -1)
    return found


def _in_bytes(plain: Plain, generation: PlainGeneration, log: PlainLog) -> Iterator[Trace]:
    mine: dict[tuple[int, int], list[Any]] = {}
    for batch in log.batches:
        first = next((r for r in log.records if r.batch is batch and r.uid >= 0), None)
        if (
            batch.data
            and batch.producer_id >= 0
            and generation.native(batch.base_offset)
            and first is not None
        ):
            mine.setdefault((batch.producer_id, incarnation(first.uid)), []).append(batch)
    for (pid, process), batches in mine.items():
        position = (plain.topic, plain.partition, batches[0].base_offset)
        yield Trace(
            generation.cluster,
            pid,
            process,
            [b.producer_epoch for b in batches],
            len(batches),
            position,
            None,
        )


def _reported(plain: Plain) -> Iterator[Trace]:
    mine: dict[tuple[str, int, int, str], list[Any]] = {}
    for send in plain.sends:
        if send.producer_id >= 0:
            mine.setdefault(
                (send.cluster, send.producer_id, send.process, send.transactional_id), []
            ).append(send)
    for (cluster, pid, process, transactional_id), sends in mine.items():
        acked = next((offset for offset in sends[0].offsets if offset >= 0), -1)
        position = (plain.topic, plain.partition, acked)
        yield Trace(
            cluster,
            pid,
            process,
            [s.producer_epoch for s in sends],
            len(sends),
            position,
            transactional_id,
        )


def _between(traces: list[Trace]) -> list[Anomaly]:
    """Pairs of processes with one id, whose epochs overlap or whose transactional ids have nothing
    in common."""
    found: list[Anomaly] = []
    for cluster, pid in {(t.cluster, t.pid) for t in traces}:
        mine = [t for t in traces if (t.cluster, t.pid) == (cluster, pid)]
        for one, other in combinations(sorted({t.process for t in mine}), 2):
            a, b = [t for t in mine if t.process == one], [t for t in mine if t.process == other]
            if _clash(a, b):
                blamed = min((a, b), key=lambda u: (_claimed(u), _count(u), -u[0].process))
                topic, partition, offset = min(
                    _seen(blamed), key=lambda t: (t.count, *t.position)
                ).position
                found.append((KIND, cluster, topic, partition, offset))
    return found


def _seen(use: list[Trace]) -> list[Trace]:
    """According to the bytes, or otherwise to the reports."""
    return [t for t in use if t.transactional_id is None] or use


def _claimed(use: list[Trace]) -> bool:
    return any(t.transactional_id is not None for t in use)


def _count(use: list[Trace]) -> int:
    return sum(t.count for t in _seen(use))


def _clash(one: list[Trace], other: list[Trace]) -> bool:
    ids = [{t.transactional_id for t in use} - {None} for use in (one, other)]
    if ids[0] and ids[1] and not ids[0] & ids[1]:
        return True
    mine, yours = ([e for t in use for e in t.epochs] for use in (one, other))
    return min(mine) <= max(yours) and min(yours) <= max(mine)
