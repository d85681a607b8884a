"""The last stable offset that follows from the bytes, for a high watermark; and the inverse: the
high watermarks that give a certain value."""

from __future__ import annotations

import numpy as np

from linkflap.spark_verify.checks.parts.logs import Log
from linkflap.spark_verify.facts.view import Ints


def recompute_last_stable(log: Log, high_watermark: int) -> int:
    """The LSO that this log has when its high watermark is `high_watermark`."""
    every = log.transactions
    unended = (every.first < high_watermark) & (every.marker >= high_watermark)
    return min(high_watermark, int(every.first[unended].min())) if unended.any() else high_watermark


def high_watermarks_of(log: Log, values: Ints) -> tuple[Ints, Ints]:
    """Per value v, the interval (first, last) of high watermarks whose LSO is v; empty (first >
    last) where v is never the LSO.

    v is the LSO while no transaction that began before v is unended, and either h = v or one that
    began at v is unended.
    """
    every = log.transactions
    order = np.argsort(every.first, kind="stable")
    begins, ends = every.first[order], every.marker[order]
    latest = (
        np.concatenate(([-1], np.maximum.accumulate(ends)))
        if len(ends)
        else np.array([-1], np.int64)
    )
    index = np.searchsorted(begins, values, side="left")
    first = np.maximum(values, latest[index] + 1)
    here = np.minimum(index, max(len(begins) - 1, 0))
    opens = (
        (index < len(begins)) & (begins[here] == values)
        if len(begins)
        else np.zeros(len(values), np.bool_)
    )
    last = np.where(opens, ends[here], values) if len(begins) else values
    return first.astype(np.int64), last.astype(np.int64)
