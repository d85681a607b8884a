"""The ends of transactions where a mirror ended: open forever, or ended otherwise than on the
cluster that they were mirrored from.

KIP-1279: a mirror that ends writes an ABORT marker for every open transaction, and then a reset of
the producer state. Behind the reset nothing can end a transaction that it left open: the last
stable offset stays there, and readers of committed records get no further. A transaction that is
still mirrored may be open, because its marker will come over the link.

On a running cluster the leader is asked for its last stable offset, which is compared with its
bytes. If it is below the one that they give for an earlier high watermark, it waits for a marker
that is there already.

A transaction that one cluster committed is committed on every cluster that has it from there. If
the mirror had copied its data and not its marker, the destination had to abort it. After a forced
failover a mirror's guarantee may allow that (`spark_verify.verdict.allowances`), and it is reported
all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.generations import log_of, source_log
from linkflap.spark_verify.checks.parts.last_stable import recompute_last_stable
from linkflap.spark_verify.checks.parts.logs import NOWHERE, Log, locate, read
from linkflap.spark_verify.checks.parts.producer_ids import ids_as_declared
from linkflap.spark_verify.facts.eras import LogGeneration, MirroredRange
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.facts.view import OTHER_CONTROL, PartitionView, Replica

LEFT_OPEN = "transaction-left-open"
STUCK = "stable-offset-stuck"
SPLIT = "outcome-split"
RUN_END = "run-end"
"""How a mirror ended that went on to the end of the run: it may be behind then, and ends as in a
forced failover."""


def left_open(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Transactions without a marker and with a reset of the producer state behind them."""
    every, batches = log.transactions, log.replica.batches
    resets = batches.base_offset[(batches.control == OTHER_CONTROL) & batches.crc_ok]
    unended = every.marker == NOWHERE
    index = np.searchsorted(resets, every.last, side="right")
    given_up = unended & (index < len(resets))
    findings: list[Finding] = [
        Found(
            kind=LEFT_OPEN,
            cluster=log.replica.cluster,
            offset=int(every.first[i]),
            evidence={
                "producer_id": int(every.producer_id[i]),
                "producer_epoch": int(every.highest_epoch[i]),
                "last_offset": int(every.last[i]),
                "reset_offset": int(resets[index[i]]),
                "log_end": log.replica.end,
                **_sampled(log.replica),
            },
        )
        for i in np.flatnonzero(given_up).tolist()
    ]
    own = (
        [e.start for e in generation.eras[1:] if e.origin == "native"]
        if view.mirror.guarantee.offsets_kept
        else []
    )
    waiting = int(np.count_nonzero(unended & ~given_up & (every.first < max(own, default=0))))
    if waiting and not view.recorded:
        reason = (
            f"{waiting} transactions were open where {generation.cluster} was promoted, and have no"
            " marker: it may be on its way"
        )
        findings.append(Unjudged(reason=reason))
    return findings


def last_stable_too_low(log: Log) -> Sequence[Finding]:
    """A last stable offset, as the leader answered, below what the log gave at an earlier high
    watermark: it never falls."""
    replica = log.replica
    if replica.last_stable < 0 or not log.whole:
        return []
    expected = recompute_last_stable(log, min(replica.stable_above, replica.end))
    if replica.last_stable >= expected:
        return []
    evidence = {**_sampled(replica), "recomputed": expected}
    return [
        Found(kind=STUCK, cluster=replica.cluster, offset=replica.last_stable, evidence=evidence)
    ]


def _sampled(replica: Replica) -> dict[str, object]:
    """What the leader answered, where it was asked."""
    if replica.last_stable < 0:
        return {}
    return {"last_stable": replica.last_stable, "high_watermark": replica.stable_above}


def splits(view: PartitionView) -> Iterator[Finding]:
    """Transactions that came over a link and ended otherwise than at its source."""
    if not view.mirror.guarantee.offsets_kept:
        return
    known = history(view.partition_facts)
    for mirrored_range in known.mirrored_ranges:
        generation = (
            known.generations[mirrored_range.destination][-1]
            if mirrored_range.destination in known.generations
            else None
        )
        source, ours = (
            source_log(view, known, mirrored_range.source, mirrored_range.source_generation),
            log_of(view, generation) if generation else None,
        )
        if source is not None and ours is not None:
            yield from _split(
                view,
                mirrored_range,
                read(source.replica, untracked=True),
                read(ours.replica, untracked=True),
            )


def _split(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, destination: Log
) -> Iterator[Found]:
    theirs, ours = source.transactions, destination.transactions
    came = np.flatnonzero((ours.first >= mirrored_range.start) & (ours.first < mirrored_range.end))
    at = locate(theirs.first, ours.first[came])
    came, at = came[at >= 0], at[at >= 0]
    how = view.mirror.guarantee.producer_ids
    same = ids_as_declared(how, theirs.producer_id[at], ours.producer_id[came])
    same &= theirs.lowest_epoch[at] == ours.lowest_epoch[came]
    same &= (
        (theirs.marker[at] != NOWHERE)
        & (ours.marker[came] != NOWHERE)
        & (theirs.committed[at] != ours.committed[came])
    )
    for mine, other in zip(came[same].tolist(), at[same].tolist(), strict=True):
        evidence: dict[str, object] = {
            "producer_id": int(ours.producer_id[mine]),
            "producer_epoch": int(ours.lowest_epoch[mine]),
            "first_offset": int(ours.first[mine]),
            "source": mirrored_range.source,
            "source_marker": int(theirs.marker[other]),
            "outcomes": [
                _outcome(bool(theirs.committed[other])),
                _outcome(bool(ours.committed[mine])),
            ],
        }
        if theirs.committed[other] and view.recorded:
            evidence |= _not_arrived(
                view, mirrored_range, int(theirs.marker[other]), int(ours.marker[mine])
            )
        yield Found(
            kind=SPLIT,
            cluster=mirrored_range.destination,
            offset=int(ours.marker[mine]),
            evidence=evidence,
        )


def _not_arrived(
    view: PartitionView, mirrored_range: MirroredRange, commit: int, abort: int
) -> dict[str, object]:
    """That a COMMIT had not arrived when the mirror ended, which therefore aborted: in a failover,
    or behind at a run's end."""
    awaited = {"not_arrived": f"COMMIT at offset {commit} of {mirrored_range.source}"}
    if mirrored_range.promotion is not None:
        return (
            {"failover": mirrored_range.promotion.kind, **awaited}
            if min(abort, commit) >= mirrored_range.end
            else {}
        )
    link = f"{mirrored_range.source}->{mirrored_range.destination}"
    stops = [
        stop
        for stop in view.stops
        if stop.link == link and abort in {at for at, _ in stop.appended}
    ]
    return (
        {"failover": RUN_END, **awaited} if any(commit >= stop.mirrored for stop in stops) else {}
    )


def _outcome(committed: bool) -> str:
    return "COMMIT" if committed else "ABORT"
