"""Compares the latest record of each partition in `__mirror_state` with describe.

Keys and values have the format of the branch's first generation (MirrorPartitionStateKey,
MirrorPartitionStateValue). Brokers answer describe from these records, so both must agree once
nothing changes any more.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

GENERATION: Final = "prefixed keys"
"""The generation with this record format."""
OF_PARTITIONS: Final = 2
"""The kind of record with a partition's state; the other kind has its last epoch."""
NAMES: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            "UNKNOWN",
            "LOG_TRUNCATION",
            "EPOCH_FENCING",
            "MIRRORING",
            "PAUSING",
            "PAUSED",
            "STOPPING",
            "STOPPED",
            "FAILED",
        ),
        start=-1,
    )
)
_SECONDS: Final = 10.0
Key = tuple[str, str, int]
"""(mirror, topic id, partition)"""


def latest(records: Iterable[tuple[bytes, bytes | None]]) -> dict[Key, str]:
    """The latest state of each partition, from keys and values in log order, without those removed
    by a tombstone. Raises ValueError for another format."""
    found: dict[Key, str] = {}
    for key, value in records:
        try:
            kind, length = struct.unpack_from(">hh", key)
            if kind != OF_PARTITIONS:
                continue
            mirror, topic = key[4 : 4 + length].decode(), key[4 + length : 20 + length]
            (partition,) = struct.unpack_from(">i", key, 20 + length)
            about = (mirror, base64.b64encode(topic).decode().rstrip("="), partition)
            if value is None:
                found.pop(about, None)
            else:
                found[about] = NAMES[struct.unpack_from(">hb", value)[1]]
        except (struct.error, KeyError) as error:
            raise ValueError(f"a record of {STATES} has an unknown format: {error}") from error
    return found


def differing(
    mirror: str, found: Mapping[Key, str], ids: Mapping[str, str], rows: Sequence[DescribeRow]
) -> dict[str, tuple[str, ...]]:
    """Topic -> differences between the records and describe, in words, one per partition. Only
    topics in `ids` (topic -> id) are compared."""
    wrong: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        if row.topic in ids:
            recorded = found.get((mirror, ids[row.topic], row.partition), "nothing")
            if recorded != row.state:
                words = f"partition {row.partition}: {recorded} recorded, {row.state} described"
                wrong.setdefault(row.topic, []).append(words)
    return {topic: tuple(words) for topic, words in wrong.items()}


def ids_of(admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    """Topic -> its id. Raises KafkaException."""
    asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_SECONDS)
    return {name: str(future.result(2 * _SECONDS).topic_id) for name, future in asked.items()}


def read(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    """Every record of the state topic, partition by partition. Raises KafkaException, or
    DeadlineExceeded when its end is not reached."""
    consumer = Consumer(
        quiet(bootstrap)
        | {
            "group.id": "linkflap-mirror-states",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    found: list[tuple[bytes, bytes | None]] = []
    ended: set[int] = set()
    try:
        metadata = consumer.list_topics(STATES, timeout=_SECONDS).topics[STATES]
        consumer.assign([TopicPartition(STATES, n, OFFSET_BEGINNING) for n in metadata.partitions])

        def over() -> bool:
            for message in consumer.consume(1000, timeout=0.1):
                error = message.error()
                if error is None:
                    found.append((message.key() or b"", message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                else:
                    raise KafkaException(error)
            return len(ended) == len(metadata.partitions)

        until(over, within=_SECONDS, what=f"{STATES} to be read")
    finally:
        consumer.close()
    return found


def disagreeing(
    mirror: str,
    admin: AdminClient,
    bootstrap: str,
    topics: Sequence[str],
    rows: Sequence[DescribeRow],
) -> dict[str, tuple[str, ...]]:
    """Does the same as `differing` for a running cluster. A record of an unknown format counts as a
    difference of every topic. Raises KafkaException when the cluster does not answer in time."""
    try:
        records, ids = read(bootstrap), ids_of(admin, topics)
        return differing(mirror, latest(records), ids, rows)
    except ValueError as error:
        return {topic: (str(error),) for topic in topics}
    except (DeadlineExceeded, TimeoutError) as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error
