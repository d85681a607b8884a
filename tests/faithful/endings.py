"""Endings: how a mirror that keeps offsets ends a log, and its journal about that (KIP-1279, by
generation).

abort              appends an ABORT marker for each open transaction, after the mirrored range
write-txn-markers  the new leaders append these markers, after the promotion offset
truncate-once      truncates the log at its last stable offset; transactions whose markers are
                   removed are then open for ever
truncate-stable    truncates the log until no transaction is open
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tests.faithful.clusters import Log
from tests.faithful.entries import ABORT

TRUNCATING_RULES = frozenset({"truncate-once", "truncate-stable"})


def truncated_back(log: Log, rule: str) -> list[list[int]]:
    """Truncates a log by a rule. Returns (end, truncated to) of each truncation."""
    truncations = []
    if rule == "truncate-once":
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    while rule == "truncate-stable" and log.stable < log.end:
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    return truncations


def ended(log: Log, rule: str, *, reset: bool, ms: int) -> Mapping[str, object]:
    """Ends open transactions in a new leader epoch, after the truncation. Returns the journal's
    report about the log."""
    appended = _aborted(log, ms) if rule == "abort" else []
    if reset:
        appended.append((log.reset().offset, "reset"))
    promoted = log.end
    if rule == "write-txn-markers":
        appended += _aborted(log, ms)
    epochs = [[e.leader_epoch, e.offset] for e in log.entries[:1]]
    epochs += [
        [b.leader_epoch, b.offset]
        for a, b in pairwise(log.entries)
        if a.leader_epoch != b.leader_epoch
    ]
    return {"epochs": epochs, "promoted": promoted, "open": [], "appended": appended}


def _aborted(log: Log, ms: int) -> list[tuple[int, str]]:
    """Appends ABORT markers for open transactions, in the order of their first records."""
    appended = []
    for pid, mine in sorted(log.open.items(), key=lambda item: item[1][0].offset):
        marker = log.mark(ABORT, pid=pid, epoch=mine[-1].epoch, timestamp=ms, coordinator=0)
        appended.append((marker.offset, f"ABORT of producer {pid}, epoch {mine[-1].epoch}"))
    return appended
