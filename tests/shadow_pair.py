"""One topic of A and its shadow at B: a writer, reads and writes, and comparisons of bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.arrival import reader
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment, Mirror
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Bound, quiet
from tests.events import Rows
from tests.shadows import SAME, TOPIC, TOPIC_PARTITIONS, answered, headers


class Writer:
    """One transactional producer; every third transaction is aborted."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self._producer = Producer(
            quiet(bootstrap) | {"transactional.id": "writer", "linger.ms": 0} | settings
        )
        self._producer.init_transactions(60)
        self.committed = self._turn = 0

    def write(self, transactions: int = 1, size: int = 100) -> None:
        for _ in range(transactions):
            self.begin(size)
            self._turn += 1
            if self._turn % 3:
                self._producer.commit_transaction(60)
                self.committed += 20
            else:
                self._producer.abort_transaction(60)

    def begin(self, size: int = 100) -> None:
        self._producer.begin_transaction()
        for n in range(20):
            self._producer.produce(TOPIC, b"%d" % n * size, partition=n % 2)
        self._producer.flush(60)

    @contextmanager
    def writing(self) -> Iterator[None]:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self.write()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


def shadowed(deployment: Deployment, **options: str) -> tuple[ShadowMirror, Rows]:
    """TOPIC on A, and a shadow that is not started yet; (mirror, events)."""
    admin = AdminClient(quiet(deployment.clusters["A"].bootstrap))
    replicas = min(3, len(deployment.clusters["A"].brokers))
    admin.create_topics([NewTopic(TOPIC, 2, replicas)])[TOPIC].result(60)
    events = Rows()
    mirror = make_mirror(
        MirrorSpec(kind="shadow", options=options), deployment.topology.links[0], deployment, events
    )
    return cast(ShadowMirror, mirror), events


def assert_equal(
    deployment: Deployment,
    partitions: list[tuple[str, int]] = TOPIC_PARTITIONS,
    *,
    below: Mapping[tuple[str, int], int] | None = None,
    names: tuple[str, ...] = SAME,
) -> None:
    """Every replica on B has A's bytes, except for leader epochs."""
    source = next(iter(deployment.clusters["A"].brokers.values()))
    for tp in partitions:
        end = None if below is None else below[tp]
        there = headers(source, tp, below=end)
        assert there["base_offset"], f"nothing in {tp}"
        for broker in deployment.clusters["B"].brokers.values():
            here = headers(broker, tp, below=end)
            assert [here[name] for name in names] == [there[name] for name in names], (
                tp,
                broker.id,
            )


def drained(mirror: Mirror) -> None:
    until(
        lambda: mirror.lag() == 0,
        within=90,
        every=0.1,
        what="the mirror to drain",
        state=mirror.lag,
    )


def count(bootstrap: str, isolation: str) -> int:
    """Records of TOPIC that a reader with this isolation level gets."""
    seen, ended = 0, set()
    consumer = reader(bootstrap, isolation)
    consumer.assign([TopicPartition(*tp, 0) for tp in TOPIC_PARTITIONS])

    def read_through() -> bool:
        nonlocal seen
        for message in consumer.consume(5000, 0.1):
            if message.error():
                ended.add(message.partition())
            else:
                seen += 1
        return len(ended) == len(TOPIC_PARTITIONS)

    until(read_through, within=60, what=f"{TOPIC} to be read", state=lambda: (seen, ended))
    consumer.close()
    return seen


def own_write(bootstrap: str, partition: int = 0, **settings: int) -> object:
    """Writes a record. Returns its offset, or the error."""
    answers: list[object] = []
    producer = Producer(
        quiet(bootstrap) | {"message.timeout.ms": 10_000, "linger.ms": 0} | settings
    )
    producer.produce(
        TOPIC,
        b"own",
        partition=partition,
        on_delivery=lambda e, m: answers.append(e.name() if e else m.offset()),
    )
    producer.flush(20)
    return answers[0]


def ends(
    bootstrap: str, which: Bound = "high", partitions: list[tuple[str, int]] = TOPIC_PARTITIONS
) -> dict[tuple[str, int], int]:
    return answered(bootstrap, which, partitions)
