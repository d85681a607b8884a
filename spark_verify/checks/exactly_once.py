"""exactly-once: the outputs of a relay and the offsets of its group are one transaction (KIP-98,
KIP-447).

A relay (consume, transform, produce, offsets in the transaction) records for every output which
input it was made from. On its cluster, each input between the group's first and last offset has
exactly one committed output. The last offset follows from the committed transactions, by the
relay's report or by the bytes, and from the group's sampled offsets. A sampled offset is never
below that of a transaction which the same producer has followed by another one: the next
transaction cannot begin before all markers of the previous one are written, including those for
offsets (KIP-98, CONCURRENT_TRANSACTIONS). But once a fault has reached brokers of the cluster, a
sample may be an earlier offset of the group (KAFKA-15910). If the group was never sampled, the
relay's report cannot be verified, and the check is unknown.

No mirror promises exactly-once over a failover, because outputs, inputs and group offsets are
mirrored independently. The check compares payload ids, and counts two costs separately. An input
was repeated if the destination made an output from it although the source's output had already
arrived. An input was lost if the group passed it on the destination and its output was lost with
the source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np

from linkflap.harness.model.scenario import Scenario
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
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    log_of,
    reads_in,
    sends_of,
)
from linkflap.spark_verify.checks.log_model.logs import OPEN, Log, among, locate, runs
from linkflap.spark_verify.checks.log_model.samples import disturbed_from, never_sampled
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

Key = tuple[str, str, int, str]
"""A group's input partition, and a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Outputs of one input partition on one cluster, and the offsets that its transactions
    committed there, as columns."""

    parts: Sequence[Mapping[str, Any]] = ()
    torn: bool = False

    def of(self, name: str) -> Ints:
        """One column: input, uid, output; came, payload ids that came over a link; position,
        process, number, returned."""
        if len(self.parts) == 1:
            return np.asarray(self.parts[0][name], np.int64)
        return np.concatenate([np.zeros(0, np.int64), *(each[name] for each in self.parts)])


def expected_outputs(key: Key, input_log: Mapping[str, Any], made: Made) -> Iterator[Found]:
    """Violations on the relay's own cluster: each passed input must have one output, and each
    output an existing input."""
    offsets, uids, used = input_log["offsets"], input_log["uids"], made.of("input")
    yield from _made_again(key, made)
    at = locate(offsets, used)
    strange = (
        (at < 0) | (uids[at] != made.of("uid")) if len(offsets) else np.ones(len(used), np.bool_)
    )
    # Records that retention has deleted, or a cleaner has taken, were there.
    strange &= (used >= input_log["floor"]) & ((used >= input_log["compacted"]) | (at >= 0))
    for row in np.flatnonzero(strange).tolist():
        output, uid = int(made.of("output")[row]), int(made.of("uid")[row])
        yield _found_at(key, "output-without-input", int(used[row]), output=output, uid=uid)
    passed, by = _passed_to(input_log, made)
    due = (offsets >= input_log["start"]) & (offsets < passed) & (locate(used, offsets) < 0)
    yield from _lost_outputs(
        key, offsets[due], uids[due], began_at=input_log["start"], group_at=passed, by=by
    )
    yield from _offsets_behind(key, input_log, made)


def _made_again(key: Key, made: Made) -> Iterator[Found]:
    """Every output of an input that has another before it."""
    used, used_uids, outputs = (made.of(name) for name in ("input", "uid", "output"))
    order = np.argsort(used, kind="stable")
    ordered = used[order]
    for index in (np.flatnonzero(ordered[1:] == ordered[:-1]) + 1).tolist():
        first, after = (
            int(np.searchsorted(ordered, ordered[index], side=side)) for side in ("left", "right")
        )
        both = sorted(outputs[order[first:after]].tolist())
        yield _found_at(
            key,
            "output-duplicated",
            int(ordered[index]),
            outputs=both,
            uid=int(used_uids[order[index]]),
        )


def _passed_to(input_log: Mapping[str, Any], made: Made) -> tuple[int, str]:
    """The last offset that the group passed, and its source: a committed transaction or a
    sample."""
    claimed, sampled = (
        int(values.max(initial=-1)) for values in (made.of("position"), input_log["sampled"])
    )
    return (
        (claimed, "a committed transaction")
        if claimed >= sampled
        else (sampled, "the group's sampled offset")
    )


def _lost_outputs(key: Key, offsets: Ints, uids: Ints, **evidence: object) -> Iterator[Found]:
    for first, after in runs(offsets, uids):
        yield _found_at(
            key,
            "input-lost",
            int(offsets[first]),
            records=after - first,
            uid=int(uids[first]),
            **evidence,
        )


def _offsets_behind(key: Key, input_log: Mapping[str, Any], made: Made) -> Iterator[Found]:
    """Sampled offsets below the offset of a transaction that its producer had already followed by
    another."""
    position, process, number, returned = (
        made.of(name) for name in ("position", "process", "number", "returned")
    )
    order = np.lexsort((number, process))
    order = order[returned[order] >= 0]
    followed = np.flatnonzero(process[order][1:] == process[order][:-1])
    over, settled = returned[order][followed + 1], position[order][followed]
    over, settled = np.sort(over), np.maximum.accumulate(settled[np.argsort(over)])
    before = np.searchsorted(over, input_log["times"])
    least = np.concatenate(([-1], settled))[before]
    sampled, disturbed = input_log["sampled"], input_log["times"] >= input_log["disturbed"]
    left = np.concatenate((position, sampled[~disturbed], [input_log["start"]]))
    # A coordinator that reloads its partition may answer with a commit that the group had left
    # (KAFKA-15910).
    behind = (before > 0) & (sampled < least) & ~(disturbed & among(sampled, left))
    for row in np.flatnonzero(behind).tolist():
        yield _found_at(
            key,
            "offset-behind",
            int(input_log["sampled"][row]),
            committed=int(least[row]),
            time=int(input_log["times"][row]),
        )


def over_a_failover(
    key: Key,
    input_log: Mapping[str, Any],
    inputs: Mapping[Key, Mapping[str, Any]],
    outputs: Mapping[Key, Made],
) -> Iterator[Found]:
    """The cost of the failover to this cluster: outputs that were made again, and outputs that did
    not arrive."""
    there = (*key[:3], str(input_log["source"]))
    before, made, theirs = inputs.get(there), outputs.get(key, Made()), outputs.get(there, Made())
    if before is None or theirs.torn:
        return
    offsets, uids = input_log["offsets"], input_log["uids"]
    mirrored, arrived = offsets < input_log["promoted"], among(uids, made.of("came"))
    # Compared by offset, because a mirror may have written an input twice, with only the second
    # copy ahead of the group.
    again = mirrored & arrived & among(offsets, made.of("input"))
    shared = {"failover": input_log["kind"], "source": there[3], "began_at": input_log["start"]}
    left = mirrored & (offsets >= input_log["first"])
    # An output of an input below the group's first offset is unexplained.
    for rows, bound in ((again & left, int(left.sum())), (again & ~left, 0)):
        if rows.any():
            yield counted(
                key, "output-repeated-by-failover", offsets[rows], uids[rows], bound=bound, **shared
            )
    gone = mirrored & (offsets < input_log["start"]) & ~arrived & ~among(uids, made.of("uid"))
    at = locate(before["uids"], uids)
    asked = before["offsets"][at] >= before["start"] if len(before["offsets"]) else gone
    done = among(uids, theirs.of("uid"))
    lost = gone & done
    if lost.any():
        yield counted(key, "output-lost-by-failover", offsets[lost], uids[lost], **shared)
    never = gone & ~done & (at >= 0) & asked
    yield from _lost_outputs(
        key, offsets[never], uids[never], by="where the group began after the failover", **shared
    )


def counted(key: Key, kind: str, offsets: Ints, uids: Ints, **evidence: object) -> Found:
    return _found_at(key, kind, int(offsets[0]), records=len(offsets), uid=int(uids[0]), **evidence)


def _found_at(key: Key, kind: str, offset: int, **evidence: object) -> Found:
    return Found.at(kind, key[3], offset, group=key[0], **evidence)


RELAY: Final = "relay"
"""Names of clients: the kind of workload and a number."""
GroupPartition = tuple[str, str, int]
"""Group, input topic, input partition: what is combined together."""


def groups_of_relays(view: PartitionView) -> Sequence[str]:
    """The groups in which relays read."""
    return sorted({r.group for r in view.reads if r.group and r.reader.rpartition("-")[0] == RELAY})


def relay_partial(
    generation: LogGeneration, key: GroupPartition, data: Mapping[str, object]
) -> PartialFinding:
    """One log's part of a group's input partition; `combine` joins the parts of all logs."""
    group, topic, partition = key
    return PartialFinding(
        cluster=generation.cluster, offset=-1, data=data, together=f"{topic}-{partition} {group}"
    )


def by_group_partition(made: Sends) -> Mapping[GroupPartition, Sends]:
    """Outputs of relays, by their inputs, in order."""
    (group, groups), (topic, topics) = made.codes("group"), made.codes("input_topic")
    keys = np.stack((group, topic, made.column("input_partition")), axis=1)
    found = {
        (groups[g], topics[t], p): made.take((keys == (g, t, p)).all(axis=1))
        for g, t, p in np.unique(keys, axis=0).tolist()
    }
    return dict(sorted(found.items()))


def inputs_of_group(
    view: PartitionView, generation: LogGeneration, log: Log, group: str
) -> Iterator[Finding]:
    """A partial finding with this log's inputs for a group, and the count of inputs that the group
    passed."""
    mine = [r for r in reads_in(view, generation) if r.group == group]
    began = [r for r in mine if r.kind == "assign" and r.position >= 0]
    if not began:
        return
    start, since = min(r.position for r in began), min(r.time for r in began)
    first = _first(view, generation.cluster, began)
    records = log.records
    offsets, uids = records.offset[log.visible], records.uid[log.visible]
    passed = max((r.position for r in mine if r.kind == "commit"), default=start)
    yield from examined(generation, offsets[(offsets >= start) & (offsets < passed)])
    if reason := never_sampled(view, generation.cluster, group, until=generation.ended):
        yield Unjudged(reason)
    times, sampled = _samples(view, generation.cluster, group, since)
    if len(times):
        yield Examined(cluster=generation.cluster, origin="checkpoints", count=len(times))
    key = (group, view.topic, view.partition)
    data = {
        "start": start, "first": first, "floor": log.replica.log_start,
        "compacted": view.compacted.get(generation.cluster, 0),
        "offsets": offsets, "uids": uids, "times": times, "sampled": sampled,
        "disturbed": disturbed_from(view.windows, generation.cluster),
        **_promoted(view, generation),
    }  # fmt: skip
    yield relay_partial(generation, key, {"inputs_of": key, **data})


def _first(view: PartitionView, cluster: str, began: Sequence[Read]) -> int:
    """A group's first offset on a cluster: that of its first assignment. The lowest assignment
    counts once a coordinator there may have answered with an earlier offset (KAFKA-15910)."""
    earliest = min(began, key=attrgetter("returned"))
    disturbed = disturbed_from(view.windows, cluster)
    return min(r.position for r in began if r is earliest or r.returned >= disturbed)


def _samples(view: PartitionView, cluster: str, group: str, since: int) -> tuple[Ints, Ints]:
    """Times and committed offsets of the samples of a group from a time on."""
    samples = [
        (g.time, g.offset)
        for g in view.groups
        if (g.group, g.cluster) == (group, cluster) and g.time >= since
    ]
    times, sampled = np.array(samples, np.int64).reshape(-1, 2).T
    return times, sampled


def _promoted(view: PartitionView, generation: LogGeneration) -> Mapping[str, object]:
    promotion = _promotion(view, generation)
    if promotion is None:
        return {"source": "", "kind": "", "promoted": 0}
    return {"source": promotion.source, "kind": promotion.kind, "promoted": promotion.offset}


def _promotion(view: PartitionView, generation: LogGeneration) -> LogPromotion | None:
    """The promotion by which clients came to write to this cluster in this generation; None at
    home, before any failover."""
    here = [
        p
        for p in view.promotions
        if p.cluster == generation.cluster and generation.began <= p.time <= generation.ended
    ]
    return max(here, key=lambda p: p.time, default=None)


def outputs_of_inputs(
    view: PartitionView,
    generation: LogGeneration,
    log: Log,
    key: GroupPartition,
    made: Sends,
    here: Ints,
) -> PartialFinding:
    """The committed outputs of one input partition in this log, and the group's committed offsets.

    `here`: the operations of this generation. Of each output the partial finding has its own
    offset, and offset and payload id of its input.
    """
    sizes = made.sizes_of("inputs")
    send = np.repeat(np.arange(len(made)), sizes)
    nth = np.arange(len(send)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = locate(log.records.uid, made.column("first_uid")[send] + nth)
    committed = made.says("ending", "commit") & made.says("outcome", "ok")
    own = among(made.column("number"), here)
    acked = _acked(made, send, nth)
    there = (at < 0) & committed[send] & _deleted(view, log, acked, own=own[send])
    if len(log.record_state):
        # A cluster that was killed by a forced failover had decided the transactions that it
        # acknowledged, but may lack their markers.
        there |= (at >= 0) & (log.visible[at] | (committed[send] & (log.record_state[at] == OPEN)))
    found = np.flatnonzero(there & own[send])
    # For deleted outputs, the acknowledged offset.
    offset, kept = acked[found], at[found] >= 0
    offset[kept] = log.records.offset[at[found][kept]]
    claiming = own & (committed | (np.bincount(send[there], minlength=len(made)) > 0))
    uids = made.each("input_uids")
    data = {
        "of": key, "input": made.each("inputs")[found], "uid": uids[found], "output": offset,
        "came": uids[there & ~own[send]],
        **{name: made.column(name)[claiming] for name in ("position", "process", "number")},
        "returned": np.where(committed, made.column("returned"), -1)[claiming],
    }  # fmt: skip
    return relay_partial(generation, key, data)


def _acked(made: Sends, send: Ints, nth: Ints) -> Ints:
    """The acknowledged offset of each output, or -1. A client may report fewer outputs than inputs,
    or more."""
    acked, sizes = made.each("offsets"), made.sizes
    known = np.flatnonzero(nth < sizes[send])
    found = np.full(len(send), -1, np.int64)
    found[known] = acked[(np.cumsum(sizes) - sizes)[send[known]] + nth[known]]
    return found


def _deleted(view: PartitionView, log: Log, acked: Ints, *, own: Bools) -> Bools:
    """The outputs that a log without its beginning, or a compacted log, once had; where a mirror
    moves offsets, any mirrored output may be one."""
    start = max(log.replica.log_start, view.compacted.get(log.cluster, 0))
    moved = ~own & (not view.guarantee.offsets_kept)
    return np.where(moved, start > 0, (acked >= 0) & (acked < start))


def kernel(view: PartitionView) -> Iterator[Finding]:
    """The relays' records in each cluster's last log: the inputs of every group, and the
    outputs."""
    groups = groups_of_relays(view)
    sends = Sends.of(view.sends)
    made = by_group_partition(sends.take(~sends.says("group", "") & ~sends.says("input_topic", "")))
    for generation in [each for each in every(view) if each.last and (groups or made)]:
        log = log_of(view, generation)
        if log is None or not log.whole:
            if log is not None:
                yield Unjudged(f"the log of {view.tp} on {generation.cluster} is torn")
            # The outputs of these inputs are unknown there.
            yield from [relay_partial(generation, key, {"of": key, "torn": True}) for key in made]
            continue
        for group in groups:
            yield from inputs_of_group(view, generation, log, group)
        here = sends_of(view, generation).column("number")
        yield from [
            outputs_of_inputs(view, generation, log, key, mine, here) for key, mine in made.items()
        ]


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Compares the inputs of every partition with their outputs."""
    inputs: dict[Key, Mapping[str, Any]] = {}
    outputs: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for partial in partials:
        data = partial.data
        group, topic, partition = data["of"] if "of" in data else data["inputs_of"]
        if "of" in data:
            outputs[group, topic, partition, partial.cluster].append(data)
        else:
            inputs[group, topic, partition, partial.cluster] = data
    made = {
        key: Made(parts=parts, torn=any("torn" in each for each in parts))
        for key, parts in outputs.items()
    }
    return [
        Combined(found=found, topic=key[1], partition=key[2])
        for key, input_log in sorted(inputs.items(), key=lambda entry: entry[0])
        if not made.get(key, Made()).torn
        for found in (
            *expected_outputs(key, input_log, made.get(key, Made())),
            *over_a_failover(key, input_log, inputs, made),
        )
    ]


def _due(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """Inputs on the relays' first cluster; and samples of their group there, and on every later
    cluster. A cluster that follows another again is judged by its new log: the records that relays
    read there before may be mirrored by then, or gone.
    """
    relays = {workload.home for workload in scenario.workloads if workload.kind == RELAY}
    follow = {fault.on.source for fault in scenario.schedule if fault.name.reverses}
    due: set[tuple[str, Examinable]] = {(home, "native") for home in relays - follow}
    for promotion in sorted(promotions, key=lambda p: p.time):
        relays |= {promotion.cluster} if promotion.source in relays else set()
    return due | {(cluster, "checkpoints") for cluster in relays}


CHECK = Check(
    name="exactly-once",
    guarantee="""A relay makes exactly one committed output of each record that its group has
        passed.""",
    source="KIP-98 (offsets in the transaction); KIP-447 (fencing by the group's metadata)",
    wire="""Nothing: it judges linkflap's own relays. program-copies judges programs with
        `exactly_once`, by bytes.""",
    inputs={"batches", "records", "sends", "reads", "groups", "promotions"},
    anomalies=(
        AnomalyKind(
            name="input-lost",
            meaning="""The group has passed a record without an output: its offset was committed
                without the output.""",
            sentence="""the relay group {group} passed {who} at {at} on {cluster} without a
                committed output""",
            counted="input has no output|inputs have no output",
            smallest="""A has inputs 1 2; a transaction made 9 of 2 and committed position 2, the
                group began at 0: at offset 0.""",
        ),
        AnomalyKind(
            name="output-duplicated",
            meaning="""One record has two committed outputs on one cluster: an offset was lost, an
                output was not.""",
            sentence="two committed outputs were made from {who} at {at} on {cluster}",
            counted="output was made twice|outputs were made twice",
            smallest="""A has input 1; two transactions made 8 and 9 of it, and committed: at the
                input's offset.""",
        ),
        AnomalyKind(
            name="output-without-input",
            meaning=("The input of a committed output is missing, or was aborted."),
            sentence="{cluster} has an output at {output} that was made from no record at {at}",
            counted="output has no input|outputs have no input",
            smallest="""A has input 1, aborted; a transaction made 9 of it, and committed: at the
                input's offset.""",
        ),
        AnomalyKind(
            name="offset-behind",
            meaning="""The group's committed offset is below the one that a completed transaction
                had committed.""",
            sentence="""the group {group} on {cluster} is at {committed} in {at}, behind outputs
                that are committed""",
            alone="a relay that begins there makes those outputs again",
            smallest="""two transactions of one producer committed positions 1 and 2; then the group
                is at 0: at offset 0.""",
        ),
        AnomalyKind(
            name="output-repeated-by-failover",
            meaning="""An output was made again after a failover, although the source's output had
                arrived.""",
            sentence="outputs of {who} at {at} were made again on {cluster} after the failover",
            counted="output was made again|outputs were made again",
            smallest="""A and B have 1, and 9 made of it on A; B is promoted, the group begins at 0,
                10 is made of 1: at offset 0.""",
        ),
        AnomalyKind(
            name="output-lost-by-failover",
            meaning="""After a failover the group continues behind a record whose output on the
                source was not mirrored.""",
            sentence="outputs of {who} at {at} did not arrive on {cluster} before the failover",
            counted="output was left behind|outputs were left behind",
            smallest="""A has 1, and 9 made of it; B has 1 alone; B is promoted, and the group
                begins there at 1: at offset 0.""",
        ),
    ),
    follows={
        "lost-write",
        "duplicate",
        "torn-transaction",
        "commit-aborted",
        "group-offsets",
        "aborted-read",
        "provenance",
    },
    kernel=kernel,
    combine=combine,
    unit="inputs",
    due_at=_due,
    when="""native ones where relays begin, unless that cluster is to follow another later; and
        samples of their group there and wherever they go on""",
    complete={"sends", "reads", "groups", "promotions"},
    only_relays=True,
)
