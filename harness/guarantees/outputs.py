"""The anomalies that a failover may cause for programs that make output records from input records:
linkflap's relays, and the user's own.

Inputs, outputs and the offsets of the group are copied over a link independently, so no mirror
promises more (KIP-382, KIP-1279).
"""

from __future__ import annotations

from linkflap.harness.guarantees.failovers import PROMOTED
from linkflap.harness.model.guarantee import Allowance


def over_a_failover(citation: str) -> tuple[Allowance, ...]:
    """Repeated outputs, and outputs that were not mirrored; `citation` is why the mirror promises
    no more."""
    return tuple(
        line
        for what in ("output", "copy")
        for line in (
            Allowance(
                kind=f"{what}-repeated-by-failover",
                rule="within-bound",
                cluster=PROMOTED,
                era="outputs of its own, of inputs that were mirrored before that failover",
                window="from the failover on",
                bound="one for each mirrored input at or above where the group began there",
                citation=citation,
                because="group offsets and records are mirrored independently; outputs repeat",
            ),
            Allowance(
                kind=f"{what}-lost-by-failover",
                rule="forced-failover",
                cluster=PROMOTED,
                era="outputs of the source, of inputs that were mirrored before that failover",
                window="a forced failover",
                bound=(
                    "one for each mirrored input below where the group began there, whose output "
                    "the source has"
                ),
                citation=citation,
                because="partitions and group offsets are mirrored independently",
            ),
        )
    )
