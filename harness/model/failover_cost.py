"""The cost of a failover, as in the verdict document: records (RPO), time (RTO), transactions.

Each check measures its part (`Check.measure`); the certificate combines them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedPartition:
    """What a failover cost one partition. `producer_ids` counts the producer ids of the records
    mirrored below the promotion offset.

    `aborted` counts transactions and `truncated` offsets, as the mirror recorded them; None where
    it recorded nothing. `group_skip` and `group_replay` count the records that groups skipped, and
    read again, on the destination.
    """

    topic: str
    partition: int
    promotion_offset: int
    rpo_records: int | None = None
    rto_seconds: float | None = None
    producer_ids: int | None = None
    aborted: int | None = None
    truncated: int | None = None
    group_skip: int | None = None
    group_replay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One failover as the bytes show it: `promoted` partitions. `rto_seconds` is None when no write
    succeeded afterwards.

    It counts the transactions that were open when it began, those that the mirror aborted, and
    those that are visible only in part. `refused` (error -> count) is how often the mirror refused
    the failover before it accepted it, `accepted_after` seconds after the first request; only from
    mirrors that record this.
    """

    link: str
    kind: str = ""
    promoted: int | None = None
    rpo_records: int | None = None
    rto_seconds: float | None = None
    fault_time: int = 0
    open_transactions: int | None = None
    aborted_transactions: int | None = None
    torn_transactions: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    accepted_after: float | None = None
    partitions: tuple[PromotedPartition, ...] = ()

    @property
    def refusals(self) -> str:
        """The error with which the failover was refused, and for how long, in words; empty if it
        was not refused."""
        if not self.refused:
            return ""
        errors = ", ".join(f"{n} x {error}" for error, n in sorted(self.refused.items()))
        after = (
            "" if self.accepted_after is None else f", accepted after {self.accepted_after:.2f} s"
        )
        return f"refused at first: {errors}{after}"
