"""The failback point: where a log ends that is to go on as the other cluster's does."""

from __future__ import annotations

from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage, parting
from linkflap.harness.mirrors.shadow.settings import TakenPartition
from linkflap.harness.model.errors import InputError


def failback_point(name: str, left: TakenPartition, ours: Lineage, end: int, *, rule: str) -> int:
    """Where a log ends that is to go on as the other cluster's does.

    offset  the last mirrored offset (KIP-1279 in February 2026). What was written after it and
            never mirrored is lost. Right only while everything below is as it was mirrored: a log
            that has lost some of that since (an unclean election) is refused, since cutting it
            there would leave two different logs.
    epoch   the last mirror epoch (KIP-1279 since March 2026, A10): the end of that epoch here, then
            the epoch check against what the other cluster has of it. What was never mirrored is
            lost as with `offset`; what was lost here comes back.

    Raises InputError for the refusal.
    """
    mirrored = Lineage(left.epochs)
    mirrored.truncate(left.end)
    common = parting(ours, end, mirrored, left.end) if mirrored.entries else min(left.end, end)
    if rule == "epoch":
        return common
    if common < left.end:
        raise InputError(
            f"{name} has only what is below offset {common} of what was mirrored up to {left.end}: "
            "it exists on the destination with other data behind that; set failback_point to "
            "epoch, and that much is taken from the other cluster"
        )
    return left.end
