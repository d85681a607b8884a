"""One topic of A and MirrorMaker 2 to B: a writer, and what readers of B get."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.protocols import Deployment, Mirror
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.wire.librdkafka import quiet
from tests.events import Rows
from tests.shadows import TOPIC, TOPIC_PARTITIONS, make_topic

ABORTED = b"aborted"


class Writer:
    """Transactions of ten records over both partitions of TOPIC on A; every fifth is aborted.
    Values count up."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer(quiet(bootstrap) | {"transactional.id": "writer", "linger.ms": 0})
        self.producer.init_transactions(30)
        self.transactions = 0
        self.committed: dict[int, list[bytes]] = {
            partition: [] for _, partition in TOPIC_PARTITIONS
        }

    def write(self, count: int) -> None:
        for _ in range(count):
            self._write_one()

    def _write_one(self) -> None:
        aborts = self.transactions % 5 == 4
        self.producer.begin_transaction()
        for n in range(10):
            value = b"%d" % (self.transactions * 10 + n)
            self.producer.produce(TOPIC, value, key=ABORTED if aborts else None, partition=n % 2)
            if not aborts:
                self.committed[n % 2].append(value)
        if aborts:
            self.producer.flush(30)
            self.producer.abort_transaction(30)
        else:
            self.producer.commit_transaction(30)
        self.transactions += 1

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Continues to write in the background."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                self._write_one()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


@contextmanager
def mirrored(deployment: Deployment, **options: str) -> Iterator[tuple[Mirror, Writer, Rows]]:
    """TOPIC on A, and a started mirror; (mirror, writer, events)."""
    a = deployment.clusters["A"].bootstrap
    make_topic(deployment, "A")
    events = Rows()
    mirror = make_mirror(
        MirrorSpec(kind="mm2", options=options), deployment.topology.links[0], deployment, events
    )
    mirror.start()
    yield mirror, Writer(a), events
