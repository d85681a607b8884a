"""Transactions that stay open longer than any may, at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.last_stable import high_watermarks_of, recompute_last_stable
from linkflap.spark_verify.checks.parts.logs import NOWHERE, Log
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.sampled_watermarks import found_at
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import Ints, PartitionView, Watermarks

TIMEOUT = 75_000_000_000
"""Nanoseconds: librdkafka's and Kafka's default transaction.timeout.ms of 60 s, the coordinator's
sweep every 10 s, and 5 s."""


def recomputed(
    log: Log, marks: Watermarks, sampled: Ints, since: Sequence[tuple[int, int]], floor: int
) -> Iterator[tuple[int, Found]]:
    lso, high = marks.last_stable[sampled], marks.high_watermark[sampled]
    tenure = marks.leader_epoch[sampled] * 1_000_003 + marks.leader[sampled]
    known = (
        np.concatenate(([False], tenure[1:] == tenure[:-1]))
        if len(sampled)
        else np.empty(0, np.bool_)
    )
    lowest = np.where(known, np.minimum(np.concatenate(([0], high[:-1]))[: len(high)], high), 0)
    following = np.concatenate((high[1:], [log.replica.end]))[: len(high)]
    highest = np.maximum(
        high,
        np.where(np.concatenate((known[1:], [False]))[: len(high)], following, log.replica.end),
    )
    first, last = high_watermarks_of(log, lso)
    wrong = ((first > highest) | (last < lowest) | (first > last)) & (lso >= floor)
    for time, offset in since:
        # A marker above the truncation may have ended what now is open.
        wrong &= (marks.time[sampled] > time) | (highest <= offset)
    for i in np.flatnonzero(wrong).tolist():
        between = [int(lowest[i]), int(highest[i])]
        evidence = {
            "recomputed": recompute_last_stable(log, int(high[i])),
            "high_watermark_between": between,
        }
        yield i, found_at("lso-mismatch", log.replica.cluster, marks, int(sampled[i]), **evidence)


def hanging(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    every, records, cluster = log.transactions, log.replica.records, log.replica.cluster
    # What came over a link before the cluster was promoted again, or for the first time.
    own = (
        [e.start for e in generation.eras[1:] if e.origin == "native"]
        if view.mirror.guarantee.offsets_kept
        else []
    )
    given_up = own[-1] if own else 0
    refused = _refused_over(view, generation)
    if refused:
        # The source is dead and this cluster was not promoted: nothing ends what is open.
        given_up = log.replica.end
    findings, taken = [], Taken(view, cluster)
    for i in np.flatnonzero(every.marker == NOWHERE).tolist():
        at = np.flatnonzero(records.offset >= every.first[i])
        if not len(at):
            continue
        age = view.ended - _begun(view, log, int(at[0]))
        first = records.uid[at[:1]]
        lost = int(np.maximum(taken.unended(first), taken.unended(first, commit=False))[0])
        if age > TIMEOUT or every.first[i] < given_up:
            evidence = {
                "producer_id": int(every.producer_id[i]),
                "open_seconds": round(age / 1e9, 1),
                "mirrored": bool(every.first[i] < given_up),
                **({"refused_over": refused} if refused else {}),
                **taken.evidence(lost),
            }
            findings.append(
                Found(
                    kind="hanging-transaction",
                    cluster=cluster,
                    offset=int(every.first[i]),
                    evidence=evidence,
                )
            )
    return findings


def _refused_over(view: PartitionView, generation: LogGeneration) -> str:
    """The link of a refused forced failover, if its source was dead at the end and the partition is
    still mirrored, from the source or from another cluster that mirrors it; else empty. That
    failover would have ended the transactions that the source left open."""
    last = generation.eras[-1]
    links = (LinkSpec.parse(refusal.link) for refusal in view.refusals if refusal.kind == "forced")
    return next(
        (
            link.name
            for link in links
            if generation.last
            and link.source in view.deaths
            and view.mirror.guarantee.offsets_kept
            and last.source
            and (
                link.source == last.owner
                or (link.source, link.destination) == (last.source, generation.cluster)
            )
        ),
        "",
    )


def _begun(view: PartitionView, log: Log, row: int) -> int:
    """When a record was sent, by its sender's row and the harness's clock; its timestamp is from
    its client's clock."""
    uid = int(log.replica.records.uid[row])
    invoked = [s.invoked for s in view.sends if s.first_uid <= uid < s.first_uid + len(s.offsets)]
    return invoked[0] if invoked else int(log.replica.records.timestamp[row]) * 1_000_000
