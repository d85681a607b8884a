"""The offsets that a user's program has written, read from the leaders of its topics, because the
program keeps no history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.clock import now
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.offsets import Bound, bounds, quiet
from linkflap.harness.workloads.crew import Addresses

_ASK: Final = 2.0


class WrittenOffsets:
    """Samples of the ends of some topics, by cluster: the time, and the number of offsets."""

    def __init__(self, topics: Sequence[str], addresses: Addresses) -> None:
        self.topics = topics
        self._addresses = addresses
        self._admins: dict[str, AdminClient] = {}
        self._samples: dict[str, list[tuple[int, int]]] = {}

    def sample(self, cluster: str) -> None:
        """Samples the ends of the topics on a cluster; does nothing while the cluster does not
        answer."""
        try:
            ends = self._bounds(cluster, "high")
        except KafkaException:
            return
        self._samples.setdefault(cluster, []).append((now(), sum(ends.values())))

    def total(self, cluster: str) -> int:
        """The number of offsets on a cluster at the last sample."""
        samples = self._samples.get(cluster)
        return samples[-1][1] if samples else 0

    def everywhere(self) -> int:
        """The number of offsets on all clusters."""
        return sum(self.total(cluster) for cluster in list(self._samples))

    def since(self, cluster: str, time: int) -> int:
        """The number of offsets written on a cluster since a time."""
        samples = self._samples.get(cluster, [])
        before = [total for at, total in samples if at <= time] or [
            total for _, total in samples[:1]
        ]
        return self.total(cluster) - before[-1] if samples else 0

    def open_transactions(self, cluster: str) -> int:
        """Partitions of the topics that have an open transaction there."""
        if not self.topics:
            return 0
        try:
            high, stable = self._bounds(cluster, "high"), self._bounds(cluster, "stable")
        except KafkaException:
            return 0
        return sum(stable.get(partition, end) < end for partition, end in high.items())

    def _bounds(self, cluster: str, which: Bound) -> Mapping[TopicPartition, int]:
        admin = self._admins.setdefault(
            cluster, AdminClient(quiet(self._addresses.clusters[cluster].bootstrap))
        )
        known = admin.list_topics(timeout=_ASK).topics if self.topics else {}
        partitions = [
            (topic, number)
            for topic in self.topics
            if topic in known
            for number in known[topic].partitions
        ]
        return bounds(admin, partitions, which, within=_ASK)
