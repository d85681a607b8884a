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
            f"{recent}; or, if syncs were late, the records above the mirror's last commit for the "
            "group"
        ),
        citation=citation,
        because="the synced offset of the group was behind",
    )


def torn_by_failover(citation: str) -> Allowance:
    """Transactions that were mirrored in some of their partitions only."""
    return Allowance(
        kind="torn-by-failover",
        rule="forced-failover",
        window="a forced failover",
        bound="transactions that were mirrored in only some partitions when the failover began",
        citation=citation,
        because="partitions are mirrored independently",
    )


def outcome_split(citation: str) -> Allowance:
    """Transactions that were committed on the source, and whose COMMIT was not mirrored."""
    return Allowance(
        kind="outcome-split",
        rule="forced-failover",
        window="a forced failover, or the end of a run in which the mirror was behind",
        bound="transactions that were mirrored without their COMMIT when the mirror ended",
        citation=citation,
        because="markers are mirrored as data, and the mirror's end aborts open transactions",
    )
