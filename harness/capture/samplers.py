"""Samples a run: the bounds of every data partition, every replica, the committed offsets of
groups, the start offsets of programs' share groups, the settings of topics, and host stalls.

Bounds: each cluster has one thread with one admin client. One sample requests ListOffsets three
times in this order: log start, last stable offset (read_committed end), high watermark
(read_uncommitted end). So within a row log start <= LSO <= high watermark holds for a correct
broker, whatever is written meanwhile. A cluster that does not answer gives no row, only a count.

Committed offsets: each group is read by a consumer that has the group's name and never joins it.
AdminClient.list_consumer_group_offsets would end the process when the coordinator moves or loads
(librdkafka 2.16: rd_kafka_handle_OffsetFetch uses the consumer group of the handle, and an admin
client has none).

Replicas: one thread per cluster asks every running broker once a second for the log start and end
of its replicas, follower or leader. A replica is recorded if it changed, and every few seconds: so
each leader epoch that lasts has samples of it. Where a mirror leads partitions itself, no thread
asks: each sample of the leaders' high watermarks is followed at once by one of all followers
(`beside`). The verifier then compares the offsets shown to readers with the logs of the followers
that would lead without the mirror.

Settings of topics: one thread asks each cluster once a second. A topic is recorded when its
settings differ from the last record, and at the end of the run: a failover must restore settings
that the mirror had changed.

A host stall is an oversleep beyond a broker's session timeout, which shows that the machine starved
every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.events import (
    HostStall,
    ReplicasSampled,
    SampledReplica,
    SettingsSampled,
)
from linkflap.harness.model.history import SHARE_SAMPLER, Fetched, GroupOffset, Poll, Watermark
from linkflap.harness.model.protocols import Cluster, Deployment, Recorder, is_running
from linkflap.harness.model.security import entered_by
from linkflap.harness.model.threads import Background, stop_all
from linkflap.harness.model.topology import ANY_NAME, TopicPartition, is_data_topic
from linkflap.harness.model.wait import now, until
from linkflap.harness.rundir import Appender, RunWriter
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.librdkafka import quiet, settings_on_topics
from linkflap.harness.wire.requests import (
    EARLIEST,
    LATEST,
    replica_offsets,
    share_group_starts,
)

INTERVAL: Final = 1.0
AGAIN: Final = int(5e9)
"""Nanoseconds after which a replica is recorded again, although it did not change."""
ANSWER_WITHIN: Final = 2.0
Runs = Callable[[str], bool]
"""Whether a broker of a cluster runs. A cluster that did not answer is asked again only then: each
question to a dead one takes `ANSWER_WITHIN`, and what runs waits for the answer."""


def runs_in(deployment: Deployment) -> Runs:
    """Answered by the deployment; True where its runtime cannot report which brokers run."""

    def runs(cluster: str) -> bool:
        try:
            return is_running(deployment.clusters[cluster])
        except EnvironmentFailure:
            return True

    return runs


class ReplicaSampler(Background):
    """Samples the replicas of one cluster from its own thread, until stopped."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Mapping[str, int],
        recorder: Recorder,
        *,
        interval: float = INTERVAL,
        again: int = AGAIN,
    ) -> None:
        super().__init__(f"the sampler of the replicas of {cluster.name}", self._watch)
        self._cluster, self._topics, self._recorder = cluster, topics, recorder
        self._interval, self._again = interval, again
        self._last: dict[tuple[str, int, int], tuple[tuple[int, int], int]] = {}

    def beside(self, leaders: Mapping[TopicPartition, Watermark]) -> None:
        """Samples the replicas right after a sample of the leaders, if a leader is no broker of the
        cluster (a mirror)."""
        brokers = self._cluster.brokers
        if any(row.leader >= 0 and row.leader not in brokers for row in leaders.values()):
            self._sampled()

    def _watch(self) -> None:
        while not self.stopping.wait(self._interval):
            self._sampled()
        self._sampled()

    def _sampled(self) -> None:
        """Takes a sample, unless the runtime cannot report which brokers run."""
        with contextlib.suppress(EnvironmentFailure):
            asyncio.run(self.sample())

    async def sample(self) -> None:
        """Asks every running broker, and records the replicas that changed."""
        topics = dict(self._topics)  # another thread may add some
        partitions = [(name, number) for name, n in topics.items() for number in range(n)]
        running = {
            broker.id: broker.client_address
            for broker in self._cluster.brokers.values()
            if broker.state == "running"
        }
        await asyncio.gather(
            *(self._ask(broker, address, partitions) for broker, address in running.items())
        )

    async def _ask(self, broker: int, address: str, partitions: Sequence[TopicPartition]) -> None:
        connection, asked = Connection(address), now()
        try:
            ends = await replica_offsets(connection, partitions, LATEST, within=ANSWER_WITHIN)
            starts = await replica_offsets(connection, partitions, EARLIEST, within=ANSWER_WITHIN)
        except Unanswered:
            return
        finally:
            connection.close()
        rows = [
            SampledReplica(
                topic=tp[0], partition=tp[1], broker=broker, log_start=starts[tp], log_end=ends[tp]
            )
            for tp in starts.keys() & ends.keys()
        ]
        news = tuple(row for row in rows if self._is_news(row, asked))
        if news:
            self._recorder.write(
                ReplicasSampled(cluster=self._cluster.name, asked=asked, rows=news)
            )

    def _is_news(self, row: SampledReplica, asked: int) -> bool:
        """Whether a replica differs from its last record, or that record is old."""
        key, bounds = (row.topic, row.partition, row.broker), (row.log_start, row.log_end)
        last, at = self._last.get(key, ((-1, -1), 0))
        if last == bounds and asked < at + self._again:
            return False
        self._last[key] = bounds, asked
        return True


def replica_samplers(
    deployment: Deployment, topics: Mapping[str, int], recorder: Recorder, *, again: int = AGAIN
) -> Mapping[str, ReplicaSampler]:
    """One for each cluster of several brokers: a single replica is its partition's leader, whose
    bounds are sampled anyway (`harness.capture.samplers`)."""
    return {
        name: ReplicaSampler(cluster, topics, recorder, again=again)
        for name, cluster in deployment.clusters.items()
        if len(cluster.brokers) > 1
    }


class ShareGroupSampler(Background):
    """Samples the start offsets of share groups on one cluster from its own thread, until stopped,
    and once more then. Each running broker is asked: that which coordinates a group answers."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Iterable[str],
        rows: Appender[Poll],
        *,
        interval: float = INTERVAL,
    ) -> None:
        super().__init__(f"the sampler of the share groups of {cluster.name}", self._watch)
        self._cluster, self._groups, self._rows = cluster, sorted(groups), rows
        self._interval = interval
        self._last: dict[tuple[str, TopicPartition], int] = {}

    def _watch(self) -> None:
        while not self.stopping.wait(self._interval):
            self._sampled()
        self._last.clear()
        self._sampled()

    def _sampled(self) -> None:
        """Takes a sample, unless the runtime cannot report which brokers run."""
        with contextlib.suppress(EnvironmentFailure):
            addresses = [
                b.client_address for b in self._cluster.brokers.values() if b.state == "running"
            ]
            asyncio.run(self._sample(addresses))

    async def _sample(self, addresses: Sequence[str]) -> None:
        await asyncio.gather(*map(self._ask, addresses))

    async def _ask(self, address: str) -> None:
        connection, asked = Connection(address), now()
        try:
            found = await share_group_starts(connection, self._groups, within=ANSWER_WITHIN)
        except Unanswered:
            return
        finally:
            connection.close()
        for group, starts in found.items():
            news = {tp: at for tp, at in starts.items() if self._last.get((group, tp)) != at}
            self._last |= {(group, tp): at for tp, at in news.items()}
            if news:
                self._rows.write(
                    Poll(
                        time=asked,
                        returned=now(),
                        reader=SHARE_SAMPLER,
                        process=0,
                        cluster=self._cluster.name,
                        isolation="read_uncommitted",
                        kind="settled",
                        group=group,
                        fetched=tuple(
                            Fetched(topic=topic, partition=number, position=at)
                            for (topic, number), at in news.items()
                        ),
                    )
                )


def share_group_samplers(
    deployment: Deployment, groups: Collection[str], writer: RunWriter
) -> Sequence[ShareGroupSampler]:
    """One for each cluster, if there is a group: of programs. Members of linkflap's own share
    groups ask themselves."""
    return [
        ShareGroupSampler(cluster, groups, writer.polls(f"share-groups-{name}"))
        for name, cluster in deployment.clusters.items()
        if groups
    ]


EVERY: Final = int(0.5e9)


class GroupSampler:
    """Writes the committed offsets of groups that are new or changed since the last sample, at most
    twice a second. `config` is librdkafka's, of a client of the cluster."""

    def __init__(
        self,
        cluster: str,
        config: Mapping[str, str | int | float | bool],
        groups: Sequence[str],
        writer: RunWriter,
    ) -> None:
        self.sampled: frozenset[str] = frozenset()
        """Groups of which some committed offset was sampled."""
        self._cluster, self._config, self._groups = cluster, config, groups
        self._offsets = writer.groups(cluster)
        self._sampled_at = 0
        self._known: dict[tuple[str, str, int], int] = {}
        self._consumers: dict[str, Consumer] = {}

    def sample(self, partitions: Sequence[TopicPartition], *, within: float) -> None:
        """Asks for each group's offsets in these partitions, unless that was done just now. Raises
        KafkaException when no answer comes within so many seconds."""
        if now() < self._sampled_at + EVERY:
            return
        self._sampled_at = now()
        for group in self._groups:
            self._sample(group, partitions, within)

    def sample_next(self) -> None:
        """Makes the next call of `sample` ask, even if one did just now."""
        self._sampled_at = 0

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The last sampled offsets of a group."""
        known = dict(self._known)  # a copy: the sampler's thread adds to it
        return {(topic, number): at for (of, topic, number), at in known.items() if of == group}

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _sample(self, group: str, partitions: Sequence[TopicPartition], within: float) -> None:
        asked = now()
        for partition in self._consumer(group).committed(
            [KafkaPartition(*tp) for tp in partitions], timeout=within
        ):
            key = group, partition.topic, partition.partition
            if (
                partition.error is None
                and partition.offset >= 0
                and self._known.get(key) != partition.offset
            ):
                self._known[key] = partition.offset
                self.sampled |= {group}
                self._offsets.write(
                    GroupOffset(
                        time=asked,
                        cluster=self._cluster,
                        group=group,
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=partition.offset,
                    )
                )

    def _consumer(self, group: str) -> Consumer:
        if group not in self._consumers:
            config = {**self._config, "group.id": group, "enable.auto.commit": False}
            # With read_committed the broker refuses to answer while a transaction with offsets of
            # the group is open (KIP-447, require_stable). With relays that is nearly always, and
            # the samples of bounds would wait for it. The offsets it returns are committed anyway.
            config["isolation.level"] = "read_uncommitted"
            self._consumers[group] = Consumer(config)
        return self._consumers[group]


SESSION_TIMEOUT: Final = 3.0
_NAP: Final = 0.25


class StallWatch(Background):
    """Sleeps a quarter of a second at a time, and records it when the machine did not wake it for a
    session timeout."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__("the stall watch", self._watch)
        self._recorder = recorder

    def _watch(self) -> None:
        before = time.monotonic()
        while not self.stopping.wait(_NAP):
            after = time.monotonic()
            self.noticed(after - before - _NAP)
            before = after

    def noticed(self, oversleep: float) -> None:
        """Records an oversleep of so many seconds when it is a session timeout or more."""
        if oversleep >= SESSION_TIMEOUT:
            self._recorder.write(HostStall(seconds=round(oversleep, 3)))


BOUNDS_INTERVAL: Final = 0.2
LEADERS_EVERY: Final = int(1e9)
LAST_WITHIN: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffsets:
    """The answer of one ListOffsets: offset and leader epoch (-1: none) of each partition that
    answered."""

    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


class ClusterSampler(Background):
    """Samples one cluster from its own thread until stopped, and once more then. `errors` counts
    samples that got no answer."""

    def __init__(
        self,
        cluster: str,
        bootstrap: str,
        topics: dict[str, int],
        groups: Sequence[str],
        writer: RunWriter,
        *,
        interval: float = BOUNDS_INTERVAL,
        finds: bool = False,
        beside: Callable[[Mapping[TopicPartition, Watermark]], None] = lambda _: None,
        runs: Runs = lambda _: True,
    ) -> None:
        super().__init__(f"the sampler of {cluster}", self._watch)
        self.cluster = cluster
        self._beside, self._runs = beside, runs
        self.errors = self.samples = 0
        self.latest: Mapping[TopicPartition, Watermark] = {}
        self._topics, self._interval, self._finds = topics, interval, finds
        self._watermarks = writer.watermarks(cluster)
        self._config = quiet(entered_by(bootstrap, "sampler")) | {
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 2000,
        }
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._looked_at = 0
        self._groups = GroupSampler(cluster, self._config, groups, writer)

    @property
    def sampled_groups(self) -> frozenset[str]:
        """Groups of which some committed offset was sampled."""
        return self._groups.sampled

    def group_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The last sampled committed offsets of a group."""
        return self._groups.offsets(group)

    def _watch(self) -> None:
        admin, answers = AdminClient(self._config), True
        while not self.stopping.wait(self._interval):
            if not answers and not self._runs(self.cluster):
                self.errors += 1
                continue
            if not answers:
                # A broker that answers other clients may still owe this one an answer, so the
                # sampler waits as long as a slow machine needs.
                admin = AdminClient(self._config)
            answers = self._sampled(admin)
        # Members may have committed since the last sample of groups, and not commit again.
        self._groups.sample_next()
        if not answers and self._runs(self.cluster):
            admin = AdminClient(self._config)
            answers = self._sampled(admin)
        if answers:
            # The run may end within one interval after a failover, while leaders still move.
            # Without this last sample, no sample would show the result.
            with contextlib.suppress(DeadlineExceeded):
                until(
                    lambda: self._last(admin),
                    within=LAST_WITHIN,
                    every=0.1,
                    what=f"every leader of {self.cluster} to answer",
                )
        self._groups.close()

    def _last(self, admin: AdminClient) -> bool:
        """Takes a sample; whether it has every partition that has a leader, or the cluster does not
        answer any more."""
        return not self._sampled(admin) or self.latest.keys() >= self._leaders.keys()

    def _sampled(self, admin: AdminClient) -> bool:
        """Takes a sample; whether the cluster answered."""
        try:
            self._sample(admin)
        except KafkaException:
            self.errors += 1
            return False
        self.samples += 1
        return True

    def _sample(self, admin: AdminClient) -> None:
        self._look_for_leaders(admin)
        partitions = list(self._leaders)
        if partitions:
            self._write(admin, partitions)
            self._beside(self.latest)
            self._groups.sample(partitions, within=ANSWER_WITHIN)

    def _look_for_leaders(self, admin: AdminClient) -> None:
        """Asks for metadata once a second; a partition without a leader is left out until it has
        one."""
        if self._leaders and now() < self._looked_at + LEADERS_EVERY:
            return
        known = admin.list_topics(timeout=ANSWER_WITHIN).topics
        self._looked_at = now()
        self._topics.update(
            (name, len(topic.partitions))
            for name, topic in known.items()
            if self._finds and is_data_topic(name, (ANY_NAME,))
        )
        self._leaders = {
            (topic, partition): led.leader
            for topic in list(self._topics)
            if topic in known
            for partition, led in known[topic].partitions.items()
            if led.leader >= 0
        }

    def _write(self, admin: AdminClient, partitions: Sequence[TopicPartition]) -> None:
        started = now()
        starts = self._ask(
            admin, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED
        )
        stable = self._ask(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        ends = self._ask(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        returned = now()
        rows: dict[TopicPartition, Watermark] = {}
        for tp in partitions:
            offsets = [asked.offsets.get(tp, -1) for asked in (starts, stable, ends)]
            if max(offsets) < 0:
                continue
            epoch = ends.epochs.get(tp, -1)
            rows[tp] = Watermark(
                time=started,
                returned=returned,
                cluster=self.cluster,
                leader=self._leader(tp, stable.epochs.get(tp, -1), epoch),
                topic=tp[0],
                partition=tp[1],
                log_start=offsets[0],
                last_stable=offsets[1],
                high_watermark=offsets[2],
                leader_epoch=epoch,
            )
            self._watermarks.write(rows[tp])
        self.latest = rows
        if len(rows) < len(partitions):
            self.errors += 1

    def _leader(self, tp: TopicPartition, before: int, after: int) -> int:
        """The leader by metadata, or -1 if the leader epoch shows that it has changed since or
        meanwhile."""
        if before != after or self._epochs.get(tp, after) != after:
            self._epochs[tp] = after
            self._looked_at = 0
            return -1
        self._epochs[tp] = after
        return self._leaders[tp]

    def _ask(
        self,
        admin: AdminClient,
        partitions: Sequence[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel,
    ) -> ListedOffsets:
        asked = admin.list_offsets(
            {KafkaPartition(*tp): spec for tp in partitions},
            isolation_level=isolation,
            request_timeout=ANSWER_WITHIN,
        )
        offsets: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        for partition, future in asked.items():
            try:
                info = cast(ListOffsetsResultInfo, future.result(timeout=2 * ANSWER_WITHIN))
            except (KafkaException, TimeoutError):
                self._looked_at = 0
                continue
            tp = partition.topic, partition.partition
            # librdkafka has -1001 where the broker returned no offset
            offsets[tp] = max(info.offset, -1)
            if info.leader_epoch is not None:
                epochs[tp] = info.leader_epoch
        return ListedOffsets(offsets=offsets, epochs=epochs)


class WatermarkSampler:
    """Samplers of several clusters, and the stall watch. `bootstraps` is cluster -> bootstrap
    servers of its own listeners. `finds`: whether newly found topics are sampled too. `beside`: a
    function called after each sample of a cluster. `runs`: whether a broker of a cluster runs."""

    def __init__(
        self,
        bootstraps: Mapping[str, str],
        topics: dict[str, int],
        writer: RunWriter,
        *,
        groups: Sequence[str] = (),
        interval: float = BOUNDS_INTERVAL,
        finds: bool = False,
        beside: Mapping[str, Callable[[Mapping[TopicPartition, Watermark]], None]] | None = None,
        runs: Runs = lambda _: True,
    ) -> None:
        self.clusters = {
            name: ClusterSampler(
                name,
                bootstrap,
                topics,
                groups,
                writer,
                interval=interval,
                finds=finds,
                beside=(beside or {}).get(name, lambda _: None),
                runs=runs,
            )
            for name, bootstrap in bootstraps.items()
        }
        self._stalls = StallWatch(writer)

    def start(self) -> None:
        for each in (*self.clusters.values(), self._stalls):
            each.start()

    def ask_to_stop(self) -> None:
        for each in (*self.clusters.values(), self._stalls):
            each.ask_to_stop()

    def stop(self) -> None:
        """Returns when every thread is gone; safe to call twice."""
        stop_all([*self.clusters.values(), self._stalls])


class SettingsSampler(Background):
    """Samples the topics of several clusters (`bootstraps`: cluster -> addresses), until
    stopped."""

    def __init__(
        self,
        bootstraps: Mapping[str, str],
        topics: Mapping[str, int],
        recorder: Recorder,
        *,
        runs: Runs = lambda _: True,
    ) -> None:
        super().__init__("the sampler of topics' settings", self._watch)
        self._runs = runs
        self._bootstraps, self._topics, self._recorder = bootstraps, topics, recorder
        self._last: dict[tuple[str, str], Mapping[str, str]] = {}
        self._answered = dict.fromkeys(bootstraps, 0)
        self._admins: dict[str, AdminClient] = {}

    def _watch(self) -> None:
        while True:
            last = self.stopping.wait(INTERVAL)
            for name in self._bootstraps:
                if not self._ask(name, last=last) and last:
                    self._ask(name, last=last)
            if last:
                return

    def _ask(self, cluster: str, *, last: bool) -> bool:
        """Whether the cluster answered. If not, the next request uses a new client: a client keeps
        asking the broker that it took for the controller, for minutes after that broker has left
        (as a shadow does at its failover)."""
        if cluster not in self._admins and not self._runs(cluster):
            return False
        admin = self._admins.pop(cluster, None) or AdminClient(quiet(self._bootstraps[cluster]))
        answered = self._sample(cluster, admin, last=last)
        if answered:
            self._admins[cluster] = admin
        return answered

    def _sample(self, cluster: str, admin: AdminClient, *, last: bool) -> bool:
        """Whether the cluster answered."""
        asked = now()
        try:
            found = settings_on_topics(
                admin, dict(self._topics), within=ANSWER_WITHIN, all_answer=False
            )
        except KafkaException:
            return False
        news = {
            name: own
            for name, own in found.items()
            if last or self._last.get((cluster, name)) != own
        }
        if news:
            self._last |= {(cluster, name): own for name, own in news.items()}
            before = self._answered[cluster]
            row = SettingsSampled(cluster=cluster, asked=asked, before=before, topics=news)
            self._recorder.write(row)
        if found:
            self._answered[cluster] = asked
        return bool(found)
