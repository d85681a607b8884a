"""The mirrored topics on the destination: creates them before the mirror starts, and reads how far
the mirror has come.

With the identity policy, MirrorMaker 2 would create them itself, some seconds after its start.
Readers on the destination would have to wait, and a topic that is created late is mirrored late.
Created here, the topics have the source's partition counts, and the topic configs that MirrorMaker
2 copies, so that it changes none of them later.

A canary is a record that proves the complete path of a mirror. It and the ends of mirrored
partitions are read without the link.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import (
    CANARY,
    DISKLESS,
    TopicPartition,
    is_data_topic,
    topic_name,
)
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import bounds, quiet, settings_on_topics

_SECONDS: Final = 20.0
PATIENCE: Final = 60.0
_BATCH: Final = 5000
NO_TIME: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
    }
)
"""Errors that only mean that a request timed out or found no controller."""
NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Configs that MirrorMaker 2 does not copy by default (config.properties.exclude of its
DefaultConfigPropertyFilter). With a copied message.timestamp.type, for example, the destination
might replace the source's timestamps by append times."""


def data_topics(
    admin: AdminClient, homes: tuple[str, ...], *, within: float = _SECONDS
) -> dict[str, int]:
    """Topic -> partition count of the data topics of these homes on a cluster. Raises
    KafkaException when it does not answer."""
    found = admin.list_topics(timeout=within).topics
    return {
        name: len(topic.partitions) for name, topic in found.items() if is_data_topic(name, homes)
    }


def copy_topics(
    source: Cluster, destination: Cluster, homes: tuple[str, ...], *, canary: str = ""
) -> dict[str, int]:
    """Creates the data topics of `source` on `destination` where they are missing. Safe to call
    again. Returns topic -> partition count.

    Creates the mirror's canary topic (by default that of the source) on both. Raises SetupError
    when a cluster refuses.
    """
    there, here = AdminClient(quiet(source.bootstrap)), AdminClient(quiet(destination.bootstrap))
    canary = canary or topic_name(source.name, CANARY)
    try:
        wanted = data_topics(there, homes)
        create(there, [NewTopic(canary, 1, min(3, len(source.brokers)))])
        replicas = min(3, len(destination.brokers))
        configs = settings_on_topics(there, wanted, within=_SECONDS)
        new = [
            NewTopic(name, count, replicas, config=_copied(configs[name]))
            for name, count in wanted.items()
        ]
        create(here, [*new, NewTopic(canary, 1, replicas)])
    except KafkaException as error:
        raise SetupError(
            f"the topics of {source.name} could not be created on {destination.name} "
            f"({error.args[0]}); see the brokers' logs"
        ) from error
    return wanted


def _copied(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that MirrorMaker 2 copies."""
    left_out = {*NOT_COPIED, DISKLESS}  # the destination decides these of its copy
    return {name: value for name, value in settings.items() if name not in left_out}


def create(admin: AdminClient, topics: list[NewTopic]) -> None:
    """Creates those of the topics that are missing. Returns when every partition of all has a
    leader.

    Retries for a minute while requests time out, as on a busy machine whose clients first
    authenticate by TLS and SCRAM. Raises KafkaException when the cluster refuses or keeps timing
    out, DeadlineExceeded when a partition gets no leader.
    """
    deadline = time.monotonic() + PATIENCE
    missing = {topic.topic: topic for topic in topics}
    while missing:
        asked = admin.create_topics(
            list(missing.values()), request_timeout=_SECONDS, operation_timeout=_SECONDS
        )
        late = {
            name: error for name, future in asked.items() if (error := _refused(future)) is not None
        }
        for error in late.values():
            if error.args[0].code() not in NO_TIME or time.monotonic() >= deadline:
                raise error
        missing = {name: missing[name] for name in late}
    names = [topic.topic for topic in topics]
    until(lambda: _led(admin, names), within=PATIENCE, what=f"leaders of {', '.join(names)}")


def _refused(future: Future[None]) -> KafkaException | None:
    """Why a topic was not created; None when it exists."""
    try:
        future.result()
    except KafkaException as error:
        return None if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS else error
    return None


def _led(admin: AdminClient, names: list[str]) -> bool:
    """Whether every partition of these topics has a leader in the metadata: brokers learn of a
    topic after its creation."""
    try:
        found = admin.list_topics(timeout=_SECONDS).topics
    except KafkaException as error:
        if error.args[0].code() in NO_TIME:
            return False
        raise
    return all(
        name in found and all(p.leader >= 0 for p in found[name].partitions.values())
        for name in names
    )


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of these topics (topic -> partition count)."""
    return [(topic, number) for topic, count in topics.items() for number in range(count)]


def ends_on(
    admin: AdminClient,
    homes: tuple[str, ...],
    which: Literal["stable", "high"],
    *,
    within: float,
    without: Collection[str] = (),
) -> dict[TopicPartition, int] | None:
    """Last stable offsets or high watermarks of the data partitions of these homes on a cluster,
    `without` some topics. None when it, or a leader, does not answer."""
    try:
        topics = data_topics(admin, homes, within=within)
        partitions = [each for each in partitions_of(topics) if each[0] not in without]
        return bounds(admin, partitions, which, within=within)
    except KafkaException:
        return None


def reader(bootstrap: str, isolation: str) -> Consumer:
    """A consumer without group management that reports the end of a partition."""
    return Consumer(
        quiet(bootstrap)
        | {
            "group.id": "linkflap-mirror-progress",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
            "allow.auto.create.topics": False,
        }
    )


def read_to_end(
    consumer: Consumer, starts: Sequence[KafkaPartition], *, within: float, what: str
) -> list[Message]:
    """The records of these partitions from their offsets to the present end, with a consumer from
    `reader`, which stays assigned to them. Raises DeadlineExceeded."""
    consumer.assign(list(starts))
    found: list[Message] = []
    left = {(each.topic, each.partition) for each in starts}

    def read() -> bool:
        for message in consumer.consume(_BATCH, timeout=0.05):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic() or "", message.partition() or 0))
        return not left

    until(read, within=within, every=0.0, what=what, state=lambda: sorted(left))
    return found


def write_record(
    bootstrap: str, topic: str, value: bytes, *, partition: int = 0, within: float = 20.0
) -> tuple[KafkaError | None, int]:
    """Writes one record. Returns why it was not acknowledged, if so, and its offset, -1 if that is
    unknown. Raises DeadlineExceeded.

    The producer is not idempotent, so that it allocates no producer id: the producer ids of
    clusters are checked.
    """
    settings = {"enable.idempotence": False, "acks": "all", "linger.ms": 0}
    producer = Producer(quiet(bootstrap) | settings)
    reports: list[tuple[KafkaError | None, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = None if error else message.offset()
        reports.append((error, -1 if offset is None else offset))

    producer.produce(topic, value, partition=partition, on_delivery=delivered)
    try:
        until(
            lambda: producer.flush(0.1) == 0 and reports,
            within=within,
            what=f"a record to be written to {topic}-{partition}",
        )
    except DeadlineExceeded:
        producer.purge()
        raise
    return reports[0]


class Canary:
    """Writes the record when it is made. Once it has arrived, `arrived` stays true. The topic has
    one partition and exists on both sides."""

    def __init__(self, source: str, destination: str, topic: str) -> None:
        self._token = uuid.uuid4().bytes
        self._arrived = False
        self._reader = reader(destination, "read_committed")
        # From the beginning: canaries are few, and asking a broker for the end of a topic this new
        # may fail.
        self._reader.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING)])
        write_record(source, topic, self._token)

    def arrived(self) -> bool:
        self._arrived = self._arrived or any(
            m.value() == self._token for m in self._reader.consume(100, timeout=0)
        )
        return self._arrived

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredEnds:
    """Asks a destination about the topics of `homes`. `answers_within` is the timeout of each
    request, in seconds. `made_there`: topics of any name that the source does not have, so that no
    mirror writes to them."""

    admin: AdminClient
    destination: str
    homes: tuple[str, ...]
    answers_within: float
    made_there: frozenset[str] = frozenset()

    def at(self, which: Literal["stable", "high"] = "high") -> Mapping[TopicPartition, int] | None:
        """Last stable offsets or high watermarks; None while the destination does not answer."""
        return ends_on(
            self.admin, self.homes, which, within=self.answers_within, without=self.made_there
        )

    def known(self, within: float) -> Mapping[TopicPartition, int]:
        """High watermarks, once the destination answers. Raises DeadlineExceeded."""
        what = f"the ends of partitions on {self.destination}"

        def found() -> list[Mapping[TopicPartition, int]]:
            return [] if (ends := self.at()) is None else [ends]

        return until(found, within=within, what=what)[0]

    def open(self) -> list[str] | None:
        """Partitions with an open transaction; None while the destination does not answer."""
        stable, high = self.at("stable"), self.at("high")
        if stable is None or high is None:
            return None
        return [
            f"{topic}-{partition}"
            for (topic, partition), end in high.items()
            if stable.get((topic, partition), end) < end
        ]

    def await_unchanged(self, within: float, *, closed: bool = False, quiet: float = 0.0) -> None:
        """Returns when two consecutive answers are equal, because a broker's socket buffer may
        still have requests of a killed process. `closed`: also waits until no transaction is open.
        `quiet`: seconds in which all answers have to be equal. Raises DeadlineExceeded."""
        last: Mapping[TopicPartition, int] | None = None
        since = time.monotonic()

        def still() -> bool:
            nonlocal last, since
            before, last = last, self.at()
            if last is None or last != before:
                since = time.monotonic()
                return False
            return time.monotonic() >= since + quiet and (not closed or last == self.at("stable"))

        what = f"mirrored partitions of {self.destination} to stop growing"
        what += ", without open transactions" if closed else ""
        until(still, within=within, every=0.2, what=what, state=lambda: last)
