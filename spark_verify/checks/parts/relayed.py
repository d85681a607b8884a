"""Each cluster's part of the relays' work: inputs of their groups, and the outputs made of them, as
partial findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, PartialFinding, Unjudged
from linkflap.spark_verify.checks.parts.generation_clients import reads_in
from linkflap.spark_verify.checks.parts.generations import examined
from linkflap.spark_verify.checks.parts.logs import OPEN, Log, among, locate
from linkflap.spark_verify.checks.parts.sampled_offsets import disturbed_from, never_sampled
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

RELAY: Final = "relay"
"""Clients are called by their kind of workload and a number."""
GroupPartition = tuple[str, str, int]
"""Group, input topic, input partition: what is combined together."""


def groups_of_relays(view: PartitionView) -> Sequence[str]:
    """The groups in which relays read."""
    return sorted({r.group for r in view.reads if r.group and r.reader.rpartition("-")[0] == RELAY})


def relay_partial(
    generation: LogGeneration, key: GroupPartition, data: Mapping[str, object]
) -> PartialFinding:
    """What one log has of an input partition of a group; combined with what the other logs have."""
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
    """A partial finding with what this log had for a group that was here, and a count of what it
    says to have passed."""
    mine = [r for r in reads_in(view, generation) if r.group == group]
    began = [r for r in mine if r.kind == "assign" and r.position >= 0]
    if not began:
        return
    start, since = min(r.position for r in began), min(r.time for r in began)
    records = log.replica.records
    offsets, uids = records.offset[log.visible], records.uid[log.visible]
    passed = max((r.position for r in mine if r.kind == "commit"), default=start)
    yield from examined(generation, offsets[(offsets >= start) & (offsets < passed)])
    if reason := never_sampled(view, generation.cluster, group, until=generation.ended):
        yield Unjudged(reason=reason)
    times, sampled = _samples(view, generation.cluster, group, since)
    if len(times):
        yield Examined(cluster=generation.cluster, origin="checkpoints", count=len(times))
    key = (group, view.topic, view.partition)
    data = {
        "start": start, "floor": log.replica.log_start,
        "compacted": view.compacted.get(generation.cluster, 0),
        "offsets": offsets, "uids": uids, "times": times, "sampled": sampled,
        "disturbed": disturbed_from(view.windows, generation.cluster),
        **_promoted(view, generation),
    }  # fmt: skip
    yield relay_partial(generation, key, {"inputs_of": key, **data})


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


def _promotion(view: PartitionView, generation: LogGeneration) -> Promotion | None:
    """How the cluster came to be written to in this generation; None at home, before any
    failover."""
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
    """The outputs of one input partition that are committed in this log, and what was committed for
    the group.

    `here`: the operations of this generation. Of each output the partial finding has its own
    offset, and offset and payload id of its input.
    """
    sizes = made.sizes_of("inputs")
    send = np.repeat(np.arange(len(made)), sizes)
    nth = np.arange(len(send)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = locate(log.replica.records.uid, made.column("first_uid")[send] + nth)
    committed = made.says("ending", "commit") & made.says("outcome", "ok")
    own = among(made.column("number"), here)
    acked = _acked(made, send, nth)
    there = (at < 0) & committed[send] & _deleted(view, log, acked, own=own[send])
    if len(log.record_state):
        # A cluster that was failed over by force had decided what it acknowledged, and had no time
        # for the marker.
        there |= (at >= 0) & (log.visible[at] | (committed[send] & (log.record_state[at] == OPEN)))
    found = np.flatnonzero(there & own[send])
    # Of outputs that are deleted, where they were acknowledged.
    offset, kept = acked[found], at[found] >= 0
    offset[kept] = log.replica.records.offset[at[found][kept]]
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
    """Which outputs a log that lost its beginning, or was compacted, had; where a mirror moves
    offsets, any that came."""
    start = max(log.replica.log_start, view.compacted.get(log.replica.cluster, 0))
    moved = ~own & (not view.mirror.guarantee.offsets_kept)
    return np.where(moved, start > 0, (acked >= 0) & (acked < start))
