"""The headers of batches, one numpy array per field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log.layout import LARGEST_OFFSET

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)


def possible_offsets(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether the base offset of each header (of HEADER), which no CRC covers, is one that a log
    can have."""
    return np.asarray(
        (headers["base_offset"] >= 0) & (headers["base_offset"] <= LARGEST_OFFSET), np.bool_
    )


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
