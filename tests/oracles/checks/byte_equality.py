"""Where a mirror keeps offsets, the mirrored era has the source's batches, byte for byte, at the
same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.kafka_log import crc_with_id
from tests.oracles.checks.replica_agreement import KEPT, changed, ended_is_there
from tests.oracles.mirrored_ranges import Compared, appended, mirrored_ranges
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import Story

DESPITE_TORN = frozenset({"byte-divergence", "byte-hole", "byte-stranger"})
LARGEST = 2**63 - 1


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    mapped: dict[tuple[str, str], list[tuple[Anomaly, list[int]]]] = {}
    for plain in views:
        for compared in mirrored_ranges(plain, Story(plain), far=True) if plain.keeps else ():
            source, destination = compared.source.cluster, compared.destination.cluster
            found += [
                plain.anomaly(kind, destination, offset)
                for kind, offset in _compare(plain, compared)
            ]
            right = _right(plain, compared, *_pairs(plain, compared))
            ours = [b for b in right if b.producer_id != -1]
            if plain.options.get("producer_ids") == "region" and ours and not _far(compared):
                first = plain.anomaly("byte-divergence", destination, ours[0].base_offset)
                regions = [b.producer_id >> 31 for b in ours]
                mapped.setdefault((source, destination), []).append((first, regions))
    # A region names the source's cluster: the partitions of one source cannot have several.
    for partitions in mapped.values():
        usual = _usual([region for _, regions in sorted(partitions) for region in regions])
        found += [first for first, regions in partitions if regions[0] != usual]
    return found


def _compare(plain: Plain, compared: Compared) -> list[tuple[str, int]]:
    ours, theirs, pairs = _pairs(plain, compared)
    right = _right(plain, compared, ours, theirs, pairs)
    found = [("byte-stranger", b.base_offset) for b, source in pairs if source is None]
    for batch, source in pairs:
        if source is None:
            continue
        crc = source.crc
        if mapping(plain, compared) != "keep":
            crc = crc_with_id(crc, source.length, source.producer_id, batch.producer_id)
        expected = (source.last_offset, source.length, crc)
        if (batch.last_offset, batch.length, batch.crc) != expected or batch not in right:
            found.append(("byte-divergence", batch.base_offset))
    found += [
        ("byte-hole", t.base_offset)
        for t in theirs
        if all(t.base_offset != b.base_offset for b in ours)
    ]
    cleaned = max(plain.cleaned(log) for log in (compared.source, compared.destination))
    right_ids = [b.base_offset for b in right]
    return [
        (kind, offset)
        for kind, offset in found
        if offset >= cleaned or _not_by_a_cleaner(plain, compared, kind, offset, right_ids)
    ]


def _pairs(plain: Plain, compared: Compared) -> tuple[list[Any], list[Any], list[tuple[Any, Any]]]:
    """The batches of the destination, those of the source, and of the former each with the latter's
    at its offset."""
    start, end = _mirrored(plain, compared)
    unread = [*compared.source.unread, *compared.destination.unread]
    ours, theirs = (
        [
            b
            for b in log.batches
            if start <= b.last_offset < end
            and not any(first <= b.last_offset and b.base_offset < last for first, last in unread)
        ]
        for log in (compared.destination, compared.source)
    )
    return (
        ours,
        theirs,
        [(b, next((t for t in theirs if t.base_offset == b.base_offset), None)) for b in ours],
    )


def _far(compared: Compared) -> bool:
    return bool(compared.mirrored_range.far)


def mapping(plain: Plain, compared: Compared) -> str:
    how, links = str(plain.options.get("producer_ids")), compared.mirrored_range.far
    if (how in ("negate", "complement") and not (links and links % 2 == 0)) or how == "region":
        return how
    return "keep"


def _right(
    plain: Plain, compared: Compared, ours: list[Any], theirs: list[Any], pairs: list[Any]
) -> list[Any]:
    """The batches whose producer id is what the mapping makes of the source's."""
    how = mapping(plain, compared)
    both = [(b, t) for b, t in pairs if t is not None]
    if how != "region":
        return [b for b, t in both if b.producer_id == _mapped(how, t.producer_id)]
    if _far(compared):
        return [b for b, _ in both]
    alike = [(b, t) for b, t in both if _region(t.producer_id, b.producer_id)]
    region = _usual([b.producer_id >> 31 for b, t in alike if t.producer_id != -1])
    first: dict[int, int] = {}
    for b, t in both:
        if t.producer_id != -1:
            first.setdefault(b.producer_id, t.producer_id)
    return [
        b
        for b, t in alike
        if t.producer_id == -1
        or (b.producer_id >> 31 == region and first[b.producer_id] == t.producer_id)
    ]


def _usual(regions: list[int]) -> int | None:
    """The most frequent one; of several the one that comes first."""
    return max(regions, key=regions.count, default=None)


def _not_by_a_cleaner(
    plain: Plain, compared: Compared, kind: str, offset: int, right: list[int]
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
        ids = ("leader_epoch", "producer_id")
        names = [n for n in (*KEPT, "coordinator_epoch") if n not in ids]
        return offset not in right or bool(changed(ours, theirs, names))
    holder, lacking = (
        (compared.source, compared.destination)
        if kind == "byte-hole"
        else (compared.destination, compared.source)
    )
    batch = theirs if kind == "byte-hole" else ours
    assert batch is not None
    if lacking.torn or not batch.crc_ok or batch.producer_id == -1:
        return False
    holder = with_ids_of(plain, compared, holder, lacking)
    batch = holder.batches[batch.row]
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


def with_ids_of(plain: Plain, compared: Compared, holder: PlainLog, lacking: PlainLog) -> PlainLog:
    """A log with the producer ids that the other end of the mirror has instead: those of a region
    as far as it has their batches."""
    how, first = mapping(plain, compared), dict[int, int]()
    if how == "keep":
        return holder
    for batch in holder.batches if how == "region" else ():
        for twin in lacking.batches:
            if twin.base_offset == batch.base_offset:
                first.setdefault(batch.producer_id, twin.producer_id)

    def mapped(pid: int) -> int:
        if how == "region":
            return pid if pid == -1 else first.get(pid, pid)
        return _mapped(how, pid)

    batches = [
        SimpleNamespace(**{**vars(b), "producer_id": mapped(b.producer_id)}) for b in holder.batches
    ]
    return replace(holder, batches=batches)


def window(plain: Plain, compared: Compared) -> tuple[int, int]:
    """Offsets that both logs must have, up to where one of them is torn."""
    start, end = _mirrored(plain, compared)
    return start, min(end, compared.source.torn_from, compared.destination.torn_from)


def _mirrored(plain: Plain, compared: Compared) -> tuple[int, int]:
    """Offsets that both logs must have."""
    start = max(compared.source.begins, compared.destination.begins, compared.mirrored_range.start)
    own = appended(plain, compared.mirrored_range, compared.destination)
    end = min(compared.destination.end, compared.mirrored_range.end, own)
    # The source's log may have been copied before the destination's.
    earlier = not plain.view.recorded and compared.source.high_watermark_from != "sampled"
    return start, min(end, compared.source.end) if compared.mirrored_range.far or earlier else end


def _mapped(how: Any, pid: int) -> int:
    if pid == -1:
        return -1
    mapped = {"negate": -(pid + 2), "complement": LARGEST - pid - 1}.get(how, pid)
    return (mapped + 2**63) % 2**64 - 2**63


def _region(source: int, destination: int) -> bool:
    """The sign bit and 32 bits of a region, and the lower 31 bits of the id."""
    if source == -1:
        return destination == -1
    return destination < -1 and destination % 2**31 == source % 2**31
