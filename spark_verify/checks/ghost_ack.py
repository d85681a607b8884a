"""ghost-ack: the record at an acknowledged offset is the acknowledged record (facts: Redpanda PR
31659, shadow links).

After a failover with colliding producer ids a broker treats a new batch as a repeat of an old one,
acknowledges it with the old batch's offset and appends nothing. The client sees success; only the
offset shows the loss. So every acknowledgement, also in aborted transactions, must point to an
offset of the acknowledging cluster's own era that has that very record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.deleted_records import deleted, may_be_cleaned
from linkflap.spark_verify.checks.log_model.generations import (
    apart,
    every,
    examined,
    log_of,
    native,
    not_captured,
    own,
)
from linkflap.spark_verify.checks.log_model.logs import Log, copies, each_at, joined, locate, runs
from linkflap.spark_verify.checks.log_model.lost_records import Taken
from linkflap.spark_verify.checks.log_model.outcomes import Outcomes, outcomes
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView

REASONS = (
    "",
    "below the promotion offset",
    "acknowledged twice",
    "beyond the end of the log",
    "no record there",
    "another record there",
    "records that its producer had sent before, and aborted, are there, as if it had used their "
    "sequence numbers again (docs/findings/librdkafka-reused-sequences.md)",
)


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Looks up every acknowledged offset in the log that the acknowledging cluster had then."""
    for generation in every(view):
        what = outcomes(view, generation)
        acked = np.flatnonzero(what.acked >= 0)
        if not len(acked):
            continue
        log = log_of(view, generation)
        if all(era.origin == "mirrored" for era in generation.eras):
            yield Unjudged(
                f"{generation.cluster} acknowledged writes to {view.topic} but no promotion"
                " was recorded"
            )
        elif log is None:
            yield not_captured(view, generation.cluster)
        else:
            yield from own(view, generation, _judge(view, generation, log, what, acked))


def _judge(
    view: PartitionView, generation: LogGeneration, log: Log, what: Outcomes, acked: Ints
) -> Iterator[Finding]:
    cluster, records = log.cluster, log.records
    compacted = view.compacted.get(cluster, 0)
    acked = acked[what.acked[acked] >= log.replica.log_start]
    offsets = what.acked[acked]
    here = native(generation, offsets)
    # One that points outside the cluster's own era is an acknowledgement of its own era all the
    # same.
    first_own = next(era.start for era in generation.eras if era.origin == "native")
    yield from examined(
        generation,
        np.where(
            here,
            offsets,
            np.maximum(first_own, 0 if generation.last else generation.truncated_to),
        ),
    )
    at = locate(records.offset, offsets)
    holder = each_at(records.uid, at, -1)
    reason = np.select(
        [
            ~here,
            (copies(offsets)[1] > 0) & (holder != what.uid[acked]),
            offsets >= log.replica.end,
            at < 0,
            holder != what.uid[acked],
        ],
        [1, 2, 3, 4, 5],
        0,
    )
    reason[(reason == 5) & _aborted_before(what, acked, holder)] = 6
    cleaned = (reason == 4) & (offsets < compacted)
    gone, unsure = _by_cleaner(view, generation, log, what, acked, cleaned)
    reason[gone | unsure] = 0
    if unsure.any():
        yield Unjudged(may_be_cleaned(view, log, int(unsure.sum())))
    absent = ((reason == 3) | (reason == 4)) & (offsets >= log.replica.torn_from)
    if absent.any():
        yield Unjudged(f"the log of {cluster} is torn, so what is missing may have been there")
        reason[absent] = 0
    bad = np.flatnonzero(reason)
    taken, invoked = Taken(view, cluster), what.sends.column("invoked")
    rows = acked[bad]
    by = taken.sent(offsets[bad], what.uid[rows], invoked[what.send[rows]])
    for start, end in runs(bad, offsets[bad], apart(generation, offsets[bad]), joined(by)):
        row = bad[start]
        send = what.sends[int(what.send[acked[row]])]
        yield Found.at(
            "ghost-ack",
            cluster,
            offsets[row],
            records=end - start,
            uid=what.uid[acked[row]],
            why=REASONS[int(reason[row])],
            holds=holder[row],
            operation=send.number,
            client=send.client,
            producer_id=send.producer_id,
            **taken.evidence(int(by[start])),
        )


def _aborted_before(what: Outcomes, acked: Ints, holder: Ints) -> Bools:
    """Per acknowledgement, whether the record at its offset is one that the same producer, with the
    same id and epoch, had sent before in a transaction that it aborted."""
    invoked, aborted = what.sends.column("invoked"), what.sends.says("ending", "abort")
    mine, at = what.send[acked], locate(what.uid, holder)
    theirs = what.send[at]
    same = (at >= 0) & (what.sends.column("producer_id")[mine] >= 0)
    for name in ("process", "producer_id", "producer_epoch"):
        column = what.sends.column(name)
        same &= column[theirs] == column[mine]
    return np.asarray(same & aborted[theirs] & (invoked[theirs] < invoked[mine]))


def _by_cleaner(
    view: PartitionView,
    generation: LogGeneration,
    log: Log,
    what: Outcomes,
    acked: Ints,
    lacking: Bools,
) -> tuple[Bools, Bools]:
    """Two subsets of the acknowledgements whose offset has no record: a cleaner took the record; or
    it is unknown whether it did."""
    absent = np.zeros(len(what), np.bool_)
    absent[acked[lacking]] = True
    gone, unsure = deleted(view, generation, log, what, absent)
    return lacking & gone[acked], lacking & unsure[acked]


CHECK = Check(
    name="ghost-ack",
    guarantee="""An acknowledged offset has the acknowledged record, in the acknowledging cluster's
        own era.""",
    source="Redpanda PR 31659 (acknowledged with old offsets, nothing appended); KIP-98",
    wire="""The batch at an acknowledged offset must have the acknowledged producer id, epoch,
        sequence and number of records, or without an id the acknowledged CRC; if brokers rewrite
        the batches without an id, any CRC is accepted. Where a topic is compacted, it is unknown
        whether a cleaner took what is absent.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name="ghost-ack",
            meaning="""The acknowledged offset has another record or none, belongs to another
                cluster, or was given to two records.""",
            sentence="""{cluster} acknowledged {who} (producer id {producer_id}) at {at} and did not
                append it there: {why}""",
            counted="""acknowledgement points at nothing or at another record|acknowledgements point
                at nothing or at another record""",
            smallest="B acknowledged 7 at offset 3 and has 5 there: at offset 3 on B.",
            despite_torn=True,
        ),
    ),
    follows={
        "producer-id-uniqueness",
        "standby-isolation",
        "truncation-accounting",
        "replica-agreement",
    },
    kernel=kernel,
    unit="acknowledgements",
    due={"native"},
)
