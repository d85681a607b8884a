"""The failback point: the offset to which a log is truncated before it follows the other cluster's
log."""

from __future__ import annotations

from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage, parting
from linkflap.harness.mirrors.shadow.settings import TakenPartition
from linkflap.harness.model.errors import InputError


def failback_point(name: str, left: TakenPartition, ours: Lineage, end: int, *, rule: str) -> int:
    """The failback point of one log, by `rule`. `left` is the partition as its mirror left it;
    `ours` and `end` are this log's leader epochs and end.

    offset: the last mirrored offset (KIP-1279 in February 2026). Records that were written later
    and never mirrored are lost. It is only right if everything below is unchanged since it was
    mirrored. If this log has lost part of that (an unclean election), the two logs would differ
    below the failback point, so it is an error.

    epoch: the last mirror epoch (KIP-1279 since March 2026, A10): the end of that epoch here, then
    the epoch check against the other cluster's log. Records that were never mirrored are lost as
    with `offset`. Records that this log has lost are mirrored back.

    Raises InputError for that error.
    """
    mirrored = Lineage(left.epochs)
    mirrored.truncate(left.end)
    common = parting(ours, end, mirrored, left.end) if mirrored.entries else min(left.end, end)
    if rule == "epoch":
        return common
    if common < left.end:
        raise InputError(
            f"{name} was mirrored up to offset {left.end}, but its log on the destination differs "
            f"from offset {common} on; set failback_point to epoch, and these records are mirrored "
            "back from the other cluster"
        )
    return left.end
