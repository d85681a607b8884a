"""program-copies: a program that says `exactly_once` makes one committed output of each input that
its group has passed (KIP-98).

A program of the user's writes no history. What it made of what is known because its outputs carry
on the header `linkflap` of their inputs, and how far it got are the sampled offsets of its group.
It is judged on the cluster where it is in the end: each committed input below the group's offset
has one committed output, of whatever partition, and each output that was written there an input. An
output without that header says nothing of where it is from: that is unknown, and so is a group
without a sample.

Over a failover inputs, outputs and group offsets cross the link each on its own, so that no mirror
promises as much: what was made again of an input whose output had arrived, and what the group had
passed on the source whose output did not arrive, are counted apart (as by `exactly-once`, which has
the history of linkflap's own relays).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from linkflap.harness.model.scenario import Scenario, clients
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts.generations import every, examined, log_of, native
from linkflap.spark_verify.checks.parts.logs import OPEN, Log, among, runs
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.story import Copying, Promotion
from linkflap.spark_verify.facts.view import Bools, Ints, Origin, PartitionView

HEADER: Final = "linkflap"
_NONE: Final = np.empty(0, np.int64)


def kernel(view: PartitionView) -> Sequence[Finding]:
    """The inputs and outputs of every such program that are in this partition, where the program is
    in the end."""
    findings: list[Finding] = []
    for program in view.story.facts.copying:
        if view.topic in program.reads | program.writes:
            findings += _of(view, program)
    return findings


def _of(view: PartitionView, program: Copying) -> Iterator[Finding]:
    moves = path(program.home, view.promotions)
    at = moves[-1].cluster if moves else program.home
    for generation in [each for each in every(view) if each.last]:
        if generation.cluster not in (at, moves[-1].source if moves else at):
            continue
        log = log_of(view, generation)
        if log is None or not log.whole:
            yield _partial(program, generation, moves, {"torn": True})
            continue
        if view.topic in program.writes:
            yield from _outputs(view, program, generation, log, moves)
        elif generation.cluster == at:
            yield from _inputs(view, program, generation, log, moves)


def path(home: str, promotions: Sequence[Promotion]) -> Sequence[Promotion]:
    """The failovers that a program which begins at `home` followed, in their order."""
    found: list[Promotion] = []
    cluster = home
    for promotion in sorted(promotions, key=lambda p: p.time):
        if promotion.source == cluster:
            cluster = promotion.cluster
            found.append(promotion)
    return found


def _inputs(
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
        began = before[-1] if before else 0
    yield from examined(generation, offsets[offsets < passed])
    data = {
        "inputs": f"{view.topic}-{view.partition}", "offsets": offsets, "uids": uids,
        "passed": passed, "began": began,
        "shortened": log.replica.log_start > 0 or view.compacted.get(generation.cluster, 0) > 0,
        "mirrored": moved.offset if moved else 0, "failover": moved.kind if moved else "",
    }  # fmt: skip
    yield _partial(program, generation, moves, data)


def _outputs(
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
    yield _partial(program, generation, moves, data)


def _partial(
    program: Copying,
    generation: LogGeneration,
    moves: Sequence[Promotion],
    data: Mapping[str, object],
) -> PartialFinding:
    data = {"program": program.name, "moves": " ".join(move.link for move in moves), **data}
    return PartialFinding(cluster=generation.cluster, offset=-1, data=data, together=program.name)


def _comparable(mine: Sequence[PartialFinding]) -> bool:
    """Not a torn log, and not a failover of some partitions of which the events of others are lost
    (`complete`)."""
    return (
        not any("torn" in part.data for part in mine)
        and len({part.data["moves"] for part in mine}) == 1
    )


def combine(parts: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Holds what every program had to pass against what it made."""
    programs: dict[str, list[PartialFinding]] = defaultdict(list)
    for part in parts:
        programs[str(part.data["program"])].append(part)
    return [
        found
        for _, mine in sorted(programs.items())
        if _comparable(mine)
        for found in _judge(
            [part for part in mine if "inputs" in part.data],
            [part for part in mine if part.data.get("last")],
            [part for part in mine if "outputs" in part.data and not part.data["last"]],
        )
    ]


def _judge(
    inputs: Sequence[PartialFinding],
    outputs: Sequence[PartialFinding],
    left: Sequence[PartialFinding],
) -> Iterator[Combined]:
    made, before = _all(outputs, "uids"), _all(left, "uids")
    own = _all(outputs, "native") == 1
    known = not any(part.data["shortened"] for part in outputs) and bool((made >= 0).all())
    yield from _missing(inputs, made, before, complete=known)
    yield from _repeated(inputs, outputs, made, own)
    if not any(part.data["shortened"] for part in inputs):
        yield from _from_nothing(outputs, _all(inputs, "uids"))


def _all(parts: Sequence[PartialFinding], name: str) -> Ints:
    return np.concatenate([_NONE, *(np.asarray(part.data[name], np.int64) for part in parts)])


def _missing(
    inputs: Sequence[PartialFinding], made: Ints, before: Ints, *, complete: bool
) -> Iterator[Combined]:
    """Inputs that the group has passed, and of which there is no output."""
    for part in inputs if complete else ():
        data: Mapping[str, Any] = part.data
        offsets, uids = (np.asarray(data[name], np.int64) for name in ("offsets", "uids"))
        gone = (offsets < data["passed"]) & ~among(uids, made)
        left = gone & (offsets < data["mirrored"]) & among(uids, before)
        rows = np.flatnonzero(gone & ~left)
        for start, end in runs(uids[rows], offsets[rows]):
            evidence = {
                "records": end - start,
                "uid": int(uids[rows[start]]),
                "group_at": data["passed"],
            }
            yield _combined(
                part, "input-not-copied", "inputs", int(offsets[rows[start]]), **evidence
            )
        if left.any():
            first = int(np.flatnonzero(left)[0])
            evidence = {
                "records": int(left.sum()),
                "uid": int(uids[first]),
                "failover": data["failover"],
            }
            yield _combined(
                part, "copy-lost-by-failover", "inputs", int(offsets[first]), **evidence
            )


def _repeated(
    inputs: Sequence[PartialFinding], outputs: Sequence[PartialFinding], made: Ints, own: Bools
) -> Iterator[Combined]:
    """Outputs of one input beyond the first; where that came over a link, the first of the
    cluster's own is the failover's."""
    part_of = np.repeat(np.arange(len(outputs)), [len(_all([part], "uids")) for part in outputs])
    offsets = _all(outputs, "offsets")
    # of one payload those that came over a link first
    order = np.lexsort((offsets, part_of, own, made))
    order = order[made[order] >= 0]
    again = np.flatnonzero(np.diff(made[order], prepend=-1) == 0)
    crossed = own[order[again]] & ~own[order[again - 1]]
    for row in order[again[~crossed]].tolist():
        part = outputs[int(part_of[row])]
        # A mirror that delivers at least once may repeat what it mirrors (`duplicate`).
        if own[row] or part.data["once"]:
            yield _combined(
                part, "input-copied-twice", "outputs", int(offsets[row]), uid=int(made[row])
            )
    rows = order[again[crossed]]
    shared = {
        "bound": sum(map(_left_to_pass, inputs)),
        "failover": next((part.data["failover"] for part in inputs), ""),
    }
    for number in np.unique(part_of[rows]).tolist():
        mine = rows[part_of[rows] == number]
        first = int(mine[np.argmin(offsets[mine])])
        evidence = {"records": len(mine), "uid": int(made[first]), **shared}
        yield _combined(
            outputs[number], "copy-repeated-by-failover", "outputs", int(offsets[first]), **evidence
        )


def _left_to_pass(part: PartialFinding) -> int:
    """How many mirrored inputs of a partition were behind the group's offset when the program began
    on this cluster."""
    data: Mapping[str, Any] = part.data
    offsets = _all([part], "offsets")
    return int(np.count_nonzero((offsets >= data["began"]) & (offsets < data["mirrored"])))


def _from_nothing(outputs: Sequence[PartialFinding], there: Ints) -> Iterator[Combined]:
    """Outputs that were written here, of payloads that no committed input has."""
    for part in outputs:
        offsets, uids, own = (_all([part], name) for name in ("offsets", "uids", "native"))
        strange = (own == 1) & (uids >= 0) & ~among(uids, there)
        for row in np.flatnonzero(strange).tolist():
            yield _combined(
                part, "copy-without-input", "outputs", int(offsets[row]), uid=int(uids[row])
            )


def _combined(
    part: PartialFinding, kind: str, side: str, offset: int, **evidence: object
) -> Combined:
    topic, _, partition = str(part.data[side]).rpartition("-")
    found = Found(
        kind=kind,
        cluster=part.cluster,
        offset=offset,
        evidence={"program": part.data["program"], **evidence},
    )
    return Combined(found=found, topic=topic, partition=int(partition))


def _due(
    scenario: Scenario, promotions: Sequence[Promotion]
) -> set[tuple[str, Origin | Literal["checkpoints"]]]:
    """Inputs, and samples of the group, where such a program is in the end."""
    due: set[tuple[str, Origin | Literal["checkpoints"]]] = set()
    for _, workload in clients(scenario.workloads):
        if workload.exactly_once:
            moves = path(workload.home, promotions)
            at = moves[-1].cluster if moves else workload.home
            due |= {(at, "checkpoints"), (at, "mirrored" if moves else "native")}
    return due


CHECK = Check(
    name="program-copies",
    guarantee=(
        "A program that says `exactly_once` has one committed output of each input that its group "
        "has passed."
    ),
    source="KIP-98 (offsets in the transaction); KIP-447 (fencing by the group's metadata)",
    inputs=frozenset({"batches", "records", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="input-not-copied",
            meaning=(
                "The program's group has passed a committed record of which there is no output."
            ),
            sentence="{program} passed {who} at {at} on {cluster} without a committed output",
            counted="input has no output|inputs have no output",
            smallest=(
                "A.t has 1 2, the group is at 2, A.out has one of 2 alone: at the offset of 1."
            ),
        ),
        AnomalyKind(
            name="input-copied-twice",
            meaning="Two committed outputs were made of one input on one cluster.",
            sentence="{program} made a second output at {at} on {cluster} from {who}",
            counted="input was copied twice|inputs were copied twice",
            smallest=(
                "A.t has 1, the group is at 1, A.out has two of 1: at the offset of the second."
            ),
        ),
        AnomalyKind(
            name="copy-without-input",
            meaning=(
                "A committed output was made of a payload that no committed input has: it was "
                "aborted, or never there."
            ),
            sentence=(
                "{program} made an output at {at} on {cluster} from {who}, which no committed "
                "input has"
            ),
            counted="output has no input|outputs have no input",
            smallest="A.t has 1, aborted; A.out has one of 1: at its offset.",
        ),
        AnomalyKind(
            name="copy-repeated-by-failover",
            meaning=(
                "An output was made again after a failover, although that of the source had "
                "arrived."
            ),
            sentence="{program} made outputs again on {cluster} after the failover, from {at} on",
            counted="output was made again|outputs were made again",
            smallest=(
                "B has 1 and what A made of it, is promoted, and the program makes another output "
                "of 1: at its offset."
            ),
        ),
        AnomalyKind(
            name="copy-lost-by-failover",
            meaning=(
                "After a failover the program goes on behind an input whose output, made on the "
                "source, did not arrive."
            ),
            sentence=(
                "outputs of {program} of inputs from {at} on did not arrive on {cluster} before the"
                " failover"
            ),
            counted="output was left behind|outputs were left behind",
            smallest=(
                "A has 1 and an output of it, B has 1 alone and is promoted with the group at 1: at"
                " the offset of 1."
            ),
        ),
    ),
    follows=frozenset(
        {
            "lost-write",
            "duplicate",
            "torn-transaction",
            "commit-aborted",
            "group-offsets",
            "order-equality",
        }
    ),
    kernel=kernel,
    combine=combine,
    unit="inputs",
    due_at=_due,
    when=(
        "native or mirrored ones where a program with `exactly_once` is in the end, and samples of "
        "its group there"
    ),
    complete=frozenset({"groups", "promotions"}),
)
