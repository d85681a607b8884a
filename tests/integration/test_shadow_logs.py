"""What a shadow mirrors: every codec, small and huge batches, many partitions, logs that grow, and
logs that begin later."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from linkflap.harness.mirrors.shadow.partition import WINDOW_BYTES
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.shadows import (
    TOPIC,
    Writer,
    assert_equal,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
)

pytestmark = pytest.mark.linkflap(topology="A->B")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCHES = (16_384, 1_048_576)


def fill(
    bootstrap: str,
    topic: str,
    *,
    codec: str,
    batch: int,
    size: int = 1000,
    count: int = 3000,
    **settings: object,
) -> None:
    """Writes compressible records, round robin over two partitions."""
    answers: list[object] = []
    wanted = {
        "compression.type": codec,
        "batch.size": batch,
        "linger.ms": 200,
        "message.max.bytes": 12_000_000,
    }
    producer = Producer(quiet(bootstrap) | wanted | settings)
    for number in range(count):
        producer.produce(
            topic,
            (b"%08d" % number) * (size // 8),
            partition=number % 2,
            on_delivery=lambda e, _: answers.append(e),
        )
    until(lambda: producer.flush(1) == 0, within=120, what=f"{topic} to be filled")
    assert answers == [None] * count


def test_every_codec_and_batches_of_16_kb_1_mb_and_more_than_a_window(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a = up.clusters["A"].bootstrap
    topics = {f"A.{codec}-{batch}": (codec, batch) for codec in CODECS for batch in BATCHES}
    for topic in (*topics, "A.huge"):
        make_topic(up, "A", topic, max_message_bytes=12_000_000)
    mirror = shadow(up, "A->B")
    mirror.start()
    for topic, (codec, batch) in topics.items():
        fill(a, topic, codec=codec, batch=batch)
    fill(a, "A.huge", codec="none", batch=BATCHES[1], size=2 * WINDOW_BYTES, count=4)
    topic_partitions = [(topic, number) for topic in (*topics, "A.huge") for number in (0, 1)]
    drained(mirror)
    assert_equal(up, "A", "B", topic_partitions)
    here = up.clusters["B"].brokers[1]
    for topic, (codec, _) in topics.items():
        assert {bits & 7 for bits in headers(here, (topic, 0))["attributes"]} == {CODECS[codec]}, (
            topic
        )
    longest = {batch: max(headers(here, (f"A.none-{batch}", 0))["length"]) for batch in BATCHES}
    assert longest[BATCHES[0]] < 20_000 < 500_000 < longest[BATCHES[1]]
    assert min(headers(here, ("A.huge", 0))["length"]) > WINDOW_BYTES
    mirror.stop()
    assert {tp: mirror.promotion()[tp] for tp in topic_partitions} == ends(
        up.clusters["A"], partitions=topic_partitions
    )


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B:3")
def test_two_hundred_partitions_of_several_topics(linkflap_deployment: Deployment) -> None:
    up = linkflap_deployment
    topics = {f"A.wide{n}": 50 for n in range(4)}
    for topic, partitions in topics.items():
        make_topic(up, "A", topic, partitions)
    topic_partitions = [
        (topic, number) for topic, count in topics.items() for number in range(count)
    ]
    mirror = shadow(up, "A->B")
    mirror.start()
    producer = Producer(quiet(up.clusters["A"].bootstrap) | {"linger.ms": 5})
    for turn in range(20):
        for topic, number in topic_partitions:
            producer.produce(topic, b"%d" % turn * 50, partition=number)
        if turn == 10:
            mirror.crash()
            mirror.restart()
    until(lambda: producer.flush(1) == 0, within=60, what="200 partitions to be written")
    drained(mirror)
    assert ends(up.clusters["B"], partitions=topic_partitions) == dict.fromkeys(
        topic_partitions, 20
    )
    mirror.stop()
    assert_equal(up, "A", "B", topic_partitions)
    assert own_write(up.clusters["B"].bootstrap, "A.wide3", 49) == 20


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B:3")
def test_partitions_that_a_adds_while_a_broker_of_b_is_down(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = up.clusters["A"], up.clusters["B"]
    make_topic(up, "A")
    mirror = shadow(up, "A->B")
    mirror.start()
    b.brokers[3].stop()
    admin = AdminClient(quiet(a.bootstrap))
    admin.create_partitions([NewPartitions(TOPIC, 6)])[TOPIC].result(30)
    for number in range(6):

        def written(n: int = number) -> bool:
            return isinstance(own_write(a.bootstrap, TOPIC, n), int)

        until(written, within=120, what=f"partition {number} of A")
    drained(mirror)
    topic_partitions = [(TOPIC, number) for number in range(6)]
    assert_equal(up, "A", "B", topic_partitions)
    asked = AdminClient(quiet(b.bootstrap))

    def in_sync() -> list[list[int]]:
        return [
            sorted(p.isrs)
            for p in asked.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        ]

    assert in_sync() == [[1000]] * 6
    b.brokers[3].start()
    drained(mirror)
    until(
        lambda: _has(b.brokers[3], topic_partitions),
        within=60,
        every=0.2,
        what="the broker that was down to have all partitions",
    )
    mirror.stop()
    until(
        lambda: in_sync() == [[1, 2, 3]] * 6,
        within=60,
        every=0.2,
        what="every ISR to be whole",
        state=in_sync,
    )
    assert_equal(up, "A", "B", topic_partitions)


def _has(broker: Broker, topic_partitions: list[tuple[str, int]]) -> bool:
    return all(
        any((broker.log_dir / f"{topic}-{number}").glob("*.log"))
        for topic, number in topic_partitions
    ) and all(headers(broker, tp)["base_offset"] for tp in topic_partitions)


def test_the_log_start_of_the_source_is_followed_while_mirroring_also_past_what_was_mirrored(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    make_topic(up, "A")
    writer = Writer(up.clusters["A"].bootstrap)
    mirror = shadow(up, "A->B")
    mirror.start()
    writer.write(6)
    drained(mirror)

    admin = AdminClient(quiet(up.clusters["A"].bootstrap))

    def begins_at(offset: int, *, of: str = "B") -> None:
        tp = TopicPartition(TOPIC, 0, offset)
        admin.delete_records([tp])[tp].result(20)
        wanted = {(TOPIC, 0): offset}
        until(
            lambda: ends(up.clusters[of], "start", [(TOPIC, 0)]) == wanted,
            within=120,
            every=0.1,
            what=f"{of} to begin at {offset}",
        )

    begins_at(20)
    end = ends(up.clusters["A"])[TOPIC, 0]
    mirror.pause()
    writer.write(6)
    begins_at(end + 33, of="A")
    mirror.resume()
    begins_at(end + 33)
    drained(mirror)
    assert ends(up.clusters["A"]) == ends(up.clusters["B"])
    assert_equal(up, "A", "B", [(TOPIC, 1)])
    mirror.stop()
    assert mirror.promotion() == ends(up.clusters["A"])
