"""What Cluster Mirroring promises (KIP-1279, code of its branch): the source's bytes, at the source's offsets.

Batches keep their leader epochs and producer ids. A stop ends every open transaction with an ABORT marker and forgets the
source's producers with a reset record, in a leader epoch past all that was mirrored. The mirror can be reversed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.guarantees.outputs import over_a_failover
from linkflap.harness.model.guarantee import Allowance, Guarantee
from linkflap.harness.model.scenario import Option

_SYNC: Final = "KIP-1279, consumer group offset sync: at each metadata refresh, in no transaction with the mirrored records"
_APART: Final = "KIP-1279, rejected alternatives and limits: partitions are mirrored independently; no atomicity across them"
ALLOWED: Final = (
    Allowance(
        kind="group-replay",
        rule="within-bound",
        window="a failover",
        bound="what was committed in the last 5 s (offsets are synced every 2 s here), 100, and what the group was behind; or, "
        "where syncs were late, what lies above the offset that the mirror had last committed for the group",
        citation=_SYNC,
        because="the offset that was synced for the group was behind",
    ),
    Allowance(
        kind="torn-by-failover",
        rule="forced-failover",
        window="a forced failover",
        bound="transactions of which some partitions had arrived when the source was given up",
        citation=_APART,
        because="partitions are mirrored independently",
    ),
    Allowance(
        kind="outcome-split",
        rule="forced-failover",
        window="a forced failover, or the end of a run in which the mirror was behind",
        bound="transactions that were mirrored without their COMMIT when the mirror ended",
        citation="KIP-1279, stop: what is open is aborted on the destination, even if the source commits it later",
        because="markers are mirrored as data, and what is open when the mirror ends is aborted",
    ),
    *over_a_failover(_SYNC),
)


def guarantee(options: Mapping[str, Option]) -> Guarantee:
    """The promise of a mirror with these options; what is not given has its default (`harness.mirrors.cluster_mirroring`)."""
    return Guarantee(
        equality="bytes",
        offsets_kept=True,
        producer_ids="kept",
        leader_epochs_kept=True,
        leader_epoch_raised=True,
        isolation="read_uncommitted",
        group_offsets="exact" if options.get("groups", ".*") else "none",
        appended_at_promotion=("abort-markers", "producer-id-reset"),
        reversible=True,
        keeps_journal=True,
        describes_itself=True,
        allowed=ALLOWED,
    )
