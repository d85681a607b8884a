"""Idempotent producers whose state or buffers brokers and clients lose, and a producer that closes
too late."""

from __future__ import annotations

import time

from linkflap.chaos.cases.bench import ONE, Bench, nodes, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import ClientFailed, JavaTransactional, RawJavaProducer
from linkflap.chaos.cases.wire import Wire, record_batch
from linkflap.harness.model.wait import pause
from linkflap.harness.wire import messages

SETTING = "producer.id.expiration.ms"


def _known(asked: Wire, topic: str) -> int:
    """The number of producers that the partition's leader knows (DescribeProducers, KIP-664)."""
    m = messages.request("describe_producers", 0)
    body = m.DescribeProducersRequest(topics=(m.TopicRequest(name=topic, partition_indexes=(0,)),))
    (answer,) = asked.call("describe_producers", 0, body).topics
    return len(answer.partitions[0].active_producers)


def _expire(bench: Bench, asked: Wire, topic: str, *, expire: bool) -> None:
    if expire:
        bench.setting(SETTING, "1")
        wait_for("the broker to forget the producer", lambda: _known(asked, topic) == 0, every=0.1)


@case("expired-producer-repeats", ONE, claim={"expire": True}, control={"expire": False})
def expired_producer_repeats(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch([b"once"] * 2, producer=asked.init_producer_id(), sequence=0)
    first = asked.produce((topic, 0), batch)
    _expire(bench, asked, topic, expire=expire)
    second = asked.produce((topic, 0), batch)
    high = bench.bound("high", topic)
    return Observation(
        shown=second[0] == "none" and high == 4,
        facts={"first": first, "retry": second, "high_watermark": high},
    )


@case("expired-producer-gap", ONE, claim={"expire": True}, control={"expire": False})
def expired_producer_gap(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = asked.produce((topic, 0), record_batch([b"first"], producer=producer, sequence=0))
    _expire(bench, asked, topic, expire=expire)
    later = asked.produce((topic, 0), record_batch([b"later"], producer=producer, sequence=9))
    return Observation(shown=later[0] == "none", facts={"sequence 0": first, "sequence 9": later})


@case("KAFKA-15591", ONE, claim={"swapped": True}, control={"swapped": False})
def kafka_15591(bench: Bench, *, swapped: bool) -> Observation:
    """Two batches in flight. When the first is refused because the broker does not know the
    partition yet, the second arrives first."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = record_batch([b"first"] * 3, producer=producer, sequence=0)
    second = record_batch([b"second"] * 3, producer=producer, sequence=3)
    order = (
        [("second", second), ("first", first)]
        if swapped
        else [("first", first), ("second", second)]
    )
    answers = {name: asked.produce((topic, 0), batch) for name, batch in order}
    read = bench.texts(topic, "read_uncommitted")
    facts = {"answers": answers, "records": read}
    return Observation(shown=answers["second"][0] == "none" and "first" not in read, facts=facts)


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
    found = {n: [value.rstrip("-") for value in bench.logged(slow, n)] for n in range(PARTITIONS)}
    wrong = sorted(n for n, words in found.items() if "other" in words)
    facts = {
        "partitions_of_slow": {str(n): words for n, words in found.items()},
        "in_the_wrong_topic": wrong,
        "producer": failed,
    }
    return Observation(shown=bool(wrong), facts=facts)
