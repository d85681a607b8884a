"""Compares a mirror's journal of its end with the bytes: markers appended, tails truncated, leader
epochs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from linkflap.spark_verify.checks.base import Examined, Finding, Found
from linkflap.spark_verify.facts.partition_facts import Promotion, Stop
from linkflap.spark_verify.facts.view import ABORT, OTHER_CONTROL, Batches, Replica

_ABORT: Final = re.compile(r"ABORT of producer (-?\d+), epoch (-?\d+)")


def _not_appended(
    replica: Replica, stop: Stop, cleaned: int, about: Mapping[str, object]
) -> Iterator[Found]:
    """Markers of the journal that are not in the log. Retention may have deleted those below the
    log start, and the log cleaner those below `cleaned`."""
    batches = replica.batches
    for offset, what in ((at, what) for at, what in stop.appended if at >= replica.log_start):
        rows = np.flatnonzero(batches.base_offset == offset)
        if not len(rows) and offset < cleaned:
            continue
        if len(rows) != 1 or not _is(batches, int(rows[0]), what):
            evidence = {**about, "said": what, "holds": [_named(batches, int(row)) for row in rows]}
            yield Found(
                kind="marker-not-appended", cluster=stop.cluster, offset=offset, evidence=evidence
            )


def ended(
    replica: Replica, stop: Stop, promotion: Promotion, *, generation: int, cleaned: int
) -> Iterator[Finding]:
    """Compares the journal of a mirror's end with the bytes; below `cleaned`, the log cleaner may
    have removed markers."""
    batches = replica.batches
    if stop.promoted < 0:
        return
    count = 1 + len(stop.appended) + len(stop.truncated)
    yield Examined(
        cluster=stop.cluster,
        origin="native",
        count=count,
        generation=generation,
        start=promotion.offset,
    )
    about = {"link": stop.link, "mirrored": stop.mirrored, "promoted": stop.promoted}
    if promotion.offset != _kept(stop):
        yield Found(
            kind="promotion-mismatch", cluster=stop.cluster, offset=promotion.offset, evidence=about
        )
    yield from _not_appended(replica, stop, cleaned, about)
    appended = {offset for offset, _ in stop.appended}
    between = np.flatnonzero(
        (batches.last_offset >= stop.mirrored) & (batches.base_offset < stop.promoted)
    ).tolist()
    silent = [row for row in between if int(batches.base_offset[row]) not in appended]
    for row in silent:
        evidence = about | {"holds": _named(batches, row)}
        yield Found(
            kind="marker-unannounced",
            cluster=stop.cluster,
            offset=int(batches.base_offset[row]),
            evidence=evidence,
        )
    if not silent and not _adds_up(stop):
        evidence = about | {
            "truncated": [list(one) for one in stop.truncated],
            "appended": [list(one) for one in stop.appended],
        }
        yield Found(
            kind="promotion-unaccounted",
            cluster=stop.cluster,
            offset=stop.promoted,
            evidence=evidence,
        )
    yield from unseen_truncations(replica, stop, about)
    yield from _other_epochs(replica, stop, about)


def _kept(stop: Stop) -> int:
    """Where the mirrored part of the promoted log ends: behind it are markers, which the source
    does not have."""
    return min(
        stop.mirrored,
        stop.promoted - len({offset for offset, _ in stop.appended if offset < stop.promoted}),
    )


def _adds_up(stop: Stop) -> bool:
    """Whether the truncations of the failover lead from the last mirrored offset to where its
    markers begin.

    The same list has earlier truncations, made because the source was truncated. A failover that
    was killed in the middle truncates again: what it began with may come twice.
    """
    # Markers of the brokers that lead afterwards (WriteTxnMarkers) are behind the promoted offset.
    wanted = stop.promoted - sum(offset < stop.promoted for offset, _ in stop.appended)
    if wanted == stop.mirrored:
        return True
    for first in range(len(stop.truncated)):
        ends = {stop.mirrored}
        for end, at in stop.truncated[first:]:
            if end not in ends or at > end:
                break
            ends.add(at)
        else:
            return stop.truncated[-1][1] == wanted
    return False


def unseen_truncations(
    replica: Replica, stop: Stop, about: Mapping[str, object]
) -> Iterator[Found]:
    """Truncations that the bytes do not show; those that a later and deeper one hides are left
    out."""
    batches = replica.batches
    for index, (end, at) in enumerate(stop.truncated):
        if at >= end or any(later < at for _, later in stop.truncated[index + 1 :]):
            continue
        below, behind = batches.base_offset < at, batches.last_offset >= at
        rows = np.flatnonzero(behind)
        if not len(rows) or not below.any():
            continue
        row, newest = int(rows[0]), int(batches.leader_epoch[below].max())
        if below[row] or int(batches.leader_epoch[row]) <= newest:
            holds = {
                "base": int(batches.base_offset[row]),
                "leader_epoch": int(batches.leader_epoch[row]),
            }
            evidence = {**about, "end": end, "truncated_to": at, "before": newest, "holds": holds}
            yield Found(
                kind="truncation-not-made", cluster=stop.cluster, offset=at, evidence=evidence
            )


def _other_epochs(replica: Replica, stop: Stop, about: Mapping[str, object]) -> Iterator[Found]:
    """The first mirrored batch whose leader epoch differs from the one that the mirror recorded, up
    to the last mirrored batch."""
    batches = replica.batches
    starts = np.array([start for _, start in stop.epochs], np.int64)
    rows = np.flatnonzero(batches.base_offset < min(stop.mirrored, stop.promoted))
    if not len(starts) or not len(rows):
        return
    index = np.searchsorted(starts, batches.base_offset[rows], side="right") - 1
    recorded = np.array([epoch for epoch, _ in stop.epochs], np.int64)[np.maximum(index, 0)]
    wrong = np.flatnonzero((index >= 0) & (recorded != batches.leader_epoch[rows]))
    if len(wrong):
        row = int(rows[wrong[0]])
        evidence = {
            **about,
            "said": int(recorded[wrong[0]]),
            "leader_epoch": int(batches.leader_epoch[row]),
            "batches": len(wrong),
        }
        yield Found(
            kind="epoch-mismatch",
            cluster=stop.cluster,
            offset=int(batches.base_offset[row]),
            evidence=evidence,
        )


def _is(batches: Batches, row: int, what: str) -> bool:
    """Whether a batch is what a journal calls it
    (`harness.mirrors.shadow.failover.markers.what`)."""
    abort = _ABORT.fullmatch(what)
    if abort is None:
        return int(batches.control[row]) == OTHER_CONTROL
    who = (int(batches.producer_id[row]), int(batches.producer_epoch[row]))
    return int(batches.control[row]) == ABORT and who == (int(abort[1]), int(abort[2]))


def _named(batches: Batches, row: int) -> dict[str, int]:
    names = ("control", "producer_id", "producer_epoch", "count")
    return {name: int(getattr(batches, name)[row]) for name in names}
