"""The guarantee of the shadow mirror, by its options: the drafts of KIP-1279 (docs/shadow.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.guarantees.allowed import (
    group_replay,
    outcome_split,
    over_a_failover,
    torn_by_failover,
)
from linkflap.harness.model.guarantee import MAPPED, Allowance, Appended, Guarantee
from linkflap.harness.model.scenario import Option

_SYNC: Final = (
    "KIP-1279, group offset sync: at an interval, in no transaction with the mirrored records"
)
ALLOWED: Final = (
    group_replay(
        "KIP-1279, group offset sync: the destination may be behind by one interval, never ahead",
        recent=(
            "the records committed in the last 5 s (offsets are synced every second), plus 100, "
            "plus the group's lag"
        ),
    ),
    torn_by_failover(
        "KIP-382 and KIP-1279: every partition is fetched independently and asynchronously"
    ),
    outcome_split(
        "KIP-1279: transactions open when a mirror stops are aborted on the destination, even if "
        "the source commits them later"
    ),
    *over_a_failover(_SYNC),
    Allowance(
        kind="skipped-by-truncation",
        rule="below-truncation",
        cluster="the cluster whose log was truncated",
        era="the log generation after that truncation",
        window=(
            "a log is truncated below a reader's position: in a failback, or by a promotion that "
            "truncates"
        ),
        bound=(
            "from the truncation up to the reader's position; no other cluster ever had its "
            "records of the tail"
        ),
        citation=(
            "KIP-1279, failback: records that were never mirrored are truncated; KIP-320: a client "
            "detects that only by a request for the end of its epoch (OffsetForLeaderEpoch), which "
            "this mirror does not offer to clients"
        ),
        because="a reader that does not detect a truncation keeps its position",
    ),
)


def guarantee(options: Mapping[str, Option]) -> Guarantee:
    """The guarantee of a shadow with these options; missing ones have their defaults
    (`harness.mirrors.shadow.settings`)."""
    ids, ends = str(options.get("producer_ids", "jump")), options.get("open_transactions", "abort")
    appended: list[Appended] = []
    if ends == "abort":
        appended.append("abort-markers")
    if ids == "reset":
        appended.append("producer-id-reset")
    return Guarantee(
        equality="bytes",
        offsets_kept=True,
        producer_ids=ids if ids in MAPPED else "kept",
        leader_epochs_kept=options.get("leader_epochs") == "keep",
        leader_epoch_raised=True,
        isolation="read_committed" if options.get("bound") == "lso" else "read_uncommitted",
        group_offsets="exact" if options.get("groups", ".*") else "none",
        appended_at_promotion=tuple(appended),
        reversible=True,
        keeps_journal=True,
        restores_settings=True,
        allowed=ALLOWED,
    )
