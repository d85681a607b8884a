"""Samples the log start and end of every replica during a run, follower or leader.

Each cluster has one thread, which asks every running broker once a second. A replica is recorded if
it changed, and every few seconds: so each leader epoch that lasts has samples of it. A broker that
does not answer gives no row.

Where a mirror leads partitions itself, no thread asks: each sample of the leaders' high watermarks
is followed at once by one of all followers (`beside`). What readers were shown is then
held against what followers have that would lead without the mirror.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from linkflap.harness.model.background import Background
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import ReplicasSampled, SampledReplica
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.protocols import Cluster, Deployment, Recorder
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.replicas import EARLIEST, LATEST, replica_offsets

INTERVAL: Final = 1.0
AGAIN: Final = int(5e9)
"""Nanoseconds after which a replica is recorded again, although it did not change."""
ANSWER_WITHIN: Final = 2.0


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
        """Takes a sample right after one of the leaders, if any of them is no broker of the
        cluster."""
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
        partitions = [(name, number) for name, n in self._topics.items() for number in range(n)]
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
        """Whether a replica is not as it was when it was recorded last, or that was long ago."""
        key, bounds = (row.topic, row.partition, row.broker), (row.log_start, row.log_end)
        last, at = self._last.get(key, ((-1, -1), 0))
        if last == bounds and asked < at + self._again:
            return False
        self._last[key] = bounds, asked
        return True


def samplers(
    deployment: Deployment, topics: Mapping[str, int], recorder: Recorder, *, again: int = AGAIN
) -> Mapping[str, ReplicaSampler]:
    """One for each cluster of several brokers: a single replica is its partition's leader, whose
    bounds are sampled anyway (`harness.capture.watermarks`)."""
    return {
        name: ReplicaSampler(cluster, topics, recorder, again=again)
        for name, cluster in deployment.clusters.items()
        if len(cluster.brokers) > 1
    }
