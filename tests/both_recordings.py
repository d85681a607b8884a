"""One run with two histories: that of linkflap's own clients, and that of recorders on the wire
that the same clients pass. Each has a run directory, with the same logs; in the second one the
clients are programs of the user's."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from linkflap.harness import workloads
from linkflap.harness.model.history import Fetched, Operation, SendGroup
from linkflap.harness.model.protocols import WireRecording
from linkflap.harness.model.scenario import COMMAND, Scenario, WorkloadSpec
from linkflap.harness.rundir import RunReader
from linkflap.harness.rundir.files import write_document
from linkflap.recording.run import record
from linkflap.report.progress import shown_on
from linkflap.spark_verify.checks import finding_rows
from linkflap.spark_verify.read.pieces import PARTS, history_rows
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.read.rows import damage_in, damage_of
from linkflap.spark_verify.verdict.judge import Judgement, judge
from linkflap.spark_verify.verify import checks_of, with_inputs
from tests.run_copy import seal, views

HISTORIES: Final = ("operations", "polls")


def recorded_both_ways(scenario: Scenario, folder: Path) -> tuple[Path, Path]:
    """Plays a scenario. Returns the run directory with the history of its clients, and the one with
    that of the wire."""
    own, wire = folder / "own", folder / "wire"
    for name in HISTORIES:
        (wire / name).mkdir(parents=True)
    topics = frozenset(workloads.topics(scenario.workloads))
    recording = WireRecording(
        root=wire,
        topics=topics,
        reads=topics,
        groups=frozenset(workloads.groups(scenario.workloads)),
    )
    behind = tuple(replace(w, options={**w.options, "via": "wire"}) for w in scenario.workloads)
    with shown_on() as progress:
        record(
            replace(scenario, workloads=behind),
            runtime="process",
            folder=own,
            command="tests.both_recordings",
            progress=progress,
            wire=recording,
        )
    on_the_wire(own, wire)
    return own, wire


def on_the_wire(own: Path, wire: Path) -> None:
    """Completes the run directory with the history of the wire."""
    left_out = shutil.ignore_patterns(*HISTORIES, "run.json", "manifest.json")
    shutil.copytree(own, wire, ignore=left_out, dirs_exist_ok=True, copy_function=os.link)
    run = RunReader(own).run
    scenario = replace(
        run.scenario,
        workloads=tuple(_as_programs(run.scenario)),
        # Most transactions that librdkafka aborts were never sent.
        minimums=replace(run.scenario.minimums, aborted=0),
    )
    write_document(wire / "run.json", replace(run, scenario=scenario))
    seal(wire)


def _as_programs(scenario: Scenario) -> Iterator[WorkloadSpec]:
    """The workloads of a scenario as programs: one for each group."""
    for home in dict.fromkeys(w.home for w in scenario.workloads):
        mine = [w for w in scenario.workloads if w.home == home]
        names = tuple(topic.partition(".")[2] for topic in workloads.topics(mine))
        for group in workloads.groups(mine) or [""]:
            yield WorkloadSpec(
                kind=COMMAND,
                home=home,
                command=("true",),
                writes=names,
                options={"group": group},
                record="wire",
            )


def judged(root: Path) -> Judgement:
    """A run directory, judged in this process."""
    planned, checks = plan(root), with_inputs(root, checks_of(root))
    seen = list(views(root, planned))
    of_history = (damage_in(history_rows(root, part)) for part in PARTS)
    damage = [*planned.damage, *chain(*of_history), *chain(*map(damage_of, seen))]
    rows = [finding_rows.damaged(planned.run, each.path, each.reason) for each in damage]
    for check in checks:
        found = [row for view in seen for row in finding_rows.examine(check, view)]
        partial = [row for row in found if row.finding == "partial"]
        rows += [row for row in found if row.finding != "partial"]
        rows += finding_rows.combined(check, planned.run, partial) if check.combine else []
        rows += partial if check.measure else []
    return judge(root, rows, checks_of(root), planned=planned)


# The differences, by class: docs/own-application.md explains each.


ABORTED: Final = "a commit that was never asked for, as its client had to abort"
UNHEARD: Final = "an acknowledgement that its client did not hear"
Spot = tuple[str, str, int, int]
"""A cluster, topic, partition and offset."""
Batch = tuple[str, str, int, int, int, int]
"""A cluster, topic and partition, and a producer id, epoch and sequence."""


def differences(own: Path, wire: Path) -> Counter[str]:
    """How often the two histories differ, by class."""
    ours, theirs = RunReader(own), RunReader(wire)
    found = _of_writes(_last(ours), _last(theirs), _Logs.of(own))
    return found + _of_polls(ours, theirs) + _of_commits(ours, theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """The payload id of the first record of each batch that a log has, and below which offset the
    records of a cluster, topic and partition may have been deleted or cleaned."""

    names: Mapping[Batch, int]
    gone: Mapping[tuple[str, str, int], int]

    @classmethod
    def of(cls, own: Path) -> _Logs:
        names, gone = dict[Batch, int](), defaultdict[tuple[str, str, int], int](int)
        for seen in views(own):
            for log in (*seen.replicas, *seen.earlier):
                batches, records = log.batches, log.records
                at = log.cluster, seen.topic, seen.partition
                gone[at] = max(gone[at], log.log_start, seen.compacted.get(log.cluster, 0))
                rows, firsts = np.unique(records.batch, return_index=True)
                for row, first in zip(rows.tolist(), firsts.tolist(), strict=True):
                    identity = (
                        int(batches.producer_id[row]),
                        int(batches.producer_epoch[row]),
                        int(batches.base_sequence[row]),
                    )
                    # a cleaner may have taken the first records
                    before = int(records.offset[first] - batches.base_offset[row])
                    names[*at, *identity] = int(records.uid[first]) - before
        return cls(names=names, gone=gone)

    def lacking(self, batch: SendGroup, cluster: str) -> str:
        """The identity of a batch that no log has."""
        if not batch.acks:
            return "an unacknowledged batch that no log has"
        gone = self.gone.get((cluster, batch.topic, batch.partition), 0)
        cleaned = batch.acks[0][2] < gone
        return f"an acknowledged batch that {'was deleted or cleaned' if cleaned else 'no log has'}"


def _last(run: RunReader) -> Mapping[int, Operation]:
    """The operations by number: their last rows, or the batches of all rows so far."""
    found = dict[int, Operation]()
    for row in run.operations()[0]:
        before = found.get(row.number)
        if before is not None and row.phase != "return":
            found[row.number] = replace(row, sends=(*before.sends, *row.sends))
        else:
            found[row.number] = row
    return found


def _acknowledged(operations: Mapping[int, Operation]) -> Mapping[Spot, set[int]]:
    """The operations whose records were acknowledged at each offset."""
    found = defaultdict[Spot, set[int]](set)
    for row in operations.values():
        for group in row.sends:
            for _, count, start in group.acks:
                for offset in range(start, start + count):
                    found[row.cluster, group.topic, group.partition, offset].add(row.number)
    return found


def _of_writes(
    ours: Mapping[int, Operation], theirs: Mapping[int, Operation], logs: _Logs
) -> Counter[str]:
    same, found = _pairs(ours, theirs, logs)
    promised, seen = _acknowledged(ours), _acknowledged(theirs)
    found["a record acknowledged to its client, and not on the wire"] = len(promised.keys() - seen)
    for spot in seen.keys() - promised.keys():
        (number,) = seen[spot]
        ended = {_ended(ours[mine]) for mine in same.get(number, ())}
        heard = not ended or ended & {"commit ok", "none ok"}
        found["another acknowledgement" if heard else UNHEARD] += 1
    for number, several in same.items():
        found["one operation on the wire, several of clients"] += len(several) - 1
        apart = (_apart(ours[mine], theirs[number]) for mine in several)
        found.update(each for each in apart if each)
    known = {mine for several in same.values() for mine in several}
    found["an operation that was never sent"] = sum(
        bool(row.sends) and number not in known and not _promises(row)
        for number, row in ours.items()
    )
    return found


def _pairs(
    ours: Mapping[int, Operation], theirs: Mapping[int, Operation], logs: _Logs
) -> tuple[Mapping[int, set[int]], Counter[str]]:
    """The clients' operations that each one on the wire is, by the payloads in the logs."""
    planned = {
        uid: row.number
        for row in ours.values()
        for group in row.sends
        for uid in range(group.first_uid, group.first_uid + group.count)
    }
    same, found = defaultdict[int, set[int]](set), Counter[str]()
    for row in theirs.values():
        for batch in row.sends:
            identity = row.producer_id, row.producer_epoch, batch.sequence
            key = row.cluster, batch.topic, batch.partition, *identity
            mine = planned.get(logs.names.get(key, -1))
            if mine is not None:
                same[row.number].add(mine)
            else:
                found[logs.lacking(batch, row.cluster)] += 1
    return same, found


def _promises(row: Operation) -> bool:
    return any(group.acks for group in row.sends)


def _ended(row: Operation) -> str:
    return f"{row.ending} {row.outcome if row.phase == 'return' else 'info'}"


def _apart(mine: Operation, wire: Operation) -> str:
    """How an operation differs from the same one on the wire; empty: not at all."""
    if (mine.producer_id, mine.producer_epoch) not in {
        (wire.producer_id, wire.producer_epoch), (-1, -1)
    }:  # fmt: skip
        return "another producer id or epoch"
    said, seen = _ended(mine), _ended(wire)
    if said == seen or mine.kind != "transaction":
        return "" if mine.kind == wire.kind else "another kind of operation"
    if mine.phase == "invoke" and mine.ending != "abort" == wire.ending:
        return "an abort that its client had not planned, and did not write down"
    return {
        ("commit fail", "open info"): "a commit that was never asked for, as its client was fenced",
        ("commit fail", "abort ok"): ABORTED,
        ("commit fail", "abort info"): ABORTED,
        ("commit info", "abort ok"): ABORTED,
        ("commit info", "abort info"): ABORTED,
        ("commit info", "commit ok"): "an end whose answer its client did not hear",
        ("abort info", "abort ok"): "an end whose answer its client did not hear",
        ("commit info", "open info"): "an end that was never asked for",
        ("abort info", "open info"): "an end that was never asked for",
    }.get((said, seen), f"{said}, on the wire {seen}")


Reader = tuple[str, str, str, int]
"""A client id, and the cluster, topic and partition that it read."""


def _shown(run: RunReader) -> Mapping[Reader, set[int]]:
    """The offsets that each reader got. Relays have them in their operations."""
    found = defaultdict[Reader, set[int]](set)

    def add(name: str, cluster: str, part: Fetched) -> None:
        for _, start, count in part.runs:
            offsets = range(start, start + count)
            found[name, cluster, part.topic, part.partition].update(offsets)

    for row in run.polls()[0]:
        client = row.reader.removesuffix(" (wire)").removeprefix("linkflap.assigned.")
        for part in row.fetched if row.kind == "poll" else ():
            add(row.group or client, row.cluster, part)
    for operation in _last(run).values():
        for group in operation.sends:
            if group.made_from is not None:
                add(operation.group, operation.cluster, group.made_from)
    return found


def _of_polls(own: RunReader, wire: RunReader) -> Counter[str]:
    ours, theirs, found = _shown(own), _shown(wire), Counter[str]()
    for key in {*ours, *theirs}:
        mine, fetched = ours.get(key, set()), theirs.get(key, set())
        found["a record that a client got, and no answer has"] += len(mine - fetched)
        end = max(mine, default=-1)
        beyond = sum(offset > end for offset in fetched)
        found["a record that was fetched, and not asked for any more"] += beyond
        found["a record that was fetched, and passed over"] += len(fetched - mine) - beyond
    return found


def _committed(run: RunReader) -> set[tuple[str, str, str, int, int]]:
    """The offsets that groups committed, also in transactions."""
    polls = (
        (r.group, r.cluster, p) for r in run.polls()[0] if r.kind == "commit" for p in r.fetched
    )
    relayed = (
        (row.group, row.cluster, group.made_from)
        for row in _last(run).values()
        for group in row.sends
        if group.made_from is not None and _ended(row) == "commit ok"
    )
    return {
        (group, cluster, part.topic, part.partition, part.position)
        for group, cluster, part in (*polls, *relayed)
    }


def _of_commits(own: RunReader, wire: RunReader) -> Counter[str]:
    ours, theirs = _committed(own), _committed(wire)
    return Counter(
        {
            "an offset that its client committed, and not on the wire": len(ours - theirs),
            "a commit whose answer its client did not hear": len(theirs - ours),
        }
    )
