"""replica-agreement: below their common high watermark the replicas of a partition have the same
bytes (KIP-101, KIP-966).

The check compares (base offset, last offset, record count, length, CRC and whether it is right,
leader epoch) of every batch. The CRC covers everything from the attributes on, but not base offset,
length and leader epoch (message format v2), so these are compared too. Every CRC is recomputed, so
the check examines a cluster with one replica as well. Base offsets must rise in every file. If
batches differ, their records are compared, so that the finding names the record whose bytes
changed.

Below a cleaner's checkpoint every broker compacts by itself (`log_model.cleaning`).
There replicas may differ in records that a cleaner removes: records with a later record of their
key below that checkpoint, expired tombstones, and aborted records. They may also differ in markers
without remaining batches. Every other record, and so the last of each key, is on all replicas, at
the same offset with the same content. A marker that differs only in fields that a cleaner changes
is the same marker with another delete horizon. A difference is unknown only if the records of a
batch cannot be read.

No log ends below its own high watermark. In a recorded run the high watermark was requested before
the bytes were copied. In copied logs it comes from the checkpoint file of each broker. The file of
a running broker may have been copied after its logs, so there the result is unknown. Copied logs
also have no samples that show which replicas were in sync, so the tail of a deposed leader proves
nothing.

Offsets of a log, including those of markers, have no holes until a cleaner removes records. In a
recorded run other checks know which records a hole had. In logs that linkflap did not record no
check does, so a hole prevents a valid verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.batch_differences import ABSENT
from linkflap.spark_verify.checks.log_model.cleaning import (
    KEPT,
    TIME,
    Cleaned,
    Explained,
    MissingRecords,
    readable,
    tombstones_expired,
)
from linkflap.spark_verify.checks.log_model.generations import compacted, examined, generations
from linkflap.spark_verify.checks.log_model.logs import NOWHERE
from linkflap.spark_verify.checks.log_model.replicas import (
    between,
    copied_while_running,
    deposed,
    missing,
    within,
)
from linkflap.spark_verify.facts.view import PartitionView, Replica

ENDS_EARLY: Final = "log-ends-early"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Recomputes every replica's CRCs and compares replicas of one cluster."""
    known = generations(view)
    for cluster in sorted({r.cluster for r in view.replicas}):
        replicas = [r for r in view.replicas if r.cluster == cluster]
        for replica in replicas:
            yield from examined(known[cluster][-1], replica.batches.base_offset)
            yield from within(replica)
            yield from _ends_early(view, replica)
            if replica.damage:
                where = f"{view.tp} on {cluster}/{replica.broker}"
                yield Unjudged(f"the log of {where} is torn, so not all of it could be compared")
        if not view.recorded:
            # Replicas with the same hole give one finding.
            yield from dict.fromkeys(each for replica in replicas for each in _holes(view, replica))
        if len(replicas) > 1:
            agreeing, doubts = _deposed_left_out(view, replicas)
            yield from doubts
            yield from _compared(view, agreeing)
    for each in view.changed_bytes:
        evidence = {"broker": each.broker, "crc": list(each.crc)}
        yield Found.at("bytes-changed", each.cluster, each.offset, **evidence)


def _deposed_left_out(
    view: PartitionView, replicas: Sequence[Replica]
) -> tuple[Sequence[Replica], Sequence[Unjudged]]:
    """The replicas of copied logs without the tails of deposed leaders, and why those are unknown:
    it is unknown whether such a replica was in sync, and when it was copied."""
    model = next((r for r in replicas if r.canonical), replicas[0])
    if view.recorded or model.high_watermark_from == "sampled":
        return replicas, []
    high = model.high_watermark
    ends = {r.broker: min(r.end, r.high_watermark, high) for r in replicas}
    begins = {r.broker: deposed(r, model) for r in replicas}
    doubts = [
        Unjudged(
            f"broker {broker} of {model.cluster} has batches of {view.tp} "
            f"from offset {begin} on in an older leader epoch than broker {model.broker}: it "
            "was out of sync, or copied at another moment"
        )
        for broker, begin in begins.items()
        if begin < ends[broker]
    ]
    return [
        replace(r, high_watermark=min(r.high_watermark, begins[r.broker])) for r in replicas
    ], doubts


def _compared(view: PartitionView, replicas: Sequence[Replica]) -> Iterator[Finding]:
    """The differences between replicas of a cluster. Below a cleaner's checkpoint, only those that
    no cleaner makes or that cannot be decided."""
    cleaned = max(compacted(view, replica) for replica in replicas)
    apart, upto = 0, cleaned if view.recorded else NOWHERE
    cleaners = {
        r.broker: Cleaned(r, replicas, upto=upto, expired=tombstones_expired(view, r))
        for r in (replicas if cleaned else ())
    }
    by_broker = {r.broker: r for r in replicas}
    for found in between(replicas):
        judged = _cleaned(cleaners, by_broker, found) if cleaned else found
        if _base(found) >= cleaned and (
            found.kind == "replica-missing" or view.recorded or judged != "compaction"
        ):
            # in copied logs, a cleaner may have come further than the last batch that it changed
            judged = found
        if isinstance(judged, Found):
            yield judged
        apart += judged == "unknown"
    if apart:
        reason = (
            f"{apart} batches differ between the brokers of {replicas[0].cluster} below offset "
            f"{cleaned}, which are compacted"
        )
        yield Unjudged(f"{reason}, and their records could not be read")


def _base(found: Found) -> int:
    """The base offset of the differing batch."""
    batch = found.evidence["batch"]
    return int(batch[0] if isinstance(batch, list) else batch)


def _cleaned(
    cleaners: Mapping[int, Cleaned], replicas: Mapping[int, Replica], found: Found
) -> Found | Explained:
    """Judges a differing batch below the cleaner's offset: a change that no cleaner makes, or the
    reason why it may differ."""
    model, other = (replicas[broker] for broker in found.evidence["brokers"])
    base = _base(found)
    if found.kind == "replica-missing":
        absent = replicas[found.evidence["missing_on"]]
        if (absent.batches.base_offset == base).any():
            return found  # more often on the one than on the other
        return _lacking(
            found,
            absent,
            cleaners[absent.broker].lacks(
                other if absent is model else model, base, np.empty(0, np.int64)
            ),
        )
    if any(name in found.evidence for name in (*KEPT, TIME, "crc_ok")):
        return found
    return (
        "compaction"
        if found.evidence.get("marker")
        else _records_cleaned(cleaners, model, other, found)
    )


def _records_cleaned(
    cleaners: Mapping[int, Cleaned], model: Replica, other: Replica, found: Found
) -> Found | Explained:
    """Judges differing records of a data batch there: the first change that no cleaner makes, or
    why they may differ."""
    base = _base(found)
    if not (readable(model, base) and readable(other, base)):
        return "unknown"
    changed = [change for change in found.evidence["changed"] if change["fields"] != ABSENT]
    if changed:
        return replace(found, offset=changed[0]["offset"])
    reasons = [
        (lacks, cleaners[lacks.broker].lacks(holder, base, lacks.parts.offset))
        for holder, lacks in ((model, other), (other, model))
    ]
    first = min(
        (why for _, why in reasons if why.explained == "nothing"),
        key=lambda why: why.offset,
        default=None,
    )
    if first is not None:
        return _lacking(found, next(lacks for lacks, why in reasons if why is first), first)
    return "unknown" if any(why.explained == "unknown" for _, why in reasons) else "compaction"


def _lacking(found: Found, absent: Replica, why: MissingRecords) -> Found | Explained:
    """The finding that one broker lacks a record that no cleaner removes, such as the last of its
    key."""
    if why.explained != "nothing":
        return why.explained
    return Found.at(
        "replica-missing",
        found.cluster,
        why.offset,
        brokers=found.evidence["brokers"],
        batch=found.evidence["batch"],
        missing_on=absent.broker,
        uids=[why.uid],
        records=[why.offset],
    )


def _holes(view: PartitionView, replica: Replica) -> Iterator[Unjudged]:
    """Offsets that are missing although the log was not cleaned; a torn log misses some anyway."""
    count, first = (0, -1) if replica.damage else missing(replica, compacted(view, replica))
    if count:
        where = f"{replica.cluster}'s {view.tp}"
        yield Unjudged(
            f"{count} offsets of {where} are missing, first {first}: compaction, or loss"
        )


def _ends_early(view: PartitionView, replica: Replica) -> Iterator[Finding]:
    """Replicas that end below their high watermark. A replica in sync has everything below the high
    watermark, and a broker never writes a checkpoint above its own log end; but a copy of a running
    broker's folder may have one."""
    if replica.high_watermark <= replica.end or replica.damage:
        return
    if replica.high_watermark_from == "copied":
        yield copied_while_running(view, replica, ENDS_EARLY)
        return
    evidence = {
        "broker": replica.broker,
        "capture": replica.moment,
        "high_watermark": replica.high_watermark,
        "from": replica.high_watermark_from,
        "missing": replica.high_watermark - replica.end,
    }
    yield Found.at(ENDS_EARLY, replica.cluster, replica.end, **evidence)


CHECK = Check(
    name="replica-agreement",
    guarantee="""Below their common high watermark all replicas of a partition have the same bytes,
        and every CRC is right.""",
    source="KIP-101 (leader epochs); KIP-98 (message format v2)",
    inputs={"batches", "records"},
    complete=frozenset(),
    anomalies=(
        AnomalyKind(
            name="replica-disagreement",
            meaning="""Two replicas have different batches at one base offset; the offset is the
                first changed record's.""",
            sentence="brokers {brokers} of {cluster} have different batches at {at}",
            counted="batch differs between replicas|batches differ between replicas",
            alone="what readers get depends on which broker leads",
            smallest="""brokers 1 and 2 have batches at offset 0 whose CRCs differ: at the changed
                record.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name="replica-missing",
            meaning="""A batch below the common high watermark is on one replica and missing, or
                repeated, on another. In a compacted part: a record that no cleaner removes, such as
                the last of its key.""",
            sentence="broker {missing_on} of {cluster} lacks what another replica has at {at}",
            counted="batch is missing on a replica|batches are missing on a replica",
            alone="should this broker lead, it is lost",
            smallest="broker 1 has batches at 0 and 1, broker 2 only at 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="corrupt-batch",
            meaning="A batch's CRC-32C does not match its bytes.",
            sentence="""broker {broker} of {cluster} has a corrupt batch at {at}: the CRC in it
                ({stored_crc}) is not that of its bytes""",
            counted="batch is corrupt|batches are corrupt",
            alone="readers that check it fail there",
            smallest="a batch at offset 0 whose stored CRC is wrong: at offset 0.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="log-disorder",
            meaning="A batch's base offset is not above everything before it in the file.",
            sentence="""the log of broker {broker} of {cluster} is out of order at {at}: it follows
                offset {after}""",
            alone="a reader by offset misses what lies there",
            smallest="a file with batches at offsets 0 and 0: at the second.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="bytes-changed",
            meaning="""A broker that was asked twice for the same offsets, by Fetch, gave another
                batch the second time, or none. Asked is every broker of a topic that is captured
                by Fetch, for the newest segment of at most 256 MiB; compacted topics are left out,
                and logs that were truncated by a newer leader epoch meanwhile.""",
            sentence="""broker {broker} of {cluster} gave other bytes at {at} when it was asked
                again""",
            counted="batch changed between two fetches|batches changed between two fetches",
            alone="what readers get depends on when they ask",
            smallest="""the batch at offset 0 has one CRC in the first answer and another in the
                second.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=ENDS_EARLY,
            meaning="""A log ends below its own high watermark: that of the leader, of an in-sync
                replica, or of the broker's checkpoint file.""",
            sentence="""the log of broker {broker} of {cluster} ends at {at}, below the high
                watermark {high_watermark}""",
            alone="should this broker lead, what readers were shown is lost",
            smallest="broker 1 has 1 at offset 0, and its high watermark is 2: at offset 1.",
            despite_torn=True,
        ),
    ),
    follows={"replica-end-regression"},
    kernel=kernel,
    from_bytes=True,
    of_replicas=True,
    unit="batches",
    examines_any_log=True,
    only_our_records=True,
    of_one_cluster=True,
)
