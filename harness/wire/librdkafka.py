"""librdkafka's clients (confluent-kafka) as the harness uses them: their settings, and the bounds
of logs and settings of topics that its admin client reads.

A caller that lists the same partitions repeatedly creates one AdminClient and keeps it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final, Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, OffsetSpec

from linkflap.harness.model.security import security_of
from linkflap.harness.model.topology import TopicPartition

Bound = Literal["start", "stable", "high"]
_ON_THE_TOPIC: Final = 1
"""Where a setting comes from: it was set on the topic itself (DYNAMIC_TOPIC_CONFIG)."""


def quiet(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings of a client that reconnects at once, prints nothing, and has the credentials of the
    address: brokers die on purpose."""
    return {
        **security_of(bootstrap).librdkafka(),
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


def bounds(
    admin: AdminClient, partitions: Iterable[TopicPartition], which: Bound, *, within: float
) -> dict[TopicPartition, int]:
    """Log start offset, last stable offset, or high watermark per partition.

    `within` is seconds for each of two requests. Raises KafkaException when a leader did not answer
    in time.
    """
    return {
        partition: _offset(answer)
        for partition, answer in _ask(admin, partitions, which, within).items()
    }


def answered_bounds(
    admin: AdminClient, partitions: Iterable[TopicPartition], which: Bound, *, within: float
) -> dict[TopicPartition, int]:
    """The same as `bounds`, without partitions whose leader did not answer in time."""
    found: dict[TopicPartition, int] = {}
    with contextlib.suppress(KafkaException):
        for partition, answer in _ask(admin, partitions, which, within).items():
            with contextlib.suppress(KafkaException):
                found[partition] = _offset(answer)
    return found


def leader_epochs(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, within: float
) -> dict[TopicPartition, int]:
    """The leader epoch of each partition whose leader answered in time and reported it."""
    found: dict[TopicPartition, int] = {}
    with contextlib.suppress(KafkaException):
        for partition, answer in _ask(admin, partitions, "high", within).items():
            with contextlib.suppress(KafkaException):
                if (epoch := answer.result().leader_epoch) is not None:
                    found[partition] = int(epoch)
    return found


def _offset(answer: Future[ListOffsetsResultInfo]) -> int:
    offset = int(answer.result().offset)
    if offset < 0:  # a dead leader yields no error, and no offset either
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset


def _ask(
    admin: AdminClient, partitions: Iterable[TopicPartition], which: Bound, within: float
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    spec = OffsetSpec.earliest() if which == "start" else OffsetSpec.latest()
    asked = {KafkaPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    # librdkafka's admin client always asks the leaders that it learned first, even those that
    # answer that they no longer lead.
    admin.list_topics(timeout=within)
    isolation = (
        IsolationLevel.READ_COMMITTED if which == "stable" else IsolationLevel.READ_UNCOMMITTED
    )
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=within)
    return {(asked.topic, asked.partition): answer for asked, answer in answers.items()}


def settings_on_topics(
    admin: AdminClient,
    topics: Iterable[str],
    *,
    within: float,
    all_answer: bool = True,
    inherited: bool = False,
) -> dict[str, dict[str, str]]:
    """Topic -> the settings that are set on the topic itself; with `inherited` also those that it
    has from its brokers. `within` is seconds. Raises KafkaException; with `all_answer` False,
    topics without an answer are left out instead."""
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    asked = admin.describe_configs(wanted, request_timeout=within) if wanted else {}
    found: dict[str, dict[str, str]] = {}
    for resource, answer in asked.items():
        try:
            entries = answer.result(timeout=2 * within).values()
        except (KafkaException, TimeoutError):
            if all_answer:
                raise
            continue
        found[resource.name] = {
            entry.name: str(entry.value)
            for entry in entries
            if inherited or getattr(entry.source, "value", entry.source) == _ON_THE_TOPIC
        }
    return found
