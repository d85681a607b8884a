"""What clients sent to and got from one generation of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.generations import (
    generations,
    numbers_at,
    reversals_onto,
)
from linkflap.spark_verify.checks.parts.reversals import by_generation
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView, Replica


def of_readers(
    generation: LogGeneration, replica: Replica | None, findings: Sequence[Finding]
) -> Iterator[Finding]:
    """As `own`, for what readers got: a read belongs to the generation it was made in, at any
    offset."""
    for finding in findings:
        if (
            generation.last
            or not isinstance(finding, Found)
            or 0 <= finding.offset < generation.truncated_to
        ):
            yield finding
        else:
            moment = replica.moment if replica is not None else ""
            yield replace(finding, evidence={**finding.evidence, "capture": moment})


def sends_to(view: PartitionView, cluster: str) -> Sends:
    """What clients sent to a cluster."""
    every = Sends.of(view.sends)
    return every.take(every.says("cluster", cluster))


def sends_of(view: PartitionView, generation: LogGeneration) -> Sends:
    """What clients sent to a cluster in one of its generations."""
    there = sends_to(view, generation.cluster)
    return there.take(
        numbers_at(generations(view)[generation.cluster], there.column("invoked"))
        == generation.number
    )


def reads_in(view: PartitionView, generation: LogGeneration) -> Sequence[Read]:
    """What readers of a cluster did in one of its generations; a poll while it was truncated may
    have a part in two (`reversals`).
    """
    return _in(view, generation, view.reads)


def polls_in(view: PartitionView, generation: LogGeneration) -> list[Read]:
    """Polls that returned records in one generation: of readers, and of members of share groups,
    which acquired what they returned."""
    acquired = [replace(r, kind="poll", position=-1) for r in view.shares if r.kind == "acquire"]
    return [
        r
        for r in _in(view, generation, [*view.reads, *acquired])
        if r.kind == "poll" and len(r.uids)
    ]


def _in(view: PartitionView, generation: LogGeneration, reads: Sequence[Read]) -> Sequence[Read]:
    return by_generation(
        [r for r in reads if r.cluster == generation.cluster],
        reversals_onto(view, generation.cluster),
    )[generation.number]
