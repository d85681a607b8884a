"""A producer's sequence begins at 0 in every epoch, and rises without gap or repeat, modulo
2^31."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracles import sections
from tests.oracles.mirrored_ranges import reaching
from tests.oracles.plain import Anomaly, Plain, PlainLog
from tests.oracles.story import PlainGeneration, Story, kept

DESPITE_TORN = frozenset({"sequence-repeat", "no-sequence", "epoch-regression"})
WRAP = 2**31


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            log = story.log(generation)
            for batch in log.batches if log else ():
                assert log is not None
                for kind in (
                    _kinds(plain, story, generation, log, batch)
                    if kept(generation, batch.base_offset)
                    else ()
                ):
                    found.append(plain.anomaly(kind, generation.cluster, batch.base_offset))
    return found


def _kinds(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog, batch: Any
) -> set[str]:
    if not (batch.data and batch.producer_id >= 0 and batch.crc_ok):
        return set()
    if batch.base_sequence < 0:
        return {"no-sequence"}
    earlier = [b for b in sections.tracked(log) if b.row < batch.row]
    kind = _broken(plain, story, generation, log, batch, earlier)
    if any(_same_bytes(b, batch) for b in earlier):
        return {"sequence-repeat", "epoch-regression"} & {kind, "sequence-repeat"}
    return {kind} - {""}


def _same_bytes(one: Any, other: Any) -> bool:
    names = ("producer_id", "producer_epoch", "base_sequence", "length", "crc")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _broken(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    log: PlainLog,
    batch: Any,
    earlier: list[Any],
) -> str:
    mine = [b for b in earlier if b.producer_id == batch.producer_id]
    mine = [
        b for b in mine if generation.owner(b.base_offset) == generation.owner(batch.base_offset)
    ]
    here = [b for b in mine if sections.resets_before(log, b) == sections.resets_before(log, batch)]
    kind = _in_turn(here[-1], batch) if here else _first(generation, log, batch, mine)
    if kind.startswith("sequence") and _compacted(
        plain, story, generation, log, here[-1] if here else None, batch, kind
    ):
        return ""
    if kind == "sequence-start" and not here and generation.cluster in plain.view.unclear:
        return ""
    # KAFKA-15591, or a loss: only a history tells.
    new = all(b.producer_id != batch.producer_id for b in log.batches[: batch.row])
    resets = sections.resets_before(log, batch)
    if kind == "sequence-start" and new and not plain.view.recorded and not resets:
        return ""
    if (
        kind == "sequence-start"
        and sections.beginning(plain, story, generation, log, batch) != "new"
    ):
        return ""
    return kind


def _in_turn(before: Any, batch: Any) -> str:
    """The anomaly, if any, of a batch that follows another batch of its owner without a reset in
    between."""
    if batch.producer_epoch > before.producer_epoch:
        return "" if batch.base_sequence == 0 else "sequence-start"
    if batch.producer_epoch < before.producer_epoch:
        return "epoch-regression"
    expected = (before.last_sequence + 1) % WRAP
    if batch.base_sequence == expected:
        return ""
    return (
        "sequence-repeat" if (expected - batch.base_sequence) % WRAP < WRAP // 2 else "sequence-gap"
    )


def _first(generation: PlainGeneration, log: PlainLog, batch: Any, mine: list[Any]) -> str:
    """The anomaly, if any, of the first batch of its owner in the log or after a reset."""
    last = mine[-1] if mine else None
    if (
        last is not None
        and last.producer_epoch == batch.producer_epoch
        and sections.known_before(generation, log, batch)
    ):
        return "sequence-repeat" if _in_turn(last, batch) == "sequence-repeat" else ""
    owned = sections.known_before(generation, log, batch) or sections.maybe_before(
        generation, log, batch
    )
    begins = batch.base_sequence == 0 or owned or sections.deleted(generation, log, batch)
    return "" if begins else "sequence-start"


def _compacted(
    plain: Plain,
    story: Story,
    generation: PlainGeneration,
    log: PlainLog,
    before: Any,
    batch: Any,
    kind: str,
) -> bool:
    """Whether the log cleaner may have removed what is missing before a batch; of what is repeated
    nothing is. In copied logs it may wherever offsets are missing: compaction cannot be
    distinguished from loss."""
    if not plain.view.recorded:
        return _missing(log, before, batch)
    if kind == "sequence-repeat":
        return False
    same = before is not None and before.producer_epoch == batch.producer_epoch
    lacking = (batch.base_sequence - (before.last_sequence + 1 if same else 0)) % WRAP
    cluster = generation.cluster
    copied = max((r.end for r in story.mirrored_ranges if r.destination == cluster), default=0)
    before_copied = [plain.compacted.get(each, 0) for each in reaching(plain, cluster)]
    own = plain.compacted.get(cluster, 0)
    below = range(max(own, min(copied, max(before_copied, default=0))))
    there = {o for b in log.batches for o in range(b.base_offset, b.last_offset + 1)}
    resets = [b.last_offset + 1 for b in log.batches[: batch.row] if b.reset]
    since = before.last_offset + 1 if before is not None else max(resets, default=log.log_start)
    return len([o for o in below if since <= o < batch.base_offset and o not in there]) >= int(
        lacking
    )


def _missing(log: PlainLog, before: Any, batch: Any) -> bool:
    """Whether offsets are missing between two batches, or before the first one since the last reset
    (inclusive)."""
    end, since = (
        log.log_start,
        max([b.row for b in log.batches[: batch.row] if b.reset], default=-1),
    )
    for each in log.batches[: batch.row + 1]:
        hole = each.base_offset > end or each.count != each.last_offset - each.base_offset + 1
        if hole and each.row > (since if before is None else before.row):
            return True
        end = each.last_offset + 1
    return False
