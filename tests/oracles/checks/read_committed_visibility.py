"""A read_committed reader gets every committed and plain record of the range that it passes, and
nothing else; nobody gets what the log does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.checks.aborted_read import sent
from tests.oracles.checks.inconsistent_offset import truncated_since
from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.promises import never_committed
from tests.oracles.story import Story

EACH = frozenset({"hidden-committed", "phantom-read"})
BESIDE = "readers got records that are not visible any more, or passed records that now are"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            if log is None:
                continue
            cleaned = plain.compacted.get(generation.cluster, 0)
            polls = story.polls(generation)
            reads = [r for r in story.reads(generation) if r.isolation == "read_committed"]
            for name in {r.group or r.reader for r in (*polls, *reads)}:
                given, mine = (
                    [r for r in rows if (r.group or r.reader) == name] for rows in (polls, reads)
                )
                suspects = [
                    (kind, at)
                    for kind, at in _phantoms(plain, generation, log, given)
                    if at >= cleaned or log.at(at) is not None
                ]
                suspects += _hidden(log, sorted(mine, key=lambda r: r.returned), given)
                found += [plain.anomaly(kind, generation.cluster, at) for kind, at in suspects]
    return found


def _got(reads: Sequence[Any]) -> list[tuple[int, int]]:
    return [pair for r in reads if r.kind == "poll" for pair in zip(r.offsets, r.uids, strict=True)]


def _phantoms(
    plain: Plain, generation: PlainGeneration, log: PlainLog, reads: Sequence[Any]
) -> list[tuple[str, int]]:
    wrong = set()
    for read in reads:
        for offset, uid in _got([read]):
            record = log.at(offset)
            same = record is not None and record.uid == uid
            right = same and (
                record.visible
                or read.isolation == "read_uncommitted"
                or _late(plain, generation, record, read)
            )
            truncated = read.isolation == "read_uncommitted" and offset >= truncated_since(
                plain, read
            )
            if offset >= log.log_start and not right and not truncated:
                wrong.add(offset)
    return [("phantom-read", offset) for offset in wrong]


def _late(plain: Plain, generation: PlainGeneration, record: Any, read: Any) -> bool:
    """Whether a coordinator that was started for a failback may have committed transactions that
    were open at the capture of its cluster."""
    if generation.last or record.state != "open" or read.returned <= generation.ended:
        return False
    send = sent(plain, record.uid)
    return (
        send is not None
        and (send.cluster, send.ending) == (generation.cluster, "commit")
        and not never_committed(send)
    )


def _hidden(log: PlainLog, reads: Sequence[Any], given: Sequence[Any]) -> list[tuple[str, int]]:
    """What some member of a group passed and no member got."""
    got = {offset for offset, _ in _got(given)}
    covered: set[int] = set()
    for who in {(r.reader, r.process) for r in reads}:
        for start, end in passed([r for r in reads if (r.reader, r.process) == who]):
            covered |= set(range(start, end))
    return [
        ("hidden-committed", r.offset)
        for r in log.records
        if r.visible and r.offset in covered and r.offset not in got
    ]


def passed(reads: Sequence[Any]) -> list[tuple[int, int]]:
    """Ranges in which one reader continued without being moved."""
    found: list[tuple[int, int]] = []
    at: tuple[int, int] | None = None
    for read in reads:
        if read.kind in ("assign", "revoke", "error"):
            found += [at] if at else []
            at = None
        elif read.kind == "poll" and read.offsets:
            if at and read.offsets[0] < at[1]:
                found.append(at)
                at = None
            at = (at[0] if at else read.offsets[0], max(read.position, read.offsets[-1] + 1))
    return [*found, at] if at else found
