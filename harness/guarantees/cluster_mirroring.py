"""The guarantee of Cluster Mirroring (KIP-1279, code of its branch): the source's bytes, at the
source's offsets.

Batches keep their leader epochs and producer ids. A stop ends every open transaction with an ABORT
marker and forgets the source's producers with a reset record, in a leader epoch past all that was
mirrored. The mirror can be reversed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.guarantees.allowed import (
    group_replay,
    outcome_split,
    over_a_failover,
    torn_by_failover,
)
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.scenario import Option

_SYNC: Final = (
    "KIP-1279, consumer group offset sync: at each metadata refresh, in no transaction with the "
    "mirrored records"
)
_APART: Final = (
    "KIP-1279, rejected alternatives and limits: partitions are mirrored independently; no "
    "atomicity across them"
)
ALLOWED: Final = (
    group_replay(
        _SYNC,
        recent=(
            "the records committed in the last 5 s (offsets are synced every 2 s here), plus 100, "
            "plus the group's lag"
        ),
    ),
    torn_by_failover(_APART),
    outcome_split(
        "KIP-1279, stop: open transactions are aborted on the destination, even if the source "
        "commits them later"
    ),
    *over_a_failover(_SYNC),
)


def guarantee(options: Mapping[str, Option]) -> Guarantee:
    """The guarantee of a mirror with these options; missing ones have their defaults
    (`harness.mirrors.cluster_mirroring`)."""
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
        syncs_topics=True,
        allowed=ALLOWED,
    )
