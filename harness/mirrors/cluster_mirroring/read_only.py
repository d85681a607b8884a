"""Checks whether mirrored partitions refuse clients' writes. Each broker of the destination gets
one write, to a partition that it leads, and must refuse it (KIP-1279: READ_ONLY_TOPIC until a
stop)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

READ_ONLY_TOPIC: Final = 134
_ACKNOWLEDGED: Final = 0
_NO_ANSWER: Final = -1
_ANSWERS_WITHIN: Final = 5.0
_WRITTEN_WITHIN: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One record to a partition that `broker` leads, and the error code of the answer: 0 is
    acknowledged, -1 is an answer that proves nothing."""

    broker: int
    topic: str
    partition: int
    code: int

    @property
    def words(self) -> str:
        answers = {_ACKNOWLEDGED: "acknowledged", _NO_ANSWER: "not answered"}
        answer = answers.get(self.code, f"refused with {self.code}")
        return f"a write to {self.topic}-{self.partition} on broker {self.broker} was {answer}"

    @property
    def wrong(self) -> str:
        """How the answer contradicts the KIP; empty if it does not."""
        if self.code in (READ_ONLY_TOPIC, _NO_ANSWER):
            return ""
        return f"{self.words}, expected: refused with READ_ONLY_TOPIC ({READ_ONLY_TOPIC})"


Writing = Callable[[Collection[str]], Sequence[Write]]
"""Sends the writes to these topics."""


def written(here: AdminClient, bootstrap: str, topics: Collection[str]) -> list[Write]:
    """One write per broker that leads a partition of these topics; empty when no broker answers."""
    try:
        known = here.list_topics(timeout=_ANSWERS_WITHIN).topics
    except KafkaException:
        return []
    leaders = {
        (topic, number): partition.leader
        for topic in sorted(topics)
        if topic in known
        for number, partition in sorted(known[topic].partitions.items())
    }
    return [
        Write(broker=broker, topic=topic, partition=number, code=_answer(bootstrap, topic, number))
        for broker, (topic, number) in one_each(leaders).items()
    ]


def one_each(leaders: Mapping[TopicPartition, int]) -> dict[int, TopicPartition]:
    """Broker -> the first partition that it leads."""
    found: dict[int, TopicPartition] = {}
    for tp, leader in leaders.items():
        if leader >= 0:
            found.setdefault(leader, tp)
    return dict(sorted(found.items()))


def code_of(error: KafkaError | None) -> int:
    """The error code that an answer proves. A retriable error, or one of the client itself, proves
    nothing."""
    if error is None:
        return _ACKNOWLEDGED
    return int(error.code()) if error.code() > 0 and not error.retriable() else _NO_ANSWER


def _answer(bootstrap: str, topic: str, partition: int) -> int:
    codes: list[int] = []
    # Not idempotent, so that it allocates no producer id: the producer ids of clusters are checked.
    settings = {
        "enable.idempotence": False,
        "acks": "all",
        "linger.ms": 0,
        "message.timeout.ms": int(_WRITTEN_WITHIN * 1000),
    }
    producer = Producer(quiet(bootstrap) | settings)
    producer.produce(
        topic,
        b"nobody's",
        partition=partition,
        on_delivery=lambda error, _: codes.append(code_of(error)),
    )
    try:
        until(
            lambda: producer.flush(0.1) == 0 and bool(codes),
            within=2 * _WRITTEN_WITHIN,
            what=f"an answer to a write to {topic}-{partition}",
        )
    except DeadlineExceeded:
        producer.purge()
    return codes[0] if codes else _NO_ANSWER
