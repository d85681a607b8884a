"""The batches and the records of a log, one numpy array per field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log.layout import ABORT, LARGEST_OFFSET, OTHER_CONTROL

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


class Columns:
    """Arrays of one length: the columns of a table."""

    __slots__ = ()

    def take(self, rows: Ints | Bools | slice) -> Self:
        """The chosen rows, in the order of `rows`."""
        columns = {each.name: getattr(self, each.name)[rows] for each in fields(self)}  # type: ignore[arg-type]
        return type(self)(**columns)

    @classmethod
    def one_after_the_other(cls, tables: Sequence[Self]) -> Self:
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(t, name) for t in tables]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches(Columns):
    """Batch headers of one replica in file order, one element each. `length` is the bytes of the
    entire batch on disk.

    `last_offset` and `last_sequence` are inclusive; sequences wrap at 2^31. -1 for producer fields
    of plain batches. `crc_ok` is the recomputed CRC-32C against the stored one; `count` the
    header's record count. `coordinator_epoch` is the epoch of the coordinator that wrote a COMMIT
    or ABORT marker, -1 for any other batch. Timestamps are in milliseconds; with `log_append_time`
    `max_timestamp` is the time of every record of the batch. `attributes` are all bits of them.
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
    base_timestamp: Ints
    max_timestamp: Ints
    log_append_time: Bools
    attributes: Ints

    def __len__(self) -> int:
        return len(self.base_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Columns):
    """Data records (no control records) of one replica in file order.

    `digest` is 64 bits over timestamp, key, value and headers; not the offset. `content` is 64 bits
    over key and value. `batch` is an index into Batches. `uid` and `operation` are -1 for records
    that are not ours.
    """

    offset: Ints
    uid: Ints
    operation: Ints
    digest: Ints
    content: Ints
    timestamp: Ints
    batch: Ints

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers(Batches):
    """The headers as they stand in a log's segments. `control` is layout.DATA, ABORT, COMMIT,
    EMPTIED, OTHER_CONTROL or SKIPPED_CONTROL. `segment` is an index into Log.segments, `position`
    the batch's first byte in it.
    """

    codec: Ints
    magic: Ints
    segment: Ints
    position: Ints


def reset_rows(headers: Headers) -> list[tuple[int, int]]:
    """Each MIRROR_PID_RESET of KIP-1279: the first of the ABORT markers directly before it in the
    same leader epoch, or itself, and its own row."""
    found = []
    for reset in np.flatnonzero(headers.control == OTHER_CONTROL).tolist():
        first = reset
        while (
            first > 0
            and headers.control[first - 1] == ABORT
            and headers.leader_epoch[first - 1] == headers.leader_epoch[reset]
            and headers.last_offset[first - 1] + 1 == headers.base_offset[first]
        ):
            first -= 1
        found.append((first, reset))
    return found
