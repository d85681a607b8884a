"""The inputs that a user's program had to process in a partition, and the outputs that it wrote
there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, PartialFinding, Unjudged
from linkflap.spark_verify.checks.parts.generations import examined, native
from linkflap.spark_verify.checks.parts.logs import OPEN, Log
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.partition_facts import Copying, Promotion
from linkflap.spark_verify.facts.view import Ints, PartitionView

HEADER: Final = "linkflap"
_NONE: Final = np.empty(0, np.int64)


def failovers_followed(home: str, promotions: Sequence[Promotion]) -> Sequence[Promotion]:
    """The failovers that a program which begins at `home` followed, in their order."""
    found: list[Promotion] = []
    cluster = home
    for promotion in sorted(promotions, key=lambda p: p.time):
        if promotion.source == cluster:
            cluster = promotion.cluster
            found.append(promotion)
    return found


def inputs_of(
    view: PartitionView,
    program: Copying,
    generation: LogGeneration,
    log: Log,
    moves: Sequence[Promotion],
) -> Iterator[Finding]:
    """A partial finding with what there was to pass, how far the group got here, and where it began
    after a failover."""
    moved = moves[-1] if moves else None
    samples = [
        g for g in view.groups if (g.group, g.cluster) == (program.group, generation.cluster)
    ]
    records = log.replica.records
    ours = log.visible & (records.uid >= 0)
    offsets, uids = records.offset[ours], records.uid[ours]
    if not samples:
        if len(offsets):
            yield Unjudged(
                reason=(
                    f"no committed offset of group {program.group} was ever sampled on "
                    f"{generation.cluster}"
                )
            )
        passed = began = 0
    else:
        yield Examined(cluster=generation.cluster, origin="checkpoints", count=len(samples))
        passed = max(g.offset for g in samples)
        before = [g.offset for g in samples if moved is not None and g.time <= moved.time]
        began = _began(view, moves, before)
    yield from examined(generation, offsets[offsets < passed])
    data = {
        "inputs": f"{view.topic}-{view.partition}", "offsets": offsets, "uids": uids,
        "passed": passed, "began": began,
        "shortened": log.replica.log_start > 0 or view.compacted.get(generation.cluster, 0) > 0,
        "mirrored": moved.offset if moved else 0, "failover": moved.kind if moved else "",
    }  # fmt: skip
    yield partial_of(program, generation, moves, data)


def _began(view: PartitionView, moves: Sequence[Promotion], before: Sequence[int]) -> int:
    """Where the group began after a failover: at the last offset that was sampled there before. At
    the lowest, once a coordinator of either end may have answered with an earlier one
    (KAFKA-15910), or where the group had been before and the mirror set it back."""
    if not moves or not before:
        return 0
    moved = moves[-1]
    ends = (moved.source, moved.fault_time), (moved.cluster, moved.time)
    disturbed = any(
        window.start < until for end, until in ends for window in on_cluster(view.windows, end)
    )
    return min(before) if disturbed or len(moves) > 1 else before[-1]


def outputs_of(
    view: PartitionView,
    program: Copying,
    generation: LogGeneration,
    log: Log,
    moves: Sequence[Promotion],
) -> Iterator[Finding]:
    """A partial finding with what was made of which payloads; of the cluster that was left also
    what was still open there."""
    replica, last = log.replica, not moves or moves[-1].cluster == generation.cluster
    kept = log.visible if last else log.visible | (log.record_state == OPEN)
    offsets, uids = (
        replica.records.offset[kept],
        replica.made_from[kept] if len(replica.made_from) else _NONE,
    )
    here = native(generation, offsets)
    unknown, start = (
        np.flatnonzero(uids < 0),
        max(replica.log_start, view.compacted.get(generation.cluster, 0)),
    )
    if last and len(unknown):
        where = f"{view.topic}-{view.partition}@{int(offsets[unknown[0]])} on {generation.cluster}"
        yield Unjudged(
            reason=(
                f"program {program.name} wrote {where} without the header {HEADER!r} of what it was"
                " made from"
            )
        )
    if last and start > 0:
        where = f"{view.topic}-{view.partition} on {generation.cluster}"
        yield Unjudged(
            reason=(
                f"outputs of program {program.name} below {start} of {where} are deleted, so what "
                "has none is unknown"
            )
        )
    data = {
        "outputs": f"{view.topic}-{view.partition}", "last": last, "offsets": offsets, "uids": uids,
        "native": here.astype(np.int64), "once": view.mirror.guarantee.delivery == "exactly-once",
        "shortened": start > 0,
    }  # fmt: skip
    yield partial_of(program, generation, moves, data)


def partial_of(
    program: Copying,
    generation: LogGeneration,
    moves: Sequence[Promotion],
    data: Mapping[str, object],
) -> PartialFinding:
    data = {"program": program.name, "moves": " ".join(move.link for move in moves), **data}
    return PartialFinding(cluster=generation.cluster, offset=-1, data=data, together=program.name)


def comparable(mine: Sequence[PartialFinding]) -> bool:
    """Not a torn log, and not a failover of some partitions of which the events of others are lost
    (`complete`)."""
    return (
        not any("torn" in part.data for part in mine)
        and len({part.data["moves"] for part in mine}) == 1
    )


def left_to_pass(part: PartialFinding) -> Ints:
    """The payload ids of mirrored inputs of a partition that were behind the group's offset when
    the program began on this cluster."""
    data: Mapping[str, Any] = part.data
    offsets = all_of([part], "offsets")
    left = (offsets >= data["began"]) & (offsets < data["mirrored"])
    return np.asarray(all_of([part], "uids")[left])


def all_of(parts: Sequence[PartialFinding], name: str) -> Ints:
    return np.concatenate([_NONE, *(np.asarray(part.data[name], np.int64) for part in parts)])
