"""A producer's sequence begins at 0 in every epoch, and rises without gap or repeat, modulo 2^31."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles.plain import Place, Plain, PlainLog
from tests.oracles.story import Story, kept

EACH: frozenset[str] = frozenset()
WRAP = 2**31


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every():
            log = story.log(life)
            last: dict[tuple[int, str, int], Any] = {}
            resets = 0
            known = plain.view.recorded and not plain.compacted.get(life.cluster)
            for batch in log.batches if log else ():
                resets += batch.reset
                if not (batch.data and batch.producer_id >= 0 and batch.crc_ok):
                    continue
                if batch.base_sequence < 0:
                    if kept(life, batch.base_offset):
                        found.append(plain.place("no-sequence", life.cluster, batch.base_offset))
                    continue
                key = (batch.producer_id, life.owner(batch.base_offset), resets)
                kind = _kind(last.get(key), batch, anywhere=log.log_start > 0 or resets > 0)
                if not known and kind.startswith("sequence") and _missing(log, last.get(key), batch):
                    # Compaction, or loss.
                    kind = ""
                last[key] = batch
                if kind and kept(life, batch.base_offset):
                    found.append(plain.place(kind, life.cluster, batch.base_offset))
    return found


def _missing(log: PlainLog, before: Any, batch: Any) -> bool:
    """Whether offsets are missing between two batches, or before the first, that one included."""
    end = log.log_start
    for each in log.batches[: batch.row + 1]:
        hole = each.base_offset > end or each.count != each.last_offset - each.base_offset + 1
        if hole and (before is None or each.row > before.row):
            return True
        end = each.last_offset + 1
    return False


def _kind(before: Any, batch: Any, *, anywhere: bool) -> str:
    if before is None or batch.producer_epoch > before.producer_epoch:
        began = batch.base_sequence == 0 or (before is None and anywhere)
        return "" if began else "sequence-start"
    if batch.producer_epoch < before.producer_epoch:
        return "epoch-regression"
    expected = (before.last_sequence + 1) % WRAP
    if batch.base_sequence == expected:
        return ""
    return "sequence-repeat" if (expected - batch.base_sequence) % WRAP < WRAP // 2 else "sequence-gap"
