"""duplicate: a payload is in a log once (KIP-98, idempotent producers; Jepsen's Kafka workload,
duplicate).

In native eras only aborted copies may repeat a payload. In mirrored eras the mirror made the
copies; `spark_verify.verdict.allowances` decides whether its guarantee allows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.generations import apart, examined, judged, native
from linkflap.spark_verify.checks.log_model.logs import ABORTED, Log, among, copies, runs, written
from linkflap.spark_verify.checks.log_model.mirrored_ranges import compared_hops, why_not_judged
from linkflap.spark_verify.checks.log_model.record_order import may_repeat, unknown_repeats
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Counts copies of every payload on every cluster."""
    return list(judged(view, _repeats))


def _repeats(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    records, cluster = log.records, log.cluster
    here = native(generation, records.offset)
    # An open native copy is one too many as well: nobody sends a payload twice, so its bytes were
    # repeated.
    counted = np.flatnonzero(
        (records.uid >= 0) & (log.visible | (here & (log.record_state != ABORTED)))
    )
    first, copy = copies(records.uid[counted])
    yield from examined(generation, records.offset[counted])
    again = np.flatnonzero(copy > 0)
    if len(again) and not here[counted[again]].all():
        faithful, doubts = _faithful(view, generation, records.uid[counted[again]], copy[again])
        yield from [Unjudged(reason) for reason in doubts]
        again = again[here[counted[again]] | ~faithful]
    if may_repeat(view) and (count := int(np.count_nonzero(~here[counted[again]]))):
        yield unknown_repeats(view, cluster, count)
        again = again[here[counted[again]]]
    # One replay of a range is one anomaly, dated by its oldest record; what clients and what a
    # mirror wrote are two.
    own = np.arange(len(again)) + here[counted[again]]
    for start, end in runs(
        again, first[again], own, apart(generation, records.offset[counted[again]])
    ):
        at = again[start:end]
        row, original = counted[at[0]], int(records.offset[counted[first[at[0]]]])
        evidence: dict[str, object] = {
            "records": end - start,
            "uid": int(records.uid[row]),
            "first_offset": original,
            "copy": int(copy[at].max()),
        }
        if not here[row]:
            evidence["first_written"] = written(view, cluster, original)
            evidence["written"] = written(view, cluster, int(records.offset[row]))
        kind = "duplicate" if here[row] else "mirrored-duplicate"
        yield Found.at(kind, cluster, records.offset[row], **evidence)


def _faithful(
    view: PartitionView, generation: LogGeneration, uids: Ints, copy: Ints
) -> tuple[Bools, Sequence[str]]:
    """Per copy, whether a cluster that this one mirrored from has as many: repeating those is
    faithful; or may have had them.

    And why of some it is unknown.
    """
    right, doubts = np.zeros(len(uids), np.bool_), []
    for compared in compared_hops(view):
        if compared.mirrored_range.destination == generation.cluster:
            theirs = np.sort(compared.source.records.uid[compared.source.visible])
            right |= copy < np.searchsorted(theirs, uids, side="right") - np.searchsorted(
                theirs, uids, side="left"
            )
            right |= compared.origin.how == "once"
            open_ones = ~right & among(uids, compared.unsettled)
            if open_ones.any():
                doubts.append(why_not_judged(compared, int(open_ones.sum())))
                right |= open_ones
    return right, doubts


CHECK = Check(
    name="duplicate",
    guarantee="Every payload is in every log once.",
    source="""KIP-98 (idempotent producer); Jepsen kafka workload, duplicate; KIP-618 for mirrors
        that promise exactly-once""",
    wire="""A batch that is sent again is the same batch if it has the same producer id, epoch,
        sequence and number of records, or without an id the same bytes, sent again after its
        connection had ended without an answer. Any other repeat is another batch, and is not
        found.""",
    inputs={"batches", "records", "promotions"},
    anomalies=(
        AnomalyKind(
            name="duplicate",
            meaning="A payload is in a cluster's own era, and the log has it already.",
            sentence="{cluster} has {who} at {at} again, first at offset {first_offset}",
            counted="record is there twice|records are there twice",
            smallest="B has, after its promotion, 7 7: at the offset of the second.",
        ),
        AnomalyKind(
            name="mirrored-duplicate",
            meaning="A mirrored era has a payload more than once.",
            sentence="""the mirror wrote {who} to {cluster} again at {at}, first at offset
                {first_offset}""",
            counted="record was mirrored twice|records were mirrored twice",
            smallest="B has, mirrored, 1 1: at the offset of the second.",
        ),
    ),
    follows={"sequence-continuity", "order-equality", "provenance"},
    kernel=kernel,
    from_bytes=True,
    only_our_records=True,
)
