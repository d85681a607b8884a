"""The view of a check: everything known of one partition of one run, as columns.

A partition is the same (topic, partition) on every cluster of the run. The kernel of a check gets
all replicas on all clusters, and every client's operations on it and reads from it. Arrays of one
table have one length; times are nanoseconds, offsets Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Literal, Self

import numpy as np

from linkflap.harness.log.batch_headers import Batches as Batches
from linkflap.harness.log.batch_headers import Bools as Bools
from linkflap.harness.log.batch_headers import Columns as Columns
from linkflap.harness.log.batch_headers import Ints as Ints
from linkflap.harness.log.batch_headers import Records as Records
from linkflap.harness.log.coordinators import CoordinatorEntry
from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.harness.model.topology import Topology
from linkflap.spark_verify.facts.partition_facts import (
    ChangedBytes,
    Comparison,
    Deletion,
    Description,
    Disagreement,
    LogPromotion,
    LogTruncation,
    MirrorStop,
    PartitionFacts,
    ReplicaSample,
    TopicSettings,
    Window,
)
from linkflap.spark_verify.facts.sends_and_reads import Read, Send

Origin = Literal["native", "mirrored"]

WHOLE = 2**63 - 1
"""Replica.torn_from of a log that can be read to its end."""
NO_EPOCH = -2
"""Batches.leader_epoch of messages of formats 0 and 1, which have none."""
DATA, COMMIT, ABORT, OTHER_CONTROL = -1, 1, 0, 2
"""Values of Batches.control: data, or the type of the control record (KIP-98: 0 = ABORT, 1 =
COMMIT; OTHER_CONTROL: KIP-1279's MIRROR_PID_RESET). What readers skip has other values
(`harness.log.layout`)."""


NULL = -713719188761512837
"""Parts.key and Parts.value of a null: the digest of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Columns):
    """Records of batches in which replicas differ; where cleaners were, of all batches that could
    explain it. `key`, `value` and `headers` are 64-bit digests; timestamps milliseconds.
    """

    offset: Ints
    uid: Ints
    timestamp: Ints
    key: Ints
    value: Ints
    headers: Ints


def digested(data: bytes | None) -> int:
    """A key or a value as `Parts` has it."""
    return digested_parts([data])


def digested_parts(parts: Sequence[bytes | None]) -> int:
    """64 bits, signed; null is not the empty string."""
    state = blake2b(digest_size=8)
    for part in parts:
        state.update(struct.pack(">i", -1 if part is None else len(part)) + (part or b""))
    return int.from_bytes(state.digest(), "big", signed=True)


def no_parts() -> Parts:
    """Nothing that differs."""
    return Parts(**{f.name: np.empty(0, np.int64) for f in fields(Parts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One captured log. `end` is the offset after the last batch in the bytes; records are decoded
    only when `canonical`.

    `parts` are the records of those batches that another replica of its cluster, or the other end
    of a mirror that keeps bytes, has with other bytes (`spark_verify.read.assemble.with_parts`).
    `entries` are what coordinators wrote into it, where it is one of Kafka's own topics and
    canonical. `made_from`, for topics that only programs of the user's write, has per record the
    payload id in the header that the program passed on (-1: none). `moment` is the capture's name,
    and `captured` its time (0: not recorded). The `damage` affects no offset below `torn_from`: a
    record that is missing there was not in the log. `unread` are the offsets [start, end) without a
    readable batch; any other batch is in `batches`, although its records may not be readable.
    `last_stable` is the answer of a running cluster's leader, after it had given `stable_above` as
    its high watermark; -1 where it was not asked. What was written before `since` was not captured.
    """

    cluster: str
    broker: int
    leader: bool
    canonical: bool
    log_start: int
    high_watermark: int
    high_watermark_from: str
    batches: Batches
    records: Records
    damage: Sequence[str]
    parts: Parts = field(default_factory=no_parts)
    moment: str = ""
    captured: int = 0
    torn_from: int = WHOLE
    unread: Sequence[tuple[int, int]] = ()
    last_stable: int = -1
    stable_above: int = -1
    since: int = 0
    entries: Sequence[CoordinatorEntry] = ()
    made_from: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    worked_out: dict[str, object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Results about this replica that several checks need, by name."""

    @property
    def begins(self) -> int:
        """The first offset in the bytes. The log start may be higher until the segment below it is
        deleted."""
        return int(min([self.log_start, *self.batches.base_offset[:1].tolist()]))

    @property
    def end(self) -> int:
        """The log end offset as the bytes have it."""
        return int(self.batches.last_offset[-1]) + 1 if len(self.batches) else self.log_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks(Columns):
    """Sampled bounds of this partition on one cluster, in time order."""

    time: Ints
    returned: Ints
    leader: Ints
    log_start: Ints
    last_stable: Ints
    high_watermark: Ints
    leader_epoch: Ints

    def with_high_watermark(self) -> Self:
        """The samples in which the leader reported its high watermark."""
        return self.take(self.high_watermark >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One (run, topic, partition): the facts about it and its rows.

    `replicas` are the final logs of the clusters. `earlier` are logs captured before a truncation,
    one replica per cluster and moment. `groups` are sampled committed offsets of groups, by time.
    `doubted` are samples that are not among the watermarks, and why.
    """

    partition_facts: PartitionFacts
    replicas: Sequence[Replica] = ()
    earlier: Sequence[Replica] = ()
    sends: Sequence[Send] = ()
    reads: Sequence[Read] = ()
    shares: Sequence[Read] = ()
    watermarks: Mapping[str, Watermarks] = field(default_factory=dict)
    doubted: Sequence[str] = ()
    groups: Sequence[GroupOffset] = ()

    def canonical(self) -> Mapping[str, Replica]:
        """Per cluster, the replica that represents it: the leader's if known, else the longest."""
        return {r.cluster: r for r in self.replicas if r.canonical}

    def hops(self) -> Iterator[tuple[str, str]]:
        """(source, destination) clusters of every link that leads this topic on."""
        return self.partition_facts.hops()

    def brokers_config(self, cluster: str) -> Mapping[str, str]:
        """The settings of a cluster's brokers, as far as the run knows them."""
        return next((c.config for c in self.topology.clusters if c.name == cluster), {})

    def upstream(self, cluster: str) -> frozenset[str]:
        """The other clusters whose records reach this one, over one link or several."""
        found, hops = {cluster}, list(self.hops())
        for _ in hops:
            found |= {source for source, destination in hops if destination in found}
        return frozenset(found - {cluster})

    # The partition's facts, by their names there.

    @property
    def run(self) -> str:
        return self.partition_facts.facts.run

    @property
    def topic(self) -> str:
        return self.partition_facts.topic

    @property
    def partition(self) -> int:
        return self.partition_facts.partition

    @property
    def tp(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def topology(self) -> Topology:
        return self.partition_facts.facts.topology

    @property
    def mirror(self) -> MirrorSpec:
        return self.partition_facts.facts.mirror

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the mirror."""
        return self.partition_facts.facts.mirror.guarantee

    @property
    def windows(self) -> Sequence[Window]:
        return self.partition_facts.facts.windows

    @property
    def ended(self) -> int:
        return self.partition_facts.facts.ended

    @property
    def budgets(self) -> Budgets:
        return self.partition_facts.facts.budgets

    @property
    def recorded(self) -> bool:
        return self.partition_facts.facts.recorded

    @property
    def deaths(self) -> Mapping[str, int]:
        return self.partition_facts.facts.deaths

    @property
    def refusals(self) -> Sequence[FailoverRefused]:
        return self.partition_facts.facts.refusals

    @property
    def promotions(self) -> Sequence[LogPromotion]:
        return self.partition_facts.promotions

    @property
    def truncations(self) -> Sequence[LogTruncation]:
        return self.partition_facts.truncations

    @property
    def stops(self) -> Sequence[MirrorStop]:
        return self.partition_facts.stops

    @property
    def descriptions(self) -> Sequence[Description]:
        return self.partition_facts.descriptions

    @property
    def disagreements(self) -> Sequence[Disagreement]:
        return self.partition_facts.disagreements

    @property
    def comparisons(self) -> Sequence[Comparison]:
        return self.partition_facts.comparisons

    @property
    def settings(self) -> Sequence[TopicSettings]:
        return self.partition_facts.settings

    @property
    def replica_samples(self) -> Sequence[ReplicaSample]:
        return self.partition_facts.replica_samples

    @property
    def changed_bytes(self) -> Sequence[ChangedBytes]:
        return self.partition_facts.changed_bytes

    @property
    def deletions(self) -> Sequence[Deletion]:
        return self.partition_facts.deletions

    @property
    def compacted(self) -> Mapping[str, int]:
        return self.partition_facts.compacted

    @property
    def unclear(self) -> Mapping[str, int]:
        return self.partition_facts.unclear

    @property
    def home(self) -> str:
        return self.partition_facts.home

    @property
    def internal(self) -> bool:
        return self.partition_facts.internal
