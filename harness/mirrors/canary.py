"""The canary: one record that proves the complete path of a mirror. It is written to the source and
read from the destination, both without the link."""

from __future__ import annotations

import uuid

from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from linkflap.harness.mirrors.mm2_progress import reader
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet


class Canary:
    """Writes the record when it is made. Once it has arrived, `arrived` stays true. The topic has
    one partition and exists on both sides."""

    def __init__(self, source: str, destination: str, topic: str) -> None:
        self._token = uuid.uuid4().bytes
        self._arrived = False
        self._reader = reader(destination, "read_committed")
        # From the beginning: canaries are few, and asking a broker for the end of a topic this new
        # may fail.
        self._reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._write(source, topic)

    def _write(self, source: str, topic: str) -> None:
        # Not idempotent, so that the canary allocates no producer id: the producer ids of clusters
        # are checked.
        producer = Producer(
            quiet(source) | {"enable.idempotence": False, "acks": "all", "linger.ms": 0}
        )
        producer.produce(topic, self._token, partition=0)
        try:
            until(
                lambda: producer.flush(0.1) == 0,
                within=20,
                what=f"the canary to be written to {topic}",
            )
        except DeadlineExceeded:
            producer.purge()
            raise

    def arrived(self) -> bool:
        self._arrived = self._arrived or any(
            m.value() == self._token for m in self._reader.consume(100, timeout=0)
        )
        return self._arrived

    def close(self) -> None:
        self._reader.close()
