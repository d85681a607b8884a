"""In what two batches at one offset differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from linkflap.harness.model.guarantee import ProducerIds
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.changed_records import changed_records
from linkflap.spark_verify.checks.parts.logs import locate, read
from linkflap.spark_verify.facts.view import ABORT, COMMIT, Ints, Replica

_CHANGED: Final = 5
"""Records per batch whose differences are shown."""


def other_endings(
    source: Replica, destination: Replica, theirs: Ints, ours: Ints
) -> Mapping[int, Mapping[str, object]]:
    """Of markers that differ from the source's in what they do: both, and the transaction whose
    records it is about.

    A marker decides about records before it, so where their transaction begins is evidence: what is
    found there follows from it.
    """
    before, after = source.batches.control[theirs], destination.batches.control[ours]
    ends = np.isin(before, (COMMIT, ABORT)) & np.isin(after, (COMMIT, ABORT)) & (before != after)
    if not ends.any():
        return {}
    every, batches = read(destination, untracked=True), destination.batches
    rows = ours[ends]
    at = locate(every.transactions.marker, batches.base_offset[rows])
    held = np.flatnonzero(np.isin(every.marker, batches.base_offset[rows]))
    ended, which = np.unique(every.marker[held], return_inverse=True)
    records = dict(
        zip(
            ended.tolist(),
            np.bincount(which, weights=batches.count[held]).astype(np.int64).tolist(),
            strict=True,
        )
    )
    found: dict[int, Mapping[str, object]] = {}
    for row, transaction in zip(rows.tolist(), at.tolist(), strict=True):
        markers = ["ABORT", "COMMIT"] if batches.control[row] == COMMIT else ["COMMIT", "ABORT"]
        about = (
            {"first_offset": int(every.transactions.first[transaction])} if transaction >= 0 else {}
        )
        found[row] = {
            "markers": markers,
            "ends": records.get(int(batches.base_offset[row]), 0),
            **about,
        }
    return found


def changes_of(source: Replica, destination: Replica, row: int) -> Mapping[str, object]:
    """Which records of a batch differ, where it was looked into; none: it is packed in another
    way."""
    base, last = (
        int(destination.batches.base_offset[row]),
        int(destination.batches.last_offset[row]),
    )
    looked_into = (source.parts.offset >= base) & (source.parts.offset <= last)
    if not looked_into.any():
        return {}
    changed = changed_records(source.parts, destination.parts, base, last)
    return {"records": [c["offset"] for c in changed], "changed": changed[:_CHANGED]}


def records_beside(source: Replica, destination: Replica, start: int, end: int) -> Iterator[Found]:
    """Where a mirror changes ids no CRC can be compared: then records are, one by one."""
    theirs, ours = source.records, destination.records
    rows = np.flatnonzero((ours.offset >= start) & (ours.offset < end))
    at = locate(theirs.offset, ours.offset[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    for row in rows[ours.digest[rows] != theirs.digest[at]].tolist():
        evidence = {"source": source.cluster, "uid": int(ours.uid[row])}
        yield Found(
            kind="record-divergence",
            cluster=destination.cluster,
            offset=int(ours.offset[row]),
            evidence=evidence,
        )


def mapped_over(how: ProducerIds, links: int) -> ProducerIds:
    """The result of a mapping of ids over several links: negation and complement undo themselves
    (KIP-1279, RS12)."""
    return "kept" if how in ("negate", "complement") and links and links % 2 == 0 else how
