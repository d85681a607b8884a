"""Where a mirror keeps offsets, the mirrored era has the source's batches, byte for byte, at the
same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.mirrored_ranges import Compared, appended, mirrored_ranges
from tests.oracles.plain import Anomaly, Plain
from tests.oracles.story import Story

EACH: frozenset[str] = frozenset()
DESPITE_TORN = frozenset({"byte-divergence", "record-divergence", "byte-hole", "byte-stranger"})
BESIDE = "only one of the two clusters was changed, so their bytes differ at one offset"
BYTES = ("last_offset", "length", "crc")
MAPPED = (
    "last_offset",
    "length",
    "count",
    "producer_epoch",
    "base_sequence",
    "transactional",
    "control",
    "coordinator_epoch",
)
LARGEST = 2**63 - 1


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        for compared in mirrored_ranges(plain, Story(plain), far=True) if plain.keeps else ():
            found += [
                plain.anomaly(kind, compared.destination.cluster, offset)
                for kind, offset in _compare(plain, compared)
            ]
    return found


def _compare(plain: Plain, compared: Compared) -> list[tuple[str, int]]:
    start, end = window(plain, compared)
    ours = [b for b in compared.destination.batches if start <= b.last_offset < end]
    theirs = [b for b in compared.source.batches if start <= b.last_offset < end]
    how, links = plain.options.get("producer_ids"), compared.mirrored_range.far
    if how in ("negate", "complement") and links and links % 2 == 0:
        how = "keep"
    mapped = how in ("negate", "complement", "region")
    pairs = [(b, next((t for t in theirs if t.base_offset == b.base_offset), None)) for b in ours]
    regions = {b.producer_id >> 31 for b, t in pairs if t is not None and t.producer_id != -1}
    found = []
    for batch, source in pairs:
        if source is None:
            found.append(("byte-stranger", batch.base_offset))
            continue
        same = all(
            getattr(batch, name) == getattr(source, name) for name in (MAPPED if mapped else BYTES)
        )
        if how == "region":
            right = links > 0 or _region(
                source.producer_id, batch.producer_id, one=len(regions) <= 1
            )
        else:
            right = batch.producer_id == _mapped(how, source.producer_id)
        if not (same and right):
            found.append(("byte-divergence", batch.base_offset))
    found += [
        ("byte-hole", t.base_offset)
        for t in theirs
        if all(t.base_offset != b.base_offset for b in ours)
    ]
    cleaned = max(plain.cleaned(log) for log in (compared.source, compared.destination))
    found = [(kind, offset) for kind, offset in found if offset >= cleaned]
    if mapped:
        inside = [
            (r, compared.source.at(r.offset))
            for r in compared.destination.records
            if start <= r.offset < end
        ]
        found += [
            ("record-divergence", r.offset)
            for r, s in inside
            if s is not None and s.digest != r.digest
        ]
    return found


def window(plain: Plain, compared: Compared) -> tuple[int, int]:
    """Offsets that both logs must have and that are readable in both."""
    start = max(
        compared.source.log_start, compared.destination.log_start, compared.mirrored_range.start
    )
    own = appended(plain, compared.mirrored_range, compared.destination)
    end = min(compared.destination.end, compared.mirrored_range.end, own)
    end = min(end, compared.source.torn_from, compared.destination.torn_from)
    return start, min(end, compared.source.end) if compared.mirrored_range.far else end


def _mapped(how: Any, pid: int) -> int:
    if pid == -1:
        return -1
    mapped = {"negate": -(pid + 2), "complement": LARGEST - pid - 1}.get(how, pid)
    return (mapped + 2**63) % 2**64 - 2**63


def _region(source: int, destination: int, *, one: bool) -> bool:
    """The sign bit and 32 bits of one region, and the lower 31 bits of the id."""
    if source == -1:
        return destination == -1
    return destination < -1 and destination % 2**31 == source % 2**31 and one
