"""poll-continuity: an undisturbed consumer continues at its position (Jepsen's Kafka workload,
poll-skip and nonmonotonic-poll).

Take a record and the next one that one consumer gets of a partition, in the same poll or in the
following one. Nothing that its isolation level can see lies between them, and the second is not
behind the first. The bytes give the visible records (a dense index): markers and, with
read_committed, aborted records are no skips. Assignments, revocations, resets, a new consumer, and
a truncated log begin anew. A poll with a rebalance proves nothing, neither by itself nor with its
neighbours.

A consumer whose position is beyond a truncation, and that does not learn of it (KIP-320), stays at
that position, in a log that has other records from the truncation on. It has skipped those of them
that lie before the next record that it gets. The records of a poll during the truncation may be of
either log, so the payloads that it got are left out.

read-committed-visibility does not judge a reader of a group that gets less than another member, nor
anybody who reads uncommitted. This check judges every consumer separately. It also compares
positions: a consumer got every record that it, or its group, passed by its own report, from its
assignment until it was drained (`spark_verify.checks.parts.positions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.generation_clients import of_readers, reads_in
from linkflap.spark_verify.checks.parts.generation_truncations import kept_since, truncations_in
from linkflap.spark_verify.checks.parts.generations import every, examined, generations, log_of
from linkflap.spark_verify.checks.parts.logs import Log, among
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.poll_chains import Chain, chains_of, neighbours, position_at
from linkflap.spark_verify.checks.parts.positions import consumers, not_delivered, visible_to
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, PartitionView

SKIPPED_BY_TRUNCATION = "skipped-by-truncation"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every consumer through every generation of a log."""
    findings: list[Finding] = []
    for generation in every(view):
        reads = reads_in(view, generation)
        chains = list(chains_of(view, reads))
        log = log_of(view, generation)
        skipped = [] if log is None else list(_across(view, generation, log))
        if not (reads or skipped):
            continue
        firsts = np.array([poll.offsets[0] for chain in chains for poll in chain.polls], np.int64)
        findings += examined(generation, firsts, whole=True)
        if log is None:
            findings.append(
                Unjudged(
                    reason=(
                        f"no log of {generation.cluster} was captured for "
                        f"{view.topic}-{view.partition}"
                    )
                )
            )
        taken = Taken(view, generation.cluster)
        broken = [
            found for chain in chains for found in _judge(generation.cluster, log, chain, taken)
        ]
        broken += skipped
        if log is not None:
            broken += list(not_delivered(view, generation, log, reads, broken))
        findings += of_readers(generation, None if log is None else log.replica, broken)
    return findings


def _judge(cluster: str, log: Log | None, chain: Chain, taken: Taken) -> Iterator[Found]:
    before, after = chain.offset[:-1], chain.offset[1:]
    back = after <= before
    there = visible_to(log, chain.polls[0].isolation)
    first = np.searchsorted(there, before, side="right")
    skipped = np.where(back, 0, np.searchsorted(there, after, side="left") - first)
    inside: Bools = chain.poll[:-1] == chain.poll[1:]
    for i in np.flatnonzero(back).tolist():
        yield _found(
            cluster,
            chain,
            i,
            "internal-regression" if inside[i] else "poll-regression",
            int(after[i]),
            1,
        )
    for i in np.flatnonzero(skipped).tolist():
        kind = "internal-skip" if inside[i] else "poll-skip"
        found = _found(cluster, chain, i, kind, int(there[first[i]]), int(skipped[i]))
        last = int(there[first[i] + skipped[i] - 1])
        lost = taken.skipped(found.offset, last, chain.polls[int(chain.poll[i + 1])])
        yield replace(found, evidence={**found.evidence, **taken.evidence(lost)})


def _across(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Found]:
    """What consumers skipped because the log was truncated under them, at the beginning of this
    generation or in it."""
    known = truncations_in(view, generation)
    if not (known or generation.earlier):
        return
    older = [
        read
        for before in generations(view)[generation.cluster][: generation.number]
        for read in reads_in(view, before)
    ]
    here = reads_in(view, generation)
    ours, theirs = {id(read) for read in here}, {id(read) for read in older}
    for rows in consumers([*older, *here]):
        for before, after in neighbours(rows):
            since = [
                (offset, time)
                for time, offset in known
                if rows[before].time <= time < rows[after].time
            ]
            if id(rows[before]) in theirs:
                since.append((generation.earlier[-1], generation.began))
            if since and id(rows[after]) in ours:
                truncated_to, time = min(since)
                stood = position_at(rows[before:after], time, theirs)
                yield from _skipped(view, log, rows[: after + 1], truncated_to, stood)


def _skipped(
    view: PartitionView, log: Log, rows: Sequence[Read], truncated_to: int, stood: int
) -> Iterator[Found]:
    """What of [truncation, first record of the last row) is there, and the consumer of these rows
    never got."""
    poll, records = rows[-1], log.replica.records
    there = log.visible if poll.isolation == "read_committed" else np.ones(len(records), np.bool_)
    first = int(poll.offsets[0])
    got = np.concatenate([row.uids for row in rows])
    missed = (
        (records.offset >= truncated_to)
        & (records.offset < first)
        & (records.uid >= 0)
        & there
        & ~among(records.uid, got)
    )
    if not missed.any() or first >= kept_since(view, poll):
        return
    offsets = records.offset[missed]
    evidence = {
        "records": len(offsets),
        "reader": poll.reader,
        "isolation": poll.isolation,
        "returned": poll.returned,
        "truncated_to": truncated_to,
        "stood_at": stood,
        "then": {"offset": int(poll.offsets[0]), "uid": int(poll.uids[0])},
        "last_skipped": int(offsets.max()),
    }
    yield Found(
        kind=SKIPPED_BY_TRUNCATION,
        cluster=log.replica.cluster,
        offset=int(offsets.min()),
        evidence=evidence,
    )


def _found(cluster: str, chain: Chain, at: int, kind: str, offset: int, records: int) -> Found:
    poll = chain.polls[int(chain.poll[at + 1])]
    evidence = {
        "records": records,
        "reader": poll.reader,
        "isolation": poll.isolation,
        "returned": poll.returned,
        "before": {"offset": int(chain.offset[at]), "uid": int(chain.uid[at])},
        "then": {"offset": int(chain.offset[at + 1]), "uid": int(chain.uid[at + 1])},
    }
    return Found(kind=kind, cluster=cluster, offset=offset, evidence=evidence)


CHECK = Check(
    name="poll-continuity",
    guarantee=(
        "While nothing moves a consumer, it gets all visible records of a partition, without "
        "a gap and without going back."
    ),
    source=(
        "Jepsen kafka workload, poll-skip, nonmonotonic-poll, int-poll-skip, int-nonmonotonic-poll;"
        " KIP-98 (isolation.level); KIP-320 (truncation)"
    ),
    inputs=frozenset({"batches", "records", "sends", "reads", "watermarks", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="poll-skip",
            meaning=(
                "A visible record lies between the last record of a poll and the first record "
                "of the next."
            ),
            sentence="{reader} skipped {n} of {cluster} from {at} on",
            counted="record was skipped by a reader|records were skipped by readers",
            smallest="A has 1 2 3, a consumer got 1, in its next poll 3: at the offset of 2.",
        ),
        AnomalyKind(
            name="poll-regression",
            meaning=(
                "A poll begins at or before the last record of the previous poll, and nothing "
                "had moved the consumer."
            ),
            sentence="{reader} went back to {at} on {cluster} although nothing had moved it",
            counted="record was read again|records were read again",
            smallest="A has 1 2, a consumer got 2, in its next poll 1: at the offset of 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="internal-skip",
            meaning="A visible record lies between two records of one poll.",
            sentence="{reader} skipped {n} of {cluster} from {at} on, within one poll",
            counted="record was skipped by a reader|records were skipped by readers",
            smallest="A has 1 2 3, one poll returned 1 3: at the offset of 2.",
        ),
        AnomalyKind(
            name="internal-regression",
            meaning="A poll returned a record at or before the previous one.",
            sentence="{reader} went back to {at} on {cluster} within one poll",
            counted="record was read again|records were read again",
            smallest="A has 1 2, one poll returned 2 1: at the offset of 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=SKIPPED_BY_TRUNCATION,
            meaning=(
                "The log was truncated below a consumer's position. The consumer continued at "
                "its position, without the records that replaced the tail."
            ),
            sentence=(
                "{reader} stood at {stood_at} of {tp} on {cluster} when the log was truncated to "
                "{truncated_to}, and skipped {n}"
            ),
            counted="record was skipped by a reader|records were skipped by readers",
            smallest=(
                "A lost 3 of 1 2 3 and got 4 5 from B, a consumer had got 3, then 5: at the offset "
                "of 4."
            ),
        ),
        AnomalyKind(
            name="passed-unread",
            meaning=(
                "A consumer passed a visible record, by its assigned and its reported "
                "positions, and never got it."
            ),
            sentence="{reader} passed {who} at {at} on {cluster} unread",
            counted="record was passed unread|records were passed unread",
            smallest=(
                "A has 1 2, a consumer was assigned at 0, got 1, and says drained at 2: at the "
                "offset of 2."
            ),
        ),
        AnomalyKind(
            name="began-ahead",
            meaning=(
                "A member of a group was assigned a position beyond the group's, and no "
                "member got the records in between."
            ),
            sentence=(
                "{reader} began at {began_at} of {tp} on {cluster}, although its group was at "
                "{group_at}"
            ),
            counted="record was passed unread|records were passed unread",
            smallest=(
                "A has 1 2 3, one member got 1, the next was assigned at 2: at the offset of 2."
            ),
        ),
        AnomalyKind(
            name="drained-early",
            meaning=(
                "A consumer reported that it had read to the end, at a position below a last "
                "stable offset that was sampled while clients were still writing."
            ),
            sentence=(
                "{reader} stopped at {stood_at} of {tp} on {cluster}, before the last stable offset"
                " {last_stable}"
            ),
            counted="record was not read in the end|records were not read in the end",
            smallest=(
                "A has 1 2, its last stable offset was sampled as 2 while clients wrote, a consumer"
                " got 1, and says drained at 1: at the offset of 2."
            ),
        ),
        AnomalyKind(
            name="position-beyond-end",
            meaning=(
                "A consumer reported a position that the log never reached; the offset is the "
                "log's end."
            ),
            sentence=(
                "{reader} stands at {position} of {tp} on {cluster}, whose log ends at {log_end}"
            ),
            alone="the reader skips what is written up to there",
            smallest="A has 1, a consumer got 1, and says drained at 5: at offset 1.",
        ),
    ),
    complete=frozenset({"reads", "promotions"}),
    follows=frozenset(
        {"read-committed-visibility", "truncation-accounting", "inconsistent-offset", "lost-write"}
    ),
    kernel=kernel,
    unit="polls",
    judges_readers=True,
)
