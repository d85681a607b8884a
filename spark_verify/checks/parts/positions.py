"""Positions that consumers report: when assigned, after polls, at revocations and when drained.

A consumer passed everything from its assignment to the last position that it reported before it was
moved. So it, or another member of its group, must have got every record there that its isolation
level can see. A position counts markers and aborted records too (`harness.workloads.readers`), and
an end-of-partition notice moves it without a record. Records below any sampled log start, or where
a cleaner has been, need not have been got. And a log that is truncated below the consumer's
position begins anew: records above the truncation were of another log.

A rebalance is recorded during the poll that serves it. The result of that poll may be from before
or after it, so its records count as got, and its position proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.generation_truncations import marks_in, truncations_in
from linkflap.spark_verify.checks.parts.generations import end_of, truncated
from linkflap.spark_verify.checks.parts.logs import Log, among, locate
from linkflap.spark_verify.checks.parts.lost_records import Taken
from linkflap.spark_verify.checks.parts.passed_ranges import (
    Passed,
    Truncations,
    kept_until,
    passed,
    position_of,
    rows_before,
)
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Ints, PartitionView


def visible_to(log: Log | None, isolation: str) -> Ints:
    """The offsets of what a consumer gets, in order."""
    if log is None:
        return np.empty(0, np.int64)
    offsets = log.replica.records.offset
    return np.sort(offsets[log.visible] if isolation == "read_committed" else offsets)


def available_from(view: PartitionView, generation: LogGeneration, log: Log) -> int:
    """The offset from which on the present log was available to everybody: above every log start,
    and above the cleaned part."""
    marks = marks_in(view, generation)
    sampled = int(marks.log_start.max()) if marks is not None and len(marks.log_start) else 0
    return max(sampled, log.replica.log_start, view.compacted.get(generation.cluster, 0))


def unread(there: Ints, over: Passed, floor: int) -> Ints:
    """The offsets of what can be seen of a range, and was not got."""
    due = there[np.searchsorted(there, max(over.start, floor)) : np.searchsorted(there, over.end)]
    return due[~among(due, over.got)]


def beyond_end(rows: Sequence[Read], end: int, truncations: Truncations) -> Read | None:
    """The first row of a consumer whose position no log of this generation reached; of one that was
    seen to be in it.

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
    """Where consumers that share their positions (a group) were at `before`, and one was assigned
    beyond that."""

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
        # Not what was committed: a group that committed more than it had passed loses that with its
        # next member.
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
    taken = Taken(view, generation.cluster)
    promised = required_end(view, generation, truncations) if generation.last else -1
    end = end_of(view, generation)
    for rows in consumers(reads):
        there = visible_to(log, rows[0].isolation)
        # While a reversal lasts of which no truncation is written down, a position may be of either
        # log.
        surely = (
            rows
            if generation.last or truncated(view, generation)
            else [row for row in rows if row.returned <= generation.ended]
        )
        beyond = beyond_end(surely, end, truncations)
        if beyond is not None:
            evidence = {
                **_of(beyond),
                "position": position_of(beyond),
                "log_end": end,
                "row": beyond.kind,
            }
            yield Found(
                kind="position-beyond-end",
                cluster=generation.cluster,
                offset=end,
                evidence=evidence,
            )
        for over in passed(rows, truncations, rows_before(view, generation, rows)):
            gone = _not_skipped(unread(there, over, floor), over.last, skips)
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
    got = np.concatenate([np.empty(0, np.int64), *(r.offsets for r in rows if r.kind == "poll")])
    due = there[
        np.searchsorted(there, max(done.position, floor)) : np.searchsorted(there, promised)
    ]
    gone = _not_skipped(due[~among(due, got)], done, skips)
    yield from _missed(
        "drained-early", log, done, gone, stood_at=done.position, last_stable=promised
    )


def _ahead(
    view: PartitionView, log: Log, reads: Sequence[Read], floor: int, skips: Sequence[Found]
) -> Iterator[Found]:
    """The records that no member of a group got on any cluster: a mirror may have translated its
    offset."""
    together: dict[tuple[str, int], list[Read]] = {}
    for rows in consumers(reads):
        together.setdefault(
            (rows[0].group, -1) if rows[0].group else (rows[0].reader, rows[0].process), []
        ).extend(rows)
    for rows in together.values():
        gaps = list(ahead(sorted(rows, key=attrgetter("returned"))))
        if not gaps:
            continue
        there = visible_to(log, rows[0].isolation)
        group = rows[0].group
        everywhere = [r for r in view.reads if r.group == group] if group else rows
        had = np.concatenate(
            [np.empty(0, np.int64), *(r.uids for r in everywhere if r.kind == "poll")]
        )
        for gap in gaps:
            due = there[
                np.searchsorted(there, max(gap.before, floor)) : np.searchsorted(
                    there, gap.row.position
                )
            ]
            gone = _not_skipped(due[~among(_uids(log, due), had)], gap.row, skips)
            yield from _missed(
                "began-ahead", log, gap.row, gone, began_at=gap.row.position, group_at=gap.before
            )


def consumers(reads: Sequence[Read]) -> Iterator[list[Read]]:
    """The rows of each consumer, in the order of their return."""
    ordered = sorted(reads, key=attrgetter("reader", "process", "returned"))
    return (list(rows) for _, rows in groupby(ordered, attrgetter("reader", "process")))


def _not_skipped(offsets: Ints, row: Read, skips: Sequence[Found]) -> Ints:
    """Without what lies between two records of the same reader's polls, and was found there."""
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
    """One anomaly for all that a consumer missed of one range."""
    if len(offsets):
        first, last = int(offsets[0]), int(offsets[-1])
        evidence = {
            "records": len(offsets),
            "uid": int(_uids(log, offsets[:1])[0]),
            **_of(row),
            **more,
            "last_missed": last,
        }
        yield Found(kind=kind, cluster=log.replica.cluster, offset=first, evidence=evidence)


def _uids(log: Log, offsets: Ints) -> Ints:
    at = locate(log.replica.records.offset, offsets)
    return np.asarray(log.replica.records.uid[at])


def _of(row: Read) -> dict[str, object]:
    return {
        "reader": row.reader,
        "isolation": row.isolation,
        "group": row.group,
        "returned": row.returned,
    }
