"""A record batch (v2) that a case sends: records without keys and headers, with any producer id,
epoch and sequence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from linkflap.harness.log import encoding, layout


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What InitProducerId gave."""

    id: int
    epoch: int


def record_batch(
    values: Sequence[bytes],
    *,
    producer: ProducerIdentity | None = None,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One v2 batch of records without keys and headers, as a client sends it: base offset 0, leader
    epoch -1."""
    now = int(time.time() * 1000)
    who = producer or ProducerIdentity(id=-1, epoch=-1)
    return encoding.batch(
        [(None, value) for value in values],
        leader_epoch=-1,
        attributes=layout.TRANSACTIONAL if transactional else 0,
        time=now,
        producer=(who.id, who.epoch),
        sequence=sequence,
    )
