"""The decisions of transaction coordinators, and whether markers agree with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from linkflap.harness.log.coordinators import TransactionState
from tests.oracles.plain import Plain, PlainLog

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def decided_by(plain: Plain, cluster: str) -> list[dict[str, Any]]:
    """Every prepared transaction, in order."""
    replica = next(r for r in reversed(plain.view.replicas) if r.cluster == cluster and r.canonical)
    found: list[dict[str, Any]] = []
    for entry in replica.entries:
        assert isinstance(entry, TransactionState)
        mine = [row for row in found if row["id"] == entry.transactional_id and not row["closed"]]
        producer = entry.producer_id, entry.producer_epoch
        if entry.state in (PREPARE_COMMIT, PREPARE_ABORT):
            if mine and mine[-1]["producer"] == producer:
                continue
            for row in mine:
                row["closed"] = True
            commit = entry.state == PREPARE_COMMIT
            row = {
                "id": entry.transactional_id,
                "producer": producer,
                "commit": commit,
                "partitions": set(entry.partitions),
            }
            found.append(row | {"complete": False, "closed": False})
        elif entry.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and mine:
            mine[-1]["closed"] = True
            same = mine[-1]["commit"] == (entry.state == COMPLETE_COMMIT)
            mine[-1]["complete"] = same and entry.offset < replica.high_watermark
    return found


def written_again(log: PlainLog, markers: Sequence[Any]) -> list[Any]:
    """Markers equal to the one before them, without data of their producer in between."""
    found = []
    for marker in markers:
        before = [
            b
            for b in log.batches
            if b.row < marker.row
            and b.transactional
            and b.crc_ok
            and b.producer_id == marker.producer_id
        ]
        last = before[-1] if before else None
        if last is not None and (last.ends, last.control, last.producer_epoch) == (
            True,
            marker.control,
            marker.producer_epoch,
        ):
            found.append(marker)
    return found


def leaving_out(markers: Sequence[Any], again: Sequence[Any]) -> Iterator[list[Any]]:
    """The markers without some of those that may have been written twice; first with all of
    them."""
    for count in range(len(again) + 1):
        for some in combinations(again, count):
            yield [m for m in markers if all(m is not one for one in some)]


def exactly(wanted: Sequence[dict[str, Any]], markers: Sequence[Any]) -> list[tuple[str, int]]:
    """Matches decisions and markers from left to right. The first mismatch decides what is wrong,
    by which side has more."""
    decided, owed = [row["commit"] for row in wanted], sum(row["complete"] for row in wanted)
    had = [b.control == 1 for b in markers]
    at = 0
    for row in wanted:
        if at < len(had) and had[at] == row["commit"]:
            at += 1
            continue
        if row["complete"] and (len(had) < owed or at == len(had)):
            return [("marker-missing", -1)]
        if at < len(had):
            return [
                (
                    "marker-unexplained" if len(had) > len(decided) else "outcome-disagreement",
                    markers[at].base_offset,
                )
            ]
    return [("marker-unexplained", markers[at].base_offset)] if at < len(had) else []


def ends_alike(wanted: Sequence[dict[str, Any]], markers: Sequence[Any]) -> bool:
    decided, had = [row["commit"] for row in wanted], [b.control == 1 for b in markers]
    for left in range(len(decided), -1, -1):
        size = min(left, len(had))
        if decided[:left][left - size :] == had[len(had) - size :]:
            return True
        if left and wanted[left - 1]["complete"]:
            return False
    return True
