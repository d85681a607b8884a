"""How a mirror that keeps offsets ends, and what its journal says of that (KIP-1279, by
generation).

abort              an ABORT marker for each open transaction, behind the last mirrored offset
write-txn-markers  the same of the brokers that lead then, behind the promoted offset
truncate-once      the log is truncated at its last stable offset; what had ended behind that is
                   open again, for ever
truncate-stable    the log is truncated until nothing is open
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tests.faithful.clusters import Log
from tests.faithful.entries import ABORT

TRUNCATING_RULES = frozenset({"truncate-once", "truncate-stable"})


def truncated_back(log: Log, rule: str) -> list[list[int]]:
    """Truncates what a rule truncates. Returns (end, truncated to) of every time."""
    truncations = []
    if rule == "truncate-once":
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    while rule == "truncate-stable" and log.stable < log.end:
        truncations.append([log.end, log.stable])
        log.truncate(log.stable)
    return truncations


def ended(log: Log, rule: str, *, reset: bool, ms: int) -> Mapping[str, object]:
    """Ends what is open, once the log was truncated, in a new leader epoch. Returns what the
    journal says of the log as it is then.
    """
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
    """ABORT markers for what is open, in the order in which it began."""
    appended = []
    for pid, mine in sorted(log.open.items(), key=lambda item: item[1][0].offset):
        marker = log.mark(ABORT, pid=pid, epoch=mine[-1].epoch, timestamp=ms, coordinator=0)
        appended.append((marker.offset, f"ABORT of producer {pid}, epoch {mine[-1].epoch}"))
    return appended
