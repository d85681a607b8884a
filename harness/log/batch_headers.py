"""The headers of batches, one numpy array per field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """One element per batch. `length` is the bytes of the entire batch; `last_offset` and
    `last_sequence` are inclusive.

    Sequences wrap at 2^31, -1 where there is no producer. `control` is layout.DATA, ABORT, COMMIT,
    EMPTIED, OTHER_CONTROL or SKIPPED_CONTROL; `coordinator_epoch` is the epoch of the coordinator
    that wrote a marker, -1 for any other batch. Timestamps are milliseconds. `segment` is an index
    into Log.segments, `position` the batch's first byte in it.
    """

    base_offset: Ints
    last_offset: Ints
    length: Ints
    count: Ints
    crc: Ints
    crc_ok: Bools
    leader_epoch: Ints
    producer_id: Ints
    producer_epoch: Ints
    base_sequence: Ints
    last_sequence: Ints
    transactional: Bools
    control: Ints
    coordinator_epoch: Ints
    attributes: Ints
    codec: Ints
    magic: Ints
    log_append_time: Bools
    base_timestamp: Ints
    max_timestamp: Ints
    segment: Ints
    position: Ints

    def __len__(self) -> int:
        return len(self.base_offset)
