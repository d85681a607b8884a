"""Captures by Fetch, instead of copies from brokers' folders (`harness.capture.logs`): for clusters
that linkflap did not start, and for topics without a log on disk.

For a cluster that linkflap did not start, a capture has only the data topics, and of each partition
one replica: the records that its leader returns to a consumer, below the high watermark at the
beginning of the capture. Kafka's own topics are left out, because they hold data of the cluster's
other users. On linkflap's own clusters, every broker that serves a partition to consumers is asked,
and each answer is a replica. Each broker is asked twice for the newest segment of its copy, and
must return the same bytes again.
"""

from __future__ import annotations

import contextlib
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.capture.live.cluster import GivenUp, LiveCluster
from linkflap.harness.capture.live.record import Copied, Pace, copy
from linkflap.harness.capture.logs import Captures, LastKnown, Since, nothing_known
from linkflap.harness.capture.replicas import PartitionFolder
from linkflap.harness.log.layout import CRC_AT, walk
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.events import FetchedAgain
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.protocols import Cluster, Deployment, is_running
from linkflap.harness.model.topology import TopicPartition, is_data_topic
from linkflap.harness.rundir import RunWriter
from linkflap.harness.wire.access import AuthenticationRefused, Unanswered, access_to
from linkflap.harness.wire.librdkafka import quiet, settings_on_topics
from linkflap.harness.wire.messages import Error

_RATE: Final = 20e6
"""Bytes a second that are fetched at most: others use these clusters too."""
_OWN_RATE: Final = 1e9
_ASK_SECONDS: Final = 10.0
_DEAD: Final = (
    "{} was dead when its logs were captured, and only a broker that runs gives topics without a "
    "log on disk; play failover-planned, or another fault that leaves a broker of it running"
)


class FetchedCaptures(Captures):
    """Captures clusters into moments, by Fetch. A cluster that the run has lost is captured once:
    its brokers continue behind the cut paths, and later changes do not belong to the run."""

    def current(self, cluster: str) -> bool:
        return cluster in self._captured

    def _take(self, moment: str, subject: Cluster) -> Sequence[Bounds]:
        alive = is_running(subject)
        with _entered(subject) as cluster:
            bounds = [replace(each, alive=alive) for each in self._fetched(moment, cluster)]
        taken = self._taken.setdefault(moment, {})
        taken[subject.name] = bounds
        if not alive:
            self._captured[subject.name] = None
        self._writer.write_bounds(moment, [row for rows in taken.values() for row in rows])
        return bounds

    def _fetched(self, moment: str, cluster: LiveCluster) -> Sequence[Bounds]:
        partitions = sorted(tp for tp in cluster.enter() if is_data_topic(tp[0], self._homes))
        root = self._writer.capture_folder(moment) / cluster.name
        return fetch_logs(cluster, partitions, root, Pace(_RATE))


class DiskOrFetchCaptures(Captures):
    """Captures clusters from brokers' folders, and by Fetch the data topics without a log on any
    broker's disk, or all of them (`from_fetch`).

    Only a running cluster can be asked, so the capture of a dead one lacks such topics.
    """

    def __init__(
        self,
        deployment: Deployment,
        writer: RunWriter,
        last_known: LastKnown = nothing_known,
        *,
        since: Since | None = None,
        from_fetch: bool = False,
    ) -> None:
        super().__init__(deployment, writer, last_known, since=since)
        self._from_fetch = from_fetch

    def _on_disk(self, subject: Cluster) -> Iterator[PartitionFolder]:
        return (
            replica
            for replica in super()._on_disk(subject)
            if not (self._from_fetch and is_data_topic(replica.topic, self._homes))
        )

    def _elsewhere(self, moment: str, subject: Cluster) -> Sequence[Bounds]:
        if not is_running(subject):
            self._writer.unfetched(subject.name, _DEAD.format(subject.name))
            return ()
        on_disk = {replica.topic for replica in self._on_disk(subject)}
        try:
            with _entered(subject, EnvironmentFailure, InputError) as cluster:
                partitions = [
                    tp
                    for tp in sorted(cluster.enter())
                    if is_data_topic(tp[0], self._homes) and tp[0] not in on_disk
                ]
                root = self._writer.capture_folder(moment) / subject.name
                found = fetch_logs(
                    cluster,
                    partitions,
                    root,
                    Pace(_OWN_RATE),
                    every_broker=True,
                    changed=partial(self._changed, subject),
                    uncompared=partial(self._writer.uncompared, subject.name),
                )
        except EnvironmentFailure as error:
            if self._from_fetch:
                raise
            self._writer.unfetched(subject.name, str(error))
            return ()  # no log of them: the judge says what is missing
        if found:
            self._writer.fetched(subject.name, {bounds.topic for bounds in found})
        return found

    def _changed(self, subject: Cluster, found: FetchedAgain) -> None:
        """Writes down what changed in a topic that no cleaner rewrites. Raises EnvironmentFailure
        if the cluster does not say whether one does."""
        admin = AdminClient(quiet(subject.bootstrap))
        try:
            settings = settings_on_topics(admin, [found.topic], within=_ASK_SECONDS, inherited=True)
        except (KafkaException, TimeoutError) as error:
            raise EnvironmentFailure(
                f"bytes of {found.topic}-{found.partition} changed at offset {found.offset}, and "
                f"whether the topic is compacted is not known ({error})"
            ) from error
        if "compact" not in settings[found.topic].get("cleanup.policy", ""):
            self._writer.write(found)
        else:
            where = f"{found.topic}-{found.partition} of broker {found.broker}"
            self._writer.uncompared(subject.name, f"{where} (the topic is compacted)")


@contextlib.contextmanager
def _entered(subject: Cluster, *failures: type[Exception]) -> Iterator[LiveCluster]:
    """The cluster, for its logs to be fetched in the block. Raises EnvironmentFailure for these
    failures, and where it does not give everything."""
    cluster = LiveCluster(subject.name, subject.bootstrap.split(","), access_to(subject.bootstrap))
    caught: tuple[type[Exception], ...] = (GivenUp, AuthenticationRefused, *failures)
    try:
        yield cluster
    except caught as error:
        raise EnvironmentFailure(
            f"the logs of cluster {subject.name} could not be fetched: {error}"
        ) from error
    finally:
        cluster.close()


def fetch_logs(
    cluster: LiveCluster,
    partitions: Sequence[TopicPartition],
    root: Path,
    pace: Pace,
    *,
    every_broker: bool = False,
    changed: Callable[[FetchedAgain], object] | None = None,
    uncompared: Callable[[str], object] | None = None,
) -> Sequence[Bounds]:
    """Captures partitions from their leaders into `root`/broker/topic-partition, up to the high
    watermark at the beginning; with `every_broker` also from all others that serve them. With
    `changed` fetches the newest segment of each again, and reports what is not the same; to
    `uncompared` it says what could not be compared, and why.

    Raises GivenUp when a leader does not give everything.
    """
    starts, ends = cluster.bounds(partitions, "start"), cluster.bounds(partitions, "high")
    found: list[Bounds] = []
    for tp in partitions:
        leader = max(cluster.leader(tp), 0)
        others = [broker for broker in cluster.brokers if broker != leader] if every_broker else ()
        for broker in sorted((leader, *others)):
            copied = Copied(
                cluster=cluster.name,
                tp=tp,
                broker=broker,
                start=starts[tp],
                end=max(starts[tp], ends[tp]),
                folder=root / str(broker) / f"{tp[0]}-{tp[1]}",
                pinned=broker != leader,
            )
            if copied.pinned and not _serves(cluster, copied):
                continue
            copy(cluster, copied, pace, lambda _size, _offsets: None)
            if not copied.complete and not copied.pinned:
                raise GivenUp(f"{tp[0]}-{tp[1]}: {copied.reason}")
            copied.begin()
            found.append(_bounds_of(copied))
            if changed is None:
                continue
            differs, lacking = _fetched_again(cluster, copied, pace)
            if differs is not None:
                changed(differs)
            if lacking and uncompared is not None:
                uncompared(f"{tp[0]}-{tp[1]} of broker {broker} ({lacking})")
    return found


def _fetched_again(
    cluster: LiveCluster, copied: Copied, pace: Pace
) -> tuple[FetchedAgain | None, str]:
    """The first batch in the newest segment of a copy that its broker now returns with other bytes,
    or None; and why a part of the copy could not be compared, or empty. The limit of one segment
    bounds time, memory and disk.

    Retention, DeleteRecords and a truncation meanwhile are no changes: deleted and truncated
    batches are not compared.
    """
    if not copied.complete:
        return None, copied.reason
    newest = max(copied.folder.glob("*.log"))
    again = replace(
        copied,
        folder=copied.folder.with_name(f"{copied.folder.name}.again"),
        start=max(copied.start, int(newest.stem)),
        end=copied.position,
    )
    try:
        copy(cluster, again, pace, lambda _size, _offsets: None)
        answers = _batches(newest), _batches(*again.folder.glob("*.log"))
    except (GivenUp, AuthenticationRefused) as error:
        return None, str(error)
    finally:
        shutil.rmtree(again.folder, ignore_errors=True)
    if not copied.pinned and cluster.leader(copied.tp) != copied.broker:
        return None, "another broker leads it now"
    first, second = (
        {base: batch for base, batch in answer.items() if again.start <= base < again.position}
        for answer in answers
    )
    end = _truncated_at(first, second)
    reason = again.reason or ("" if end is None else "its log was truncated meanwhile")
    return _first_change(copied, first, second, end), reason


def _first_change(
    copied: Copied, first: Mapping[int, _Given], second: Mapping[int, _Given], end: int | None
) -> FetchedAgain | None:
    """The first batch that differs between two answers, below `end`."""
    for base in sorted(first.keys() | second.keys()):
        one, other = first.get(base), second.get(base)
        if one != other and (end is None or base < end):
            return FetchedAgain(
                cluster=copied.cluster,
                topic=copied.tp[0],
                partition=copied.tp[1],
                broker=copied.broker,
                offset=base,
                crc=(one and one.crc, other and other.crc),
            )
    return None


def _truncated_at(first: Mapping[int, _Given], second: Mapping[int, _Given]) -> int | None:
    """Where a log was truncated between two answers, or None: all batches from there on have a
    newer leader epoch than any that was there before."""
    newest = max((batch.epoch for batch in first.values()), default=-1)
    newer = {base for base, batch in second.items() if batch.epoch > newest}
    end = min(newer, default=None)
    return end if newer == {base for base in second if end is not None and base >= end} else None


class _Given(NamedTuple):
    """The compared values of a batch: its leader epoch, its stored CRC, and the CRC of all its
    bytes."""

    epoch: int
    crc: int
    all_bytes: int


def _batches(*segments: Path) -> dict[int, _Given]:
    """The batches of segment files by their offsets."""
    found: dict[int, _Given] = {}
    for segment in segments:
        content = memoryview(segment.read_bytes())
        for batch in walk(content):
            crc = int.from_bytes(content[batch.start + CRC_AT :][:4], "big")
            all_bytes = zlib.crc32(content[batch.start : batch.stop])
            found[batch.base] = _Given(batch.epoch, crc, all_bytes)
    return found


def _serves(cluster: LiveCluster, copied: Copied) -> bool:
    """Whether a broker gives the partition to consumers (KIP-392: followers may)."""
    try:
        got = cluster.fetch_from(copied.broker, copied.tp, copied.start, most=1, epoch=-1)
    except (Unanswered, GivenUp):
        return False
    return got.error in (Error.none, Error.offset_not_available)


def _bounds_of(copied: Copied) -> Bounds:
    topic, number = copied.tp
    return Bounds(
        cluster=copied.cluster,
        broker=copied.broker,
        topic=topic,
        partition=number,
        leader=not copied.pinned,
        alive=True,
        log_start=copied.start,
        high_watermark=copied.end if copied.complete else max(copied.position, copied.start),
        high_watermark_from="sampled",
    )
