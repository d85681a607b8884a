"""Every transaction ends in one marker of its epoch or a later one; nothing of a lower epoch follows a marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Place, Plain, PlainLog, transactions
from tests.oracles.story import PlainLife, Story, kept

EACH: frozenset[str] = frozenset()


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every():
            log = story.log(life)
            if log is not None:
                places = [*_epochs(log), *_went_on(plain, life, log), *_stale(life, log)]
                found += [plain.place(kind, life.cluster, offset) for kind, offset in places if kept(life, offset)]
    return found


def _epochs(log: PlainLog) -> list[tuple[str, int]]:
    found = []
    for each in transactions(log):
        if each.marker is not None and each.marker.producer_epoch < max(each.epochs):
            found.append(("marker-epoch", each.marker.base_offset))
        if min(each.epochs) != max(each.epochs):
            found.append(("marker-missing", each.first))
    return found


def next_operation(log: PlainLog, record: Any) -> Any:
    """The first record of its producer's next operation, if no marker of it lies between the two."""
    if record.state in ("plain", "control") or record.operation < 0:
        return None
    place = next(i for i, r in enumerate(log.records) if r is record)
    for after in log.records[place + 1 :]:
        mine = after.batch.inside and after.batch.producer_id == record.batch.producer_id and after.operation >= 0
        if mine and after.batch.marker is not record.batch.marker:
            return None
        if mine and after.operation != record.operation:
            return after
    return None


def _went_on(plain: Plain, life: PlainLife, log: PlainLog) -> list[tuple[str, int]]:
    """One per record that the next operation begins with: where the operation before it, unended, began."""
    first: dict[int, Any] = {}
    for record in log.records:
        after = next_operation(log, record)
        if after is None or record.batch.producer_epoch != after.batch.producer_epoch:
            continue
        here = [(s, e) for s, e, _, source in life.eras() if s <= record.offset < e and (not source or plain.keeps)]
        if any(s <= record.offset and after.offset < e for s, e in here):
            first.setdefault(id(after), record)
    return [("marker-missing", record.offset) for record in first.values()]


def _stale(life: PlainLife, log: PlainLog) -> list[tuple[str, int]]:
    found = []
    for place, batch in enumerate(log.batches):
        if not batch.data or batch.producer_id < 0 or not batch.crc_ok:
            continue
        before = [b for b in log.batches[:place] if b.ends and b.producer_id == batch.producer_id]
        if not before or life.owner(before[-1].base_offset) != life.owner(batch.base_offset):
            continue
        reset = any(b.reset for b in log.batches[before[-1].row : place])
        if not reset and batch.producer_epoch < before[-1].producer_epoch:
            found.append(("stale-data", batch.base_offset))
    return found
