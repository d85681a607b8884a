"""KAFKA-17734: KafkaProducer.close(timeout) takes longer than its timeout."""

from __future__ import annotations

import time

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import JavaTransactional

ASKED, TOO_LONG = 1.0, 4.0


@case("KAFKA-17734", ONE, claim={"silent": True}, control={"silent": False})
def kafka_17734(bench: Bench, *, silent: bool) -> Observation:
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
