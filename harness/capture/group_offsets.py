"""Samples the committed offsets of consumer groups on one cluster during a run.

Each group is read by a consumer that has the group's name and never joins it.
AdminClient.list_consumer_group_offsets would end the process when the coordinator moves or loads
(librdkafka 2.16: rd_kafka_handle_OffsetFetch uses the consumer group of the handle, and an admin
client has none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import RunWriter

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
