"""exactly-once: what a relay makes of its inputs, and how far its group got, are one transaction (KIP-98, KIP-447).

A relay (consume, transform, produce, offsets in the transaction) says of every record which input it was made from. On its
cluster, each input between where the group began there and how far it got has exactly one committed output. How far it got say
the transactions that were committed there, by their own word or by the bytes, and the group's sampled offsets. A sampled offset
is below no transaction that the same producer has followed by another: the next cannot begin before the markers of the one
before it are written, also those of the offsets (KIP-98, CONCURRENT_TRANSACTIONS).

Over a failover no mirror promises as much, because outputs, inputs and group offsets cross the link each on its own. By payload
id: an input made into an output on the destination that the source's output had reached already was repeated, and one that the
group has passed there, whose output is lost with the source, was lost; both are counted apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from harness.model.scenario import Scenario
from spark_verify.checks.base import AnomalyKind, Check, Clue, Combined, Finding, Found, Unjudged
from spark_verify.checks.lives import every, examined, log_of, reads_in, sends_of
from spark_verify.checks.logs import OPEN, Log, among, locate, runs
from spark_verify.eras import KEEP_OFFSETS, Life
from spark_verify.sends import Sends
from spark_verify.view import Bools, Ints, Origin, PartitionView, Promotion, Send

RELAY: Final = "relay"
"""Clients are called by their kind of workload and a number."""
COLUMNS: Final = ("input", "uid", "output", "own")
"""Of committed outputs: offset and payload id of what each was made from, its own offset, and whether it was made here."""
Key = tuple[str, str, int, str]
"""Group, input topic, input partition, cluster."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """What each cluster's last log has: the inputs of every relay's group, and the outputs that were made of others."""
    findings: list[Finding] = []
    groups = sorted({r.group for r in view.reads if r.group and r.reader.rpartition("-")[0] == RELAY})
    sends = Sends.of(view.sends)
    made = list(sends.take(~sends.says("group", "") & ~sends.says("input_topic", "")))
    for life in [each for each in every(view) if each.last and (groups or made)]:
        log = log_of(view, life)
        if log is None or not log.whole:
            if log is not None:
                findings.append(Unjudged(reason=f"the log of {view.topic}-{view.partition} on {life.cluster} is torn"))
            findings += _unknown(life, made)
            continue
        for group in groups:
            findings += _inputs(view, life, log, group)
        findings += _outputs(view, life, log, made)
    return findings


def _unknown(life: Life, made: Sequence[Send]) -> Iterator[Clue]:
    """That nobody can tell what was made of these inputs on a cluster."""
    for group, topic, partition in sorted({(s.group, s.input_topic, s.input_partition) for s in made}):
        yield Clue(cluster=life.cluster, offset=-1, data={"of": [group, topic, partition], "torn": True})


def _inputs(view: PartitionView, life: Life, log: Log, group: str) -> Iterator[Finding]:
    """A clue with what this log had for a group that was here, and a count of what it says to have passed."""
    mine = [r for r in reads_in(view, life) if r.group == group]
    began = [r for r in mine if r.kind == "assign" and r.position >= 0]
    if not began:
        return
    start, since = min(r.position for r in began), min(r.time for r in began)
    records = log.replica.records
    offsets, uids = records.offset[log.visible], records.uid[log.visible]
    passed = max((r.position for r in mine if r.kind == "commit"), default=start)
    yield from examined(life, offsets[(offsets >= start) & (offsets < passed)])
    promotion = _promotion(view, life)
    samples = [g for g in view.groups if (g.group, g.cluster) == (group, life.cluster) and g.time >= since]
    yield Clue(
        cluster=life.cluster,
        offset=-1,
        data={
            "group": group, "start": start, "floor": log.replica.log_start, "offsets": offsets.tolist(), "uids": uids.tolist(),
            "compacted": view.compacted.get(life.cluster, 0),
            "samples": [[g.time, g.offset] for g in samples],
            "source": promotion.source if promotion else "", "kind": promotion.kind if promotion else "",
            "promoted": promotion.offset if promotion else 0,
        },
    )  # fmt: skip


def _promotion(view: PartitionView, life: Life) -> Promotion | None:
    """How the cluster came to be written to in this life; None at home, before any failover."""
    here = [p for p in view.promotions if p.cluster == life.cluster and life.began <= p.time <= life.ended]
    return max(here, key=lambda p: p.time, default=None)


def _outputs(view: PartitionView, life: Life, log: Log, made: Sequence[Send]) -> Iterator[Clue]:
    """A clue per input partition: the outputs of it that are committed in this log, and what was committed for the group."""
    here = set(sends_of(view, life).column("number").tolist())
    by_input: dict[tuple[str, str, int], list[Send]] = defaultdict(list)
    for send in made:
        by_input[send.group, send.input_topic, send.input_partition].append(send)
    for (group, topic, partition), sends in by_input.items():
        columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        claims: list[list[int]] = []
        for send in sends:
            at = locate(log.replica.records.uid, send.first_uid + np.arange(len(send.inputs), dtype=np.int64))
            committed = send.ending == "commit" and send.outcome == "ok"
            # A cluster that was given up had decided what it acknowledged, and had no time for the marker.
            decided = log.visible | (committed & (log.record_state == OPEN))
            there = (at >= 0) & decided[at] if len(decided) else np.zeros(len(at), np.bool_)
            own = send.number in here
            # A client that says of fewer inputs than it wrote outputs, or of more, is taken at its word.
            acked = np.full(len(at), -1, np.int64)
            acked[: len(send.offsets)] = send.offsets[: len(at)]
            there |= committed & (at < 0) & _deleted(view, log, acked, own=own)
            columns["input"] += send.inputs[there].tolist()
            columns["uid"] += send.input_uids[there].tolist()
            columns["output"] += _offsets(log, at[there], acked[there]).tolist()
            columns["own"] += [int(own)] * int(there.sum())
            if own and (committed or there.any()):
                claims.append([send.position, send.process, send.number, send.returned if committed else -1])
        data = {"of": [group, topic, partition], "claims": claims, **columns}
        yield Clue(cluster=life.cluster, offset=-1, data=data)


def _offsets(log: Log, at: Ints, acked: Ints) -> Ints:
    """Where outputs are; of those that are deleted, where they were acknowledged."""
    found = acked.copy()
    found[at >= 0] = log.replica.records.offset[at[at >= 0]]
    return found


def _deleted(view: PartitionView, log: Log, acked: Ints, *, own: bool) -> Bools:
    """Which outputs a log that lost its beginning, or was compacted, had; where a mirror moves offsets, any that came."""
    start = max(log.replica.log_start, view.compacted.get(log.replica.cluster, 0))
    if own or view.mirror.kind in KEEP_OFFSETS:
        return np.asarray((acked >= 0) & (acked < start))
    return np.full(len(acked), start > 0, np.bool_)


@dataclass(slots=True)
class _Made:
    """Outputs of one input partition on one cluster; `claims` are (position, process, number, returned)."""

    columns: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    claims: list[Sequence[int]] = field(default_factory=list)
    torn: bool = False

    def of(self, name: str, *, own: bool) -> Ints:
        """One column, of the outputs that were made here or of those that came over a link."""
        rows = np.array(self.columns["own"], np.int64) == int(own)
        return np.asarray(np.array(self.columns[name], np.int64)[rows], np.int64)


def combine(clues: Sequence[Clue]) -> Sequence[Combined]:
    """Holds the inputs of every partition against what was made of them."""
    inputs: dict[Key, Mapping[str, Any]] = {}
    made: dict[Key, _Made] = defaultdict(_Made)
    for clue in clues:
        data: Mapping[str, Any] = clue.data
        if "of" not in data:
            inputs[data["group"], clue.topic, clue.partition, clue.cluster] = data
            continue
        group, topic, partition = data["of"]
        mine = made[group, topic, partition, clue.cluster]
        if data.get("torn"):
            mine.torn = True
            continue
        mine.claims += data["claims"]
        for name in COLUMNS:
            mine.columns[name] += data[name]
    return [
        Combined(found=found, topic=key[1], partition=key[2])
        for key, told in sorted(inputs.items(), key=lambda entry: entry[0])
        if not made[key].torn
        for found in (*_here(key, told, made[key]), *_over(key, told, inputs, made))
    ]


def _here(key: Key, told: Mapping[str, Any], made: _Made) -> Iterator[Found]:
    """What the relay's own cluster owes: one output for each input that was passed, of records that are there."""
    offsets, uids = np.array(told["offsets"], np.int64), np.array(told["uids"], np.int64)
    used, used_uids, outputs = (made.of(name, own=True) for name in ("input", "uid", "output"))
    order = np.argsort(used, kind="stable")
    again = np.flatnonzero(used[order][1:] == used[order][:-1]) + 1
    for row in order[again].tolist():
        both = sorted(outputs[used == used[row]].tolist())
        yield _found(key, "output-duplicated", int(used[row]), outputs=both, uid=int(used_uids[row]))
    at = locate(offsets, used)
    strange = (at < 0) | (uids[at] != used_uids) if len(offsets) else np.ones(len(used), np.bool_)
    # What retention has deleted was there, and so was what the cleaner took.
    strange &= (used >= told["floor"]) & ((used >= told["compacted"]) | among(used, offsets))
    for row in np.flatnonzero(strange).tolist():
        yield _found(key, "output-without-input", int(used[row]), output=int(outputs[row]), uid=int(used_uids[row]))
    passed, by = _passed(told, made)
    due = (offsets >= told["start"]) & (offsets < passed) & (locate(used, offsets) < 0)
    yield from _lost(key, offsets[due], uids[due], began_at=told["start"], group_at=passed, by=by)
    yield from _behind(key, told, made)


def _passed(told: Mapping[str, Any], made: _Made) -> tuple[int, str]:
    """How far the group got, and what says so."""
    claimed = max((claim[0] for claim in made.claims), default=-1)
    sampled = max((offset for _, offset in told["samples"]), default=-1)
    return (claimed, "a committed transaction") if claimed >= sampled else (sampled, "the group's sampled offset")


def _lost(key: Key, offsets: Ints, uids: Ints, **evidence: object) -> Iterator[Found]:
    for first, after in runs(offsets, uids):
        yield _found(key, "input-lost", int(offsets[first]), records=after - first, uid=int(uids[first]), **evidence)


def _behind(key: Key, told: Mapping[str, Any], made: _Made) -> Iterator[Found]:
    """Sampled offsets below what a transaction had committed that its producer had followed by another before."""
    by_process: dict[int, list[Sequence[int]]] = defaultdict(list)
    for claim in made.claims:
        if claim[3] >= 0:
            by_process[claim[1]].append(claim)
    settled = []
    for claims in by_process.values():
        claims.sort(key=lambda c: c[2])
        settled += [(following[3], claim[0]) for claim, following in pairwise(claims)]
    for time, offset in told["samples"]:
        least = max((position for returned, position in settled if returned < time), default=-1)
        if offset < least:
            yield _found(key, "offset-behind", offset, committed=least, time=time)


def _over(
    key: Key, told: Mapping[str, Any], inputs: Mapping[Key, Mapping[str, Any]], made: Mapping[Key, _Made]
) -> Iterator[Found]:
    """What the failover to this cluster cost: outputs that were made again, and outputs that did not arrive."""
    there = (*key[:3], str(told["source"]))
    before = inputs.get(there)
    if before is None or made[there].torn:
        return
    offsets, uids = np.array(told["offsets"], np.int64), np.array(told["uids"], np.int64)
    came, ours = made[key].of("uid", own=False), made[key].of("uid", own=True)
    mirrored = offsets < told["promoted"]
    # By offset: a mirror may have written an input twice, of which the group here had only the second before it.
    again = mirrored & (locate(came, uids) >= 0) & (locate(made[key].of("input", own=True), offsets) >= 0)
    shared = {"failover": told["kind"], "source": there[3], "began_at": told["start"]}
    if again.any():
        bound = int(np.count_nonzero(mirrored & (offsets >= told["start"])))
        yield _counted(key, "output-repeated-by-failover", offsets[again], uids[again], bound=bound, **shared)
    gone = mirrored & (offsets < told["start"]) & (locate(came, uids) < 0) & (locate(ours, uids) < 0)
    at = locate(np.array(before["uids"], np.int64), uids)
    asked = np.array(before["offsets"], np.int64)[at] >= before["start"] if len(before["offsets"]) else gone
    done = locate(made[there].of("uid", own=True), uids) >= 0
    lost = gone & done
    if lost.any():
        yield _counted(key, "output-lost-by-failover", offsets[lost], uids[lost], **shared)
    never = gone & ~done & (at >= 0) & asked
    yield from _lost(key, offsets[never], uids[never], by="where the group began after the failover", **shared)


def _counted(key: Key, kind: str, offsets: Ints, uids: Ints, **evidence: object) -> Found:
    return _found(key, kind, int(offsets[0]), records=len(offsets), uid=int(uids[0]), **evidence)


def _found(key: Key, kind: str, offset: int, **evidence: object) -> Found:
    return Found(kind=kind, cluster=key[3], offset=offset, evidence={"group": key[0], **evidence})


def _due(scenario: Scenario, promotions: Sequence[Promotion]) -> set[tuple[str, Origin]]:
    return {(workload.home, "native") for workload in scenario.workloads if workload.kind == RELAY}


CHECK = Check(
    name="exactly-once",
    guarantee="A relay makes exactly one committed output of each record that its group has passed.",
    source="KIP-98 (offsets in the transaction); KIP-447 (fencing by the group's metadata)",
    inputs=frozenset({"batches", "records", "sends", "reads", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="input-lost",
            meaning="The group has passed a record of which nothing was made: its offset was committed without the output.",
            smallest="A has inputs 1 2; a transaction made 9 of 2 and committed position 2, the group began at 0: at offset 0.",
        ),
        AnomalyKind(
            name="output-duplicated",
            meaning="Two committed outputs were made of one record, on one cluster: an offset was lost, an output was not.",
            smallest="A has input 1; two transactions made 8 and 9 of it, and committed: at the input's offset.",
        ),
        AnomalyKind(
            name="output-without-input",
            meaning="A committed output was made of a record that is not there, or that was aborted.",
            smallest="A has input 1, aborted; a transaction made 9 of it, and committed: at the input's offset.",
        ),
        AnomalyKind(
            name="offset-behind",
            meaning="The group's committed offset is below what a transaction had committed that was over.",
            smallest="two transactions of one producer committed positions 1 and 2; then the group is at 0: at offset 0.",
        ),
        AnomalyKind(
            name="output-repeated-by-failover",
            meaning="An output was made again after a failover, although that of the source had arrived.",
            smallest="A and B have 1, and 9 made of it on A; B is promoted, the group begins at 0, 10 is made of 1: at offset 0.",
        ),
        AnomalyKind(
            name="output-lost-by-failover",
            meaning="After a failover the group goes on behind a record whose output, made on the source, did not arrive.",
            smallest="A has 1, and 9 made of it; B has 1 alone; B is promoted, and the group begins there at 1: at offset 0.",
        ),
    ),
    kernel=kernel,
    combine=combine,
    unit="inputs",
    due_at=_due,
    when="native ones where relays begin",
    complete=frozenset({"sends", "reads", "groups", "promotions"}),
)
