"""KAFKA-17734: KafkaProducer.close(timeout) takes longer than its timeout."""

from __future__ import annotations

import time

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import JavaTransactional

ASKED, TOO_LONG = 1.0, 4.0


def _closed(bench: Bench, *, silent: bool) -> Observation:
    """Closes the producer while the broker, which is also its coordinator, is suspended with its
    sockets open, or is not."""
    topic = bench.topic()
    settings = {"request.timeout.ms": 10_000, "delivery.timeout.ms": 12_000, "max.block.ms": 12_000}
    java = bench.java()
    producer = JavaTransactional(java, bench.bootstrap(), bench.name("writer"), settings)
    producer.begin()
    producer.send(topic, b"record")
    producer.flush()
    if silent:
        bench.broker().pause()
        producer.send(topic, b"unanswered")
    began = time.monotonic()
    producer.client.close(java.java.java.time.Duration.ofMillis(int(ASKED * 1000)))
    took = round(time.monotonic() - began, 2)
    return Observation(shown=took > TOO_LONG, facts={"asked_seconds": ASKED, "took_seconds": took})


CASE = Case(
    name="KAFKA-17734",
    title=(
        "close() of a transactional producer exceeds its timeout while the coordinator does not "
        "answer"
    ),
    kind="defect",
    claim_text=(
        "KafkaProducer.close(Duration) waits for the abort of the open transaction beyond its "
        "timeout."
    ),
    sources=("KAFKA-17734 (Apache JIRA), open",),
    expected=(Expected(shows=True),),
    schedule="1. a transaction is open; 2. SIGSTOP of the broker; 3. close(1 s)",
    reproduced=f"close returns after more than {TOO_LONG:g} s",
    control_text="the same with the broker running: close returns at once",
    refuted="close returns within its timeout in every run",
    tried=(
        "one broker suspended (SIGSTOP) while a transaction is open: close(1 s) of the Java "
        "client returns after 1.0 to 1.1 s"
    ),
    topology=ONE,
    claim=lambda bench: _closed(bench, silent=True),
    control=lambda bench: _closed(bench, silent=False),
    clients=("java",),
)
