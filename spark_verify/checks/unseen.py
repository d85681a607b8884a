"""unseen: every record that must be committed was seen, once readers had read to the end (Jepsen's
Kafka workload, unseen).

At the end of a run producers stop, and readers read on to the ends that were recorded then; a
reader that got there has a row `drained`. Consider every record that must be committed, at or
behind the offset where such a reader, or its group, began. Some read_committed reader of the
cluster must have got it by then. The acknowledgement gives the offset of the cluster's own records,
without any byte of a log; the log gives that of mirrored ones. Without a reader that got to the end
the check proves nothing: unseen cannot be distinguished from late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from linkflap.harness.model.scenario import Scenario, WorkloadSpec
from linkflap.harness.model.topology import LinkSpec, Topology
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Due, Finding, Found
from linkflap.spark_verify.checks.log_model.delivered_records import columns_of
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    generations,
    log_of,
    native,
    reads_in,
)
from linkflap.spark_verify.checks.log_model.logs import Log, among, joined, locate, runs
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import Outcomes, outcomes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, Ints, Origin, PartitionView

KIND = "unseen-write"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Looks, on every cluster that somebody read to its end, for records that must have been seen
    there."""
    for generation in every(view):
        spans = list(_spans(reads_in(view, generation))) if generation.last else []
        if not spans:
            continue
        log = log_of(view, generation)
        floor = max(_deleted(view, generation), log.replica.log_start if log is not None else 0)
        seen = [_read(view, each) for each in generations(view)[generation.cluster]]
        for what, own in _heard(view, generation):
            rows, offsets = _due(
                generation, log, what, own=own, compacted=view.compacted.get(generation.cluster, 0)
            )
            kept = (offsets >= floor) & _within(spans, offsets)
            rows, offsets = rows[kept], offsets[kept]
            yield from examined(generation, offsets)
            yield from _unseen(view, generation, what, rows, offsets, np.concatenate(seen))


def _audience(reads: Sequence[Read]) -> Iterable[Sequence[Read]]:
    """The reads of each group whose members were assigned in this log generation, and of every
    other reader by itself."""
    audience: dict[str, list[Read]] = {}
    assigned: dict[tuple[str, int], bool] = {}
    for read in reads:
        in_group = (
            assigned.setdefault((read.reader, read.process), read.kind == "assign") and read.group
        )
        audience.setdefault(
            f"group {read.group}" if in_group else f"reader {read.reader}", []
        ).append(read)
    return audience.values()


def _spans(reads: Sequence[Read]) -> Iterator[tuple[int, int]]:
    """[from, to) of every read_committed reader, or group, that read to the end: from its first
    offset there.

    A member that was not assigned in this log generation kept its position from the previous one.
    It counts only for itself: its group need not have read the records of the new log that it
    skips.
    """
    for mine in _audience([read for read in reads if read.isolation == "read_committed"]):
        ends = [r.position for r in mine if r.kind == "drained"]
        begins = [r.position for r in mine if r.kind == "assign" and r.position >= 0]
        begins += [int(r.offsets.min()) for r in mine if r.kind == "poll" and len(r.uids)]
        if ends and begins:
            yield min(begins), max(ends)


def _read(view: PartitionView, generation: LogGeneration) -> Ints:
    """Every payload id that a read_committed reader got; not what a share group was given."""
    mine = [r for r in reads_in(view, generation) if r.isolation == "read_committed"]
    return columns_of([r for r in mine if r.kind == "poll"]).uid


def _within(spans: Sequence[tuple[int, int]], offsets: Ints) -> Bools:
    mask = np.zeros(len(offsets), np.bool_)
    for start, end in spans:
        mask |= (offsets >= start) & (offsets < end)
    return mask


def _deleted(view: PartitionView, generation: LogGeneration) -> int:
    """Up to where retention had deleted the log, as sampled."""
    marks = view.watermarks.get(generation.cluster)
    return int(marks.log_start.max()) if marks is not None and len(marks.log_start) else 0


def _heard(view: PartitionView, generation: LogGeneration) -> Iterator[tuple[Outcomes, bool]]:
    """The brokers' answers to clients of this cluster, and (False) of others, whose records it may
    have too."""
    for other in every(view):
        if (other.cluster, other.number) == (generation.cluster, generation.number):
            yield outcomes(view, other), True
        elif other.cluster != generation.cluster:
            yield outcomes(view, other, earlier=False), False


def _due(
    generation: LogGeneration, log: Log | None, what: Outcomes, *, own: bool, compacted: int
) -> tuple[Ints, Ints]:
    """Rows of the sends that must be committed, and the offset of each on this cluster."""
    rows = np.flatnonzero(what.must)
    offsets = what.acked[rows] if own else np.full(len(rows), -1, np.int64)
    if log is not None:
        # Compacted away, perhaps before anybody had got there.
        offsets = np.where(
            (offsets < compacted) & ~among(what.uid[rows], log.records.uid), -1, offsets
        )
    if log is not None and len(log.records):
        visible = np.flatnonzero(log.visible)
        at = locate(log.records.uid[visible], what.uid[rows])
        there = log.records.offset[visible[at]] if len(visible) else offsets
        # A mirrored record is at its offset in the bytes; the cluster's own, where it was
        # acknowledged.
        offsets = np.where(
            offsets >= 0,
            offsets,
            np.where((at >= 0) & (native(generation, there) == own), there, -1),
        )
    return rows, offsets


def _unseen(
    view: PartitionView,
    generation: LogGeneration,
    what: Outcomes,
    rows: Ints,
    offsets: Ints,
    seen: Ints,
) -> Iterator[Finding]:
    cluster = generation.cluster
    gone = np.flatnonzero(~among(what.uid[rows], seen))
    taken, by = Taken(view, cluster), np.full(len(gone), -1, np.int64)
    if taken and len(gone):
        invoked = what.sends.column("invoked")[what.send[rows[gone]]]
        by = _explained(view, generation, taken, offsets[gone], what.uid[rows[gone]], invoked)
    for start, end in runs(what.uid[rows[gone]], offsets[gone], joined(by)):
        row = int(rows[gone[start]])
        send = what.sends[int(what.send[row])]
        yield Found.at(
            KIND,
            cluster,
            offsets[gone[start]],
            records=end - start,
            uid=what.uid[row],
            operation=send.number,
            client=send.client,
            acknowledged_by=send.cluster,
            acknowledged_at=what.acked[row],
            **taken.evidence(int(by[start])),
        )


def _explained(
    view: PartitionView,
    generation: LogGeneration,
    taken: Taken,
    offsets: Ints,
    uids: Ints,
    invoked: Ints,
) -> Ints:
    """Per record, the loss that took it away, or its marker, before anybody had read it; or that
    left readers beyond it."""
    readers = [r for r in reads_in(view, generation) if r.isolation == "read_committed"]
    log = log_of(view, generation)
    there = among(uids, log.records.uid) if log is not None else np.ones(len(uids), bool)
    gone = np.maximum(taken.sent(offsets, uids, invoked), taken.unended(offsets, uids))
    return np.asarray(np.where(there & (gone < 0), taken.passed(offsets, readers), gone))


def _due_at(scenario: Scenario, promotions: Sequence[LogPromotion]) -> Due:
    """Where readers are in the end: what clients wrote there; and what was mirrored there, if they
    read it from its start."""
    owned = {(w.home, w.home) for w in scenario.workloads if w.kind != "readers"}
    owned |= {(p.cluster, home) for p in promotions for home in _over(scenario.topology, p.link)}
    due: set[tuple[str, Origin]] = set()
    for workload in scenario.workloads:
        if (
            workload.kind != "readers"
            or workload.options.get("isolation", "read_committed") != "read_committed"
        ):
            continue
        cluster, stays = _ends_at(workload, promotions)
        if (cluster, workload.home) in owned:
            due.add((cluster, "native"))
        into = [link for link in scenario.topology.links if link.destination == cluster]
        if stays and any(workload.home in scenario.topology.homes_over(link) for link in into):
            due.add((cluster, "mirrored"))
    return due


def _over(topology: Topology, name: str) -> Collection[str]:
    """The homes whose topics a promotion along a link, or back, concerns."""
    ends = {*LinkSpec.parse(name).ends}
    return {
        home
        for link in topology.links
        if {link.source, link.destination} == ends
        for home in topology.homes_over(link)
    }


def _ends_at(workload: WorkloadSpec, promotions: Sequence[LogPromotion]) -> tuple[str, bool]:
    """The readers' last cluster, empty if it was failed over by force; whether they were there from
    the start."""
    cluster = began = str(workload.options.get("cluster", workload.home))
    for promotion in sorted(promotions, key=lambda p: p.time):
        if promotion.source == cluster:
            if workload.options.get("follow", not workload.options.get("assign", False)):
                cluster = promotion.cluster
            elif promotion.kind == "forced":
                return "", False
    return cluster, cluster == began


CHECK = Check(
    name="unseen",
    guarantee="""Once readers have read to the end, one of them has got every record that must be
        committed.""",
    source="Jepsen kafka workload, unseen (final reads after the producers have stopped)",
    wire="""Nobody asks a program to read to the end: only linkflap's own readers of its topics are
        an audience.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""No read_committed reader of a cluster got a record that must be committed,
                although one had read past it.""",
            sentence="no reader of {cluster} got {who} at {at}, acknowledged by {acknowledged_by}",
            counted="acknowledged write was never read|acknowledged writes were never read",
            smallest="""A acknowledged 1 2, a reader of A from offset 0 read to the end, 2, and got
                1: at the offset of 2.""",
        ),
    ),
    complete={"promotions", "reads", "sends"},
    follows={"lost-write", "ghost-ack", "read-committed-visibility", "poll-continuity"},
    kernel=kernel,
    due_at=_due_at,
    when="""native ones where clients write and a reader reads at the end, mirrored ones where one
        read from the start""",
    judges_readers=True,
)
