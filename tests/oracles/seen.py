"""Assigns reads and watermark samples to the log before or after a truncation, for a cluster that
becomes a mirror's destination while readers and samplers continue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from tests.oracles.plain import PlainLog

Reversal = tuple[int, int, int, int, PlainLog | None, PlainLog | None]
"""When a reversal began, when it truncated the log, and when it ended; the offset it truncated to;
the log before and after."""


def reads_by_log(reads: Sequence[Any], turns: Sequence[Reversal]) -> list[list[Any]]:
    """The reads of one cluster, for each of its logs."""
    found: list[list[Any]] = []
    for began, truncated, ended, _, before, after in turns:
        mine = [r for r in reads if r.returned <= began]
        during = [r for r in reads if r.returned > began and r.time < ended]
        rest = [r for r in reads if r.returned > began and r.time >= ended]
        for who in {(r.reader, r.process) for r in during}:
            rows = sorted(
                (r for r in during if (r.reader, r.process) == who), key=lambda r: r.returned
            )
            parts = _separated(rows, truncated, before, after)
            last = max((row.returned for row, old, _ in parts if old), default=-1)
            for row, old, new in parts:
                # The last poll with records of the old log may return after the truncation: its
                # position may be one of the new log.
                mine += _only(row, old, sure=row.returned < last or row.returned <= truncated)
                rest += _only(row, new)
        found.append(sorted(mine, key=_order))
        reads = sorted(rest, key=_order)
    return [*found, list(reads)]


def _order(read: Any) -> tuple[int, int, str]:
    return read.returned, read.time, read.reader


def _separated(
    rows: Sequence[Any], truncated: int, before: PlainLog | None, after: PlainLog | None
) -> list[Any]:
    """Per row, the indexes of the records from the log before the truncation and of those from the
    log after it ([None]: a row without records)."""
    items = [(row, i) for row in rows for i in (range(len(row.offsets)) or [None])]
    old_ones = [i is not None and _has(before, r, i) and not _has(after, r, i) for r, i in items]
    new_ones = [i is not None and _has(after, r, i) and not _has(before, r, i) for r, i in items]
    proofs = [
        n for n, (r, i) in enumerate(items) if new_ones[n] or (i is None and r.time >= truncated)
    ]
    end = min(proofs, default=len(items))
    late = [n for n, (r, _) in enumerate(items) if r.returned > truncated]
    turn = min(
        [end, max([min(late, default=len(items)), *(n + 1 for n in range(end) if old_ones[n])])]
    )
    return [
        (
            row,
            [i for n, (r, i) in enumerate(items) if r is row and n < turn],
            [i for n, (r, i) in enumerate(items) if r is row and n >= turn],
        )
        for row in rows
    ]


def _has(log: PlainLog | None, row: Any, i: int) -> bool:
    record = None if log is None else log.at(row.offsets[i])
    return (
        record is not None
        and record.uid == row.uids[i]
        and (record.visible or row.isolation != "read_committed")
    )


def _only(row: Any, some: Sequence[int | None], *, sure: bool = True) -> list[Any]:
    """A row with some of its records. Unless its position is `sure`, it becomes the one after these
    records."""
    if not some or some == [None]:
        return [row] if some else []
    if len(some) == len(row.offsets) and sure:
        return [row]
    offsets, uids = ([values[i] for i in some] for values in (row.offsets, row.uids))
    position = row.position if sure and some[-1] == len(row.offsets) - 1 else offsets[-1] + 1
    return [SimpleNamespace(**vars(row) | {"offsets": offsets, "uids": uids, "position": position})]


def marks_by_log(marks: Sequence[Any], turns: Sequence[Reversal]) -> list[list[Any]]:
    """The samples of one cluster, per log that it had."""
    edges, marks = [0], list(marks)
    for began, truncated, ended, truncated_to, _, _ in turns:
        first = next(
            (n for n, m in enumerate(marks) if m.returned > truncated and m.high_watermark >= 0),
            len(marks),
        )
        epoch = marks[first].leader_epoch if first < len(marks) else None
        near = [
            n
            for n, m in enumerate(marks)
            if m.returned > began
            and m.time < ended
            and m.leader_epoch in (epoch, -1)
            and m.high_watermark >= 0
        ]
        falls = [
            n
            for last, n in pairwise(near)
            if max(truncated_to, marks[n].high_watermark) < marks[last].high_watermark
        ]
        known = [n for n, m in enumerate(marks) if m.high_watermark >= 0]
        stood = [
            n
            for n in known
            if first < len(marks)
            and marks[n].high_watermark == marks[first].high_watermark
            and marks[n].leader_epoch == epoch
        ]
        before = [n for n in known if n < first][-1:]
        later = [n for n in known if n > first and n not in stood][:1]
        if first < len(marks) and marks[first].high_watermark <= truncated_to:
            falls = [n for n in falls if n <= first]
        elif (
            later
            and (marks[first].time <= truncated or (before and before[0] in stood))
            and marks[later[0]].time < ended
            and marks[later[0]].high_watermark <= truncated_to
        ):
            falls = later
        falls = [n for n in falls if marks[n].high_watermark <= truncated_to] or falls
        edge = falls[0] if falls and epoch is not None else first
        if edge < len(marks) and marks[edge].time < ended:
            # Only its high watermark was surely read after the truncation.
            unsaid = {"log_start": -1, "last_stable": -1}
            marks[edge] = SimpleNamespace(**vars(marks[edge]) | unsaid)
        edges.append(edge)
    ends = [*edges[1:], len(marks)]
    return [list(marks[start : max(start, end)]) for start, end in zip(edges, ends, strict=True)]
