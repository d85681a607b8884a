"""Compares a truncation that the mirror recorded with the bytes and the acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.generations import before_truncation, replica_of
from linkflap.spark_verify.checks.parts.outcomes import outcomes
from linkflap.spark_verify.checks.parts.truncated_logs import (
    absent_before,
    changed_below,
    found_in,
    left_of_tail,
    reported_too_short,
)
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.partition_facts import Truncation
from linkflap.spark_verify.facts.view import PartitionView, Replica


def truncation_findings(
    view: PartitionView, generation: LogGeneration, following: LogGeneration
) -> Sequence[Finding]:
    before, after = before_truncation(view, generation), replica_of(view, following)
    if before is None or after is None:
        return [
            Unjudged(
                reason=(
                    f"{generation.cluster} was made to follow, and no log of it from before and "
                    "after that was captured"
                )
            )
        ]
    recorded = [
        t
        for t in view.truncations
        if t.cluster == generation.cluster and generation.ended <= t.time <= following.ended
    ]
    what = {"capture": before.moment, "parted_at": generation.truncated_to}
    findings: list[Finding] = list(_contradicted(generation, before, recorded))
    tail = np.flatnonzero(before.batches.last_offset >= generation.truncated_to)
    if len(tail) and not recorded:
        evidence = what | {"end": before.end}
        findings.append(
            found_in(
                "truncation-unrecorded",
                generation,
                int(before.batches.base_offset[tail[0]]),
                **evidence,
            )
        )
    below = np.flatnonzero(
        (before.batches.last_offset < generation.truncated_to)
        & (before.batches.base_offset >= after.log_start)
    )
    findings += changed_below(generation, before, after, below)
    findings += absent_before(
        view, generation, after, min([generation.truncated_to, *(t.offset for t in recorded)])
    )
    findings += left_of_tail(view, generation, following, before, after, tail)
    possible = [t.offset for t in recorded if not _impossible(t, generation, before)]
    if possible:
        findings += reported_too_short(view, generation, following, before, tail, min(possible))
    findings += _promised(view, generation)
    seen = (
        (len(below), following.number, 0),
        (len(tail), generation.number, generation.truncated_to),
    )
    return [
        *findings,
        *(
            Examined(
                cluster=generation.cluster, origin="native", count=n, generation=number, start=at
            )
            for n, number, at in seen
            if n
        ),
    ]


def _contradicted(
    generation: LogGeneration, before: Replica, recorded: Sequence[Truncation]
) -> Iterator[Found]:
    """Truncations below where the histories part, and those that cannot have been."""
    what = {"capture": before.moment, "parted_at": generation.truncated_to}
    for truncation in recorded:
        at, end = truncation.offset, truncation.end
        if at < generation.truncated_to:
            yield found_in("truncation-too-deep", generation, at, **what, end=end)
        if why := _impossible(truncation, generation, before):
            yield found_in("truncation-impossible", generation, at, **what, end=end, because=why)


def _impossible(truncation: Truncation, generation: LogGeneration, before: Replica) -> str:
    """Why a recorded truncation is impossible; empty if it is possible.

    Its end may be above that of the capture before it: the coordinator of a cluster that was
    started appends markers.
    """
    if truncation.end < truncation.offset:
        return f"the log ended at {truncation.end}, below where it was truncated"
    if before.damage:
        return ""
    if truncation.offset > max(before.end, generation.truncated_to):
        return f"the log, captured before, ended at {before.end}"
    if truncation.end < before.end:
        return f"the log, captured before, ended at {before.end}, above its recorded end"
    return ""


def without_reversal(truncation: Truncation, mine: Sequence[LogGeneration]) -> bool:
    """Whether a truncation is recorded for a cluster that no mirror made to follow at that time.

    One that took nothing away is none: a log with nothing of its own is noted once it grows, and
    that may be after the mirror was seen to be through.
    """
    return truncation.end != truncation.offset and not any(
        generation.ended <= truncation.time <= following.settled
        for generation, following in pairwise(mine)
    )


def _promised(view: PartitionView, generation: LogGeneration) -> Iterator[Found]:
    """Acknowledged records behind the truncation that no forced failover had lost: requested later,
    or without any forced failover."""
    what = outcomes(view, generation, earlier=False)
    if not len(what):
        return
    late = (what.sends.column("invoked") > (-1 if generation.lost is None else generation.lost))[
        what.send
    ]
    rows = np.flatnonzero(what.must & (what.acked >= generation.truncated_to) & late)
    if len(rows):
        row = int(rows[0])
        send = what.sends[int(what.send[row])]
        evidence = {
            "records": len(rows),
            "uid": int(what.uid[row]),
            "operation": send.number,
            "client": send.client,
        }
        yield found_in("truncated-write", generation, int(what.acked[row]), **evidence)
