"""The shadow mirror on real brokers: bytes on the destination's disks compared with the source's,
whatever happens to the mirror."""

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

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.shadows import (
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    assert_equal,
    count,
    drained,
    ends,
    headers,
    own_write,
    shadowed,
)

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
    admin.delete_records([TopicPartition(TOPIC, 0, 15)])[TopicPartition(TOPIC, 0, 15)].result(20)
    mirror.start()
    drained(mirror)
    until(
        lambda: ends(b, "start") == {TOPIC_PARTITIONS[0]: 15, TOPIC_PARTITIONS[1]: 0},
        within=120,
        what="B's log start",
        state=lambda: ends(b, "start"),
    )
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    until(
        lambda: isinstance(own_write(a, partition=2), int),
        within=120,
        what="the new partition of A",
    )
    drained(mirror)
    assert_equal(linkflap_deployment, "A", "B", [(TOPIC, 1), (TOPIC, 2)], same_start=True)
    before = ends(b)
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    until(
        lambda: "deleted at the source" in mirror.log.read_text(),
        within=120,
        what="the shadow to see the deletion",
    )
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(20)
    until(lambda: isinstance(own_write(a), int), within=120, what="the topic that was made again")
    until(lambda: "made again" in mirror.log.read_text(), within=120, what="the shadow to notice")
    assert ends(b) == before
    mirror.stop()
    assert mirror.promotion()[TOPIC, 1] == before[TOPIC, 1]


def test_a_topic_that_is_on_the_destination_already_is_refused(
    linkflap_deployment: Deployment,
) -> None:
    mirror, _ = shadowed(linkflap_deployment)
    admin = AdminClient(quiet(linkflap_deployment.clusters["B"].bootstrap))
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    with pytest.raises(
        InputError,
        match=f"topic {TOPIC} exists on the destination of A->B already; remove it there",
    ):
        mirror.start()


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
        tried.append(own_write(b.bootstrap, **{"message.timeout.ms": 3000}))
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
    until(
        lambda: ends(b.bootstrap) == promoted,
        within=120,
        what="B to be led",
        state=lambda: ends(b.bootstrap),
    )
    assert own_write(b.bootstrap) == promoted[TOPIC, 0]
    b.brokers[2].start()
    described = AdminClient(quiet(b.bootstrap))

    def whole() -> bool:
        partitions = described.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        return all(sorted(p.isrs) == [1, 2, 3] == sorted(p.replicas) for p in partitions)

    until(whole, within=60, every=0.2, what="the broker that was down to be back in every ISR")


@pytest.mark.nightly
@pytest.mark.parametrize("ids", ["negate", "region", "complement", "keep"])
def test_what_is_done_to_producer_ids_decides_what_brokers_track(
    linkflap_deployment: Deployment, ids: str
) -> None:
    """A negative producer id is no id to a broker: an open transaction does not hold back the last
    stable offset."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, producer_ids=ids)
    writer = Writer(a)
    mirror.start()
    writer.write(3)
    writer.begin()
    drained(mirror)
    blind = ids in ("negate", "region")
    assert (ends(b, "stable") == ends(b)) == blind
    assert (count(b, "read_committed") > writer.committed) == blind
    assert_equal(
        linkflap_deployment,
        "A",
        "B",
        names=("base_offset", "last_offset", "length", "control"),
        same_start=True,
    )
    here = headers(linkflap_deployment.clusters["B"].brokers[1], TOPIC_PARTITIONS[0])["producer_id"]
    assert all(producer_id < 0 for producer_id in here) == blind


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
