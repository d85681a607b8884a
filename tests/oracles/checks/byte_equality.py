"""Where a mirror keeps offsets, the mirrored era has the source's batches, byte for byte, at the
same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.checks.replica_agreement import KEPT, changed, ended_is_there
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
    found = [
        (kind, offset)
        for kind, offset in found
        if offset >= cleaned or _not_by_a_cleaner(plain, compared, kind, offset, mapped=mapped)
    ]
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


def _not_by_a_cleaner(
    plain: Plain, compared: Compared, kind: str, offset: int, *, mapped: bool
) -> bool:
    """Whether two batches differ in more than a log cleaner changes, or one is missing that it
    keeps: a marker of a transaction that is there, or a producer's last batch."""
    logs = {
        log.cluster: next((b for b in log.batches if b.base_offset == offset), None)
        for log in (compared.source, compared.destination)
    }
    ours, theirs = logs[compared.destination.cluster], logs[compared.source.cluster]
    if kind == "byte-divergence":
        assert ours is not None
        assert theirs is not None
        names = [n for n in (*KEPT, "coordinator_epoch") if n != "leader_epoch"]
        differing = changed(ours, theirs, [n for n in names if n != "producer_id" or not mapped])
        if mapped and not changed(ours, theirs, MAPPED):
            return True  # then it is the id
        return bool(differing)
    holder, lacking = (
        (compared.source, compared.destination)
        if kind == "byte-hole"
        else (compared.destination, compared.source)
    )
    batch = theirs if kind == "byte-hole" else ours
    assert batch is not None
    if lacking.torn or not batch.crc_ok or batch.producer_id < 0:
        return False
    if not batch.data:
        return ended_is_there(holder, batch, lacking)
    later = [b for log in (holder, lacking) for b in log.batches if b.base_offset > offset]
    superseded = [
        b
        for b in later
        if b.reset
        or (
            b.producer_id == batch.producer_id
            and (b.data or b.producer_epoch > batch.producer_epoch)
        )
    ]
    return plain.view.recorded and not superseded


def window(plain: Plain, compared: Compared) -> tuple[int, int]:
    """Offsets that both logs must have and that are readable in both."""
    start = max(compared.source.begins, compared.destination.begins, compared.mirrored_range.start)
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
