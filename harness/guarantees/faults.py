"""The losses that a fault declares, whatever the mirror promises: allowed at the lost offsets, and
nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.guarantee import Allowance, Rule

_WINDOW: Final = "an unclean election, once it was measured"
_BOUND: Final = (
    "from the log end of the elected replica up to the last offset that the dead leader "
    "acknowledged, in each partition"
)
_CITATION: Final = (
    "Kafka, unclean.leader.election.enable: replicas that are not in sync become leaders, even "
    "though that may lose data; KIP-101: the log is truncated there, and the same offsets get "
    "other records"
)
_BECAUSE: Final = "the elected replica did not have it"

_OF_OFFSETS: Final = (
    "lost-write",
    "ghost-ack",
    "inconsistent-offset",
    "unseen-write",
    "phantom-read",
    "hidden-committed",
    "internal-skip",
    "passed-unread",
    "lso-mismatch",
    "never-delivered",
    "delivered-again",
    "wrong-start-offset",
)


def _line(kind: str, rule: Rule) -> Allowance:
    return Allowance(
        kind=kind, rule=rule, window=_WINDOW, bound=_BOUND, citation=_CITATION, because=_BECAUSE
    )


LOSSES: Final[Mapping[str, tuple[Allowance, ...]]] = {
    UNCLEAN: (
        *(_line(kind, "lost-offsets") for kind in _OF_OFFSETS),
        _line("torn-transaction", "lost-parts"),
    )
}
"""Fault -> its declared losses."""
