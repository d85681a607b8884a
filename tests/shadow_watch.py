"""Invariants while a shadow mirrors and after it has failed over, observed from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.shadow_sides import Shadowed, Traffic
from tests.shadows import SAME, TOPIC, TOPIC_PARTITIONS, ends, headers

BEFORE = ("mirroring", "settling", "ending")
"""Phases in which no real broker may be in an ISR."""


class Watch:
    """Continuously tries to write to B, and samples its ISRs; `seen` has the violations."""

    def __init__(self, mirror: Shadowed, bootstrap: str, *, window: bool = False) -> None:
        self._mirror, self._bootstrap, self._window = mirror, bootstrap, window
        self._stop = threading.Event()
        self.seen: list[object] = []
        self.refused = self.looks = 0
        self.written: list[tuple[int | None, int | None]] = []

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        threads = [threading.Thread(target=work) for work in (self._write, self._look)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(60)

    def _write(self) -> None:
        settings = {
            "message.timeout.ms": 1500,
            "linger.ms": 0,
            "acks": 1,
            "enable.idempotence": False,
        }
        producer = Producer(quiet(self._bootstrap) | settings)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error:
                self.refused += 1
                return
            self.written.append((message.partition(), message.offset()))
            if (phase := self._mirror.notes().phase) in BEFORE:
                self.seen.append(("written", phase, message.partition(), message.offset()))

        turn = 0
        while not self._stop.wait(0.02):
            turn += 1
            try:
                producer.produce(TOPIC, b"own", partition=turn % 2, on_delivery=delivered)
            except KafkaException:  # the client notices at once that the topic does not exist yet
                self.refused += 1
            producer.flush(5)

    def _look(self) -> None:
        admin = AdminClient(quiet(self._bootstrap))
        while not self._stop.wait(0.05):
            try:
                found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC]
            except KafkaException:
                continue
            self.looks += 1
            # Sampled afterwards: what is not handed over now was not handed over at the sample
            # either.
            phase = self._mirror.notes().phase
            for number, p in found.partitions.items():
                real = [broker for broker in {*p.isrs, p.leader} if 0 <= broker < FIRST_BROKER_ID]
                if real and phase in BEFORE and not self._window:
                    self.seen.append(("in sync", phase, number, real))


def whole(cluster: Cluster) -> bool:
    """Whether the ISRs consist of all real brokers and no other."""
    topic = AdminClient(quiet(cluster.bootstrap)).list_topics(TOPIC, timeout=60).topics[TOPIC]
    wanted = sorted(cluster.brokers)
    return bool(topic.partitions) and all(
        sorted(p.isrs) == sorted(p.replicas) == wanted and p.leader in wanted
        for p in topic.partitions.values()
    )


def assert_failed_over(
    deployment: Deployment,
    mirror: Shadowed,
    *,
    markers: int,
    mirrored: Mapping[tuple[str, int], int],
) -> None:
    """All invariants of a completed failover, whatever happened during it. `mirrored` is what B had
    of A."""
    a, b = deployment.clusters["A"], deployment.clusters["B"]
    assert not mirror.alive
    assert mirror.notes().phase == "handed-over"
    until(lambda: whole(b), within=60, every=0.2, what="every replica in sync")
    promoted = mirror.promotion()
    assert promoted == mirrored, (promoted, mirrored)
    until(
        lambda: ends(b, "stable") == ends(b),
        within=20,
        every=0.1,
        what="no transaction to be open",
        state=lambda: ends(b, "stable"),
    )
    until(lambda: _level(b), within=30, every=0.1, what="replicas to be level")
    appended = 0
    for tp in TOPIC_PARTITIONS:
        there = headers(next(iter(a.brokers.values())), tp, below=promoted[tp])
        everyone = [headers(broker, tp) for broker in b.brokers.values()]
        assert all(one == everyone[0] for one in everyone), tp
        here = {name: np.array(values) for name, values in everyone[0].items()}
        below = here["last_offset"] < promoted[tp]
        assert {name: here[name][below].tolist() for name in SAME} == {
            name: there[name] for name in SAME
        }
        marks = ~below & (here["control"] >= 0)
        own = here["base_offset"][marks].tolist()
        noted = [offset for offset, _ in mirror.notes().partitions[TOPIC][tp[1]].appended]
        assert own == noted, (tp, own, noted, promoted)
        assert len(set(here["producer_id"][marks].tolist())) == len(own), (
            "a transaction with two markers"
        )
        appended += len(own)
    assert appended == markers


def _level(cluster: Cluster) -> bool:
    return all(
        len({tuple(headers(broker, tp)["last_offset"][-1:]) for broker in cluster.brokers.values()})
        == 1
        for tp in TOPIC_PARTITIONS
    )


def mirroring(wide: Deployment, mirror: Shadowed) -> tuple[int, dict[tuple[str, int], int]]:
    """Waits for records on A that reach B. Returns (markers due, ends of A's logs)."""
    traffic = Traffic(wide.clusters["A"].bootstrap)
    traffic.write()
    if not mirror.alive:
        mirror.start()
    markers = traffic.leave_open()
    until(
        lambda: mirror.lag() == 0,
        within=60,
        every=0.1,
        what="the mirror to drain",
        state=mirror._state,
    )
    mirror.kept_open = traffic  # its transactions stay open as long as their producers exist
    return markers, ends(wide.clusters["A"])
