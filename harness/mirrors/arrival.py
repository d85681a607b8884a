"""What has arrived on a destination: the canary, a record that proves the complete path of a
mirror, and the ends of mirrored partitions. Both are read without the link."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.topics import ends_on
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition, quiet


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredEnds:
    """Asks a destination about the topics of `homes`. `answers_within` is the timeout of each
    request, in seconds."""

    admin: AdminClient
    destination: str
    homes: tuple[str, ...]
    answers_within: float

    def at(self, which: Literal["stable", "high"] = "high") -> Mapping[Partition, int] | None:
        """Last stable offsets or high watermarks; None while the destination does not answer."""
        return ends_on(self.admin, self.homes, which, within=self.answers_within)

    def known(self, within: float) -> Mapping[Partition, int]:
        """High watermarks, once the destination answers. Raises DeadlineExceeded."""
        what = f"the ends of partitions on {self.destination}"

        def found() -> list[Mapping[Partition, int]]:
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

    def await_unchanged(self, within: float, *, closed: bool = False) -> None:
        """Returns when two consecutive answers are equal, because a broker's socket buffer may
        still have requests of a killed process. `closed`: also waits until no transaction is open.
        Raises DeadlineExceeded."""
        last: Mapping[Partition, int] | None = None

        def still() -> bool:
            nonlocal last
            before, last = last, self.at()
            return last is not None and last == before and (not closed or last == self.at("stable"))

        what = f"mirrored partitions of {self.destination} to stop growing"
        what += ", without open transactions" if closed else ""
        until(still, within=within, every=0.2, what=what, state=lambda: last)
