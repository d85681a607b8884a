"""KAFKA-19012 (CVE-2026-35554): the Java producer reuses the buffer of a batch that it is still
sending.

The race as a schedule: the link to the broker is down while batches are made, so that they expire
before their request times out. Then it is so slow that they expire while they are being sent. Their
buffers are reused for batches to another topic on another broker.
"""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools.clients import ClientFailed
from linkflap.chaos.cases.tools.java import RawJavaProducer
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.model.wait import pause

PARTITIONS = 6
BATCH = 200_000
DOWN, EXPIRES, RATE = 10.0, 20_000, 60
"""Seconds without a link; milliseconds until a batch expires; KB a second: a third of the request
is unsent when it expires."""


@case("KAFKA-19012", nodes(2), claim={"expire": True}, control={"expire": False})
def kafka_19012(bench: Bench, *, expire: bool) -> Observation:
    """The race as a schedule: the link to the broker is down while batches are made, so that they
    expire before their request times out. Then it is so slow that they expire while they are being
    sent. Their buffers are reused for batches to another topic on another broker."""
    slow = bench.topic("slow", partitions=PARTITIONS, replicas=[1])
    other = bench.topic("other", partitions=PARTITIONS, replicas=[2])
    link = bench.deployment.links["*->A"]
    timeout = EXPIRES if expire else 6 * EXPIRES
    settings = {
        "batch.size": BATCH,
        "buffer.memory": PARTITIONS * BATCH,
        "max.request.size": 4 * PARTITIONS * BATCH,
        "delivery.timeout.ms": timeout,
        "request.timeout.ms": timeout,
        "max.block.ms": 120_000,
        "send.buffer.bytes": 16_384,
        # otherwise clients since 4.0 forget their brokers while the link is down (KIP-899)
        "metadata.recovery.strategy": "none",
    }
    producer = RawJavaProducer(bench.java(), link.bootstrap, settings)
    bench.closing(producer)
    for topic in (slow, other):
        producer.client.partitionsFor(topic)
    link.cut(owner="down")
    try:
        for partition in range(PARTITIONS):
            producer.send(slow, b"slow".ljust(BATCH - 1000, b"-"), partition)
        pause(DOWN, lambda: False)
        link.add_toxic("bandwidth", "requests", {"rate": RATE}, owner="slow")
        link.restore(owner="down")
        # waits for a buffer: until the first batches expire, or are sent
        for partition in range(PARTITIONS):
            producer.send(other, b"other".ljust(BATCH - 1000, b"-"), partition)
        try:
            producer.flush()
            failed = "none"
        except ClientFailed as error:
            failed = error.name
    finally:
        link.clear()
        link.restore()
    found = {
        n: [_word(record.value) for record in records(bench.log(slow, n, broker=1))]
        for n in range(PARTITIONS)
    }
    wrong = sorted(n for n, words in found.items() if "other" in words)
    facts = {
        "partitions_of_slow": {str(n): words for n, words in found.items()},
        "in_the_wrong_topic": wrong,
        "producer": failed,
    }
    return Observation(shown=bool(wrong), facts=facts)


def _word(value: bytes | None) -> str:
    return (value or b"").rstrip(b"-").decode(errors="replace")
