"""poll-continuity: an undisturbed consumer continues at its position (Jepsen's Kafka workload,
poll-skip and nonmonotonic-poll).

Compare a record with the next one that a consumer gets from a partition, in the same poll or in the
following one. No record that is visible at the consumer's isolation level lies between the two, and
the second has the higher offset. The bytes give the visible records (a dense index): markers and,
with read_committed, aborted records are no skips. Assignments, revocations, resets, a new consumer,
and a truncated log begin anew. A poll with a rebalance proves nothing, neither by itself nor with
its neighbours.

A consumer that does not notice a truncation below its position (KIP-320) stays at that position,
although the log has other records from the truncation on. It skips the new records up to the next
one that it gets. A poll during the truncation may have records of either log, so its payloads are
left out.

The check read-committed-visibility judges neither a group member that gets less than another, nor
read_uncommitted readers. This check judges every consumer separately. It also compares positions: a
consumer got every record that it, or its group, passed by its own report, from its assignment until
it was drained.

A consumer passed everything from its assignment to the last position that it reported before it was
moved. So it, or another member of its group, must have got every record there that its isolation
level can see. A position counts markers and aborted records too (`harness.workloads.readers`), and
an end-of-partition notice moves it without a record. Records below any sampled log start, or where
a cleaner has been, need not have been got. And a log that is truncated below the consumer's
position begins anew: records above the truncation were of another log. The same holds for records
that only a dead leader had, if the position is from after the cluster's restart: the capture right
before the truncation shows these records.

A rebalance is recorded during the poll that serves it. The result of that poll may be from before
or after it, so its records count as got, and its position proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found
from linkflap.spark_verify.checks.log_model.generations import (
    end_of,
    every,
    examined,
    generations,
    kept_since,
    log_of,
    marks_in,
    not_captured,
    own,
    reads_in,
    truncated,
    truncations_in,
)
from linkflap.spark_verify.checks.log_model.logs import Log, among, locate, together
from linkflap.spark_verify.checks.log_model.lost_records import (
    Passed,
    Taken,
    Truncations,
    kept_until,
    passed,
    passed_in,
    position_of,
    restarted_log,
    rows_before,
)
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends, consumers
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def visible_to(log: Log | None, isolation: str) -> Ints:
    """The offsets of the records that a consumer at this isolation level gets, in order."""
    if log is None:
        return np.empty(0, np.int64)
    offsets = log.records.offset
    return np.sort(offsets[log.visible] if isolation == "read_committed" else offsets)


def available_from(view: PartitionView, generation: LogGeneration, log: Log) -> int:
    """The first offset such that every consumer could read the whole log from there on: above every
    sampled log start and above the cleaned part."""
    marks = marks_in(view, generation)
    sampled = int(marks.log_start.max()) if marks is not None and len(marks.log_start) else 0
    return max(sampled, log.replica.log_start, view.compacted.get(generation.cluster, 0))


def unread(there: Ints, over: Passed, floor: int) -> Ints:
    """The offsets of visible records in a passed range that no poll returned."""
    due = _between(there, max(over.start, floor), over.end)
    return due[~among(due, over.got)]


def _between(there: Ints, start: int, end: int) -> Ints:
    """The offsets that are in [start, end); `there` is rising."""
    return there[np.searchsorted(there, start) : np.searchsorted(there, end)]


def beyond_end(rows: Sequence[Read], end: int, truncations: Truncations) -> Read | None:
    """The first row with a position that no log of this generation reached, of a consumer that
    demonstrably read this generation.

    A consumer that nothing moved keeps its position when the log is truncated below it, until a
    fetch is refused (KIP-320).
    """
    known, held = False, -1
    for row in rows:
        known |= row.kind == "assign" or (row.kind == "poll" and len(row.offsets) > 0)
        if row.kind in ("assign", "revoke"):
            held = -1
        position = position_of(row)
        if known and end < position <= kept_until(row, truncations) and position != held:
            return row
        if row.kind in ("assign", "poll", "drained"):
            held = position
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The group was at `before`, and a member was assigned a position beyond it."""

    row: Read
    before: int


def ahead(rows: Sequence[Read]) -> Iterator[Ahead]:
    """Assignments beyond the offsets that a group, or a single consumer, had passed by then; the
    first one is the start."""
    reached = -1
    moved: dict[tuple[str, int], int] = {}
    for row in rows:
        who = row.reader, row.process
        if row.kind in ("assign", "revoke"):
            moved[who] = row.returned
        if row.kind == "assign" and 0 <= reached < row.position:
            yield Ahead(row=row, before=reached)
        last = int(row.offsets[-1]) + 1 if row.kind == "poll" and len(row.offsets) else -1
        served = row.kind == "poll" and row.time <= moved.get(who, -1)
        # The committed offset does not count here: a group that commits more than it passed skips
        # records at its next member.
        reached = max(reached, last, -1 if served or row.kind == "commit" else row.position)


def required_end(view: PartitionView, generation: LogGeneration, truncations: Truncations) -> int:
    """The minimum offset that a consumer must have reached when it reports that it is drained; -1
    if unknown. The ends that readers read to are requested once all producers have stopped. So they
    are at or above every last stable offset that was sampled while one of them was still at it.
    """
    sends, marks = Sends.of(view.sends), marks_in(view, generation)
    if not len(sends) or marks is None:
        return -1
    busy = int(np.maximum(sends.column("returned"), sends.column("invoked")).max())
    early = np.flatnonzero(marks.returned <= busy)
    if not len(early):
        return -1
    truncated_to = [
        min((at for when, at in truncations if when >= time), default=FOREVER)
        for time in marks.time[early].tolist()
    ]
    return int(np.minimum(marks.last_stable[early], np.array(truncated_to, np.int64)).max())


def not_delivered(
    view: PartitionView,
    generation: LogGeneration,
    log: Log,
    reads: Sequence[Read],
    skips: Sequence[Found],
) -> Iterator[Found]:
    """The records that consumers, or their groups, should have got by their positions; `skips` are
    known from polls already."""
    truncations, floor = truncations_in(view, generation), available_from(view, generation, log)
    taken, restarted = Taken(view, generation.cluster), restarted_log(view, generation)
    promised = required_end(view, generation, truncations) if generation.last else -1
    end = end_of(view, generation)
    for rows in consumers(reads):
        there = visible_to(log, rows[0].isolation)
        # While a reversal without a recorded truncation lasts, a position may be of either log.
        surely = (
            rows
            if generation.last or truncated(view, generation)
            else [row for row in rows if row.returned <= generation.ended]
        )
        beyond = beyond_end(surely, end, truncations)
        if beyond is not None:
            yield Found.at(
                "position-beyond-end",
                generation.cluster,
                end,
                **_of(beyond),
                position=position_of(beyond),
                log_end=end,
                row=beyond.kind,
            )
        for over in passed(rows, truncations, rows_before(view, generation, rows)):
            gone = _not_skipped(unread(there, over, floor), over.last, skips)
            if restarted is not None:
                gone = gone[passed_in(restarted, log, gone, rows, generation)]
            evidence = {
                "began_at": over.start,
                "began_by": over.first.kind,
                "stood_at": over.end,
                "says": over.last.kind,
            }
            by = taken.passed(gone, rows)
            for number in np.unique(by).tolist():
                explained = {**evidence, **taken.evidence(number)}
                yield from _missed("passed-unread", log, over.last, gone[by == number], **explained)
        yield from _drained_early(log, rows, there, floor, promised, skips)
    yield from _ahead(view, log, reads, floor, skips)


def _drained_early(
    log: Log, rows: Sequence[Read], there: Ints, floor: int, promised: int, skips: Sequence[Found]
) -> Iterator[Found]:
    done = max((r for r in rows if r.kind == "drained"), key=lambda r: r.position, default=None)
    if done is None or done.position < 0:
        return
    got = together(r.offsets for r in rows if r.kind == "poll")
    due = _between(there, max(done.position, floor), promised)
    gone = _not_skipped(due[~among(due, got)], done, skips)
    yield from _missed(
        "drained-early", log, done, gone, stood_at=done.position, last_stable=promised
    )


def _ahead(
    view: PartitionView, log: Log, reads: Sequence[Read], floor: int, skips: Sequence[Found]
) -> Iterator[Found]:
    """The records that no member of a group got on any cluster: a mirror may have translated its
    offset."""
    sharing: dict[tuple[str, int], list[Read]] = {}
    for rows in consumers(reads):
        sharing.setdefault(
            (rows[0].group, -1) if rows[0].group else (rows[0].reader, rows[0].process), []
        ).extend(rows)
    for rows in sharing.values():
        gaps = list(ahead(sorted(rows, key=attrgetter("returned"))))
        if not gaps:
            continue
        there = visible_to(log, rows[0].isolation)
        group = rows[0].group
        everywhere = [r for r in view.reads if r.group == group] if group else rows
        had = together(r.uids for r in everywhere if r.kind == "poll")
        for gap in gaps:
            due = _between(there, max(gap.before, floor), gap.row.position)
            gone = _not_skipped(due[~among(_uids(log, due), had)], gap.row, skips)
            yield from _missed(
                "began-ahead", log, gap.row, gone, began_at=gap.row.position, group_at=gap.before
            )


def _not_skipped(offsets: Ints, row: Read, skips: Sequence[Found]) -> Ints:
    """The offsets without those that another anomaly of the same reader's polls already covers."""
    for skip in skips:
        before, then = skip.evidence.get("before"), skip.evidence.get("then")
        if (
            skip.evidence.get("reader") == row.reader
            and isinstance(before, dict)
            and isinstance(then, dict)
        ):
            offsets = offsets[(offsets <= before["offset"]) | (offsets >= then["offset"])]
    return offsets


def _missed(kind: str, log: Log, row: Read, offsets: Ints, **more: object) -> Iterator[Found]:
    """One anomaly for all records that a consumer missed in one range."""
    if len(offsets):
        first, last = int(offsets[0]), int(offsets[-1])
        yield Found.at(
            kind,
            log.cluster,
            first,
            records=len(offsets),
            uid=_uids(log, offsets[:1])[0],
            **_of(row),
            **more,
            last_missed=last,
        )


def _uids(log: Log, offsets: Ints) -> Ints:
    at = locate(log.records.offset, offsets)
    return np.asarray(log.records.uid[at])


def _of(row: Read) -> dict[str, object]:
    return {
        "reader": row.reader,
        "isolation": row.isolation,
        "group": row.group,
        "returned": row.returned,
    }


ANEW = frozenset({"assign", "revoke"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The successive records of one consumer: per record the offset, the payload id, and the index
    of its poll in `polls`."""

    polls: Sequence[Read]
    offset: Ints
    uid: Ints
    poll: Ints


def chains_of(view: PartitionView, reads: Sequence[Read]) -> Iterator[Chain]:
    """Polls of one consumer without anything in between that may have moved it; its rows are in the
    order of their return."""
    for rows in consumers(reads):
        polls: list[Read] = []
        moved, anew = -1, False
        for row in rows:
            if row.kind in ANEW:
                moved, anew = row.returned, True
            elif row.kind == "poll" and len(row.uids):
                if anew:
                    yield from _chain(polls)
                    polls = []
                kept = row.offsets < kept_since(view, row)
                # A rebalance during this poll: its records may be from before or after the
                # rebalance.
                anew = row.time <= moved or not bool(kept.all())
                if row.time > moved and kept.any():
                    polls.append(
                        replace(
                            row,
                            uids=row.uids[kept],
                            offsets=row.offsets[kept],
                            position=min(row.position, kept_since(view, row)),
                        )
                    )
        yield from _chain(polls)


def _chain(polls: Sequence[Read]) -> Iterator[Chain]:
    if polls:
        sizes = [len(poll.uids) for poll in polls]
        yield Chain(
            polls=tuple(polls),
            offset=np.concatenate([poll.offsets for poll in polls]),
            uid=np.concatenate([poll.uids for poll in polls]),
            poll=np.repeat(np.arange(len(polls), dtype=np.int64), sizes),
        )


def position_at(rows: Sequence[Read], time: int, earlier: Collection[int]) -> int:
    """The furthest position of rows up to a time, or of an earlier generation (by id)."""
    return max(row.position for row in rows if row.time <= time or id(row) in earlier)


def neighbours(rows: Sequence[Read]) -> Iterator[tuple[int, int]]:
    """Index pairs of successive polls with records, of one consumer that nothing moved in
    between."""
    before, moved = -1, -1
    for index, row in enumerate(rows):
        if row.kind in ANEW:
            before, moved = -1, row.returned
        elif row.kind == "poll" and len(row.uids):
            if row.time > moved and before >= 0:
                yield before, index
            before = index if row.time > moved else -1


SKIPPED_BY_TRUNCATION = "skipped-by-truncation"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Follows every consumer through every generation of a log."""
    for generation in every(view):
        reads = reads_in(view, generation)
        chains = list(chains_of(view, reads))
        log = log_of(view, generation)
        skipped = [] if log is None else list(_across(view, generation, log))
        if not (reads or skipped):
            continue
        firsts = np.array([poll.offsets[0] for chain in chains for poll in chain.polls], np.int64)
        yield from examined(generation, firsts, whole=True)
        if log is None:
            yield not_captured(view, generation.cluster)
        taken = Taken(view, generation.cluster)
        broken = [
            found for chain in chains for found in _judge(generation.cluster, log, chain, taken)
        ]
        broken += skipped
        if log is not None:
            broken += list(not_delivered(view, generation, log, reads, broken))
        yield from own(view, generation, broken, of_readers=True)


def _judge(cluster: str, log: Log | None, chain: Chain, taken: Taken) -> Iterator[Found]:
    before, after = chain.offset[:-1], chain.offset[1:]
    inside: Bools = chain.poll[:-1] == chain.poll[1:]
    stood = np.array([poll.position for poll in chain.polls], np.int64)[chain.poll[:-1]]
    back = after <= before
    # An unclean election may have lost records below the position.
    behind = ~inside & ~back & (after < stood) & (taken.passed(after, chain.polls) < 0)
    there = visible_to(log, chain.polls[0].isolation)
    first = np.searchsorted(there, before, side="right")
    skipped = np.where(back, 0, np.searchsorted(there, after, side="left") - first)
    for i in np.flatnonzero(back | behind).tolist():
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
        gone = there[first[i] : first[i] + skipped[i]]
        found = _found(cluster, chain, i, kind, int(gone[0]), len(gone))
        lost = taken.skipped(gone, chain.polls[int(chain.poll[i + 1])])
        yield replace(found, evidence={**found.evidence, **taken.evidence(lost)})


def _across(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Found]:
    """Records that consumers skipped because the log was truncated below their positions, before or
    during this generation."""
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
    """Visible records in [truncation, first record of the last row) that the consumer of these rows
    never got."""
    poll, records = rows[-1], log.records
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
    yield Found.at(
        SKIPPED_BY_TRUNCATION,
        log.cluster,
        int(offsets.min()),
        records=len(offsets),
        reader=poll.reader,
        isolation=poll.isolation,
        returned=poll.returned,
        truncated_to=truncated_to,
        stood_at=stood,
        then={"offset": int(poll.offsets[0]), "uid": int(poll.uids[0])},
        last_skipped=int(offsets.max()),
    )


def _found(cluster: str, chain: Chain, at: int, kind: str, offset: int, records: int) -> Found:
    poll = chain.polls[int(chain.poll[at + 1])]
    return Found.at(
        kind,
        cluster,
        offset,
        records=records,
        reader=poll.reader,
        isolation=poll.isolation,
        returned=poll.returned,
        before={"offset": int(chain.offset[at]), "uid": int(chain.uid[at])},
        then={"offset": int(chain.offset[at + 1]), "uid": int(chain.uid[at + 1])},
    )


CHECK = Check(
    name="poll-continuity",
    guarantee="""While nothing moves a consumer, it gets all visible records of a partition, without
        a gap and without going back.""",
    source="""Jepsen kafka workload, poll-skip, nonmonotonic-poll, int-poll-skip,
        int-nonmonotonic-poll; KIP-98 (isolation.level); KIP-320 (truncation)""",
    wire="""While each Fetch of one connection begins where the last one led. Any other offset is a
        decision of the program, and begins anew.""",
    inputs={"batches", "records", "sends", "reads", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name="poll-skip",
            meaning="""A visible record lies between the last record of a poll and the first record
                of the next.""",
            sentence="{reader} skipped {n} of {cluster} from {at} on",
            counted="record was skipped by a reader|records were skipped by readers",
            smallest="A has 1 2 3, a consumer got 1, in its next poll 3: at the offset of 2.",
        ),
        AnomalyKind(
            name="poll-regression",
            meaning="""A poll begins at or before the last record of the previous poll, or below the
                position that the consumer reported with that, and nothing had moved it.""",
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
            meaning="""The log was truncated below a consumer's position. The consumer continued at
                its position, without the records that replaced the tail.""",
            sentence="""{reader} stood at {stood_at} of {tp} on {cluster} when the log was truncated
                to {truncated_to}, and skipped {n}""",
            counted="record was skipped by a reader|records were skipped by readers",
            smallest="""A lost 3 of 1 2 3 and got 4 5 from B, a consumer had got 3, then 5: at the
                offset of 4.""",
        ),
        AnomalyKind(
            name="passed-unread",
            meaning="""A consumer passed a visible record, by its assigned and its reported
                positions, and never got it.""",
            sentence="{reader} passed {who} at {at} on {cluster} unread",
            counted="record was passed unread|records were passed unread",
            smallest="""A has 1 2, a consumer was assigned at 0, got 1, and says drained at 2: at
                the offset of 2.""",
        ),
        AnomalyKind(
            name="began-ahead",
            meaning="""A member of a group was assigned a position beyond the group's, and no member
                got the records in between.""",
            sentence="""{reader} began at {began_at} of {tp} on {cluster}, although its group was at
                {group_at}""",
            counted="record was passed unread|records were passed unread",
            smallest="""A has 1 2 3, one member got 1, the next was assigned at 2: at the offset of
                2.""",
        ),
        AnomalyKind(
            name="drained-early",
            meaning="""A consumer reported that it had read to the end, at a position below a last
                stable offset that was sampled while clients were still writing.""",
            sentence="""{reader} stopped at {stood_at} of {tp} on {cluster}, before the last stable
                offset {last_stable}""",
            counted="record was not read in the end|records were not read in the end",
            smallest="""A has 1 2, its last stable offset was sampled as 2 while clients wrote, a
                consumer got 1, and says drained at 1: at the offset of 2.""",
        ),
        AnomalyKind(
            name="position-beyond-end",
            meaning="""A consumer reported a position that the log never reached; the offset is the
                log's end.""",
            sentence="""{reader} stands at {position} of {tp} on {cluster}, whose log ends at
                {log_end}""",
            alone="the reader skips what is written up to there",
            smallest="A has 1, a consumer got 1, and says drained at 5: at offset 1.",
        ),
    ),
    complete={"reads", "promotions"},
    follows={
        "read-committed-visibility",
        "truncation-accounting",
        "inconsistent-offset",
        "lost-write",
    },
    kernel=kernel,
    unit="polls",
    judges_readers=True,
)
