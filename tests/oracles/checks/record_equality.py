"""With a mirror that keeps offsets, the mirrored era has the source's record at every
offset, in any batching."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.kafka_log import crc_with_id
from tests.oracles.checks.byte_equality import mapping, window, with_ids_of
from tests.oracles.checks.replica_agreement import may_go
from tests.oracles.cleaned import deleted_since
from tests.oracles.mirrored_ranges import Compared, mirrored_ranges
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import Story

EACH = frozenset({"record-divergence", "record-hole", "record-stranger"})
DESPITE_TORN = frozenset({"record-divergence", "record-hole", "record-stranger"})
HEADER = ("base_offset", "last_offset", "length", "count")


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        if plain.keeps:
            for compared in mirrored_ranges(plain, Story(plain), far=True):
                found += [
                    plain.anomaly(kind, compared.destination.cluster, at)
                    for kind, at in _compare(plain, compared)
                ]
    return found


def _compare(plain: Plain, compared: Compared) -> list[tuple[str, int]]:
    start, end = window(plain, compared)
    source, destination = compared.source, compared.destination
    mapped = mapping(plain, compared) != "keep"
    ours = {
        r.offset: r
        for r in destination.records
        if start <= r.offset < end and not _proven(r.batch, source, mapped=mapped)
    }
    theirs = {
        r.offset: r
        for r in source.records
        if start <= r.offset < end and not _proven(r.batch, destination, mapped=mapped)
    }
    strangers = _kept(
        plain,
        ours.keys() - theirs.keys(),
        with_ids_of(plain, compared, destination, source),
        source,
        end,
    )
    holes = _kept(
        plain,
        theirs.keys() - ours.keys(),
        with_ids_of(plain, compared, source, destination),
        destination,
        end,
    )
    found = [("record-stranger", offset) for offset in strangers]
    found += [("record-hole", offset) for offset in holes]
    both = [(ours[o], theirs[o]) for o in ours.keys() & theirs.keys()]
    return found + [
        ("record-divergence", a.offset) for a, b in both if (a.digest, a.uid) != (b.digest, b.uid)
    ]


def _kept(
    plain: Plain, offsets: Iterable[int], holder: PlainLog, lacking: PlainLog, end: int
) -> list[int]:
    """Offsets of which one side lacks the record, although no log cleaner removes it."""
    upto = plain.compacted.get(lacking.cluster, 0)
    above = [o for o in offsets if o >= upto]
    below = [o for o in offsets if o < upto]
    parts = {p.offset: p for p in holder.parts}
    if any(o not in parts for o in below):
        return above
    known = [r for r in plain.replicas if r.cluster == lacking.cluster]
    kept = []
    for o in below:
        goes = may_go(plain, lacking, holder, parts[o], known, upto, end)
        if goes is False:
            goes = deleted_since(plain, lacking, parts[o].key, end, upto)
        kept += [o] if goes is False else []
    return above + kept


def _proven(batch: Any, other: PlainLog, *, mapped: bool) -> bool:
    """Whether the other log has a batch with the same header and CRC, both correct: its records are
    then the same."""
    twin = next((b for b in other.batches if b.base_offset == batch.base_offset), None)
    if twin is None or not (batch.crc_ok and twin.crc_ok):
        return False
    crc = twin.crc
    if mapped:
        crc = crc_with_id(crc, twin.length, twin.producer_id, batch.producer_id)
    alike = all(getattr(batch, name) == getattr(twin, name) for name in HEADER)
    return alike and bool(batch.crc == crc)
