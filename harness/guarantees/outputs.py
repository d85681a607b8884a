"""The anomalies that a failover may cause for programs that make output records from input records:
linkflap's relays, and the user's own.

Inputs, outputs and the offsets of the group are copied over a link independently, so no mirror
promises more (KIP-382, KIP-1279).
"""

from __future__ import annotations

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
                window="a failover",
                bound="mirrored inputs at or above the group's offset on the destination",
                citation=citation,
                because="group offsets and records are mirrored independently; outputs repeat",
            ),
            Allowance(
                kind=f"{what}-lost-by-failover",
                rule="forced-failover",
                window="a forced failover",
                bound=(
                    "outputs that were not mirrored when the failover began, of inputs below the "
                    "group's offset on the source"
                ),
                citation=citation,
                because="partitions and group offsets are mirrored independently",
            ),
        )
    )
