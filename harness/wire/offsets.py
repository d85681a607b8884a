"""Where partitions begin and end, asked from their leaders with confluent-kafka's admin client.

A client that lists the same partitions again and again makes one AdminClient and keeps it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Literal

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

Bound = Literal["start", "stable", "high"]
Partition = tuple[str, int]


def quiet(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings of a client that reconnects at once and does not print: brokers die here on purpose."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


def bounds(admin: AdminClient, partitions: Iterable[Partition], which: Bound, *, within: float) -> dict[Partition, int]:
    """Log start offset, last stable offset, or high watermark per partition.

    `within` is seconds for the whole request. Raises KafkaException when a leader did not answer in time.
    """
    return {place: int(answer.result().offset) for place, answer in _ask(admin, partitions, which, within).items()}


def answered_bounds(admin: AdminClient, partitions: Iterable[Partition], which: Bound, *, within: float) -> dict[Partition, int]:
    """As `bounds`, without the partitions whose leader did not answer in time."""
    found: dict[Partition, int] = {}
    for place, answer in _ask(admin, partitions, which, within).items():
        with contextlib.suppress(KafkaException):
            found[place] = int(answer.result().offset)
    return found


def _ask(
    admin: AdminClient, partitions: Iterable[Partition], which: Bound, within: float
) -> dict[Partition, Future[ListOffsetsResultInfo]]:
    spec = OffsetSpec.earliest() if which == "start" else OffsetSpec.latest()
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if which == "stable" else IsolationLevel.READ_UNCOMMITTED
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=within)
    return {(place.topic, place.partition): answer for place, answer in answers.items()}
