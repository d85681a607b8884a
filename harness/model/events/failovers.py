"""Failovers, promotions, truncations by a takeover, and the moves of clients."""

from __future__ import annotations

from typing import Literal

import msgspec

from linkflap.harness.model.events.base import OfCluster, OfLink
from linkflap.harness.model.history import Offset, Small, Time
from linkflap.harness.model.topology import TopicPartition


class Failover(OfLink, frozen=True, kw_only=True):
    """The mirror has ended and the destination is promoted (`chaos.faults.mirrors`).

    `fault_time` (ns) is when the source was abandoned: forced, when the last of its brokers had
    ended or was suspended; planned, when clients were asked to pause. `open_transactions` is the
    number of transactions that were open there then, -1 if unknown.
    """

    mode: Literal["planned", "forced"] = msgspec.field(name="kind")
    fault_time: Time
    open_transactions: int


class OfPartition(OfLink, frozen=True, kw_only=True):
    """At `offset` of a partition's log on one cluster."""

    cluster: str
    topic: str
    partition: Small
    offset: Offset

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition number."""
        return self.topic, self.partition


class Promotion(OfPartition, frozen=True, kw_only=True):
    """`offset` is the first that is the cluster's own. Written by `chaos.faults.mirrors`; of
    copied logs inferred from bytes."""


class PromotionUnknown(OfPartition, frozen=True, kw_only=True):
    """In copied logs: no mark is left of a probable promotion
    (`harness.capture.promotions_from_bytes`)."""


class Truncation(OfPartition, frozen=True, kw_only=True):
    """A takeover truncated the log to `offset`; it had ended at `end`. Written by mirrors that can
    be reversed."""

    end: Offset


class FailoverRefused(OfLink, frozen=True, kw_only=True):
    """The mirror refused to fail over for `seconds`, with Kafka's name and code of the error."""

    mode: Literal["planned", "forced"] = msgspec.field(name="kind")
    error: str
    code: int
    message: str | None = None
    states: str | None = None
    seconds: float


class ClientsMoved(OfCluster, frozen=True, kw_only=True):
    """Clients of a cluster moved to another (`harness.workloads.clients`)."""

    to: str
