"""Planted bugs, which suites must find: tests put them into the shadow mirror and into clients when
their processes start.

linkflap itself does not know them. A Python process that finds `site/sitecustomize.py` on its path
runs it first (the module `site`), and this file plants the bug that `LINKFLAP_PLANTED` names. Each
bug takes effect in one state only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NAME: Final = "LINKFLAP_PLANTED"
LOG: Final = "LINKFLAP_PLANTED_LOG"
"""A file to which a bug adds a line whenever it takes effect, so that tests know whether its state
was reached."""
ROOT: Final = Path(__file__).resolve().parents[2]
MIRROR: Final = {
    "reconnect-drops-batch": "the first batch of a transaction after a reconnect is dropped",
    "reconnect-repeats-batch": "after a reconnect, the batch before it is written again",
    "reconnect-old-producer-epoch": (
        "the first batch after a reconnect has the previous producer epoch, if there was one"
    ),
    "outage-mixes-partitions": (
        "after a reconnect, one partition's batch is written to another partition of equal length"
    ),
    "backlog-marker-before-data": "in a long backlog, a marker is written before its data",
    "restart-drops-backlog": "after a restart, the mirror drops the first batch of its backlog",
    "second-restart-rewinds-groups": "the second restart of a mirror halves group offsets",
    "one-of-two-left-open": (
        "at a failover, one of two open transactions of a partition gets no ABORT marker"
    ),
    "failback-truncates-short": "a failback truncates one batch too little of a tail",
    "failback-lowers-epochs": "a failback's mirror writes batches with the previous leader epoch",
    "failover-keeps-settings": (
        "a failover leaves topics the retention that they had while they were mirrored"
    ),
    "high-watermark-of-the-fastest": (
        "the high watermark is the log end of the fastest follower, not of the slowest"
    ),
    "new-partition-begins-late": "the first batch of an added partition is dropped",
    "second-hop-commits-aborted": (
        "on the second hop of a chain, the first ABORT after a reconnect becomes a COMMIT"
    ),
}
"""Bugs of the shadow mirror."""
CLIENTS: Final = {
    "unknown-commit-is-ok": "a commit with an unknown outcome is recorded as ok",
    "purged-is-acknowledged": (
        "a record without an answer at the end of its producer is recorded as acknowledged"
    ),
    "reader-skips-after-death": "a restarted reader of a group skips ten offsets",
}
"""Bugs of clients."""
BUGS: Final = MIRROR | CLIENTS


def struck(what: str) -> None:
    """Adds a line to the log of bugs, if there is one: the working directory, and what the bug
    did."""
    if path := os.environ.get(LOG):
        with Path(path).open("a") as file:
            file.write(f"{Path.cwd()}: {what}\n")


def environment(bug: str, log: Path | None = None) -> dict[str, str]:
    """Environment variables for a command, so that its mirrors and clients have this bug. `log` is
    the file for the bug's effects. Raises KeyError for an unknown bug."""
    path = [str(ROOT / "tests" / "planted" / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        NAME: bug if BUGS[bug] else "",
        LOG: str(log or ""),
    }
