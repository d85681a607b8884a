"""program-copies: a program with `exactly_once` writes one committed output for each input that its
group has passed (KIP-98).

A user's program writes no history. Its outputs are known because they carry the header `linkflap`
of their inputs, and its progress by the sampled offsets of its group. It is judged on its last
cluster: each committed input below the group's offset has one committed output, in any partition,
and each output that was written there has an input. The input of an output without that header is
unknown, and so is the progress of a group without a sample.

No mirror promises exactly-once over a failover, because inputs, outputs and group offsets are
mirrored independently. Two kinds are counted separately: outputs repeated for an input whose output
had arrived, and inputs that the group had passed on the source and whose output did not arrive.
`exactly-once` does the same for linkflap's own relays, whose history it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import Scenario, clients
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Due,
    Examinable,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
    grouped,
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    log_of,
    native,
    thinned_below,
)
from linkflap.spark_verify.checks.log_model.logs import OPEN, Log, among, column_of, runs, together
from linkflap.spark_verify.facts.eras import LogGeneration, on_cluster
from linkflap.spark_verify.facts.partition_facts import Copying, LogPromotion
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

HEADER: Final = "linkflap"


def failovers_followed(home: str, promotions: Sequence[LogPromotion]) -> Sequence[LogPromotion]:
    """The failovers that a program which begins at `home` followed, in their order."""
    found: list[LogPromotion] = []
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
    moves: Sequence[LogPromotion],
) -> Iterator[Finding]:
    """A partial finding with the inputs of this log, the group's last offset here, and its first
    offset after a failover."""
    moved = moves[-1] if moves else None
    samples = [
        g for g in view.groups if (g.group, g.cluster) == (program.group, generation.cluster)
    ]
    records = log.records
    ours = log.visible & (records.uid >= 0)
    offsets, uids = records.offset[ours], records.uid[ours]
    if not samples:
        if len(offsets):
            yield Unjudged(
                f"no committed offset of group {program.group} was ever sampled on "
                f"{generation.cluster}"
            )
        passed = began = stood = 0
    else:
        yield Examined(cluster=generation.cluster, origin="checkpoints", count=len(samples))
        passed = max(g.offset for g in samples)
        before = [g.offset for g in samples if moved is not None and g.time <= moved.time]
        began = _began(view, moves, before)
        stood = _stood(view, moves, samples, before, passed)
    yield from examined(generation, offsets[offsets < passed])
    data = {
        "inputs": view.tp, "offsets": offsets, "uids": uids,
        "passed": passed, "began": began, "stood": stood,
        "shortened": log.replica.log_start > 0 or thinned_below(view, generation.cluster) > 0,
        "mirrored": moved.offset if moved else 0, "failover": moved.kind if moved else "",
    }  # fmt: skip
    yield partial_of(program, generation, moves, data)


def _began(view: PartitionView, moves: Sequence[LogPromotion], before: Sequence[int]) -> int:
    """The offset at which the group began after a failover: the last offset sampled there before
    it. The lowest sample counts in two cases: a coordinator of either end may have answered with an
    earlier offset (KAFKA-15910), or the group had been there before and the mirror set it back."""
    if not moves or not before:
        return 0
    return min(before) if len(moves) > 1 or _disturbed(view, moves[-1]) else before[-1]


def _stood(
    view: PartitionView,
    moves: Sequence[LogPromotion],
    samples: Sequence[GroupOffset],
    before: Sequence[int],
    passed: int,
) -> int:
    """The highest offset at which the group can have begun after a failover: the first one that was
    sampled after it, unless that may have been an earlier one."""
    if not moves or _disturbed(view, moves[-1]):
        return passed
    after = [g.offset for g in samples if g.time > moves[-1].time]
    return max([*before, *after[:1]])


def _disturbed(view: PartitionView, moved: LogPromotion) -> bool:
    """Whether a fault on brokers of either end preceded a failover."""
    ends = (moved.source, moved.fault_time), (moved.cluster, moved.time)
    return any(
        window.start < until for end, until in ends for window in on_cluster(view.windows, end)
    )


def outputs_of(
    view: PartitionView,
    program: Copying,
    generation: LogGeneration,
    log: Log,
    moves: Sequence[LogPromotion],
) -> Iterator[Finding]:
    """A partial finding with the outputs and their payloads; for the abandoned cluster also the
    outputs in open transactions."""
    replica, last = log.replica, not moves or moves[-1].cluster == generation.cluster
    kept = log.visible if last else log.visible | (log.record_state == OPEN)
    offsets = replica.records.offset[kept]
    uids = replica.made_from[kept] if len(replica.made_from) else replica.made_from
    here = native(generation, offsets)
    unknown = np.flatnonzero(uids < 0)
    start = max(replica.log_start, thinned_below(view, generation.cluster))
    if last and len(unknown):
        where = f"{view.tp}@{int(offsets[unknown[0]])} on {generation.cluster}"
        yield Unjudged(
            f"program {program.name} wrote {where} without the header {HEADER!r} of what it was"
            " made from"
        )
    if last and start > 0:
        where = f"{view.tp} on {generation.cluster}"
        yield Unjudged(
            f"outputs of program {program.name} below {start} of {where} are deleted, so what "
            "has none is unknown"
        )
    data = {
        "outputs": view.tp, "last": last, "offsets": offsets, "uids": uids,
        "native": here.astype(np.int64), "once": view.guarantee.delivery == "exactly-once",
        "shortened": start > 0,
    }  # fmt: skip
    yield partial_of(program, generation, moves, data)


def partial_of(
    program: Copying,
    generation: LogGeneration,
    moves: Sequence[LogPromotion],
    data: Mapping[str, object],
) -> PartialFinding:
    data = {"program": program.name, "moves": " ".join(move.link for move in moves), **data}
    return PartialFinding(cluster=generation.cluster, offset=-1, data=data, together=program.name)


def comparable(mine: Sequence[PartialFinding]) -> bool:
    """Whether the parts can be compared: no log is torn, and no events of a failover are lost
    (`complete`)."""
    return (
        not any("torn" in part.data for part in mine)
        and len({part.data["moves"] for part in mine}) == 1
    )


def left_to_pass(part: PartialFinding) -> Ints:
    """The payload ids of mirrored inputs of a partition that were behind the group's offset when
    the program began on this cluster."""
    mirrored = column_of([part], "offsets") < part.data["mirrored"]
    return np.asarray(column_of([part], "uids")[mirrored & _behind(part)])


def _to_pass(part: PartialFinding) -> Ints:
    """The payload ids of all inputs of a partition that the program had to pass on this cluster."""
    return np.asarray(column_of([part], "uids")[_behind(part)])


def _behind(part: PartialFinding) -> Bools:
    """The inputs at or behind the group's offset when the program began here."""
    return np.asarray(column_of([part], "offsets") >= part.data["began"])


def kernel(view: PartitionView) -> Iterator[Finding]:
    """The inputs and outputs of each program in this partition, on the program's last cluster."""
    for program in view.partition_facts.facts.copying:
        if view.topic in program.reads | program.writes:
            yield from _of(view, program)


def _of(view: PartitionView, program: Copying) -> Iterator[Finding]:
    moves = failovers_followed(program.home, view.promotions)
    at = moves[-1].cluster if moves else program.home
    for generation in [each for each in every(view) if each.last]:
        if generation.cluster not in (at, moves[-1].source if moves else at):
            continue
        log = log_of(view, generation)
        if log is None or not log.whole:
            yield partial_of(program, generation, moves, {"torn": True})
            continue
        if view.topic in program.writes:
            yield from outputs_of(view, program, generation, log, moves)
        elif generation.cluster == at:
            yield from inputs_of(view, program, generation, log, moves)


def combine(parts: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Compares every program's inputs with its outputs."""
    programs = grouped(parts, lambda part: part.data["program"])
    return [
        found
        for _, mine in sorted(programs.items())
        if comparable(mine)
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
    made, before = column_of(outputs, "uids"), column_of(left, "uids")
    own = column_of(outputs, "native") == 1
    known = not any(part.data["shortened"] for part in outputs) and bool((made >= 0).all())
    yield from _missing(inputs, made, before, complete=known)
    yield from _repeated(inputs, outputs, made, own)
    if not any(part.data["shortened"] for part in inputs):
        yield from _from_nothing(outputs, column_of(inputs, "uids"))


def _missing(
    inputs: Sequence[PartialFinding], made: Ints, before: Ints, *, complete: bool
) -> Iterator[Combined]:
    """Inputs that the group has passed, and that have no output."""
    for part in inputs if complete else ():
        data = part.data
        offsets, uids = (np.asarray(data[name], np.int64) for name in ("offsets", "uids"))
        gone = (offsets < data["passed"]) & ~among(uids, made)
        left = gone & (offsets < min(data["mirrored"], data["stood"])) & among(uids, before)
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
    """Outputs of a payload in excess of its inputs here; a mirror may have repeated the input. If a
    mirrored output exists, the cluster's first own output is a repeat over the failover."""
    part_of = np.repeat(
        np.arange(len(outputs)), [len(column_of([part], "uids")) for part in outputs]
    )
    offsets = column_of(outputs, "offsets")
    # per payload, mirrored outputs come first
    order = np.lexsort((offsets, part_of, own, made))
    order = order[made[order] >= 0]
    again = np.flatnonzero(np.diff(made[order], prepend=-1) == 0)
    crossed = own[order[again]] & ~own[order[again - 1]]
    uncrossed = order[again[~crossed]]
    to_pass = together(map(_to_pass, inputs))
    inputs_left = Counter(to_pass[among(to_pass, made[uncrossed])].tolist())
    for row in uncrossed.tolist():
        part, payload = outputs[int(part_of[row])], int(made[row])
        inputs_left[payload] -= int(own[row])
        # A mirror that delivers at least once may repeat what it mirrors (`duplicate`).
        wrong = inputs_left[payload] <= 0 if own[row] else part.data["once"]
        if wrong:
            yield _combined(part, "input-copied-twice", "outputs", int(offsets[row]), uid=payload)
    rows = order[again[crossed]]
    left = together(map(left_to_pass, inputs))
    failover = next((part.data["failover"] for part in inputs), "")
    # A second output of an input that the group had already passed when the program began here is
    # unexplained.
    for explained, bound in ((True, len(left)), (False, 0)):
        chosen = rows[among(made[rows], left) == explained]
        for number in np.unique(part_of[chosen]).tolist():
            mine = chosen[part_of[chosen] == number]
            first = int(mine[np.argmin(offsets[mine])])
            evidence = {
                "records": len(mine), "uid": int(made[first]), "bound": bound, "failover": failover,
            }  # fmt: skip
            yield _combined(
                outputs[number],
                "copy-repeated-by-failover",
                "outputs",
                int(offsets[first]),
                **evidence,
            )


def _from_nothing(outputs: Sequence[PartialFinding], there: Ints) -> Iterator[Combined]:
    """Outputs that were written here, of payloads that no committed input has."""
    for part in outputs:
        offsets, uids, own = (column_of([part], name) for name in ("offsets", "uids", "native"))
        strange = (own == 1) & (uids >= 0) & ~among(uids, there)
        for row in np.flatnonzero(strange).tolist():
            yield _combined(
                part, "copy-without-input", "outputs", int(offsets[row]), uid=int(uids[row])
            )


def _combined(
    part: PartialFinding, kind: str, side: str, offset: int, **evidence: object
) -> Combined:
    topic, _, partition = part.data[side].rpartition("-")
    found = Found.at(kind, part.cluster, offset, program=part.data["program"], **evidence)
    return Combined(found=found, topic=topic, partition=int(partition))


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """Inputs, and samples of the group, where such a program is in the end."""
    due: set[tuple[str, Examinable]] = set()
    for _, workload in clients(scenario.workloads):
        if workload.exactly_once:
            moves = failovers_followed(workload.home, promotions)
            at = moves[-1].cluster if moves else workload.home
            due |= {(at, "checkpoints"), (at, "mirrored" if moves else "native")}
    return due


CHECK = Check(
    name="program-copies",
    guarantee="""A program with `exactly_once` has one committed output for each input that its
        group has passed.""",
    source="KIP-98 (offsets in the transaction); KIP-447 (fencing by the group's metadata)",
    inputs={"batches", "records", "groups", "promotions"},
    anomalies=(
        AnomalyKind(
            name="input-not-copied",
            meaning=("The program's group has passed a committed record that has no output."),
            sentence="{program} passed {who} at {at} on {cluster} without a committed output",
            counted="input has no output|inputs have no output",
            smallest="""A.t has 1 2, the group is at 2, A.out has one of 2 alone: at the offset of
                1.""",
        ),
        AnomalyKind(
            name="input-copied-twice",
            meaning="""One input has two committed outputs on one cluster, or one that a mirror
                repeated has more outputs than copies.""",
            sentence="{program} made a second output at {at} on {cluster} from {who}",
            counted="input was copied twice|inputs were copied twice",
            smallest="""A.t has 1, the group is at 1, A.out has two of 1: at the offset of the
                second.""",
        ),
        AnomalyKind(
            name="copy-without-input",
            meaning="""No committed input has the payload of a committed output: the input was
                aborted, or never existed.""",
            sentence="""{program} made an output at {at} on {cluster} from {who}, which no committed
                input has""",
            counted="output has no input|outputs have no input",
            smallest="A.t has 1, aborted; A.out has one of 1: at its offset.",
        ),
        AnomalyKind(
            name="copy-repeated-by-failover",
            meaning="""An output was made again after a failover, although the source's output had
                arrived.""",
            sentence="{program} made outputs again on {cluster} after the failover, from {at} on",
            counted="output was made again|outputs were made again",
            smallest="""B has 1 and what A made of it, is promoted, and the program makes another
                output of 1: at its offset.""",
        ),
        AnomalyKind(
            name="copy-lost-by-failover",
            meaning="""After a failover the program continues behind an input whose output on the
                source was not mirrored.""",
            sentence="""outputs of {program} of inputs from {at} on did not arrive on {cluster}
                before the failover""",
            counted="output was left behind|outputs were left behind",
            smallest="""A has 1 and an output of it, B has 1 alone and is promoted with the group at
                1: at the offset of 1.""",
        ),
    ),
    follows={
        "lost-write",
        "duplicate",
        "torn-transaction",
        "commit-aborted",
        "group-offsets",
        "order-equality",
    },
    kernel=kernel,
    combine=combine,
    unit="inputs",
    due_at=_due,
    when="""native or mirrored ones where a program with `exactly_once` is in the end, and samples
        of its group there""",
    complete={"groups", "promotions"},
)
