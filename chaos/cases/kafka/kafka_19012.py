"""KAFKA-19012 (CVE-2026-35554): the Java producer reuses the buffer of a batch that it is still
sending.

The race as a schedule: the link to the broker is down while batches are made, so that they expire
before their request times out. Then it is so slow that they expire while they are being sent. Their
buffers are reused for batches to another topic on another broker.
"""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
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


def _sent(bench: Bench, *, expire: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-19012",
    title=(
        "The Java producer writes a record to another topic than the one it was sent to "
        "(CVE-2026-35554)"
    ),
    kind="defect",
    claim_text=(
        "When a batch expires while its request is being sent, the producer frees its buffer. "
        "The next batch, for another topic, is written into that buffer. The rest of the first "
        "request carries it, including its checksum, to the first topic."
    ),
    sources=(
        (
            "KAFKA-19012 (Apache JIRA), CVE-2026-35554: Java client 2.8 to 3.9.1, 4.0.0 to 4.0.1, "
            "4.1.0 to 4.1.1"
        ),
    ),
    expected=(
        Expected(shows=True, until="3.9.1"),
        Expected(shows=False, since="3.9.2", until="3.9.9"),
        Expected(shows=True, since="4.0.0", until="4.0.1"),
        Expected(shows=False, since="4.0.2", until="4.0.9"),
        Expected(shows=True, since="4.1.0", until="4.1.1"),
        Expected(shows=False, since="4.1.2"),
    ),
    schedule=(
        f"1. the link is down; 2. six batches for one topic; 3. after {DOWN:g} s the link is back "
        f"at {RATE} KB/s; 4. the batches expire in the middle of their request; 5. six batches for "
        "a topic on another broker take their buffers"
    ),
    reproduced="a partition of the first topic has a record that was sent to the second",
    control_text=(
        "the same with a delivery timeout that does not expire: every record is in its own topic"
    ),
    refuted="no record in another topic, in any run",
    topology=nodes(2),
    claim=partial(_sent, expire=True),
    control=partial(_sent, expire=False),
    runs=3,
    clients=("java",),
)
