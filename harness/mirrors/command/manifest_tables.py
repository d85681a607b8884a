"""The tables of a manifest, as msgspec types."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from linkflap.harness.model.guarantee import (
    Appended,
    Delivery,
    Equality,
    GroupOffsets,
    Isolation,
    ProducerIds,
    Rule,
)

Words = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]


Seconds = Annotated[float, Meta(gt=0, le=3600)]


class ManifestTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables: immutable, unknown keys are errors."""


class AllowedTable(ManifestTable, frozen=True, kw_only=True):
    """The same fields as `harness.model.guarantee.Allowance`."""

    kind: str
    rule: Rule
    window: str
    bound: str
    citation: str
    because: str
    reach_before: float = 0.0
    reach_after: float = 0.0
    cluster: str = ""
    era: str = ""


class GuaranteeTable(ManifestTable, frozen=True, kw_only=True):
    """The same fields as `harness.model.guarantee.Guarantee`, without those about a journal, which
    such a mirror does not have."""

    equality: Equality
    offsets_kept: bool
    producer_ids: ProducerIds
    leader_epochs_kept: bool = False
    leader_epoch_raised: bool = False
    delivery: Delivery = "at-least-once"
    isolation: Isolation = "read_uncommitted"
    group_offsets: GroupOffsets = "none"
    group_offset_records: Annotated[int, Meta(ge=0)] = 100
    group_offset_seconds: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    appended_at_promotion: list[Appended] = []
    allowed: list[AllowedTable] = []


class FailoverTable(ManifestTable, frozen=True, kw_only=True):
    """Commands that make the destination writable: exit status 0 once it is."""

    forced: Words | None = None
    planned: Words | None = None


class CommandsTable(ManifestTable, frozen=True, kw_only=True):
    """The commands; only `start` is required."""

    start: Words
    ready: Words | None = None
    lag: Words | None = None
    stop: Words | None = None
    crash: Words | None = None
    restart: Words | None = None
    failover: FailoverTable = FailoverTable()
    failback: Words | None = None
    """Prepares a former source as a destination of the reverse link: exit status 0 once it is
    ready."""


class SecondsTable(ManifestTable, frozen=True, kw_only=True):
    """The timeout of each command, in seconds. `ready`: from the start until a record has
    arrived."""

    ready: Seconds = 90.0
    lag: Seconds = 10.0
    stop: Seconds = 30.0
    crash: Seconds = 30.0
    failover: Seconds = 120.0
    failback: Seconds = 120.0
