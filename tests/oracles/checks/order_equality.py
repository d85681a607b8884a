"""A mirrored range has the source's committed records in their order, unchanged, without holes or
other records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import Anomaly, Plain
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
BESIDE = "the payloads of only one of the two clusters were changed"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for compared in mirrored_ranges(plain, Story(plain), far=True):
            cluster = compared.destination.cluster
            if compared.source.torn or compared.destination.torn:
                continue
            # If clients wrote and nothing was promoted, it is unknown which records were mirrored.
            if all(compared.generation.sources) and any(s.cluster == cluster for s in plain.sends):
                continue
            for part in (_repeats, partial(_strangers, plain), _holes, _inversions, _divergences):
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
    for record in compared.came:
        # A segment may begin below the log start offset.
        if record.uid in sent or record.offset < compared.destination.log_start:
            continue
        there = compared.source.of(record.uid)
        if there is not None and there.state in ("aborted", "open"):
            yield "mirrored-aborted", record.offset
        elif record.offset >= (floor if plain.keeps else 0) and (plain.keeps or not floor):
            yield "mirror-phantom", record.offset


def _holes(compared: Compared) -> Iterator[tuple[str, int]]:
    """At the offset of the source's next record that arrived."""
    for hole in compared.holes:
        after = compared.sent[compared.sent.index(hole) :]
        yield (
            "mirror-hole",
            next(compared.arrived[r.uid].offset for r in after if r.uid in compared.arrived),
        )


def _inversions(compared: Compared) -> Iterator[tuple[str, int]]:
    index = {r.uid: n for n, r in enumerate(compared.sent)}
    reached = -1
    for record in compared.came:
        if record.uid in index and record is compared.arrived[record.uid]:
            if index[record.uid] < reached:
                yield "mirror-inversion", record.offset
            if record.uid not in compared.doubted:
                reached = max(reached, index[record.uid])


def _divergences(compared: Compared) -> Iterator[tuple[str, int]]:
    sent = {r.uid: r for r in compared.sent}
    for record in compared.came:
        if record.uid in sent and sent[record.uid].digest != record.digest:
            yield "mirror-divergence", record.offset
