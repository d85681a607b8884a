"""Batches that differ between replicas of one cluster, or between both ends of a mirror: only those
are decoded again, part by part.

Headers (length, count, CRC) show which batches differ. A healthy run has none, and then nothing is
read here. The content of a batch with a wrong CRC is shown as far as it can be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from linkflap.harness.log import batches, old_messages, reference
from linkflap.harness.log.codecs import CannotInflate
from linkflap.harness.log.reference import MalformedBatch
from linkflap.harness.model.guarantee import ProducerIds
from linkflap.spark_verify.checks.parts.batch_differences import bytes_differ
from linkflap.spark_verify.checks.parts.logs import locate
from linkflap.spark_verify.facts.view import (
    DATA,
    Bools,
    Ints,
    Parts,
    Replica,
    digested,
    digested_parts,
)
from linkflap.spark_verify.read.captures import CapturedReplica

MOST: Final = 32
"""Batches per pair of logs that are looked into: the slow decoder takes some ten milliseconds for a
large one."""
MOST_COMPACTED: Final = 200_000
"""Records of a log that is compacted that are looked into: the slow decoder takes some ten
microseconds for a small one."""
Pair = tuple[str, str, int, int, ProducerIds]
"""Two clusters that should have the same bytes but for mapped producer ids, at offsets [start,
end)."""


def with_parts(
    replicas: Sequence[Replica],
    captured: Iterable[CapturedReplica],
    pairs: Iterable[Pair] = (),
    cleaned: Mapping[str, int] | None = None,
) -> Sequence[Replica]:
    """The replicas, those that differ from the one that speaks for their cluster with the parts of
    the records in question.

    So those that speak for the two clusters of a pair. Where replicas differ below `cleaned`, up to
    where a cluster's cleaners were, all of them come with all records that could explain it: of one
    log those up to the end, of the others those below. What speaks for a cluster with cleaners
    always comes with all its records: they tell what replaced an absent one.
    """
    files = {(c.bounds.cluster, c.bounds.broker): c.paths for c in captured}
    looked: dict[tuple[str, int], set[int]] = defaultdict(set)
    for replica, rows in chain(
        _of_replicas(replicas, cleaned or {}), _of_pairs(replicas, pairs, cleaned or {})
    ):
        looked[replica.cluster, replica.broker].update(rows.tolist())
    return [
        _decoded(
            r, files.get((r.cluster, r.broker), ()), sorted(looked.get((r.cluster, r.broker), ()))
        )
        for r in replicas
    ]


def with_keys(
    replicas: Sequence[Replica], captured: Iterable[CapturedReplica], clusters: Collection[str]
) -> Sequence[Replica]:
    """The replicas, those that speak for these clusters with the parts of all their records; none
    where a log has too many."""
    files = {(c.moment, c.bounds.cluster, c.bounds.broker): c.paths for c in captured}
    return [
        _decoded(r, files.get((r.moment, r.cluster, r.broker), ()), _every_row(r))
        if r.canonical and r.cluster in clusters
        else r
        for r in replicas
    ]


def _every_row(replica: Replica) -> Sequence[int]:
    rows = np.flatnonzero((replica.batches.control == DATA) & replica.batches.crc_ok)
    few = int(replica.batches.count[rows].sum()) <= MOST_COMPACTED
    return rows.tolist() if few else []


def _of_replicas(
    replicas: Sequence[Replica], cleaned: Mapping[str, int]
) -> Iterator[tuple[Replica, Ints]]:
    """The rows of batches in which the replicas of one cluster differ, and those that its cleaners
    may explain."""
    for model in (r for r in replicas if r.canonical):
        for other in replicas:
            if other.cluster == model.cluster and other is not model:
                yield from zip(
                    (model, other),
                    differing(model, other, since=cleaned.get(model.cluster, 0)),
                    strict=True,
                )
    for cluster, below in cleaned.items():
        mine = [r for r in replicas if r.cluster == cluster]
        yield from _compacted(mine, below)
        for model in (r for r in mine if r.canonical):
            yield from _looked_into(model, (model.batches.control == DATA) & model.batches.crc_ok)


def _of_pairs(
    replicas: Sequence[Replica], pairs: Iterable[Pair], cleaned: Mapping[str, int]
) -> Iterator[tuple[Replica, Ints]]:
    """The rows of batches in which those that speak for the two clusters of a pair differ, and
    those that explain what a cleaner of either took."""
    speaks = {r.cluster: r for r in replicas if r.canonical}
    for source, destination, start, end, how in pairs:
        if source in speaks and destination in speaks:
            both = speaks[source], speaks[destination]
            yield from zip(both, _between(*both, start, end, how), strict=True)
            below = min(end, max(cleaned.get(source, 0), cleaned.get(destination, 0)))
            yield from _compacted(
                [both[0], *(r for r in replicas if r.cluster in (source, destination))], below
            )


def _compacted(replicas: Sequence[Replica], below: int) -> Iterator[tuple[Replica, Ints]]:
    """The rows of batches to decode where replicas differ below an offset; none where these have
    too many records."""
    model = next((r for r in replicas if r.canonical), None)
    mirrored = len({r.cluster for r in replicas}) > 1
    since = [
        at
        for r in replicas
        if model is not None and r is not model and 0 <= (at := _parted(model, r, below)) < below
    ]
    for replica in replicas if since else ():
        batches = replica.batches
        inside = (batches.control == DATA) & batches.crc_ok & (batches.last_offset >= min(since))
        inside &= (batches.base_offset < below) | replica.canonical | mirrored
        yield from _looked_into(replica, inside)


def _looked_into(replica: Replica, which: Bools) -> Iterator[tuple[Replica, Ints]]:
    """These batches, unless they have too many records."""
    rows = np.flatnonzero(which)
    if int(replica.batches.count[rows].sum()) <= MOST_COMPACTED:
        yield replica, rows


def _parted(model: Replica, other: Replica, below: int) -> int:
    """The base offset of the first batch below an offset that only one of two replicas has, or that
    differs; else -1."""
    names = ("base_offset", "last_offset", "count", "length", "crc")
    start = max(model.log_start, other.log_start)
    sides = [
        {
            tuple(row)
            for row in zip(*(getattr(r.batches, name).tolist() for name in names), strict=True)
            if start <= row[0] < below and row[1] < min(model.high_watermark, other.high_watermark)
        }
        for r in (model, other)
    ]
    return min((row[0] for row in sides[0] ^ sides[1]), default=-1)


def differing(model: Replica, other: Replica, *, since: int = 0) -> tuple[Ints, Ints]:
    """Rows of batches with one base offset and other bytes, in both replicas, below both high
    watermarks; the first few."""
    return _between(model, other, since, min(model.high_watermark, other.high_watermark))


def _between(
    model: Replica, other: Replica, start: int, end: int, how: ProducerIds = "kept"
) -> tuple[Ints, Ints]:
    ours, theirs = model.batches, other.batches
    at = locate(ours.base_offset, theirs.base_offset)
    start = max(start, model.log_start, other.log_start)
    rows = np.flatnonzero((at >= 0) & (theirs.last_offset < end) & (theirs.base_offset >= start))
    changed = bytes_differ(ours, theirs, at[rows], rows, how)
    for name in ("crc_ok", "count"):
        changed |= getattr(ours, name)[at[rows]] != getattr(theirs, name)[rows]
    rows = rows[changed][:MOST]
    return at[rows], rows


def _decoded(replica: Replica, paths: Sequence[str], rows: Sequence[int]) -> Replica:
    if not rows or not paths:
        return replica
    bases = replica.batches.base_offset[np.array(rows)]
    log = batches.scan(_holding([Path(path) for path in paths], bases))
    found = [
        part
        for row in locate(log.headers.base_offset, bases).tolist()
        for part in _records(log, row)
    ]
    return replace(replica, parts=parts_of(found))


def _holding(paths: Sequence[Path], offsets: Ints) -> Sequence[Path]:
    """The segments with these offsets, by their names; all of them where names say nothing."""
    if not all(path.stem.isascii() and path.stem.isdigit() for path in paths):
        return paths
    indexes = (
        np.searchsorted(np.array([int(path.stem) for path in paths]), offsets, side="right") - 1
    )
    return [paths[index] for index in np.unique(np.maximum(indexes, 0)).tolist()]


def parts_of(records: Sequence[reference.Record]) -> Parts:
    """Records as columns of digests."""
    columns: Mapping[str, list[int]] = {
        "offset": [r.offset for r in records],
        "uid": [reference.identity(r)[0] for r in records],
        "timestamp": [r.timestamp for r in records],
        "key": [digested(r.key) for r in records],
        "value": [digested(r.value) for r in records],
        "headers": [
            digested_parts([part for header in r.headers for part in header]) for r in records
        ],
    }
    return Parts(**{name: np.array(values, np.int64) for name, values in columns.items()})


def _records(log: batches.ReplicaLog, row: int) -> list[reference.Record]:
    """The records of one batch, or none where they cannot be read."""
    if not 0 <= row < len(log.headers):
        return []
    if log.headers.control[row] != DATA:
        return []
    try:
        return old_messages.records_of(log.bytes_of(row))
    except (MalformedBatch, CannotInflate):
        return []
