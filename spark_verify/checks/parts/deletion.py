"""Deletion: records of a mirrored range that may have been there and are gone, by retention,
DeleteRecords or a cleaner."""

from __future__ import annotations

import numpy as np

from linkflap.spark_verify.checks.parts.logs import Log, copies
from linkflap.spark_verify.facts.eras import FOREVER, MirroredRange, touches
from linkflap.spark_verify.facts.view import Ints, PartitionView


def kept_since(
    view: PartitionView, mirrored_range: MirroredRange, destination: Log, sent: Ints, position: Ints
) -> int:
    """The first of the source's offsets that the destination may still have, whose log may have
    lost its beginning.

    Where offsets move, that of what its log now begins with, for it came in order; `position` says
    where in `sent` that is.
    """
    start = destination.replica.log_start
    if start <= (mirrored_range.start if view.mirror.guarantee.offsets_kept else 0):
        return mirrored_range.start
    if view.mirror.guarantee.offsets_kept:
        return start
    known = position[position >= 0]
    return int(sent[known[0]]) if len(known) else FOREVER


def unsettled_payloads(
    view: PartitionView, mirrored_range: MirroredRange, source: Log, uids: Ints
) -> Ints:
    """Payload ids that may have come of a copy which the source has deleted with its log's
    beginning.

    Only where the mirror into the source may write records again, and something happened to it.
    Records come in order, so that before a first copy there are no more different payloads than the
    source has offsets before it: with as many as are deleted, it is a copy of what the source still
    has.
    """
    if source.replica.log_start == 0 or not _may_have_repeated(view, mirrored_range.source):
        return np.empty(0, np.int64)
    once: Ints = uids[copies(uids)[1] == 0]
    return once[: source.replica.log_start]


def deleted_behind(
    view: PartitionView, mirrored_range: MirroredRange, destination: Log, behind: Ints, older: int
) -> Ints:
    """Of positions behind the front, `older` records before the first, those that came before the
    mirror began again.

    What is left of a log that lost its beginning may begin in what was mirrored again; the first
    copies, and what had come after them, are gone. As above: the destination had no more different
    payloads there than it has deleted offsets.
    """
    if not _may_have_repeated(view, mirrored_range.destination):
        return behind[:0]
    return behind[behind + older < destination.replica.log_start]


def _may_have_repeated(view: PartitionView, cluster: str) -> bool:
    """Whether a mirror on the way to a cluster delivers at least once, and there was a fault to
    it."""
    if view.mirror.guarantee.offsets_kept or view.mirror.guarantee.delivery == "exactly-once":
        return False
    behind = view.upstream(cluster) | {cluster}
    into = [f"{source}->{end}" for source, end in view.hops() if end in behind]
    return any(touches(window, link) for window in view.windows for link in into)


def cleaned_positions(
    view: PartitionView,
    mirrored_range: MirroredRange,
    sent: Ints,
    present: Ints,
    missing: Ints,
    arrived_at: Ints,
) -> Ints:
    """Missing positions whose place on the destination is, or may be, below where its log is
    compacted; `sent` is their offset on the source.

    Behind the last that is there as many can have been as there are offsets up to the end of what
    crossed: where offsets are kept those that have them, else the first.
    """
    compacted = view.compacted.get(mirrored_range.destination, 0)
    index = np.searchsorted(present, missing)
    before = (
        np.where(index > 0, arrived_at[present[np.maximum(index - 1, 0)]], -1)
        if len(present)
        else index - 1
    )
    cleaned = (index < len(present)) & (before + 1 < compacted)
    tail, end = np.flatnonzero(index == len(present)), min(compacted, mirrored_range.end)
    kept = view.mirror.guarantee.offsets_kept
    cleaned[tail] = (
        sent[missing[tail]] < end if kept else np.arange(len(tail)) < end - before[tail] - 1
    )
    return missing[cleaned]
