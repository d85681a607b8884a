"""Headers of v2 batches (`harness.log.layout`) as rows of a numpy structure."""

from __future__ import annotations

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
