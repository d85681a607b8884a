"""The anomalies that a failover may cause with every mirror that copies partitions and group
offsets independently (KIP-382, KIP-1279)."""

from __future__ import annotations

from typing import Final

from linkflap.harness.model.guarantee import Allowance

PROMOTED: Final = "the cluster that was failed over to"


def group_replay(citation: str, *, recent: str) -> Allowance:
    """Groups read records again that their synced offset did not cover. `recent` is the part of
    them that remains if syncs are on time, where faults on brokers hide the last sync."""
    return Allowance(
        kind="group-replay",
        rule="within-bound",
        cluster=PROMOTED,
        era="mirrored before that failover, below what the group had committed on the source",
        window=(
            "from the group's first poll on the destination until the next failover away from it"
        ),
        bound=(
            "the records above the mirror's last commit for the group that was sampled before; "
            f"after a fault on brokers of either end also {recent}"
        ),
        citation=citation,
        because="the synced offset of the group was behind",
    )


def torn_by_failover(citation: str) -> Allowance:
    """Transactions that were mirrored in some of their partitions only."""
    return Allowance(
        kind="torn-by-failover",
        rule="forced-failover",
        cluster=PROMOTED,
        era="mirrored until that failover, and committed on the source",
        window="a forced failover, at the end of what was mirrored",
        bound=(
            "transactions that were mirrored in only some partitions when the failover began: each "
            "missing record is behind all that arrived of its partition"
        ),
        citation=citation,
        because="partitions are mirrored independently",
    )


def outcome_split(citation: str) -> Allowance:
    """Transactions that were committed on the source, and whose COMMIT was not mirrored."""
    return Allowance(
        kind="outcome-split",
        rule="forced-failover",
        cluster="the destination of the mirror that ended",
        era="mirrored until then, and open there",
        window="a forced failover, or the end of a run in which the mirror was behind",
        bound=(
            "transactions that were mirrored without their COMMIT when the mirror ended: the "
            "source's COMMIT is behind all that was mirrored, and so is the ABORT"
        ),
        citation=citation,
        because="markers are mirrored as data, and the mirror's end aborts open transactions",
    )
