"""Observes a cluster mirror on both clusters: its topics, the rows of describe, its lag, and its
promotion offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.cluster_mirroring import from_bytes, state_records
from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import (
    DescribeRow,
    VerbRefused,
    described,
    given_up,
    summary,
)
from linkflap.harness.mirrors.cluster_mirroring.rule import AdministeredByRule
from linkflap.harness.mirrors.topics import data_topics, partitions_of
from linkflap.harness.model.protocols import Cluster, Deployment, Recorder, is_running
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.wire.offsets import bounds, quiet

_ASK_SECONDS: Final = 5.0


class ObservedMirror(AdministeredByRule):
    """A mirror of `link`, named `_name` at the destination. Only observes; changes nothing."""

    link: LinkSpec
    _name: str
    _homes: tuple[str, ...]
    _admin: MirrorAdmin
    _here: AdminClient
    _there: AdminClient
    _source: Cluster
    _destination: Cluster
    _generation: cluster_mirroring.Generation
    _deployment: Deployment
    _recorder: Recorder

    def _write_described(self, asked: int, rows: Sequence[DescribeRow]) -> None:
        self._recorder.write(described(self.link.name, asked, rows))

    def _rows(self) -> list[DescribeRow]:
        try:
            return self._admin.describe(self._name)
        except VerbRefused:
            return []

    def _states(self) -> str:
        return summary(self._rows())

    def disagreeing(self, topics: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Topic -> differences between the records of `__mirror_state` and describe. Empty for
        generations whose record format is unknown. Raises KafkaException."""
        if self._generation.name != state_records.GENERATION:
            return {}
        return state_records.disagreeing(
            self._name, self._here, self._destination.bootstrap, topics, self._rows()
        )

    def given_up(self) -> Mapping[str, str]:
        """See `ReportsGivenUpTopics`: a partition is FAILED, and is not tried again."""
        return given_up(self._rows())

    def _topics(self) -> dict[str, int]:
        """Topic -> partition count of the mirrored topics at their home clusters: in a chain, the
        source may not have all of them yet."""
        found: dict[str, int] = {}
        for home in self._homes:
            cluster = self._deployment.clusters[home]
            asked = (
                self._there
                if home == self.link.source or not is_running(cluster)
                else AdminClient(quiet(cluster.bootstrap))
            )
            found |= data_topics(asked, (home,))
        return found

    def _partitions(self) -> list[TopicPartition]:
        return partitions_of(self._topics())

    def _destination_partitions(self) -> list[TopicPartition]:
        """The partitions of mirrored topics that the destination has."""
        return partitions_of(data_topics(self._here, self._homes))

    def promotion(self) -> Mapping[TopicPartition, int]:
        found = from_bytes.every(self._destination, self._destination_partitions())
        return {
            tp: offset
            for tp, headers in found.items()
            if (offset := from_bytes.promoted(headers)) is not None
        }

    def lag(self) -> int | None:
        """Offsets that the source has and the destination lacks, from the high watermarks of both,
        never from describe. None while either does not answer."""
        if not (is_running(self._source) and is_running(self._destination)):
            return None
        try:
            wanted = self._partitions()
            theirs = bounds(self._there, wanted, "high", within=_ASK_SECONDS)
            ours = bounds(self._here, wanted, "high", within=_ASK_SECONDS)
        except KafkaException:
            return None
        return sum(max(0, end - ours[tp]) for tp, end in theirs.items())
