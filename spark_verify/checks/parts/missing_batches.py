"""Batches that are missing before others of their producer, deleted or cleaned."""

from __future__ import annotations

import numpy as np

from linkflap.spark_verify.checks.parts.producer_sessions import Sessions
from linkflap.spark_verify.facts.view import OTHER_CONTROL, Bools, Ints, Replica


def missing_before(replica: Replica, every: Sessions) -> Bools:
    """Per batch, whether offsets are missing since the one before of its producer id; before its
    first, since the last reset."""
    b = replica.batches
    return (
        _since_before(
            replica,
            every,
            (b.base_offset > _starts_of(replica)) | (b.count != b.last_offset - b.base_offset + 1),
        )
        > 0
    )


def cleaned_between(replica: Replica, every: Sessions, lacking: Ints, compacted: int) -> Bools:
    """Per batch, whether so many offsets are missing between batches since then, below what a
    cleaner has compacted."""
    gone = np.maximum(np.minimum(replica.batches.base_offset, compacted) - _starts_of(replica), 0)
    return np.asarray(_since_before(replica, every, gone) >= lacking)


def _starts_of(replica: Replica) -> Ints:
    """Per batch of the log, where the one before it ended."""
    return np.concatenate(([replica.log_start], replica.batches.last_offset[:-1] + 1))


def _since_before(replica: Replica, every: Sessions, counted: Ints | Bools) -> Ints:
    """Per batch, what was counted of the log's batches up to it since the one before of its
    producer id, or the last reset."""
    reached, resets = np.cumsum(counted), np.flatnonzero(replica.batches.control == OTHER_CONTROL)
    since = np.concatenate(([0], reached[resets]))[every.section]
    earlier = np.where(every.follows, np.concatenate(([0], reached[every.row][:-1])), since)
    return np.asarray(reached[every.row] - earlier)
