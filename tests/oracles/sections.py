"""Producer state resets (KIP-1279): how many precede a batch, and whose session continues after
one."""

from __future__ import annotations

from typing import Any

from tests.oracles.plain import Plain, PlainLog
from tests.oracles.story import PlainGeneration, Story

WRAP = 2**31


def resets_before(log: PlainLog, batch: Any) -> int:
    return sum(b.reset for b in log.batches[: batch.row])


def tracked(log: PlainLog) -> list[Any]:
    """Data batches with a right CRC, a producer id and a sequence."""
    return [
        b
        for b in log.batches
        if b.data and b.producer_id >= 0 and b.crc_ok and b.base_sequence >= 0
    ]


def era_of(generation: PlainGeneration, offset: int) -> int:
    return max(
        n for n, (start, _, _, _) in enumerate(generation.eras()) if start <= offset or n == 0
    )


def same_session(generation: PlainGeneration, one: Any, other: Any) -> bool:
    """Whether both have one owner, producer id and producer epoch."""
    ids = [(b.producer_id, b.producer_epoch, generation.owner(b.base_offset)) for b in (one, other)]
    return ids[0] == ids[1]


def known_before(generation: PlainGeneration, log: PlainLog, batch: Any) -> bool:
    """Whether the owner used the id and epoch in an earlier era, with a reset in between."""
    return any(
        same_session(generation, b, batch)
        and era_of(generation, b.base_offset) < era_of(generation, batch.base_offset)
        and resets_before(log, b) < resets_before(log, batch)
        for b in _first_of(generation, log, batch)
    )


def maybe_before(generation: PlainGeneration, log: PlainLog, batch: Any) -> bool:
    """Whether it may have used them two or more resets ago, in a session that ended below this
    batch's sequence."""
    mine = [b for b in tracked(log) if b.row < batch.row and same_session(generation, b, batch)]
    ends = {resets_before(log, b): b.last_sequence for b in mine}
    past = [end for section, end in ends.items() if section < resets_before(log, batch) - 1]
    return any((batch.base_sequence - end - 1) % WRAP < WRAP // 2 for end in past)


def _first_of(generation: PlainGeneration, log: PlainLog, batch: Any) -> list[Any]:
    return [b for b in tracked(log) if b.row < batch.row and same_session(generation, b, batch)][:1]


def adopted(generation: PlainGeneration, log: PlainLog, batch: Any) -> Any:
    """The batch of another cluster's producer with the same id and epoch, before a reset, whose
    sequence it continues; or None."""
    before = [b for b in tracked(log) if b.row < batch.row]
    before = [
        b
        for b in before
        if (b.producer_id, b.producer_epoch) == (batch.producer_id, batch.producer_epoch)
    ]
    if not before:
        return None
    last = before[-1]
    over = resets_before(log, batch) - resets_before(log, last)
    one_era = era_of(generation, last.base_offset) == era_of(generation, batch.base_offset)
    strange = generation.owner(last.base_offset) != generation.owner(batch.base_offset) or (
        one_era and over == 1
    )
    goes_on = (last.last_sequence + 1) % WRAP == batch.base_sequence
    return last if over > 0 and strange and goes_on else None


def deleted(generation: PlainGeneration, log: PlainLog, batch: Any) -> bool:
    """Whether its owner's first batches may be below the log start offset."""
    owner = generation.owner(batch.base_offset)
    return any(start < log.log_start for start, _, who, _ in generation.eras() if who[0] == owner)


def beginning(
    plain: Plain, story: Story, generation: PlainGeneration, log: PlainLog, batch: Any
) -> str:
    """Where a session that continues after a reset began: "new", "truncated", or "unknown"."""
    start, owner = (
        generation.eras()[era_of(generation, batch.base_offset)][0],
        generation.owner(batch.base_offset),
    )
    had_an_era = any(s < start for s, _, who, _ in generation.eras() if who[0] == owner)
    within = resets_before(log, batch) - sum(b.reset for b in log.batches if b.base_offset < start)
    if not (had_an_era or within > 1):
        return "new"
    generations = story.generations.get(owner, [])
    tails = [(one, story.log(one)) for one in generations[:-1]]
    if not tails or any(tail is None or tail.torn for _, tail in tails):
        return "unknown" if adopted(generation, log, batch) is None else "new"
    for one, tail in tails:
        if tail is not None and any(
            b.data and b.base_offset >= one.truncated_to and same_id(b, batch) for b in tail.batches
        ):
            return "truncated"
    return "new"


def same_id(one: Any, other: Any) -> bool:
    return (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
