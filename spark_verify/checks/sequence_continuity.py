"""sequence-continuity: a producer's sequence numbers in a partition have no gap and no repeat
(KIP-98, KIP-360).

Per (producer id, epoch) in file order: the first batch begins at 0, every next one where the last
ended plus one, modulo 2^31. Epochs of an id never go down, and a batch with an id has a sequence.
Brokers check sequences on append. So a violation means that batches were appended without that
check, changed, or lost. A log whose start was deleted may begin at any sequence. So may a promoted
log whose promotion mark was deleted with its start.

Behind a reset of the partition's producer state (KIP-1279) an id begins at 0 as well. If it begins
above 0, the records before were acknowledged and not appended. One exception: a producer of the
same cluster that had the id and epoch in an earlier era continues at or above its previous end,
because the failback to that cluster truncated the records in between. This also holds if the owner
of an era is unknown. If all of its earlier records were truncated and not captured before, the
result is unknown, unless the batch continues exactly where another cluster's producer of that id
and epoch ended. Two batches with the same id, epoch, sequence and bytes are a repeat, whatever lies
between them.

A broker that has no state of a producer accepts any first sequence: since Kafka 2.5 (KIP-360), and
from 4.5 on only in a partition that had records before (KAFKA-15591, 14312, 19880). So a broker may
append a batch in flight after it refused the previous one, whose retries are then out of order
until its delivery timeout. The finding is allowed (`harness.guarantees.allowed`) if the producer's
history has exactly the missing records: sent directly before, in flight when the batch was sent,
none acknowledged and none in any log. In copied logs that is unknown.

In a recorded run a cleaner's checkpoint shows how far a log is compacted, or was before it was
mirrored: below it a sequence may skip at most as many records as offsets are missing. Whether logs
that linkflap did not record were compacted is unknown: there a gap where offsets are missing is
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.generations import examined, judged, thinned_below
from linkflap.spark_verify.checks.log_model.logs import Log, changes
from linkflap.spark_verify.checks.log_model.producer_sessions import (
    NEW,
    UNKNOWN,
    WRAP,
    Sessions,
    beginnings,
    sessions,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import (
    DATA,
    OTHER_CONTROL,
    Bools,
    Ints,
    PartitionView,
    Replica,
)


def missing_before(replica: Replica, every: Sessions) -> Bools:
    """Per batch, whether offsets are missing between the previous batch of its producer id, or else
    the last reset, and the batch."""
    b = replica.batches
    return (
        _since_before(
            replica,
            every,
            (b.base_offset > _starts_of(replica)) | (b.count != b.last_offset - b.base_offset + 1),
        )
        > 0
    )


def cleaned_between(replica: Replica, every: Sessions, lacking: Ints, compacted: int) -> Bools:
    """Per batch, whether at least `lacking` offsets are missing since then below the cleaner's
    checkpoint."""
    gone = np.maximum(np.minimum(replica.batches.base_offset, compacted) - _starts_of(replica), 0)
    return np.asarray(_since_before(replica, every, gone) >= lacking)


def _starts_of(replica: Replica) -> Ints:
    """Per batch of the log, the end of the previous batch."""
    return np.concatenate(([replica.log_start], replica.batches.last_offset[:-1] + 1))


def _since_before(replica: Replica, every: Sessions, counted: Ints | Bools) -> Ints:
    """Per batch, what was counted of the log's batches up to it since the one before of its
    producer id, or the last reset."""
    reached, resets = np.cumsum(counted), np.flatnonzero(replica.batches.control == OTHER_CONTROL)
    since = np.concatenate(([0], reached[resets]))[every.section]
    earlier = np.where(every.follows, np.concatenate(([0], reached[every.row][:-1])), since)
    return np.asarray(reached[every.row] - earlier)


_SINCE: Final = (2, 5)
"""KIP-360. Earlier brokers refuse a first sequence above 0."""
_ONLY_WITH_RECORDS: Final = (4, 5)
"""KAFKA-15591. From this release on, brokers refuse it in a partition that never had a record."""


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every producer through every log."""
    return list(judged(view, _of_log))


def _of_log(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    batches = log.batches
    # The header of a batch with a wrong CRC proves nothing; replica-agreement reports the wrong
    # CRC.
    every = np.flatnonzero((batches.producer_id >= 0) & (batches.control == DATA) & batches.crc_ok)
    chosen = every[batches.base_sequence[every] >= 0]
    found = _judge(view, generation, log.replica, chosen) if len(chosen) else []
    return [
        *examined(generation, batches.base_offset[every]),
        *_none(log.replica, every),
        *found,
    ]


def _none(replica: Replica, every: Ints) -> Sequence[Found]:
    batches = replica.batches
    return [
        Found.at(
            "no-sequence",
            replica.cluster,
            batches.base_offset[row],
            producer_id=batches.producer_id[row],
            producer_epoch=batches.producer_epoch[row],
            sequence=batches.base_sequence[row],
            records=batches.count[row],
        )
        for row in every[batches.base_sequence[every] < 0].tolist()
    ]


def _judge(
    view: PartitionView, generation: LogGeneration, replica: Replica, chosen: Ints
) -> Sequence[Finding]:
    batches, every = replica.batches, sessions(generation, replica, chosen)
    order, epoch = every.row, batches.producer_epoch[every.row]
    first, last = batches.base_sequence[order], batches.last_sequence[order]
    before = np.where(every.follows | every.goes_on, np.concatenate(([-1], epoch[:-1])), -1)
    same = (every.follows & (epoch == before)) | every.goes_on
    expected = np.where(same, (np.concatenate(([0], last[:-1])) + 1) % WRAP, 0)
    back = every.follows & (epoch < before)
    behind = (expected - first) % WRAP
    repeats = behind < WRAP // 2
    # Where a session continues behind a reset, the records in between were truncated.
    wrong = (first != expected) & ~back & ~(every.goes_on & ~repeats)
    # Where no mark is left, an era that seems to begin at the log's start may have begun below it.
    deleted = every.deleted | (generation.cluster in view.unclear)
    wrong &= same | every.follows | ~(deleted | every.owned)
    if view.recorded:
        wrong &= ~cleaned_between(
            replica, every, (first - expected) % WRAP, thinned_below(view, generation.cluster)
        )
    missing = (
        np.zeros(len(order), np.bool_) if view.recorded else wrong & missing_before(replica, every)
    )
    began = beginnings(view, generation, replica, every, wrong & ~missing & ~same)
    wrong &= ~missing & (began == NEW)
    again = _same_bytes(replica, order) & ~(wrong & same & repeats)
    # Behind a reset it is a mirror's failover that took the producer's state.
    stateless = wrong & ~same & ~again & (every.section == 0) & (not view.recorded)
    for i in np.flatnonzero(stateless).tolist():
        stateless[i] = _of_new_producer(replica, int(order[i]))
    wrong &= ~stateless
    kinds = (
        ("epoch-regression", back),
        ("sequence-start", wrong & ~same & ~again),
        ("sequence-repeat", (wrong & same & repeats) | again),
        ("sequence-gap", wrong & same & ~repeats & ~again),
    )
    reasons = (
        (
            int(missing.sum()),
            f"sequences of {replica.cluster} break where offsets are missing: compaction, or loss",
        ),
        (
            int((began == UNKNOWN).sum()),
            (
                f"sequences of {replica.cluster} begin above 0 where a log goes on that may have "
                "been truncated: what came before was truncated, or acknowledged and never "
                "appended"
            ),
        ),
    )
    unrecorded = (
        f"sequence-start: {int(stateless.sum())} producers of {replica.cluster} begin above 0, and "
        "what they sent before was not recorded: lost, or refused by a broker that accepts any "
        "first sequence of a producer that it does not know (KAFKA-15591)"
    )
    return [
        *([Unjudged(unrecorded)] if stateless.any() else []),
        *(Unjudged(f"{count} {reason}") for count, reason in reasons if count),
        *_breaks(view, generation, replica, kinds, every, expected, before),
    ]


def _same_bytes(replica: Replica, order: Ints) -> Bools:
    """Per batch, whether an earlier one has its id, epoch, sequence, length and CRC: the same batch
    was written twice."""
    b, again = replica.batches, np.zeros(len(order), np.bool_)
    keys = [
        column[order]
        for column in (b.crc, b.length, b.base_sequence, b.producer_epoch, b.producer_id)
    ]
    by_key = np.lexsort((order, *keys))
    again[by_key] = ~changes(*(key[by_key] for key in keys))
    return again


def _breaks(
    view: PartitionView,
    generation: LogGeneration,
    replica: Replica,
    kinds: Sequence[tuple[str, Bools]],
    every: Sessions,
    expected: Ints,
    before: Ints,
) -> Iterator[Found]:
    batches = replica.batches
    for kind, mask in kinds:
        for i in np.flatnonzero(mask).tolist():
            row, adopted = int(every.row[i]), int(every.adopted[i])
            evidence: dict[str, object] = {
                "producer_id": batches.producer_id[row],
                "producer_epoch": batches.producer_epoch[row],
                "epoch_before": before[i],
                "sequence": batches.base_sequence[row],
                "expected": expected[i],
                "records": batches.count[row],
            }
            if kind == "sequence-start":
                evidence |= _refused_before(view, generation, replica, row)
            if adopted >= 0:
                evidence["goes_on_from"] = batches.base_offset[adopted]
            yield Found.at(kind, replica.cluster, batches.base_offset[row], **evidence)


def _refused_before(
    view: PartitionView, generation: LogGeneration, replica: Replica, row: int
) -> dict[str, object]:
    """The records missing before a producer's first batch, if its client had sent them directly
    before, was still retrying them when it sent the batch, and got no acknowledgement."""
    batches, records = replica.batches, replica.records
    base, missing = int(batches.base_offset[row]), int(batches.base_sequence[row])
    owner = generation.era(base).owner
    mine = records.uid[(records.batch == row) & (records.uid >= 0)]
    if not (len(mine) and _accepts_any(view, owner, base) and _of_new_producer(replica, row)):
        return {}
    first = int(mine.min())
    sends = _sends_up_to(view, owner, _id_at_source(view, owner, replica, row), first)
    ours = sends[-1] if sends else None
    if ours is None or first >= ours.first_uid + len(ours.offsets):
        return {}
    before = _sent_before(sends, first)[-missing:]
    if len(before) < missing or _written(view, before) or not _all_in_flight(before, ours.invoked):
        return {}
    return {
        "not_acknowledged": missing,
        "client": ours.client,
        "operation": before[0][2].number,
        "sent": min(send.invoked for _, _, send in before),
        "given_up": max(send.returned for _, _, send in before),
    }


def _written(view: PartitionView, sent: Sequence[tuple[int, int, Send]]) -> bool:
    """Whether any replica has one of these records."""
    uids = np.array([uid for uid, _, _ in sent], np.int64)
    return any(np.isin(uids, each.records.uid).any() for each in view.replicas)


def _of_new_producer(replica: Replica, row: int) -> bool:
    """Whether a batch is the first of its producer id since the last reset, so that the broker has
    no state of the producer."""
    batches = replica.batches
    resets = np.flatnonzero(batches.control[:row] == OTHER_CONTROL)
    since = int(resets[-1]) + 1 if len(resets) else 0
    return not (batches.producer_id[since:row] == batches.producer_id[row]).any()


def _id_at_source(view: PartitionView, owner: str, replica: Replica, row: int) -> int | None:
    """The producer id that a batch's client had; None where a mirror mapped it."""
    mapped = owner != replica.cluster and view.guarantee.producer_ids_mapped
    return None if mapped else int(replica.batches.producer_id[row])


def _sends_up_to(
    view: PartitionView, cluster: str, producer_id: int | None, uid: int
) -> Sequence[Send]:
    """The sends of a payload's client to a cluster, by order of payloads, up to that of the
    payload; None: the producer id that the client had is not known."""
    sends = [
        send
        for send in view.sends
        if send.cluster == cluster
        and send.process == uid >> PROCESS_SHIFT
        and (producer_id is None or send.producer_id in (-1, producer_id))
        and send.first_uid <= uid
    ]
    return sorted(sends, key=lambda send: send.first_uid)


def _sent_before(sends: Sequence[Send], uid: int) -> Sequence[tuple[int, int, Send]]:
    """Payload, acknowledged offset (or -1) and send of each record before a payload."""
    return [
        (send.first_uid + i, int(offset), send)
        for send in sends
        for i, offset in enumerate(send.offsets.tolist())
        if send.first_uid + i < uid
    ]


def _all_in_flight(records: Sequence[tuple[int, int, Send]], time: int) -> bool:
    """Whether no record was acknowledged, and the client was still trying each at a time."""
    return all(
        offset == -1 and (send.returned == -1 or send.returned >= time)
        for _, offset, send in records
    )


def _accepts_any(view: PartitionView, cluster: str, offset: int) -> bool:
    """Whether brokers of this cluster accept any first sequence of a producer that they do not know
    at this offset. Of builds that do not say their release nothing else is known."""
    release = re.match(r"(\d+)\.(\d+)", view.topology.cluster(cluster).kafka)
    number = tuple(map(int, release.groups())) if release else _SINCE
    return number >= _SINCE and (number < _ONLY_WITH_RECORDS or offset > 0)


CHECK = Check(
    name="sequence-continuity",
    guarantee="""A producer's sequence numbers in a partition begin at 0 in every epoch and rise
        without gap or repeat.""",
    source="KIP-98; KIP-360",
    wire="""The bytes alone decide. Where a broker had lost a producer's state, the requests show
        which batches were in flight.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="sequence-gap",
            meaning="""A batch begins at a later sequence than the one after the previous batch's
                end.""",
            sentence="""producer id {producer_id} goes on with sequence {sequence} instead of
                {expected} at {at} on {cluster}""",
            latent=True,
            alone="what a producer sent in between may be missing",
            smallest="producer 7 wrote sequences 0-1 and 3-4: at the second batch.",
        ),
        AnomalyKind(
            name="sequence-repeat",
            meaning="""A batch begins at a sequence that the log has already, or is in the log
                twice.""",
            sentence="""producer id {producer_id} repeats sequence {sequence} at {at} on {cluster},
                expected was {expected}""",
            latent=True,
            alone="what was sent once may be there twice",
            smallest="producer 7 wrote sequences 0-1 and 0-1 again: at the second batch.",
            despite_torn=True,
            repeats_sequence=True,
        ),
        AnomalyKind(
            name="sequence-start",
            meaning="""A producer id or a new epoch does not begin at 0. Behind a reset of the
                producer state: an id that this cluster did not have before.""",
            sentence="""producer id {producer_id} begins with sequence {sequence} instead of 0 at
                {at} on {cluster}""",
            latent=True,
            alone="what a producer sent before may be missing",
            smallest="producer 7's first batch has sequence 3: at that batch.",
        ),
        AnomalyKind(
            name="no-sequence",
            meaning="""A batch with a producer id has no sequence number (it is below 0), which no
                broker accepts.""",
            sentence="""{cluster} has a batch of producer id {producer_id} without a sequence at
                {at}""",
            latent=True,
            alone="whether it is a retry or a new record cannot be seen",
            smallest="a batch of producer 7 with sequence -1: at that batch.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-regression",
            meaning="A producer id's epoch is lower than before: a fenced producer wrote.",
            sentence="""producer id {producer_id} goes back to epoch {producer_epoch} at {at} on
                {cluster}""",
            latent=True,
            alone="a producer that was fenced can go on writing",
            smallest="producer 7 wrote in epoch 1, then in epoch 0: at the second batch.",
            despite_torn=True,
        ),
    ),
    follows={"producer-id-uniqueness", "order-equality", "ghost-ack"},
    kernel=kernel,
    from_bytes=True,
    unit="batches",
    only_of="producer ids",
    only_our_records=True,
    due={"native"},
    of_one_cluster=True,
)
