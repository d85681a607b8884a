"""leader-epochs: on a cluster, an epoch and an offset identify one batch forever (KIP-101, KIP-279,
KIP-320).

Within a log the leader epoch of batches never falls with the offset. Over all replicas of a
cluster, and over all captures of it, batches with the same (epoch, base offset) are the same bytes.
Otherwise followers and consumers do not notice that a log was truncated and rewritten. A leader's
epoch is never below those in the bytes that it serves (KIP-1279: DLE >= SLE); otherwise consumers
wait forever for an epoch that they have read. And clients' records after a promotion have a higher
epoch than everything that was mirrored, because the hand-over raised it; otherwise one epoch has
two writers.

A cluster that was emptied to follow again with other offsets (`facts.eras`) has a new log, whose
epochs begin anew.

Below the cleaner checkpoint of any broker (`log_model.cleaning`) differences count
only in fields that a cleaner keeps.

A mirror may promise to keep leader epochs (the shadow with `leader_epochs=keep`; copied logs with
that option). Then every batch has the source's epoch. The CRC does not cover it, so byte-equality
does not compare it.

A sample's epoch is the leader's, and not that of the last batch (ListOffsets answers with
`Partition.leaderEpoch`). It is compared with the batches below its high watermark. The last sample
of a log is compared with all of these batches. Earlier samples are compared only if the mirror
keeps epochs: otherwise the batches may have been truncated (KIP-101: an unclean election) and
rewritten in a higher epoch. No earlier sample has an epoch above that of the last one of the
cluster.

The controller only ever raises the leader epoch of a partition, and so does the promotion or
reversal of a mirror. But a deposed leader answers in its old epoch until it learns of the election,
and metadata may still name it. So a sample that is below the previous one proves nothing. The last
sample of a cluster is from after the drain, and so from the current leader. An epoch above that one
was never assigned. A last sample from within the window of a fault on the cluster's brokers may be
from a deposed leader, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.log_model.cleaning import KEPT
from linkflap.spark_verify.checks.log_model.generations import (
    compacted,
    every,
    examined,
    generations,
    log_of,
    marks_in,
    own,
    replicas_by_log,
)
from linkflap.spark_verify.checks.log_model.logs import changes, locate, outside
from linkflap.spark_verify.checks.log_model.mirrored_ranges import (
    Hop,
    appended_since,
    compared_hops,
)
from linkflap.spark_verify.checks.log_model.replicas import falls
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration, on_cluster
from linkflap.spark_verify.facts.view import NO_EPOCH, Ints, PartitionView, Replica, Watermarks


def reused(replicas: Sequence[Replica], *, cleaned: int) -> Iterator[Finding]:
    """Batches of one cluster that have the epoch and base offset of another with other bytes; one
    finding per offset.

    Below `cleaned` each broker may have rewritten its batches, so different bytes alone prove
    nothing.
    """
    good = [np.flatnonzero(r.batches.crc_ok) for r in replicas]
    columns = [
        np.concatenate(
            [getattr(r.batches, name)[own] for r, own in zip(replicas, good, strict=True)]
        )
        for name in ("leader_epoch", "base_offset", "crc", "length")
    ]
    which = np.concatenate([np.full(len(own), n, np.int64) for n, own in enumerate(good)])
    rows = np.concatenate(good)
    order = np.lexsort((which, columns[1], columns[0]))
    epoch, base, crc, length = (column[order] for column in columns)
    same = ~changes(epoch, base)[1:] & (epoch[1:] != NO_EPOCH)
    differ = changes(crc, length)[1:]
    if cleaned:
        header = [
            np.concatenate(
                [getattr(r.batches, n)[own] for r, own in zip(replicas, good, strict=True)]
            )
            for n in KEPT
        ]
        differ &= (base[1:] >= cleaned) | changes(*(column[order] for column in header))[1:]
    other = np.flatnonzero(same & differ)
    for index in other[
        np.unique(np.stack((epoch[other], base[other])), axis=1, return_index=True)[1]
    ].tolist():
        one, two = replicas[int(which[order[index]])], replicas[int(which[order[index + 1]])]
        yield Found.at(
            "epoch-reuse",
            one.cluster,
            base[index],
            epoch=epoch[index],
            **_where(one, two, rows[order[index : index + 2]]),
            crcs=[crc[index], crc[index + 1]],
        )


def _where(one: Replica, two: Replica, rows: Ints) -> dict[str, object]:
    """Names the two logs; where both batches are in one log, their ordinals in it, from 1."""
    if one is two:
        return {
            "broker": one.broker,
            "capture": one.moment,
            "batches_of_the_log": (rows + 1).tolist(),
        }
    return {"brokers": [one.broker, two.broker], "captures": [one.moment, two.moment]}


REGRESSION = "sampled-epoch-regression"


def _of_last_logs(view: PartitionView) -> Mapping[str, Watermarks]:
    """The samples of each cluster; for one that was emptied to follow again with other offsets,
    those since then."""
    if view.guarantee.offsets_kept:
        return view.watermarks
    last = {
        cluster: marks_in(view, mine[-1])
        for cluster, mine in generations(view).items()
        if len(mine) > 1
    }
    return {
        **view.watermarks,
        **{cluster: marks for cluster, marks in last.items() if marks is not None},
    }


def regressions(view: PartitionView) -> Iterator[Found]:
    """Per cluster the first sample of an epoch above that of the last sample."""
    for cluster, marks in sorted(_of_last_logs(view).items()):
        known = np.flatnonzero(marks.leader_epoch >= 0)
        if not len(known):
            continue
        epochs, last = marks.leader_epoch[known], int(known[-1])
        asked, answered = int(marks.time[last]), int(marks.returned[last])
        if any(
            window.start <= answered and asked <= window.end
            for window in on_cluster(view.windows, cluster)
        ):
            continue
        above = known[epochs > epochs[-1]]
        if len(above):
            first = int(above[0])
            yield Found.at(
                REGRESSION,
                cluster,
                max(0, int(marks.high_watermark[first])),
                leader_epoch=marks.leader_epoch[first],
                last_epoch=epochs[-1],
                time=marks.time[first],
                last_time=asked,
                samples=len(above),
            )


def behind_the_log(view: PartitionView, *, kept: bool) -> Iterator[Finding]:
    """Samples whose leader epoch is below that of a batch under their high watermark; the first of
    each generation."""
    for generation in every(view):
        log, marks = log_of(view, generation), marks_in(view, generation)
        if log is None or marks is None or not len(log.batches):
            continue
        batches = log.batches
        highest = np.concatenate(([-1], np.maximum.accumulate(batches.leader_epoch)))
        known = np.flatnonzero((marks.leader_epoch >= 0) & (marks.high_watermark >= 0))
        known = known if kept else known[-1:]
        served = highest[
            np.searchsorted(batches.last_offset, _uncut(view, generation, marks)[known])
        ]
        low = known[marks.leader_epoch[known] < served]
        if len(low):
            row = int(low[0])
            index = int(np.argmax(batches.leader_epoch > marks.leader_epoch[row]))
            evidence = {
                "leader_epoch": int(marks.leader_epoch[row]),
                "batch_epoch": int(batches.leader_epoch[index]),
                "time": int(marks.time[row]),
                "samples": len(low),
            }
            offset = int(batches.base_offset[index])
            yield Found.at("epoch-behind", generation.cluster, offset, **evidence)


def _uncut(view: PartitionView, generation: LogGeneration, marks: Watermarks) -> Ints:
    """Per sample, the offset below which the log has not changed since: a mirror that ends may
    truncate open transactions."""
    ends = marks.high_watermark
    for stop in view.stops:
        if stop.cluster == generation.cluster and stop.truncated:
            lowest = min(offset for _, offset in stop.truncated)
            ends = np.where(marks.time <= stop.time, np.minimum(ends, lowest), ends)
    return ends


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Looks at the epochs of every captured log, and compares those of one cluster."""
    for replica in (*view.replicas, *view.earlier):
        yield from falls(replica)
    for cluster in sorted({r.cluster for r in view.replicas}):
        for same in replicas_by_log(view, cluster):
            yield from reused(same, cleaned=_rewritten(view, same))
    for generation in every(view):
        log = log_of(view, generation)
        if log is not None:
            yield from examined(generation, log.batches.base_offset)
            if view.guarantee.leader_epoch_raised:
                yield from own(view, generation, _not_raised(generation, log.replica))
    kept = view.guarantee.offsets_kept and view.guarantee.leader_epochs_kept
    yield from behind_the_log(view, kept=kept)
    yield from regressions(view)
    if kept:
        for compared in compared_hops(view):
            yield from _not_kept(view, compared)


def _not_kept(view: PartitionView, compared: Hop) -> Sequence[Finding]:
    """Mirrored batches that have another leader epoch than the source's batch at the same offsets;
    one finding per range."""
    source, destination = compared.source.replica, compared.destination.replica
    mirrored_range = compared.mirrored_range
    theirs, ours = source.batches, destination.batches
    end = min(mirrored_range.end, appended_since(view, mirrored_range, ours))
    rows = np.flatnonzero((ours.base_offset >= mirrored_range.start) & (ours.last_offset < end))
    for begin, until in (*source.unread, *destination.unread):
        rows = outside(ours, rows, begin, until)
    at = locate(theirs.base_offset, ours.base_offset[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    # A batch with another end is another batch; byte-equality reports it.
    wrong = (ours.last_offset[rows] == theirs.last_offset[at]) & (
        ours.leader_epoch[rows] != theirs.leader_epoch[at]
    )
    first = np.flatnonzero(wrong & ~np.concatenate(([False], wrong[:-1])))
    return [
        Found.at(
            "epoch-not-kept",
            destination.cluster,
            ours.base_offset[rows[index]],
            source=source.cluster,
            broker=destination.broker,
            epoch=ours.leader_epoch[rows[index]],
            source_epoch=theirs.leader_epoch[at[index]],
        )
        for index in first.tolist()
    ]


def _rewritten(view: PartitionView, replicas: Sequence[Replica]) -> int:
    """The offset below which cleaners may have rewritten batches: the whole log for compacted
    copied logs without a checkpoint."""
    cleaned = max(compacted(view, replica) for replica in replicas)
    noted = view.recorded or view.compacted.get(replicas[0].cluster, 0)
    return FOREVER if cleaned and not noted else cleaned


def _not_raised(generation: LogGeneration, replica: Replica) -> Sequence[Finding]:
    """Own eras, after something mirrored, that have a batch whose epoch is not above all that was
    mirrored before."""
    batches, findings = replica.batches, []
    for before, era in zip(generation.eras, generation.eras[1:], strict=False):
        mirrored = batches.leader_epoch[batches.base_offset < era.start]
        if era.origin != "native" or before.origin != "mirrored" or not len(mirrored):
            continue
        inside = (batches.base_offset >= era.start) & (batches.base_offset < era.end)
        inside &= batches.leader_epoch != NO_EPOCH
        low = np.flatnonzero(inside & (batches.leader_epoch <= mirrored.max()))
        if len(low):
            evidence = {
                "epoch": int(batches.leader_epoch[low[0]]),
                "before": int(mirrored.max()),
                "batches": len(low),
                "promoted": era.start,
            }
            offset = int(batches.base_offset[low[0]])
            findings.append(Found.at("epoch-not-raised", generation.cluster, offset, **evidence))
    return findings


CHECK = Check(
    name="leader-epochs",
    guarantee="""A batch's leader epoch never falls with its offset, identifies one batch together
        with it, is not above the leader's, and is the source's where the mirror keeps epochs.""",
    source="KIP-101; KIP-279; KIP-320 (consumers fence by epoch); KIP-1279 (DLE >= SLE)",
    inputs={"batches", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="leader-epoch-regression",
            meaning="A batch has a lower leader epoch than one before it in the same log.",
            sentence="the leader epoch falls from {before} to {epoch} at {at} on {cluster}",
            alone="a follower that compares epochs can truncate in the wrong place",
            smallest="""A has a batch of epoch 2 at offset 0 and one of epoch 1 at offset 1: at
                offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-reuse",
            meaning="""Two batches of one cluster, in one log or in two, have the same epoch and
                offset and different bytes.""",
            sentence="""two replicas of {cluster} have different batches of leader epoch {epoch} at
                {at}""",
            alone="a follower cannot see where its log differs, and does not truncate",
            smallest="""A had 1 at offset 0 in epoch 0 before it was truncated, and has 2 there in
                epoch 0: at offset 0.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-behind",
            meaning="""A leader reported a leader epoch below that of a batch under its high
                watermark.""",
            sentence="""the leader of {tp} on {cluster} reported epoch {leader_epoch}, and its log
                has batches of epoch {batch_epoch} from {offset} on""",
            alone="followers and readers that compare epochs can take its log for an old one",
            smallest="""B has 1 in epoch 5, a sample says high watermark 1, leader epoch 3: at the
                offset of 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=REGRESSION,
            meaning="""A leader reported an epoch above the one in the cluster's last sample. Epochs
                only rise, so nobody had assigned it. A lower epoch in between may be a deposed
                leader's, and so may a last sample within a fault on the cluster's brokers. The
                offset is the high watermark of the first such sample.""",
            sentence="""the leader of {tp} on {cluster} reported leader epoch {leader_epoch} with
                its high watermark at {offset}, and {last_epoch} in the last sample""",
            alone="clients that saw the higher epoch refuse the leader as an old one",
            smallest="A reported epoch 0, then 1000 with high watermark 1, then 3: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-not-kept",
            meaning="""A mirrored batch has another leader epoch than the source's, and the mirror
                promises to keep them.""",
            sentence="{cluster} has leader epoch {epoch} at {at} where {source} has {source_epoch}",
            alone="a follower or failback that compares epochs parts the logs in the wrong place",
            smallest="""A has 1 in epoch 2, B has it in epoch 3, the mirror keeps epochs: at the
                offset of 1 on B.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-not-raised",
            meaning="""A batch that clients wrote after a promotion has an epoch that is not above
                those of the mirrored batches.""",
            sentence="""the promotion of {tp} on {cluster} did not raise the leader epoch {epoch} at
                {at}""",
            alone="nobody can see by epochs where the logs of the two clusters part",
            smallest="B has 1 in epoch 2, is promoted, and has 2 in epoch 2: at the offset of 2.",
        ),
    ),
    follows={"replica-agreement"},
    kernel=kernel,
    from_bytes=True,
    unit="batches",
    examines_any_log=True,
    of_one_cluster=True,
)
