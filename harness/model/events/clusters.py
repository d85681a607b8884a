"""Clusters, their brokers, and captures of their logs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkflap.harness.model.events.base import Event, OfCluster
from linkflap.harness.model.faults import Target
from linkflap.harness.model.history import Small, Time


class ClusterReady(OfCluster, frozen=True, kw_only=True):
    """Its brokers answer, `seconds` after they were started. Written by runtimes; `kafka` is the
    release, build or image."""

    kafka: str
    brokers: int
    seconds: float


class BrokerDied(Event, frozen=True, kw_only=True):
    """A broker (`A/1`) ended, and no fault had ended it (`harness.recording.unexpected_exits`).

    `status` is its exit status, or minus the signal's number; None where it is unknown.
    `out_of_memory` is None where that cannot be seen. `last_words` are the last lines of its log.
    """

    broker: str = msgspec.field(name="subject")
    by: str
    status: int | None
    out_of_memory: bool | None
    last_words: tuple[str, ...]

    @property
    def cluster(self) -> str:
        """Of which cluster it is."""
        return Target.parse(self.broker).cluster


class Captured(OfCluster, frozen=True, kw_only=True):
    """Its raw logs were copied, so many replicas of partitions. Written by `harness.capture`; not
    counted of copied logs."""

    moment: str
    replicas: int | None = None


class SampledReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The log start and end of one replica of a partition, on `broker`."""

    topic: str
    partition: Small
    broker: Small
    log_start: int
    log_end: int


class SettingsSampled(OfCluster, frozen=True, kw_only=True):
    """Settings that are set on topics of a cluster, where they had changed, and at the end of a
    run: topic -> name -> value; requested at `asked` (ns), answered at the event's time
    (`harness.capture.topic_settings`). `before` is the time of the last earlier request that was
    answered, 0 if none was; None in older runs."""

    asked: Time
    topics: Mapping[str, Mapping[str, str]]
    before: int | None = None


class ReplicasSampled(OfCluster, frozen=True, kw_only=True):
    """The replicas of one broker that changed, or were not recorded for a while: requested at
    `asked` (ns), answered at the event's time (`harness.capture.replica_ends`)."""

    asked: Time
    rows: tuple[SampledReplica, ...]


class RecordsDeleted(OfCluster, frozen=True, kw_only=True):
    """The records of a partition below an offset are to be deleted (DeleteRecords, KIP-107).
    Written before the request is sent, by whoever sends it."""

    topic: str
    partition: Small
    offset: int
