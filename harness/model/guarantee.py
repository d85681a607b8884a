"""The guarantee of a mirror: all that the verifier knows of a mirror. Pure values, written to
run.json with every run.

A mirror declares its guarantee from its options before anything starts. Checks compare the logs
with the guarantee, never with the kind of mirror. So the verifier judges any mirror without a
change to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from linkflap.harness.model.history import Isolation

Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Equality = Literal["bytes", "records", "order"]
"""From the strongest: batches byte for byte at the same offsets, records at the same offsets,
records in the same order."""
ProducerIds = Literal["kept", "negate", "complement", "region", "replaced"]
"""Kept; mapped by a formula of KIP-1279 (`producer_ids`); or replaced by the ids of the mirror's
own."""
MAPPED: Final[frozenset[ProducerIds]] = frozenset({"negate", "complement", "region"})
"""The mappings that give every batch another producer id, and therefore another CRC, than on the
source."""
Delivery = Literal["exactly-once", "at-least-once"]
GroupOffsets = Literal["exact", "translated", "none"]
"""Committed offsets of groups on the destination: the source's, earlier ones of translated offsets
(KIP-545), or not mirrored."""
Appended = Literal["abort-markers", "producer-id-reset"]
Rule = Literal[
    "once-per-fault",
    "within-bound",
    "forced-failover",
    "below-truncation",
    "lost",
    "refused-before",
]
"""The rules that distinguish an allowed anomaly from a violation
(`spark_verify.verdict.allowances`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """An anomaly that the guarantee permits, and where that is written (`citation`).

    `cluster` and `era` say on which cluster, and of which records; `window` from when to when;
    `bound` their maximum number, counted in the logs. `because` begins the sentence that the report
    shows. `reach_before` and `reach_after` are seconds around a fault within which its consequences
    may lie; they apply to the rule `once-per-fault`.
    """

    kind: str
    rule: Rule
    window: str
    bound: str
    citation: str
    because: str
    reach_before: Seconds = 0.0
    reach_after: Seconds = 0.0
    cluster: str = ""
    era: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of a mirror: the relation between its source and destination, and the changes
    that it makes to a log at a failover or failback.

    Equality of bytes and records is modulo the declared mapping of `producer_ids`. `offsets_kept`:
    a record has the source's offset on the destination. `leader_epochs_kept`: so does the leader
    epoch of a batch. `leader_epoch_raised`: after a promotion the destination's clients write in a
    later leader epoch than every mirrored batch. `group_offset_records` and `group_offset_seconds`:
    how far a group's offset on the destination may be behind the one that it committed on the
    source, in records and in time. `group_offsets_by` is the connector of the mirror (event
    `mirror-state`) that copies committed offsets of groups; None if no single connector does.
    `appended_at_promotion` are the control records that the mirror writes behind the last mirrored
    offset. `reversible`: it can take over its former source (failback), and truncates that log
    where the two histories diverge. `keeps_journal`: it reports each step of its end in the event
    `mirror-stopped`, including what it removed of a mirrored tail. `describes_itself`: the harness
    samples its report of each partition's state and lag (event `mirror-described`). `syncs_topics`:
    the destination has the source's topics, partitions and settings, and they are compared when it
    ends (event `topics-compared`); settings are sampled, and stay at a failover.
    `restores_settings`: while it mirrors, topics have settings of its own, and a failover gives
    them those of their home; they are sampled (event `settings-sampled`).
    """

    equality: Equality
    offsets_kept: bool
    producer_ids: ProducerIds
    leader_epochs_kept: bool = False
    leader_epoch_raised: bool = False
    delivery: Delivery = "exactly-once"
    isolation: Isolation = "read_uncommitted"
    group_offsets: GroupOffsets = "none"
    group_offset_records: int = 100
    group_offset_seconds: Seconds = 5.0
    group_offsets_by: str | None = None
    appended_at_promotion: tuple[Appended, ...] = ()
    reversible: bool = False
    keeps_journal: bool = False
    describes_itself: bool = False
    syncs_topics: bool = False
    restores_settings: bool = False
    allowed: tuple[Allowance, ...] = ()

    @property
    def producer_ids_mapped(self) -> bool:
        """Whether every batch has another producer id, and so another CRC, than at the source."""
        return self.producer_ids in MAPPED
