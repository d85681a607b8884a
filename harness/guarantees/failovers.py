"""The anomalies that a failover may cause with every mirror that copies partitions and group
offsets independently (KIP-382, KIP-1279)."""

from __future__ import annotations

from linkflap.harness.model.guarantee import Allowance


def group_replay(citation: str, *, recent: str) -> Allowance:
    """Groups read records again that their synced offset did not cover. `recent` is the part of
    them that remains if syncs are on time."""
    return Allowance(
        kind="group-replay",
        rule="within-bound",
        window="a failover",
        bound=(
            f"{recent}; or, where syncs were late, what lies above the offset that the mirror had "
            "last committed for the group"
        ),
        citation=citation,
        because="the offset that was synced for the group was behind",
    )


def torn_by_failover(citation: str) -> Allowance:
    """Transactions of which only some partitions had arrived."""
    return Allowance(
        kind="torn-by-failover",
        rule="forced-failover",
        window="a forced failover",
        bound="transactions of which some partitions had arrived when the failover began",
        citation=citation,
        because="partitions are mirrored independently",
    )


def outcome_split(citation: str) -> Allowance:
    """Transactions that were committed at the source, and whose COMMIT did not arrive."""
    return Allowance(
        kind="outcome-split",
        rule="forced-failover",
        window="a forced failover, or the end of a run in which the mirror was behind",
        bound="transactions that were mirrored without their COMMIT when the mirror ended",
        citation=citation,
        because="markers are mirrored as data, and what is open when the mirror ends is aborted",
    )
