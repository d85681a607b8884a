"""The shadow mirror on real brokers: bytes on the destination's disks compared with the source's:
batches, truncations, and open transactions, whatever happens to the mirror."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import WINDOW_BYTES
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.wire.librdkafka import answered_bounds, quiet
from tests.events import Rows
from tests.shadows import (
    SAME,
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    assert_equal,
    count,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
    shadowed,
)
from tests.waiting import eventually

pytestmark = pytest.mark.linkflap(topology="A->B")


def test_bytes_are_equal_across_a_kill_and_a_failover_aborts_what_was_open(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    writer = Writer(a, **{"compression.type": "lz4"})
    writer.write(6)
    mirror.start()
    with writer.writing():
        mirror.crash()
        assert not mirror.alive
        mirror.restart()
    other = Producer(quiet(a) | {"transactional.id": "other"})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(TOPIC, b"open", partition=0)
    other.flush(60)
    writer.write(2)
    group = Consumer(quiet(a) | {"group.id": "app", "enable.auto.commit": False})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 30)], asynchronous=False)
    group.close()
    drained(mirror)
    assert_equal(linkflap_deployment, "A", "B", same_start=True)
    assert ends(b, "stable") == ends(a, "stable") != ends(b) == ends(a)
    assert count(b, "read_uncommitted") == count(a, "read_uncommitted")
    assert count(b, "read_committed") == count(a, "read_committed") > 0
    assert own_write(b) == "POLICY_VIOLATION"
    mirror.stop()
    assert not mirror.alive
    promoted = mirror.promotion()
    assert promoted == ends(a)
    assert_equal(linkflap_deployment, "A", "B", below=promoted, same_start=True)
    assert ends(b, "stable")[TOPIC, 0] == promoted[TOPIC, 0] + 1  # one ABORT marker
    assert own_write(b) == promoted[TOPIC, 0] + 1
    admin = AdminClient(quiet(b))
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("app")])["app"].result(
        20
    )
    assert [(p.topic, p.partition, p.offset) for p in asked.topic_partitions] == [(TOPIC, 0, 30)]
    mirror.stop()  # a failover and the end of a run may both request it
    kinds = [kind for kind, _, _ in events]
    assert kinds == ["mirror-started", "mirror-crashed", "mirror-started", "mirror-stopped"]


def test_growth_and_log_start_are_followed_and_a_topic_made_again_is_refused(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment)
    writer = Writer(a)
    writer.write(4)
    admin = AdminClient(quiet(a))

    def begins_at(offset: int, *, of: str) -> None:
        eventually(
            f"log starts to be {offset} and 0",
            lambda: ends(of, "start") == {TOPIC_PARTITIONS[0]: offset, TOPIC_PARTITIONS[1]: 0},
            state=lambda: ends(of, "start"),
        )

    def delete_below(offset: int) -> None:
        tp = TopicPartition(TOPIC, 0, offset)
        admin.delete_records([tp])[tp].result(20)

    delete_below(15)  # before it mirrors
    mirror.start()
    drained(mirror)
    begins_at(15, of=b)
    delete_below(20)  # while it mirrors
    begins_at(20, of=b)
    beyond = ends(a)[TOPIC, 0] + 23
    mirror.pause()
    writer.write(4)
    delete_below(beyond)  # what was never mirrored
    begins_at(beyond, of=a)
    mirror.resume()
    begins_at(beyond, of=b)
    drained(mirror)
    assert ends(a) == ends(b)
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    eventually("the new partition of A", lambda: isinstance(own_write(a, partition=2), int))
    drained(mirror)
    assert_equal(linkflap_deployment, "A", "B", [(TOPIC, 1), (TOPIC, 2)], same_start=True)
    before = ends(b)
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    eventually(
        "the shadow to see the deletion", lambda: "deleted at the source" in mirror.log.read_text()
    )
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(20)
    eventually("the topic that was made again", lambda: isinstance(own_write(a), int))
    eventually("the shadow to notice", lambda: "made again" in mirror.log.read_text())
    assert ends(b) == before
    mirror.stop()
    assert mirror.promotion()[TOPIC, 1] == before[TOPIC, 1]


@pytest.mark.linkflap(topology="A->B:3")
@pytest.mark.nightly
def test_nothing_is_writable_in_a_stall_and_a_dead_source_and_broker_do_not_stop_a_failover(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, _ = shadowed(linkflap_deployment)
    writer = Writer(a.bootstrap)
    mirror.start()
    writer.write(20)
    mirror.pause()
    stood, tried = time.monotonic(), []
    while time.monotonic() < stood + 30:
        tried.append(own_write(b.bootstrap, timeout_ms=3000))
    assert not [offset for offset in tried if isinstance(offset, int)], tried
    mirror.resume()
    writer.write(5)
    drained(mirror)
    assert_equal(linkflap_deployment, "A", "B", same_start=True)
    a.brokers[1].kill()
    b.brokers[2].kill()
    mirror.crash()
    mirror.stop()
    promoted = mirror.promotion()
    eventually(
        "B to be led", lambda: ends(b.bootstrap) == promoted, state=lambda: ends(b.bootstrap)
    )
    assert own_write(b.bootstrap) == promoted[TOPIC, 0]
    b.brokers[2].start()
    described = AdminClient(quiet(b.bootstrap))

    def whole() -> bool:
        partitions = described.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return all(sorted(p.isrs) == [1, 2, 3] == sorted(p.replicas) for p in partitions)

    eventually("the broker that was down to be back in every ISR", whole)


def test_followers_report_the_clients_isolation(linkflap_deployment: Deployment) -> None:
    """The log end offsets that the shadow reports are a real broker's: high watermark, and last
    stable offset for read_committed."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, bound="hw")
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    writer.begin()
    drained(mirror)
    admin = AdminClient(quiet(b))
    asked = {TopicPartition(TOPIC, 0): OffsetSpec.latest()}
    seen_by = {
        isolation: (
            next(iter(admin.list_offsets(asked, isolation_level=isolation).values()))
            .result(20)
            .offset
        )
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    assert seen_by == {IsolationLevel.READ_COMMITTED: 33, IsolationLevel.READ_UNCOMMITTED: 43}


@pytest.mark.nightly
def test_hidden_from_clients_the_destination_shows_nothing_until_the_failover(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, clients="hidden", bound="lso", producer_ids="reset")
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    drained(mirror)
    found = AdminClient(quiet(b)).list_topics(timeout=60)
    assert sorted(found.brokers) == [1]
    assert {p.leader for p in found.topics[TOPIC].partitions.values()} == {-1}
    assert_equal(linkflap_deployment, "A", "B", same_start=True)
    mirror.stop()
    promoted = mirror.promotion()
    assert promoted == ends(a)
    # The reset of each partition is after the mirrored records, and readers skip it.
    assert {tp: end - promoted[tp] for tp, end in ends(b).items()} == dict.fromkeys(
        TOPIC_PARTITIONS, 1
    )
    assert count(b, "read_committed") == writer.committed


# What a shadow mirrors: every codec, small and huge batches, many partitions, logs that grow,
# and logs that begin later.


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
    eventually(f"{topic} to be filled", lambda: producer.flush(1) == 0)
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
    eventually("200 partitions to be written", lambda: producer.flush(1) == 0)
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

        eventually(f"partition {number} of A", written)
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
    eventually(
        "the broker that was down to have all partitions",
        lambda: _has(b.brokers[3], topic_partitions),
    )
    mirror.stop()
    eventually("every ISR to be whole", lambda: in_sync() == [[1, 2, 3]] * 6, state=in_sync)
    assert_equal(up, "A", "B", topic_partitions)


def _has(broker: Broker, topic_partitions: list[tuple[str, int]]) -> bool:
    return all(
        any((broker.log_dir / f"{topic}-{number}").glob("*.log"))
        for topic, number in topic_partitions
    ) and all(headers(broker, tp)["base_offset"] for tp in topic_partitions)


# Logs that follow the source's own truncation. (To the last stable offset at a failover: the cases
# RS4-truncate-once and RS4-truncate-stable.)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
@pytest.mark.parametrize("epochs", ["rewrite", "keep"])
def test_a_source_that_was_truncated_by_an_unclean_election_is_followed(
    linkflap_deployment: Deployment, epochs: str
) -> None:
    """Records that only the dead leader had are truncated on B too, and A's new records have
    another leader epoch there."""
    a, b = linkflap_deployment.clusters["A"], linkflap_deployment.clusters["B"]
    admin = AdminClient(quiet(a.bootstrap))
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=config)])[
        TOPIC
    ].result(60)
    mirror = make_mirror(
        MirrorSpec(kind="shadow", options={"leader_epochs": epochs}),
        linkflap_deployment.topology.links[0],
        linkflap_deployment,
        Rows(),
    )
    tp = (TOPIC, 0)
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5))
    mirror.start()
    drained(mirror)
    a.brokers[2].stop()
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5, 10))
    drained(mirror)
    a.brokers[1].kill()
    a.brokers[2].start()
    eventually("an unclean election on A", lambda: own_write(a.bootstrap) == 5)
    reaching = AdminClient(quiet(b.bootstrap))
    # While the shadow raises leader epochs the partition has no leader for a moment.
    eventually(
        "B to be truncated and to follow",
        lambda: answered_bounds(reaching, [tp], "high", within=5) == {tp: 6},
    )
    drained(mirror)
    there, here = headers(a.brokers[2], tp), headers(b.brokers[1], tp)
    assert [here[name] for name in SAME] == [there[name] for name in SAME]
    assert here["leader_epoch"][5] > here["leader_epoch"][4]
    if epochs == "keep":
        assert here["leader_epoch"] == there["leader_epoch"]
    mirror.stop()
    assert mirror.promotion()[tp] == 6


# Open transactions of a mirrored log, ended by WriteTxnMarkers to the brokers that lead after
# the hand-over.


def begun(bootstrap: str, name: str, partitions: range) -> Producer:
    """A transaction with one record in each of these partitions, left open."""
    producer = Producer(quiet(bootstrap) | {"transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in partitions:
        producer.produce(TOPIC, b"open", partition=number)
    producer.flush(60)
    return producer


def aborts(broker: Broker, tp: tuple[str, int], above: int) -> list[int]:
    found = headers(broker, tp, above=above)
    return [
        offset
        for offset, control in zip(found["base_offset"], found["control"], strict=True)
        if control == 0
    ]


def test_open_transactions_are_aborted_once_also_when_the_shadow_died_before_it_noted_that(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    make_topic(up, "A")
    mirror = shadow(up, "A->B", open_transactions="write-txn-markers")
    mirror.start()
    Writer(a).write(4)
    left = [begun(a, "both", range(2)), begun(a, "one", range(1))]
    drained(mirror)
    assert (
        ends(up.clusters["B"], "stable")
        == ends(up.clusters["A"], "stable")
        != ends(up.clusters["B"])
    )
    mirror.stop()
    promoted = mirror.promotion()
    assert promoted == ends(up.clusters["A"])
    assert_equal(up, "A", "B", below=promoted)
    on_disk = {tp: aborts(up.clusters["B"].brokers[1], tp, promoted[tp]) for tp in TOPIC_PARTITIONS}
    assert on_disk == {
        TOPIC_PARTITIONS[0]: [promoted[TOPIC_PARTITIONS[0]], promoted[TOPIC_PARTITIONS[0]] + 1],
        TOPIC_PARTITIONS[1]: [promoted[TOPIC_PARTITIONS[1]]],
    }
    noted = {tp: mirror.notes().partitions[tp[0]][tp[1]].appended for tp in TOPIC_PARTITIONS}
    assert {tp: [offset for offset, _ in rows] for tp, rows in noted.items()} == on_disk
    assert all(what.startswith("ABORT of producer") for rows in noted.values() for _, what in rows)
    assert ends(up.clusters["B"], "stable") == ends(up.clusters["B"])
    own = begun(b, "own", range(2))
    end = ends(up.clusters["B"])
    # As if it had been killed between the last marker and its journal entry.
    folder = mirror.log.parent
    journal = Journal(folder)
    journal.notes.phase = "handing-over"
    for number in range(2):
        journal.partition(TOPIC, number).appended = []
    journal.save()
    mirror.stop()
    assert {
        tp: mirror.notes().partitions[tp[0]][tp[1]].appended for tp in TOPIC_PARTITIONS
    } == noted
    assert ends(up.clusters["B"]) == end
    own.commit_transaction(60)  # none of them was taken for one of the source's
    # markers are written after the commit was acknowledged
    after = {tp: offset + 1 for tp, offset in end.items()}
    eventually("own to have its markers", lambda: ends(up.clusters["B"], "stable") == after)
    assert own_write(b) == end[TOPIC_PARTITIONS[0]] + 1
    assert mirror.notes().phase == "handed-over"
    del left
