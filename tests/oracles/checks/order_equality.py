"""A mirrored range has the source's committed records in their order, unchanged, without holes or
other records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tests.oracles.mirrored_ranges import (
    FAILOVERS,
    Compared,
    may_repeat,
    mirrored_ranges,
    not_cleaned,
    reaching,
)
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.same_contents import possible as possible
from tests.oracles.story import Story

EACH = frozenset(
    {
        "mirror-hole",
        "mirror-inversion",
        "mirror-divergence",
        "mirror-phantom",
        "mirrored-duplicate",
        "mirrored-aborted",
    }
)


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for compared in mirrored_ranges(plain, Story(plain), far=True):
            cluster = compared.destination.cluster
            if compared.source.torn or compared.destination.torn:
                continue
            # If clients wrote and nothing was promoted, it is unknown which records were mirrored.
            generation = compared.generation
            if all(generation.sources) and any(
                s.cluster == cluster and generation.began <= s.invoked < generation.ended
                for s in plain.sends
            ):
                continue
            for part in (
                _repeats,
                partial(_strangers, plain),
                _holes,
                partial(_inversions, plain),
                _divergences,
            ):
                found += [plain.anomaly(kind, cluster, offset) for kind, offset in part(compared)]
    return found


def _repeats(compared: Compared) -> Iterator[tuple[str, int]]:
    at_source = Counter(r.uid for r in compared.source.records)
    for record in compared.came:
        again = record is not compared.arrived[record.uid] and at_source[record.uid] < 2
        if again and record.uid not in compared.doubted:
            yield "mirrored-duplicate", record.offset


def _strangers(plain: Plain, compared: Compared) -> Iterator[tuple[str, int]]:
    sent, floor = {r.uid for r in compared.sent}, max(compared.source.log_start, compared.gaps)
    lost = (
        {r.uid for r in _unexplained(plain, compared)}
        if compared.gaps and not plain.keeps
        else set()
    )
    for record in compared.came:
        # A segment may begin below the log start offset.
        if record.uid in sent or record.offset < compared.destination.log_start:
            continue
        there = compared.source.of(record.uid)
        if there is not None and there.state in ("aborted", "open"):
            yield "mirrored-aborted", record.offset
        elif (
            record.offset >= floor
            if plain.keeps
            else not compared.source.log_start and (not compared.gaps or record.uid in lost)
        ):
            yield "mirror-phantom", record.offset


def _unexplained(plain: Plain, compared: Compared) -> list[Any]:
    """Mirrored records that the source lacks, and that its cleaner did not remove."""
    source, sent = compared.source, {r.uid: r.offset for r in compared.sent}
    came = [r for r in compared.came if compared.arrived[r.uid] is r]
    came = [r for r in came if r.uid in sent or not source.of(r.uid)]
    there = {r.uid: sent[r.uid] for r in came if r.uid in sent}
    last = max((n for n, r in enumerate(came) if r.uid in there), default=-1)
    below = []
    for n, record in enumerate(came):
        before = [there[r.uid] for r in came[:n] if r.uid in there][-1:] or [-1]
        nth = 0 if n < last else n - last - 1
        if record.uid not in there and before[0] + 1 + nth < compared.gaps:
            below.append(record)
    lost = not_cleaned(
        plain, compared.destination, source, came, there, below,
        since=None, others=reaching(plain, source.cluster),
        once=not may_repeat(plain, compared.destination.cluster, but=FAILOVERS),
    )  # fmt: skip
    return [r for r in came if r.uid not in there and (r not in below or r in lost)]


def _holes(compared: Compared) -> Iterator[tuple[str, int]]:
    """At the offset of the source's next record that arrived, or else of the last before it."""
    for hole in compared.holes:
        at = compared.sent.index(hole)
        near = [r.uid for r in compared.sent[at:] + compared.sent[:at][::-1]]
        yield (
            "mirror-hole",
            next((compared.arrived[u].offset for u in near if u in compared.arrived), -1),
        )


def _inversions(plain: Plain, compared: Compared) -> Iterator[tuple[str, int]]:
    index = {r.uid: n for n, r in enumerate(compared.sent)}
    reached = -1
    for record in compared.came:
        if record.uid in index and record is compared.arrived[record.uid]:
            late = index[record.uid] < reached
            behind = [r for r in compared.came if index.get(r.uid, -1) >= reached][:1]
            if late and not _again(plain, compared, record, behind[0]):
                yield "mirror-inversion", record.offset
            if record.uid not in compared.doubted:
                reached = max(reached, index[record.uid])


def _again(plain: Plain, compared: Compared, record: Any, behind: Any) -> bool:
    """Whether a record may be a later copy of one that was there before another, and that a cleaner
    took: its own log's, or before that one of the logs that the mirror read."""
    log = compared.destination
    if not may_repeat(plain, log.cluster, but=FAILOVERS):
        return False
    if any(plain.compacted.get(cluster) for cluster in reaching(plain, log.cluster)):
        return True
    markers = [b.base_offset for b in log.batches if not b.data and b.count]
    before = [o for o in [*markers, *(r.offset for r in log.records)] if o < behind.offset]
    missing = behind.offset > len(before)
    return missing and bool(record.offset < plain.compacted.get(log.cluster, 0))


def _divergences(compared: Compared) -> Iterator[tuple[str, int]]:
    sent = {r.uid: r for r in compared.sent}
    for record in compared.came:
        if record.uid in sent and sent[record.uid].digest != record.digest:
            yield "mirror-divergence", record.offset
